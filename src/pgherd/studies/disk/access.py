"""What is measured of a volume, after E12: random I/O of a database's block size, sequential I/O, one I/O at a time, a mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BLOCK = 8192
"""PostgreSQL's block, bytes."""
LARGE = 2**20
"""Bytes of one sequential I/O."""

MIX = "mix"


@dataclass(frozen=True)
class Access:
    """One access pattern: fio's ``rw``, the bytes of one I/O, and what its figure is: I/Os per second ('iops'), bytes per
    second ('bandwidth') or the latency of a single I/O ('latency'). ``deep``: many I/Os are in flight at once."""

    name: str
    label: str
    rw: str
    bytes: int
    figure: Literal["iops", "bandwidth", "latency"]
    writes: bool
    deep: bool = True
    random: bool = True


TESTS: Mapping[str, Access] = {
    test.name: test
    for test in (
        Access("random-read", "8 kB random read", "randread", BLOCK, "iops", writes=False),
        Access("random-write", "8 kB random write", "randwrite", BLOCK, "iops", writes=True),
        Access("sequential-read", "1 MB sequential read", "read", LARGE, "bandwidth", writes=False, random=False),
        Access("sequential-write", "1 MB sequential write", "write", LARGE, "bandwidth", writes=True, random=False),
        Access("single-read", "one 8 kB read at a time", "randread", BLOCK, "latency", writes=False, deep=False),
        Access("single-write", "one 8 kB write at a time", "randwrite", BLOCK, "latency", writes=True, deep=False),
        Access(MIX, "8 kB random reads and writes at fixed rates", "randrw", BLOCK, "iops", writes=True),
    )
}
"""Name → test; the mix is run only where rates are given."""

DEFAULT = tuple(name for name in TESTS if name != MIX)
