"""`--iops` with a real server: its own reads keep to the limit."""

from __future__ import annotations

import pytest

from pgherd.host import cgroup_parent
from pgherd.node.local import LocalNode


def test_a_database_reads_at_most_at_its_limit(pgherd) -> None:
    """A database of 300 MB in a container of 96 MB reads from the device. Each of its two servers has its own limit."""
    try:
        if not cgroup_parent.find(LocalNode()).limits_io:
            pytest.skip("no io or blkio controller")
    except cgroup_parent.CgroupUnavailable as error:
        pytest.skip(str(error))
    options = ("--iops", "100", "--repeats", "1", "--duration", "4s", "--time-budget", "15s", "--yes")
    size = ("--scale", "20", "--memory", "96MB", "--set", "shared_buffers=8MB", "--vcpus", "0.5", "--bound-by", "io")
    ended = pgherd("density", "--databases", "1,2", *size, *options)
    if "file system without a block device" in ended.err:
        pytest.skip(ended.err)
    assert ended.code in (0, 1), ended
    for trial in pgherd.trials():
        many = trial["trial"]["point"]["databases"]
        assert len(trial["phases"][0]["targets"]) == many
        for target in trial["phases"][0]["targets"]:
            container = target["target"].split("/")[1]
            read = trial["phases"][0]["metrics"][f"server:{container}/pg"]["db.blks_read"]
            # The page cache serves some of the reads, and the kernel merges neighbouring ones.
            assert 10 < read < 1000, "an unlimited server reads thousands per second here"
