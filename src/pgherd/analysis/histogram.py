"""Histograms with bounded relative error over any range, similar to HdrHistogram (Gil Tene, hdrhistogram.org).

Each power of two has 32 buckets of equal width, so that a value is known to within 1/32 (3.1 %). Values below 32 are exact. A
histogram maps bucket → count, so that adding the counts merges two of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

_BITS = 5
_SUB = 1 << _BITS


def bucket(value: float) -> int:
    """Return the bucket of a value, truncated to an integer. Negative values count as 0."""
    number = max(0, int(value))
    if number < _SUB:
        return number
    shift = number.bit_length() - _BITS - 1
    return (shift << _BITS) + (number >> shift)


def bounds(index: int) -> tuple[int, int]:
    """Return a bucket's smallest value, and the smallest value above it."""
    if index < 2 * _SUB:
        return index, index + 1
    shift = (index >> _BITS) - 1
    low = (index - (shift << _BITS)) << shift
    return low, low + (1 << shift)


def histogram(values: Iterable[float]) -> dict[int, int]:
    return dict(sorted(Counter(map(bucket, values)).items()))


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the histogram of all values of several histograms."""
    counts: Counter[int] = Counter()
    for each in histograms:
        counts.update(each)
    return dict(sorted(counts.items()))


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the value below which ``share`` (0 to 1) of all values are: the middle of its bucket.

    None for an empty histogram. None also if fewer than ten values exceed a quantile above the median.
    """
    total = sum(counts.values())
    if total == 0 or (share > 0.5 and total * (1 - share) < 10 * (1 - 1e-9)):
        return None
    remaining = max(1, math.ceil(share * total - 1e-9))
    for index in sorted(counts):
        remaining -= counts[index]
        if remaining <= 0:
            low, high = bounds(index)
            return float(low) if high == low + 1 else (low + high) / 2
    return None


def share_below(counts: Mapping[int, int], limit: float) -> float | None:
    """Return the share of values below a limit. None for an empty histogram.

    The bucket that contains the limit counts in proportion.
    """
    total = sum(counts.values())
    if total == 0:
        return None
    below = 0.0
    for index, count in counts.items():
        low, high = bounds(index)
        below += count * min(1.0, max(0.0, (limit - low) / (high - low)))
    return below / total


def mean(counts: Mapping[int, int]) -> float | None:
    """Return the mean of the buckets' middles, or None for an empty histogram."""
    total = sum(counts.values())
    if total == 0:
        return None
    return math.fsum(count * (sum(bounds(index)) - 1) / 2 for index, count in counts.items()) / total
