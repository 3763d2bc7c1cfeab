"""What E10 published (reference: Gary Little, n0derunner.com). The article calls it the working set.

Its units are PostgreSQL's: 1 MB is 2^20 bytes (scale 10 is 157 MB on every version since).
"""

from __future__ import annotations

SOURCE = "E10, Gary Little, n0derunner.com"

E10 = {1: "23 MB", 10: "157 MB", 100: "1.7 GB", 1000: "15 GB", 2500: "37 GB", 5000: "74 GB", 10000: "147 GB"}
"""Scale → size."""

_IN_MB = {"MB": 1.0, "GB": 1024.0}


def megabytes(scale: int) -> float | None:
    """E10's size of a scale in MB, or None where it has none."""
    if scale not in E10:
        return None
    number, unit = E10[scale].split()
    return float(number) * _IN_MB[unit]
