import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.runner.progress import RunObserver
from pgherd.studies.compression import probe
from pgherd.studies.compression.analyse import segments_by_relation
from pgherd.studies.compression.options import CompressionOptions, DataKind
from pgherd.studies.compression.probe import (
    OTHERS,
    SegmentReader,
    SegmentSource,
    choose_segments,
    merge_small_sources,
    parse_compsize,
    sources_of_directory,
)
from pgherd.studies.compression.study import STUDY


def trials(directory):
    source = DataKind(name="directory", directory=str(directory))
    return STUDY.propose(CompressionOptions(data=(source,), codecs=("lz4",), block_sizes=(8192, 32768)), []).trials


@pytest.fixture
def session(tmp_path):
    return SimpleNamespace(node=LocalNode(), account=None, work=tmp_path)


def test_a_directory_is_read_and_compressed_block_by_block(session, tmp_path):
    (tmp_path / "text").write_bytes(b"all work and no play\n" * 100_000)
    plain, encrypted = (segments_by_relation(probe.measure(session, {}, trial, RunObserver())) for trial in trials(tmp_path))
    one = plain["files at the top"]
    assert one.size == 2_100_000 and one.segments == 3 and sum(one.raw.values()) == one.size
    assert sum(one.compressed["lz4", 32768].values()) < one.size / 20 < one.size
    assert sum(one.compressed["lz4", 8192].values()) > sum(one.compressed["lz4", 32768].values())
    assert all(size % 4096 == 0 for size in one.stored["lz4", 8192].values())
    same = encrypted["files at the top"]
    assert same.raw == one.raw and sum(same.compressed["lz4", 8192].values()) == one.size, "the same segments, and nothing to gain"


def test_an_empty_directory_fails_the_trial(session, tmp_path):
    with pytest.raises(TrialError, match="holds no file"):
        probe.measure(session, {}, trials(tmp_path)[0], RunObserver())


def test_a_database_that_may_not_be_read_says_what_to_grant(monkeypatch):
    closed = SimpleNamespace(all=[object()], readable=False)
    monkeypatch.setattr(probe, "Relations", lambda query: closed)
    with pytest.raises(TrialError, match="GRANT EXECUTE ON FUNCTION pg_read_binary_file"):
        probe._sources_of_database(None, "host=h")
    closed.all = []
    with pytest.raises(TrialError, match="holds no table"):
        probe._sources_of_database(None, "host=h")


# compsize 1.5 on btrfs mounted with compress=zstd.
TOLD = """Processed 1 file, 8 regular extents (8 refs), 0 inline.
Type       Perc     Disk Usage   Uncompressed Referenced
TOTAL        3%      32768      1048576      1048576
zstd         3%      32768      1048576      1048576
"""


def test_compsize_tells_what_lies_on_disk():
    assert parse_compsize(TOLD) == 32768


def test_what_compsize_does_not_say_is_an_error():
    with pytest.raises(TrialError, match="not btrfs"):
        parse_compsize("", "x: not btrfs (or SELinux denied?)")


def test_a_file_system_that_does_not_compress_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "file_system_type", lambda node, directory: "xfs")
    with pytest.raises(CapabilityError, match="xfs does not compress.*btrfs and zfs do"):
        probe.require_compressing(LocalNode(), str(tmp_path))


def test_a_directory_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        probe.require_compressing(LocalNode(), str(tmp_path / "gone"))


TEXT = b"".join(b"%d: a line that hardly ever changes\n" % number for number in range(20000))


@pytest.mark.parametrize("name", ["lz4", "zstd-1", "zstd-19"])
def test_text_shrinks_and_noise_is_stored_as_it_is(name):
    pack = probe.codec(name)
    assert pack(TEXT[:32768]) < 32768 / 3
    assert pack(probe.encrypt(TEXT)[:8192]) == 8192


@pytest.mark.parametrize("name", ["lz5", "zstd-0", "zstd-23", "zstd", "", "zstd--3"])
def test_an_unknown_codec_is_said(name):
    with pytest.raises(UsageError, match="use lz4 or zstd-LEVEL"):
        probe.codec(name)


