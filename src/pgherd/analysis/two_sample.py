"""Comparison of two independent runs: the ratio of their repeats at equal points, for each point and over all points.

No repeat of one run is paired with one of the other, so the repeats' spread within each run is the only measure of chance. A
difference between the two days or hosts is not part of that spread. No statistic of two runs can separate it from a true
change.

A gate checks many comparisons and fails if one fails, so all intervals hold jointly (Bonferroni). The spread of few repeats
must not be underestimated. Three similar repeats prove little if the noise has two levels. A point's spread therefore counts as
at least the pooled one of all points, and a noisier point keeps its larger spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.analysis.intervals import LEAST, Estimate, student, t_half

Direction = Literal["higher", "lower"]
"""Better of two values."""

Result = Literal["regression", "inconclusive", "pass", "improvement"]
"""Result for a change: beyond the limit; interval includes the limit; within the limit; a certain improvement."""

MAX_FURTHER_REPEATS = 100
"""Maximum number of further repeats to propose."""


@dataclass(frozen=True)
class Pair:
    """Repeats of one point in two runs, all above zero. ``exact``: without spread by nature (a size), so one is enough."""

    old: tuple[float, ...]
    new: tuple[float, ...]
    exact: bool = False

    def __post_init__(self) -> None:
        if not self.old or not self.new:
            raise ValueError("a pair needs values on both sides")
        if invalid := [value for value in (*self.old, *self.new) if not (math.isfinite(value) and value > 0)]:
            raise ValueError(f"a ratio needs values above zero, not {invalid[0]:g}")

    @property
    def log(self) -> float:
        """Logarithm of the ratio of means, new ÷ old."""
        return math.log(statistics.fmean(self.new)) - math.log(statistics.fmean(self.old))

    @property
    def min_repeats(self) -> int:
        """Smaller number of repeats."""
        return min(len(self.old), len(self.new))


def joint(comparisons: int, confidence: float = 0.95) -> float:
    """Return the confidence of each of ``comparisons`` intervals that hold jointly with ``confidence`` (Bonferroni)."""
    return 1 - (1 - confidence) / max(comparisons, 1)


def changes(pairs: Sequence[Pair], confidence: float = 0.95) -> list[Estimate]:
    """Estimate the ratio new ÷ old of each pair, each at ``confidence``.

    Ratio of means with Student's t interval on its logarithm. The spread is the pair's (Welch) or the pooled relative spread of
    all pairs with its degrees of freedom, using the wider interval. A pair with fewer than three repeats on a side
    has no interval.
    """
    return [_estimate(pair, _half(pair, 0, confidence, pairs), confidence) for pair in pairs]


def change_over_all(pairs: Sequence[Pair], confidence: float = 0.95) -> Estimate | None:
    """Estimate the geometric mean of all pairs' ratios, with an interval from the spread within each (Satterthwaite's degrees).

    It detects a change at all points that no single point shows. Pairs with one repeat on a side are excluded, because their
    spread is unknown. None if fewer than two remain. If all are exact, the result is their geometric mean without spread.
    """
    used = _with_spread(pairs)
    if len(used) < 2:
        return None
    half = _half_over_all(used, 0, confidence)
    value = math.exp(statistics.fmean(pair.log for pair in used))
    excluded = len(pairs) - len(used)
    note = f"{excluded} of {len(pairs)} points have too few repeats and are excluded" if excluded else ""
    method = f"geometric mean of the ratios of {len(used)} points, t interval on logarithms"
    n = sum(pair.min_repeats for pair in used)
    return Estimate(value, value / math.exp(half), value * math.exp(half), confidence, n, method, note)


def change_of_estimates(old: Estimate, new: Estimate, confidence: float = 0.95) -> Estimate:
    """Estimate the ratio new ÷ old of two independent estimates with intervals but without their data.

    On logarithms, by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008). The distance
    from a value to the end of its interval is the error of that side, and the two errors add as squares. Both intervals are
    first converted to ``confidence``, as t intervals of n repeats.

    Raises:
        ValueError: a value is not above zero.
    """
    if old.value <= 0 or new.value <= 0:
        raise ValueError(f"a relative change requires values above zero, not {min(old.value, new.value):g}")
    ratio, n = new.value / old.value, min(old.n, new.n)
    method = "ratio of two estimates, interval from both intervals (Zou and Donner)"
    below_new, above_new = _reach(new, confidence)
    below_old, above_old = _reach(old, confidence)
    if below_new is None or above_new is None or below_old is None or above_old is None:
        return Estimate(ratio, None, None, None, n, method, "no interval: one of the two has none")
    low, high = ratio * math.exp(-math.hypot(below_new, above_old)), ratio * math.exp(min(math.hypot(above_new, below_old), 700.0))
    return Estimate(ratio, low, high, confidence, n, method)


def judge(change: Estimate, max_regression: float, better_direction: Direction) -> Result:
    """Classify a ratio new ÷ old with an allowed loss (0.05: 5 %).

    It is worse only if the whole interval is beyond the limit, and inconclusive without an interval.
    """
    if change.low is None or change.high is None:
        return "inconclusive"
    limit = limit_of(max_regression, better_direction)
    pessimistic, optimistic = (change.low, change.high) if better_direction == "higher" else (change.high, change.low)
    sign = 1 if better_direction == "higher" else -1
    # An exact ratio (an unchanged size) may equal the limit, which is allowed.
    if sign * (optimistic - limit) < -1e-12:
        return "regression"
    if sign * (pessimistic - limit) < -1e-12:
        return "inconclusive"
    return "improvement" if sign * (pessimistic - 1) > 1e-12 else "pass"


def limit_of(max_regression: float, better_direction: Direction) -> float:
    """Return the allowed ratio new ÷ old. For 0.05 it is 0.95 if higher is better, 1.05 if lower is better."""
    return 1 - max_regression if better_direction == "higher" else 1 + max_regression


def further_repeats(pair: Pair, pairs: Sequence[Pair], limit: float, confidence: float = 0.95) -> int | None:
    """Return about how many further repeats in each run would exclude the limit from the pair's interval.

    It assumes an unchanged ratio and spread. None if none are needed, or if the ratio is too close to the limit. ``pairs`` are
    all jointly compared pairs. With fewer than two repeats the spread is unknown, and the result is the number missing to
    three.
    """
    if pair.exact:
        return None
    if min(len(pair.old), len(pair.new)) < 2:
        return LEAST - pair.min_repeats
    distance = _distance(pair.log, limit)
    minimum = max(0, LEAST - pair.min_repeats)
    return next(
        (more or None for more in range(minimum, MAX_FURTHER_REPEATS + 1) if (_half(pair, more, confidence, pairs) or 0.0) <= distance),
        None,
    )


def further_repeats_over_all(pairs: Sequence[Pair], limit: float, confidence: float = 0.95) -> int | None:
    """Return the same for the geometric mean of all pairs: further repeats of each pair in each run."""
    used = _with_spread(pairs)
    if len(used) < 2:
        return None
    distance = _distance(statistics.fmean(pair.log for pair in used), limit)
    return next((more or None for more in range(MAX_FURTHER_REPEATS + 1) if _half_over_all(used, more, confidence) <= distance), None)


def _with_spread(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.exact or pair.min_repeats >= 2]


def _distance(log: float, limit: float) -> float:
    return abs(log - math.log(limit)) if limit > 0 else math.inf


def _estimate(pair: Pair, half: float | None, confidence: float) -> Estimate:
    value = math.exp(pair.log)
    if half is None:
        note = f"no interval: {pair.min_repeats} repeat{'' if pair.min_repeats == 1 else 's'}, at least {LEAST} are needed"
        return Estimate(value, None, None, None, pair.min_repeats, "ratio of means", note)
    if pair.exact:
        return Estimate(value, value, value, confidence, pair.min_repeats, "ratio", "exact: repeats would not differ")
    method = "ratio of means, log t interval (Welch's, or of the pooled spread where that is wider)"
    note = "the repeats do not differ at all" if half == 0 else ""
    return Estimate(value, value / math.exp(half), value * math.exp(half), confidence, pair.min_repeats, method, note)


def _half(pair: Pair, more: int, confidence: float, pairs: Sequence[Pair]) -> float | None:
    """Return half the interval of a pair's log ratio with ``more`` further repeats on each side. None below three."""
    if pair.exact:
        return 0.0
    if pair.min_repeats + more < LEAST:
        return None
    sides = [(_relative_variance(values), len(values) + more) for values in (pair.old, pair.new)]
    return max(t_half([(spread / n, n - 1) for spread, n in sides], confidence), _pooled_half(pair, more, confidence, pairs))


