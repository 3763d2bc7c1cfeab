"""Histograms of bounded relative error over any range, in the manner of HdrHistogram (Gil Tene, hdrhistogram.org).

A power of two is cut into 32 buckets of equal width, so that a value is known to within 1/32 (3.1 %), and values below 32
exactly. A histogram is a mapping bucket → count, so that two are merged by adding.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

_BITS = 5
_SUB = 1 << _BITS


def bucket(value: float) -> int:
    """The bucket of a value (negative ones count as 0), which is taken as a whole number."""
    whole = max(0, int(value))
    if whole < _SUB:
        return whole
    shift = whole.bit_length() - _BITS - 1
    return (shift << _BITS) + (whole >> shift)


def bounds(index: int) -> tuple[int, int]:
    """The least value of a bucket, and the least above it."""
    if index < 2 * _SUB:
        return index, index + 1
    shift = (index >> _BITS) - 1
    low = (index - (shift << _BITS)) << shift
    return low, low + (1 << shift)


def histogram(values: Iterable[float]) -> dict[int, int]:
    """Bucket → count, in order."""
    return dict(sorted(Counter(map(bucket, values)).items()))


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The histogram of all values of several."""
    found: Counter[int] = Counter()
    for one in histograms:
        found.update(one)
    return dict(sorted(found.items()))


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The value below which ``share`` (0 to 1) of all lie: the middle of its bucket. None of an empty histogram, and where
    fewer than ten values lie beyond (a median needs one value only)."""
    total = sum(counts.values())
    if total == 0 or (share > 0.5 and total * (1 - share) < 10 * (1 - 1e-9)):
        return None
    wanted = max(1, math.ceil(share * total - 1e-9))
    for index in sorted(counts):
        wanted -= counts[index]
        if wanted <= 0:
            low, high = bounds(index)
            return float(low) if high == low + 1 else (low + high) / 2
    return None


def share_below(counts: Mapping[int, int], limit: float) -> float | None:
    """The share of values below a limit; a bucket that holds the limit counts in proportion. None of an empty histogram."""
    total = sum(counts.values())
    if total == 0:
        return None
    below = 0.0
    for index, count in counts.items():
        low, high = bounds(index)
        below += count * min(1.0, max(0.0, (limit - low) / (high - low)))
    return below / total


def mean(counts: Mapping[int, int]) -> float | None:
    """The mean, each value taken for the middle of its bucket."""
    total = sum(counts.values())
    if total == 0:
        return None
    return math.fsum(count * (sum(bounds(index)) - 1) / 2 for index, count in counts.items()) / total
