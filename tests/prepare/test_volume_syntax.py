import os

import pytest

from pgherd.model.deployment import Volume
from pgherd.model.errors import UsageError
from pgherd.prepare.volumes import parse_volume


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/mnt/a", Volume(name="disk0", path="/mnt/a")),
        ("wal=/mnt/a b/", Volume(name="wal", path="/mnt/a b")),
        ("loop:2GB", Volume(name="disk0", kind="loop", size=2 * 2**30)),
        ("l=loop:64MB@/mnt/a", Volume(name="l", kind="loop", size=2**26, path="/mnt/a")),
        ("device:/dev/sdb", Volume(name="disk0", kind="device", path="/dev/sdb")),
        ("nvme=device:/dev/disk/by-id/x", Volume(name="nvme", kind="device", path="/dev/disk/by-id/x")),
        ("here", Volume(name="disk0", path=os.path.abspath("here"))),
        ("UPPER=x", Volume(name="disk0", path=os.path.abspath("UPPER=x"))),
    ],
)
def test_what_is_a_volume(text, expected):
    assert parse_volume(text, "disk0") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loop:much", "--volume loop:much: 'much' is no size; write loop:SIZE"),
        ("loop:1MB", "at least 64 MB, but 1MB is less"),
        ("device:sdb", "'sdb' is no block device; write device:/dev/NAME"),
        ("", "names no directory"),
    ],
)
def test_what_is_none(text, message):
    with pytest.raises(UsageError, match=message):
        parse_volume(text, "disk0")
