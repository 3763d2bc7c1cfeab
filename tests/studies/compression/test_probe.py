from types import SimpleNamespace

import pytest

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.runner.observer import RunObserver
from pgherd.studies.compression import probe
from pgherd.studies.compression.analyse import segments_by_relation
from pgherd.studies.compression.options import CompressionOptions, DataKind
from pgherd.studies.compression.probe import parse_compsize
from pgherd.studies.compression.study import STUDY


def trials(directory):
    source = DataKind(name="directory", directory=str(directory))
    return STUDY.propose(CompressionOptions(sources=(source,), codecs=("lz4",), blocks=(8192, 32768)), []).trials


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
