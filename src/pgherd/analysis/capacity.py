"""Properties of a measured scaling curve: capacity at an efficiency, linear region, and decline beyond the peak."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.best_load import best_load
from pgherd.analysis.bootstrap import percentiles
from pgherd.analysis.intervals import Estimate
from pgherd.analysis.scaling_model import Array
from pgherd.model.errors import UsageError


@dataclass(frozen=True)
class Capacity:
    """Largest load at which efficiency is at least the target.

    ``value`` is interpolated between ``below`` and ``above``, the measured loads on both sides of the crossing. If it is None,
    ``never_below`` distinguishes two cases: efficiency is above the target at all loads, or below it from the first load on.
    ``low`` and ``high`` bound the value if the repeats allow it. ``open`` means that the upper end is beyond the largest load
    (``high`` is then that load).
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
    """Return the load at which a falling efficiency crosses ``at``. inf: never. None: it is below from the first load on.

    Because noise makes a measured curve non-monotonic, the closest non-increasing curve is used (isotonic regression, weighted
    by repeats). Between two loads throughput, which is efficiency × load, is interpolated linearly. A full host then gives
    exactly the crossing of its flat throughput curve.
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


def first_point(efficiencies: Sequence[float] | Array, at: float, reference: int) -> int:
    """Return the index of the first point of the falling curve: the reference, or 0 if it is beyond the crossing, below ``at``."""
    return reference if efficiencies[reference] >= at - 1e-9 else 0


def capacity(
    loads: Sequence[float],
    efficiencies: Sequence[float],
    at: float,
    *,
    reference: int = 0,
    repeats: Sequence[int] | None = None,
    draws: Array | None = None,
    confidence: float = 0.95,
) -> Capacity:
    """Estimate the largest load with efficiency ``at``, with its interval.

    Args:
        loads: distinct loads, ascending.
        efficiencies: efficiency at each. 1 is ideal.
        at: target efficiency, such as 0.85.
        reference: index of the load from which on the curve falls, see ``first_point``. Each draw decides by its efficiency there.
        repeats: number of repeats at each load (weights of the isotonic regression).
        draws: plausible efficiencies, shape (resamples, loads), as by ``bootstrap.draw_means``. None: no interval.
        confidence: of the interval.
    """
    x = np.asarray(loads, dtype=float)
    weights = None if repeats is None else np.asarray(repeats, dtype=float)

    def located(row: Array) -> tuple[int, float | None]:
        start = first_point(row, at, reference)
        return start, crossing(x[start:], row[start:], at, None if weights is None else weights[start:])

    first, value = located(np.asarray(efficiencies, dtype=float))
    low = high = None
    is_open = False
    if draws is not None:
        crossings = [located(row) for row in draws]
        # If efficiency is too low from the start, the true crossing is at or below the smallest load.
        low, high = percentiles(np.array([x[start] if load is None else load for start, load in crossings]), confidence)
        is_open = not np.isfinite(high)
        low, high = min(low, float(x[-1])), min(high, float(x[-1]))
    level = None if low is None else confidence
    if value is None:
        return Capacity(None, False, None, float(x[first]), None, None, None)
    if not np.isfinite(value):
        return Capacity(None, True, float(x[-1]), None, low, None, level, True)
    i = int(np.searchsorted(x, value, side="right")) - 1
    return Capacity(value, False, float(x[i]), float(x[min(i + 1, len(x) - 1)]), low, high, level, is_open)


@dataclass(frozen=True)
class LinearRegion:
    """Loads over which throughput grows in proportion.

    ``end`` is the largest load in the region and ``next`` the next larger measured load, so that the true end is between them.
    ``next`` is None if the data end first. ``slope`` is the throughput per unit of load in the region. ``used`` are the indices
    of the loads that determine the slope.
    """

    end: float
    next: float | None
    slope: float
    used: tuple[int, ...]
    share: float

    @property
    def rule(self) -> str:
        return (
            f"largest load up to which all have at least {100 * self.share:.0f} % of slope × N, the slope being the mean of throughput / N "
            "over the second and third load"
        )


def linear_region(loads: Sequence[float], means: Sequence[float], share: float = 0.95) -> LinearRegion:
    """Find the end of the linear region.

    The region ends before the first load whose throughput is below ``share`` of reference × N. The reference is the mean of
    throughput / N over the second and third load, or those of them that are smaller, so that it cannot fall with the curve. The
    first load belongs to the region but not to the reference: a single database may be fast (boosting clocks) or slow (idle
    wake-ups) for reasons unrelated to scaling. Therefore the second load may be below the first's share if the third continues
    in proportion to the second. The slope is the mean of throughput / N over the region, without the first load if there are
    others.

    Args:
        loads: distinct loads, ascending.
        means: mean throughput at each.
        share: tolerated share, such as 0.95.

    Raises:
        UsageError: no loads, or loads that are not ascending.
    """
    if not loads or len(loads) != len(means) or any(a >= b for a, b in itertools.pairwise(loads)):
        raise UsageError(f"the linear region needs ascending loads with one throughput each, not {list(loads)}")
    rates = [x / n for n, x in zip(loads, means, strict=True)]
    odd_first = len(rates) > 2 and rates[2] >= share * rates[1]
    last = 0
    for i in range(1, len(loads)):
        reference = rates[1 : min(i, 3)] or rates[:1]
        if rates[i] < share * sum(reference) / len(reference) and not (i == 1 and odd_first):
            break
        last = i
    used = tuple(range(1, last + 1)) or (0,)
    slope = sum(rates[i] for i in used) / len(used)
    return LinearRegion(end=loads[last], next=loads[last + 1] if last + 1 < len(loads) else None, slope=slope, used=used, share=share)


@dataclass(frozen=True)
class Retrograde:
    """Whether throughput declines beyond its peak.

    ``falls`` is None if the data are inconclusive. ``ratio`` is the largest load's throughput over that of the best load.
    """

    falls: bool | None
    best: float
    ratio: Estimate
    note: str


def retrograde(
    loads: Sequence[float], values: Sequence[float], draws: Array | None, trials: int, unknown: str = "too few repeats"
) -> Retrograde:
    """Determine whether the curve declines: the whole interval of largest ÷ best load's throughput must be below 1.

    The best load is the highest of noisy values, and the interval is corrected for this choice (``best_load``, of the loads relative to
    the largest).

    Args:
        loads: distinct loads, ascending.
        values: throughput at each.
        draws: plausible throughputs, shape (resamples, loads). None: no interval.
        trials: number of trials of all loads.
        unknown: the reason if there are no draws.
    """
    measured = np.asarray(values, dtype=float)
    best = int(np.argmax(measured))
    if best == len(loads) - 1:
        unity = Estimate(1.0, None, None, None, trials, "by definition", "no interval: 1 by definition")
        return Retrograde(False, loads[best], unity, "the largest load has the highest throughput")
    method = "largest load ÷ best load, interval corrected for the choice of the best"
    if draws is None:
        ratio = Estimate(float(measured[-1] / measured[best]), None, None, None, trials, method, f"no interval: {unknown}")
        return Retrograde(None, loads[best], ratio, "a decline cannot be told from noise")
    gain = best_load((measured / measured[-1]).tolist(), draws / draws[:, [-1]], trials).value
    low, high = (1 / max(end or 1.0, 1.0) for end in (gain.high, gain.low))
    ratio = Estimate(1 / max(gain.value, 1.0), low, high, gain.confidence, trials, method)
    if high < 1 - 1e-9:
        return Retrograde(
            True, loads[best], ratio, f"throughput at {loads[-1]:g} is {100 * (1 - ratio.value):.1f} % below that at {loads[best]:g}"
        )
    return Retrograde(None if low < 0.95 else False, loads[best], ratio, "no decline beyond the noise")