def _pooled_half(pair: Pair, more: int, confidence: float, pairs: Sequence[Pair]) -> float:
    """Return the same from the pooled relative spread of all pairs. 0 if there is nothing to pool."""
    noisy = [other for other in pairs if not other.exact]
    sides = [values for other in noisy for values in (other.old, other.new) if len(values) > 1]
    squares = math.fsum(_relative_variance(values) * (len(values) - 1) for values in sides)
    degrees = sum(len(values) - 1 for values in sides)
    if len(noisy) < 2 or squares == 0:
        return 0.0
    variance = squares / degrees * (1 / (len(pair.old) + more) + 1 / (len(pair.new) + more))
    return student(confidence, degrees + more * len(sides)) * math.sqrt(variance)


def _half_over_all(used: Sequence[Pair], more: int, confidence: float) -> float:
    """Return half the interval of the mean log ratio over pairs, with ``more`` further repeats on each side."""
    sides = [values for pair in used if not pair.exact for values in (pair.old, pair.new)]
    parts = [(_relative_variance(values) / (len(values) + more), len(values) + more - 1) for values in sides]
    return t_half(parts, confidence) / len(used)


def _relative_variance(values: Sequence[float]) -> float:
    """Return the sample variance over the square of the mean: n times the variance of the log mean."""
    mean = statistics.fmean(values)
    return statistics.variance([value / mean for value in values])


def _reach(estimate: Estimate, confidence: float) -> tuple[float | None, float | None]:
    """Return the interval's extent below and above the value, on logarithms, at another confidence. (None, None) without one."""
    if estimate.low is None or estimate.high is None:
        return None, None
    degrees = max(estimate.n - 1, 2)
    stretched = student(confidence, degrees) / student(estimate.confidence or 0.95, degrees)
    low, high = min(estimate.low, estimate.value), max(estimate.high, estimate.value)
    below = math.inf if low <= 0 else math.log(estimate.value / low)
    return below * stretched, math.log(high / estimate.value) * stretched if math.isfinite(high) else math.inf
