"""Up to which load does efficiency hold?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.bootstrap import percentiles
from pgherd.analysis.fit import Array
from pgherd.analysis.intervals import Estimate, ratio_of_means
from pgherd.model.errors import UsageError


@dataclass(frozen=True)
class Capacity:
    """The largest load at which efficiency is still at the wanted level.

    ``value`` is interpolated between ``below`` and ``above``, the measured loads on both sides of the crossing. None:
    ``never_below`` says that efficiency never fell so far in the data, else it was too low from the first load on. ``low``
    and ``high`` bound it where the repeats allow; ``open`` means that the upper end lies beyond the largest load (``high``
    then is that load).
    """

    value: float | None
    never_below: bool
    below: float | None = None
    above: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    open: bool = False


def crossing(loads: Array, efficiencies: Array, at: float, weights: Array | None = None) -> float | None:
    """Where a falling efficiency crosses ``at``: inf when it never does, None when it is below from the first load on.

    Noise makes a measured curve rise here and there; the closest non-increasing curve (isotonic regression, weighted by
    repeats) is crossed instead. Between two loads it is throughput, efficiency × load, that is interpolated linearly: so
    a host that is full gives exactly the crossing of its flat curve.
    """
    from scipy.optimize import isotonic_regression

    falling = isotonic_regression(efficiencies, weights=weights, increasing=False).x
    if falling[-1] >= at:
        return float("inf")
    if falling[0] < at:
        return None
    i = int(np.max(np.nonzero(falling >= at)))
    above, below = loads[i] * (falling[i] - at), loads[i + 1] * (falling[i + 1] - at)
    return float(loads[i] + above / (above - below) * (loads[i + 1] - loads[i]))


def capacity(
    loads: Sequence[float],
    efficiencies: Sequence[float],
    at: float,
    *,
    repeats: Sequence[int] | None = None,
    draws: Array | None = None,
    confidence: float = 0.95,
) -> Capacity:
    """Find the largest load that holds ``at``, and its interval.

    Args:
        loads: distinct loads, ascending.
        efficiencies: efficiency at each, 1 being perfect.
        at: the efficiency wanted, such as 0.85.
        repeats: how many repeats each rests on (weights of the isotonic regression).
        draws: plausible efficiencies, shape (resamples, loads), as by ``bootstrap.draw_means``; None: no interval.
        confidence: of the interval.
    """
    x = np.asarray(loads, dtype=float)
    weights = None if repeats is None else np.asarray(repeats, dtype=float)
    value = crossing(x, np.asarray(efficiencies, dtype=float), at, weights)
    low = high = None
    unbounded = False
    if draws is not None:
        found = [crossing(x, row, at, weights) for row in draws]
        # Too low from the start counts as the smallest load: the true crossing lies at or below it.
        low, high = percentiles(np.array([x[0] if each is None else each for each in found]), confidence)
        unbounded = not np.isfinite(high)
        low, high = min(low, float(x[-1])), min(high, float(x[-1]))
    level = None if low is None else confidence
    if value is None:
        return Capacity(None, False, None, float(x[0]), None, None, None)
    if not np.isfinite(value):
        return Capacity(None, True, float(x[-1]), None, low, None, level, True)
    i = int(np.searchsorted(x, value, side="right")) - 1
    return Capacity(value, False, float(x[i]), float(x[min(i + 1, len(x) - 1)]), low, high, level, unbounded)


@dataclass(frozen=True)
class LinearRegion:
    """The loads over which throughput grows in proportion.

    ``end`` is the largest load that still is in it, ``next`` the next larger one measured (the true end lies between
    them; None: the data end first), ``slope`` the throughput per unit of load within it, ``used`` the indices of the
    loads that the slope rests on.
    """

    end: float
    next: float | None
    slope: float
    used: tuple[int, ...]
    share: float

    @property
    def rule(self) -> str:
        """The rule in words."""
        return (
            f"largest load with at least {100 * self.share:.0f} % of slope × N, the slope being the mean of throughput / N over the "
            "smaller loads, without the first once there are others"
        )


def linear_region(loads: Sequence[float], means: Sequence[float], share: float = 0.95) -> LinearRegion:
    """Find the end of the linear region.

    A load is in the region when its throughput is at least ``share`` of slope × N, where slope is the least-squares line
    through the origin with weights 1/N² (which is the mean of throughput / N) over all smaller loads. The first load is
    left out of the slope as soon as there is another: alone, it may be fast (boosting clocks) or slow (idle wake-ups)
    for reasons that have nothing to do with scaling. The region ends at the largest load that is in it.

    Args:
        loads: distinct loads, ascending.
        means: mean throughput at each.
        share: the tolerated fall, such as 0.95.

    Raises:
        UsageError: no loads, or they are not ascending.
    """
    if not loads or len(loads) != len(means) or any(a >= b for a, b in itertools.pairwise(loads)):
        raise UsageError(f"the linear region needs ascending loads with one throughput each, not {list(loads)}")
    each = [x / n for n, x in zip(loads, means, strict=True)]
    last = 0
    for i in range(1, len(loads)):
        before = each[1:i] or each[:1]
        if each[i] >= share * sum(before) / len(before):
            last = i
    used = tuple(range(1, last + 1)) or (0,)
    slope = sum(each[i] for i in used) / len(used)
    return LinearRegion(end=loads[last], next=loads[last + 1] if last + 1 < len(loads) else None, slope=slope, used=used, share=share)


@dataclass(frozen=True)
class Retrograde:
    """Whether throughput falls beyond its peak. ``falls`` is None where the data cannot tell; ``ratio`` is the largest
    load's throughput over the best one's."""

    falls: bool | None
    best: float
    ratio: Estimate
    note: str


def retrograde(loads: Sequence[float], repeats: Sequence[Sequence[float]]) -> Retrograde:
    """Judge whether the curve turns back: the whole interval of (largest load ÷ best load) must lie below 1.

    Args:
        loads: distinct loads, ascending.
        repeats: throughputs measured at each.
    """
    means = [sum(values) / len(values) for values in repeats]
    best = max(range(len(loads)), key=means.__getitem__)
    if best == len(loads) - 1:
        itself = Estimate(1.0, None, None, None, len(repeats[best]), "by definition", "no interval: 1 by definition")
        return Retrograde(False, loads[best], itself, "the largest load has the highest throughput")
    ratio = ratio_of_means(repeats[-1], repeats[best])
    if ratio.high is None:
        return Retrograde(None, loads[best], ratio, f"too few repeats to tell a fall from noise ({ratio.note})")
    if ratio.high < 1:
        return Retrograde(
            True, loads[best], ratio, f"throughput at {loads[-1]:g} is {100 * (1 - ratio.value):.1f} % below that at {loads[best]:g}"
        )
    return Retrograde(None if ratio.low is not None and ratio.low < 0.95 else False, loads[best], ratio, "no fall beyond the noise")
