"""Two levels in a set of measurements: whether they are there, where, and which share of the time each has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_VALUES = 6
"""Minimum number of values for which two levels can be told from noise."""
MIN_RATIO = 1.2
"""Minimum ratio of the two levels."""


@dataclass(frozen=True)
class Levels:
    """Two levels of positive values. ``split`` is the geometric mean of the levels, ``high_share`` the share of values above it."""

    low: float
    high: float
    split: float
    high_share: float


def two_levels(values: Sequence[float]) -> Levels | None:
    """Return the two levels of these values, or None if one level with noise explains them.

    The logarithms are split where the distance of the two means, in units of the standard deviation within the parts, is largest, with at
    least a fifth of the values on each side, so that a few outliers are no level. Of normal noise this distance exceeds 3 + 27/n in at most
    1 % of samples of 8 to 30 values, by simulation. Levels that differ by less than 20 % do not count.

    Raises:
        ValueError: a value is not above zero.
    """
    if any(value <= 0 for value in values):
        raise ValueError(f"levels need values above zero, not {min(values):g}")
    logs = sorted(map(math.log, values))
    if len(logs) < MIN_VALUES:
        return None
    least = max(2, math.ceil(len(logs) / 5))
    separation, split = max((_separation(logs[:i], logs[i:]), i) for i in range(least, len(logs) - least + 1))
    low, high = (math.exp(math.fsum(part) / len(part)) for part in (logs[:split], logs[split:]))
    if separation < 3 + 27 / len(logs) or high < MIN_RATIO * low:
        return None
    return Levels(low, high, math.sqrt(low * high), 1 - split / len(logs))


def _separation(below: Sequence[float], above: Sequence[float]) -> float:
    """Return the distance of two means in units of the pooled standard deviation within (infinite without any)."""
    means = [math.fsum(part) / len(part) for part in (below, above)]
    squares = math.fsum((value - mean) ** 2 for part, mean in zip((below, above), means, strict=True) for value in part)
    deviation = math.sqrt(squares / (len(below) + len(above) - 2))
    return (means[1] - means[0]) / deviation if deviation > 0 else math.inf * (means[1] > means[0])
