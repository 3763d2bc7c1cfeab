"""Whether measured points lie below or above the curve through their neighbours, whatever its shape elsewhere.

The logarithm of the curve is a polynomial through the neighbours: a cubic through two on each side. A curve that bends, as it does
below a working set, is no deviation. In simulated sweeps of three repeats with 2 % of noise, 1 to 3 % of convex curves have an
interval below 1, and 90 % of those with a dip of 5.5 % (``benchmarks/coverage_models.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate, student

NEIGHBOURS = 2
"""Number of neighbours on each side."""


@dataclass(frozen=True)
class Contrast:
    """Mean logarithm of points less that of the curve through their neighbours.

    ``weight`` is the sum of squared weights over the repeats: the contrast's variance for a variance of one. ``squares`` is the
    sum of squared relative deviations of all repeats from their means, and ``free`` its degrees of freedom. ``neighbours`` is
    the number on the side with fewer.
    """

    log: float
    weight: float
    squares: float
    free: int
    trials: int
    neighbours: int


def neighbour_contrast(positions: Sequence[float], repeats: Sequence[Sequence[float]], within: Sequence[int]) -> Contrast | None:
    """Compare some points with their neighbours. None: there is none on a side.

    Args:
        positions: distinct, ascending.
        repeats: values above zero, at each position.
        within: indices of the points, ascending.
    """
    below = [*range(max(within[0] - NEIGHBOURS, 0), within[0])]
    above = [*range(within[-1] + 1, min(within[-1] + 1 + NEIGHBOURS, len(positions)))]
    if not below or not above:
        return None
    around = below + above
    weights = dict.fromkeys(within, 1 / len(within))
    for i in within:
        for j in around:
            others = [k for k in around if k != j]
            share = math.prod((positions[i] - positions[k]) / (positions[j] - positions[k]) for k in others)  # Lagrange
            weights[j] = weights.get(j, 0.0) - share / len(within)
    means = [math.fsum(values) / len(values) for values in repeats]
    return Contrast(
        log=math.fsum(weight * math.log(means[i]) for i, weight in weights.items()),
        weight=math.fsum(weight**2 / len(repeats[i]) for i, weight in weights.items()),
        squares=math.fsum((value / mean - 1) ** 2 for values, mean in zip(repeats, means, strict=True) for value in values),
        free=sum(len(values) - 1 for values in repeats),
        trials=sum(len(repeats[i]) for i in weights),
        neighbours=min(len(below), len(above)),
    )


def mean_contrast(contrasts: Sequence[Contrast], confidence: float = 0.95) -> Estimate:
    """Estimate the mean of contrasts of several curves as a ratio, with their pooled spread.

    Raises:
        ValueError: no contrasts.
    """
    if not contrasts:
        raise ValueError("a mean needs at least one contrast")
    log = math.fsum(contrast.log for contrast in contrasts) / len(contrasts)
    n, free = sum(contrast.trials for contrast in contrasts), sum(contrast.free for contrast in contrasts)
    method = "ratio to the curve through the neighbours, log t interval"
    if free < 2:
        return Estimate(math.exp(log), None, None, None, n, method, "no interval: too few repeats")
    variance = math.fsum(contrast.squares for contrast in contrasts) / free
    error = math.sqrt(variance * math.fsum(contrast.weight for contrast in contrasts)) / len(contrasts)
    half = student(confidence, free) * error
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), confidence, n, method)