@pytest.mark.parametrize(("name", "words"), [("lz4", ("lz4", "-b1")), ("zstd-3", ("zstd", "-b3"))])
def test_ratios_are_those_of_the_tools_own_benchmark(name, words, tmp_path):
    """`zstd -b` and `lz4 -b` compress a file in independent blocks, too, and print the ratio."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    file = tmp_path / "text"
    file.write_bytes(TEXT)
    told = subprocess.run([*words, "-i0", "-B32768", str(file)], capture_output=True, text=True)
    found = re.search(r"->\s*(\d+) \(", told.stdout + told.stderr)
    if not found:
        pytest.skip(f"this {words[0]} prints its benchmark in another form")
    exact, _ = probe.compressed_sizes(probe.codec(name), TEXT, 32768, 4096)
    assert exact == pytest.approx(int(found[1]), rel=0.02), "headers of a few bytes a block aside"


def test_sectors_take_what_blocks_gain():
    pack = probe.codec("lz4")
    exact, stored = probe.compressed_sizes(pack, TEXT[:65536], 4096, 4096)
    assert exact < 65536 / 2 and stored == 65536
    _, larger = probe.compressed_sizes(pack, TEXT[:65536], 65536, 4096)
    assert larger % 4096 == 0 and larger < 65536


def test_encrypted_data_is_as_long_and_never_the_same():
    assert len(probe.encrypt(TEXT[:10001])) == 10001
    assert probe.encrypt(TEXT) != probe.encrypt(TEXT) != TEXT
    assert probe.encrypt(b"\0" * 16384)[:8192] != probe.encrypt(b"\0" * 16384)[8192:], "each page has a nonce of its own"


MB = 2**20


def part(name, *sizes):
    return SegmentSource(name, tuple(SegmentReader(size, lambda offset, length: b"x" * length) for size in sizes))


@given(st.lists(st.integers(1, 40 * MB), min_size=1, max_size=30), st.integers(4, 100), st.integers(0, 9))
def test_all_parts_are_sampled_and_none_beyond_its_end(sizes, samples, seed):
    parts = merge_small_sources([part(str(number), size) for number, size in enumerate(sizes)])
    assert sum(one.size for one in parts) == sum(sizes) and len(parts) <= 12
    for one in parts:
        numbers = choose_segments(parts, samples, seed)[one.name]
        assert len(numbers) == len(set(numbers)) >= min(4, one.segments)
        assert all(0 <= number < one.segments for number in numbers)
    assert choose_segments(parts, samples, seed) == choose_segments(parts, samples, seed)


def test_segments_are_read_where_they_are():
    read = []

    def reader(name):
        return lambda offset, length: read.append((name, offset, length)) or b"x" * length

    one = SegmentSource("a", (SegmentReader(2 * MB + 5, reader("first")), SegmentReader(10, reader("second"))))
    assert one.segments == 4
    assert [(number, len(data)) for number, data in one.read([0, 2, 3])] == [(0, MB), (2, 5), (3, 10)]
    assert read == [("first", 0, MB), ("first", 2 * MB, 5), ("second", 0, 10)]


def test_what_is_gone_meanwhile_is_left_out():
    assert list(SegmentSource("a", (SegmentReader(10, lambda offset, length: b""),)).read([0])) == []


def test_small_parts_are_taken_together():
    found = merge_small_sources([part(str(number), number + 1) for number in range(20)])
    assert len(found) == 12 and found[-1].name == OTHERS and found[0].size == 20


def test_a_directory_is_read_below_its_top_without_links(tmp_path):
    (tmp_path / "a/deep").mkdir(parents=True)
    (tmp_path / "a/deep/one").write_bytes(b"1" * 100)
    (tmp_path / "a/two").write_bytes(b"2" * 50)
    (tmp_path / "top").write_bytes(b"3" * 10)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "top")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {one.name: one for one in sources_of_directory(str(tmp_path))}
    assert {name: one.size for name, one in found.items()} == {"a/": 150, "files at the top": 10}
    assert sorted(data for _, data in found["a/"].read([0, 1])) == [b"1" * 100, b"2" * 50]


def test_a_directory_that_holds_nothing_is_said(tmp_path):
    with pytest.raises(TrialError, match="holds no file"):
        sources_of_directory(str(tmp_path))
    with pytest.raises(TrialError, match="cannot be read"):
        sources_of_directory(str(tmp_path / "gone"))


def test_a_file_that_is_exchanged_after_the_listing_is_not_read(tmp_path):
    """A pipe would hold up the reader for ever, and a link would lead it elsewhere."""
    (tmp_path / "d").mkdir()
    for name in ("pipe", "link"):
        (tmp_path / "d" / name).write_bytes(b"1" * 100)
    (source,) = sources_of_directory(str(tmp_path / "d"))
    assert len(list(source.read([0, 1]))) == 2
    (tmp_path / "secret").write_bytes(b"2" * 100)
    for name in ("pipe", "link"):
        (tmp_path / "d" / name).unlink()
    os.mkfifo(tmp_path / "d/pipe")
    (tmp_path / "d/link").symlink_to(tmp_path / "secret")
    assert list(source.read([0, 1])) == []
