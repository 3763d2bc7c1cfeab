"""The best of several loads: those that cannot be told from it, its throughput, and loads that contradict their neighbours.

The highest of noisy values was favoured by chance. With equal loads it is 7 % too high for three repeats that scatter by 10 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.scaling_model import Array

CONTRADICTION = 0.1
"""Share by which a load must be below the lower of its neighbours to contradict them: a curve has one peak."""


@dataclass(frozen=True)
class BestLoad:
    """The best load by its value.

    ``candidates`` are the indices of all loads that cannot be told from the best, the best included. They are empty if the spread
    is unknown. ``value`` is the highest true value of all loads.
    """

    index: int
    candidates: tuple[int, ...]
    value: Estimate


def best_load(values: Sequence[float], draws: Array | None, trials: int, confidence: float = 0.95) -> BestLoad:
    """Compare all loads with the best (Hsu, Multiple Comparisons, 1996, chapter 4), with the joint distribution of draws.

    A load is a candidate unless another is higher by more than chance explains with all loads compared at once. The value is the
    highest one less what draws gain by choosing their highest. The lower end of its interval holds for all loads at once, the
    upper end is the highest of single ones.

    Args:
        values: one for each load.
        draws: plausible true values, shape (resamples, loads). None: the spread is unknown.
        trials: number of trials of all loads.
        confidence: of candidates and interval.

    Raises:
        ValueError: no loads.
    """
    if not values:
        raise ValueError("the best of no loads is unknown")
    measured = np.asarray(values, dtype=float)
    index = int(np.argmax(measured))
    method = "highest of the loads, less the expected gain by choosing it"
    if draws is None:
        note = "no interval: too few repeats at all points"
        return BestLoad(index, (), Estimate(float(measured[index]), None, None, None, trials, "highest of the loads", note))
    errors = draws - measured
    candidates = tuple(i for i in range(len(values)) if i == index or not _surely_lower(i, measured, errors, confidence))
    spread = np.maximum(errors.std(axis=0), 1e-12 * measured.max())
    tail = (1 - confidence) / 2
    low = float(np.max(measured - np.quantile(np.max(errors / spread, axis=1), 1 - tail) * spread))
    high = float(np.max(measured - np.quantile(errors, tail, axis=0)))
    gain = float(np.mean(draws.max(axis=1))) - float(measured[index])
    # Draws from two repeats have such tails that their mean is far off: the best is never below all loads.
    value = max(float(measured[index]) - max(gain, 0.0), float(measured.min()))
    return BestLoad(index, candidates, Estimate(value, min(low, value), max(high, value), confidence, trials, method))


def _surely_lower(i: int, measured: Array, errors: Array, confidence: float) -> bool:
    """Return whether some load is higher than this one, in a one-sided comparison of all others with it."""
    others = [j for j in range(len(measured)) if j != i]
    differences = errors[:, others] - errors[:, [i]]
    spread = np.maximum(differences.std(axis=0), 1e-12 * measured.max())
    critical = np.quantile(np.max(differences / spread, axis=1), confidence)
    return bool(np.any((measured[others] - measured[i]) / spread > critical))


def contradictions(values: Sequence[float]) -> tuple[int, ...]:
    """Return the indices of loads that are far below both neighbours, which no curve with one peak has."""
    inner = range(1, len(values) - 1)
    return tuple(i for i in inner if values[i] < (1 - CONTRADICTION) * min(values[i - 1], values[i + 1]))


def contradiction_text(loads: str) -> str:
    """Return a warning that names these loads."""
    return f"{loads}: far less throughput than the next smaller and the next larger number have, which contradicts both; measure again"
