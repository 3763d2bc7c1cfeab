"""Comparing two ways of doing one thing on a machine that is never quiet: interleaved pairs, and an interval on their ratio."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from pgherd.analysis.intervals import Estimate, mean_interval

FEW = 10
"""Below so many pairs the interval is Student's: rank statistics of few values are coarse (with five there is none at 95 %)."""

T = TypeVar("T")


def orders(blocks: int, sides: Sequence[str], rng: random.Random) -> Iterator[tuple[str, ...]]:
    """The order of the sides in each block: a random one, then its reverse (of two sides, ABBA or BAAB), so that what
    drifts evenly through two blocks cancels."""
    while blocks > 0:
        first = tuple(rng.sample(sides, len(sides)))
        yield from (first, first[::-1])[:blocks]
        blocks -= 2


def run_blocks(blocks: int, rng: random.Random, sides: Mapping[str, Callable[[], T]], said: Callable[[int, dict[str, T]], bool]) -> None:
    """Run all sides of each block one after the other; ``said(number, results by side)`` gets each block, and ends it by True."""
    for number, order in enumerate(orders(blocks, list(sides), rng), 1):
        if said(number, {side: sides[side]() for side in order}):
            return


def ratio(pgherd: Sequence[float], plain: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The ratio of pgherd to plain over pairs, estimated on logarithms.

    Hodges and Lehmann's estimate with the interval that inverts Wilcoxon's signed rank test (Hollander & Wolfe,
    Nonparametric Statistical Methods, 3.2 and 3.3): a burst of foreign load in a few pairs hardly moves it. Of fewer
    than ten pairs the mean with Student's t interval.

    Raises:
        ValueError: no pairs, or a value that is not above zero.
    """
    logs = [math.log(a / b) for a, b in zip(pgherd, plain, strict=True)]
    if len(logs) < FEW:
        found = mean_interval(logs, confidence)
        low, high = (None if x is None else math.exp(x) for x in (found.low, found.high))
        method = "geometric mean of the pairs' ratios, t interval on logarithms"
        return Estimate(math.exp(found.value), low, high, found.confidence, len(logs), method, found.note)
    value, low, high = hodges_lehmann(logs, confidence)
    method = "Hodges-Lehmann on the pairs' log ratios, interval by Wilcoxon's signed rank test"
    return Estimate(math.exp(value), math.exp(low), math.exp(high), confidence, len(logs), method)


def hodges_lehmann(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The median of all Walsh averages, and the exact distribution-free interval for the centre of symmetry.

    It covers at least ``confidence`` where the values can support that (from six on).
    """
    averages = sorted((values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values)))
    count = len(averages)
    middle = (averages[(count - 1) // 2] + averages[count // 2]) / 2
    outside = max(1, _signed_rank_quantile((1 - confidence) / 2, len(values)))
    return middle, averages[outside - 1], averages[count - outside]


def _signed_rank_quantile(p: float, n: int) -> int:
    """The least x such that Wilcoxon's signed rank statistic of n values is at most x with probability p or more."""
    import numpy

    chances = numpy.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        chances[rank:] = chances[rank:] + chances[:-rank]
        chances /= 2
    return int(numpy.searchsorted(numpy.cumsum(chances), p))


def half_width(estimate: Estimate) -> float | None:
    """Half of the interval's width."""
    return None if estimate.low is None or estimate.high is None else (estimate.high - estimate.low) / 2
