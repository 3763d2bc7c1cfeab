"""What E12 published (reference: Gary Little, n0derunner.com: fio figures of a cluster of four hosts, not of one disk)."""

from __future__ import annotations

from collections.abc import Mapping

SOURCE = "Gary Little, n0derunner.com: a cluster of 4 nodes with shared storage, not one disk"

E12: Mapping[str, str] = {
    "random-read": "1,160,551 IOPS, partly from a cache",
    "random-write": "618,775 IOPS",
    "sequential-read": "26.35 GB/s (6.5 per host)",
    "sequential-write": "10.64 GB/s, limited by the network",
    "single-read": "0.16 ms",
    "single-write": "0.2 ms",
}
"""Test → figure, with E12's own notes."""


def beside(test: str) -> dict[str, str]:
    """What to set beside a figure of ours."""
    return {"experiment": "E12", "published": f"{E12[test]} ({SOURCE})"} if test in E12 else {}
