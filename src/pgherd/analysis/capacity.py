"""Up to which load does efficiency hold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.bootstrap import percentiles
from pgherd.analysis.fit import Array


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
