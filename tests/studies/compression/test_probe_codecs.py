import re
import shutil
import subprocess

import pytest

from pgherd.model.errors import UsageError
from pgherd.studies.compression import probe_codecs

TEXT = b"".join(b"%d: a line that hardly ever changes\n" % number for number in range(20000))


@pytest.mark.parametrize("name", ["lz4", "zstd-1", "zstd-19"])
def test_text_shrinks_and_noise_is_stored_as_it_is(name):
    pack = probe_codecs.codec(name)
    assert pack(TEXT[:32768]) < 32768 / 3
    assert pack(probe_codecs.encrypt(TEXT)[:8192]) == 8192


@pytest.mark.parametrize("name", ["lz5", "zstd-0", "zstd-23", "zstd", "", "zstd--3"])
def test_an_unknown_codec_is_said(name):
    with pytest.raises(UsageError, match="use lz4 or zstd-LEVEL"):
        probe_codecs.codec(name)


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
    exact, _ = probe_codecs.compressed_sizes(probe_codecs.codec(name), TEXT, 32768, 4096)
    assert exact == pytest.approx(int(found[1]), rel=0.02), "headers of a few bytes a block aside"


def test_sectors_take_what_blocks_gain():
    pack = probe_codecs.codec("lz4")
    exact, stored = probe_codecs.compressed_sizes(pack, TEXT[:65536], 4096, 4096)
    assert exact < 65536 / 2 and stored == 65536
    _, larger = probe_codecs.compressed_sizes(pack, TEXT[:65536], 65536, 4096)
    assert larger % 4096 == 0 and larger < 65536


def test_encrypted_data_is_as_long_and_never_the_same():
    assert len(probe_codecs.encrypt(TEXT[:10001])) == 10001
    assert probe_codecs.encrypt(TEXT) != probe_codecs.encrypt(TEXT) != TEXT
    assert probe_codecs.encrypt(b"\0" * 16384)[:8192] != probe_codecs.encrypt(b"\0" * 16384)[8192:], "each page has a nonce of its own"
