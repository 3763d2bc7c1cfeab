"""Access patterns that the disk study measures, and the figures that E12 published for them.

The patterns are random I/O in PostgreSQL's page size, sequential I/O, one I/O at a time, and a mix of reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

_PAGE_BYTES = 8192
"""PostgreSQL's page size."""
_SEQUENTIAL_BYTES = 2**20
"""Size of one sequential I/O."""

MIX = "mix"


@dataclass(frozen=True)
class AccessPattern:
    """Access pattern of a test: fio's ``rw`` and the bytes of one I/O.

    ``quantity`` is the result of the test: I/Os per second ('iops'), bytes per second ('bandwidth') or the latency of a single I/O
    ('latency'). ``deep``: many I/Os are in flight at the same time.
    """

    name: str
    label: str
    rw: str
    bytes: int
    quantity: Literal["iops", "bandwidth", "latency"]
    writes: bool
    deep: bool = True
    random: bool = True


TESTS: Mapping[str, AccessPattern] = {
    test.name: test
    for test in (
        AccessPattern("random-read", "8 kB random read", "randread", _PAGE_BYTES, "iops", writes=False),
        AccessPattern("random-write", "8 kB random write", "randwrite", _PAGE_BYTES, "iops", writes=True),
        AccessPattern("sequential-read", "1 MB sequential read", "read", _SEQUENTIAL_BYTES, "bandwidth", writes=False, random=False),
        AccessPattern("sequential-write", "1 MB sequential write", "write", _SEQUENTIAL_BYTES, "bandwidth", writes=True, random=False),
        AccessPattern("qd1-read", "one 8 kB read at a time", "randread", _PAGE_BYTES, "latency", writes=False, deep=False),
        AccessPattern("qd1-write", "one 8 kB write at a time", "randwrite", _PAGE_BYTES, "latency", writes=True, deep=False),
        AccessPattern(MIX, "8 kB random reads and writes at fixed rates", "randrw", _PAGE_BYTES, "iops", writes=True),
    )
}
"""Test name → access pattern. The mix runs only if rates are given."""

DEFAULT = tuple(name for name in TESTS if name != MIX)

SOURCE = "Gary Little, n0derunner.com: a cluster of 4 nodes with shared storage, not one disk"

PUBLISHED: Mapping[str, str] = {
    "random-read": "1,160,551 IOPS, partly from a cache",
    "random-write": "618,775 IOPS",
    "sequential-read": "26.35 GB/s (6.5 per host)",
    "sequential-write": "10.64 GB/s, limited by the network",
    "qd1-read": "0.16 ms",
    "qd1-write": "0.2 ms",
}
"""Test name → fio result that E12 published, with its notes (SOURCE)."""


def published_fields(test: str) -> dict[str, str]:
    """Return the fields of a finding that refer to E12, empty for a test that E12 does not have."""
    return {"experiment": "E12", "published": f"{PUBLISHED[test]} ({SOURCE})"} if test in PUBLISHED else {}
