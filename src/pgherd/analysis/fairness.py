"""How evenly throughput is shared."""

from __future__ import annotations

import math
from collections.abc import Sequence


def jain(values: Sequence[float]) -> float | None:
    """Jain's fairness index (Σx)² / (n Σx²): 1 when all get the same, 1/n when one gets everything.

    R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984. None without values, or where all are zero.
    """
    top = max(values, default=0.0)
    if top <= 0:
        return None
    shares = [value / top for value in values]  # squares of raw rates could overflow or vanish
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def min_max(values: Sequence[float]) -> float | None:
    """Smallest over largest. None without values, or where all are zero."""
    top = max(values, default=0.0)
    return None if top <= 0 else min(values) / top
