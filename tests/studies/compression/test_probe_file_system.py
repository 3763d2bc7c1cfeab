import pytest

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.studies.compression import probe_file_system
from pgherd.studies.compression.probe_file_system import parse_compsize

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
    monkeypatch.setattr(probe_file_system, "kind_of", lambda node, directory: "xfs")
    with pytest.raises(CapabilityError, match="xfs does not compress.*btrfs and zfs do"):
        probe_file_system.check(LocalNode(), str(tmp_path))


def test_a_directory_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        probe_file_system.check(LocalNode(), str(tmp_path / "gone"))
