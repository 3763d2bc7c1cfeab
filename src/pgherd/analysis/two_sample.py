"""Two runs measured apart from each other: the ratio of their repeats at equal points, point by point and over all points.

Nothing pairs a repeat of one run with one of the other, so all that speaks of chance is the spread of the repeats within
each run. What differs between the two days or hosts is not in that spread: no statistic of two runs can tell it from a
true change.

A gate looks at many comparisons and fails if one of them fails, so that all intervals hold jointly (Bonferroni), and few
repeats must not look steadier than they are. Three repeats that happen to lie close together say little where the noise
has two levels; so a point's spread counts as no less than the pooled one of all points, while a point that is noisier
than the others keeps its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.analysis.intervals import LEAST, Estimate, student

Direction = Literal["higher", "lower"]
"""Which of two values is the better one."""

Verdict = Literal["worse", "cannot tell", "within", "better"]
"""Of a change: beyond what is allowed; the interval reaches over the limit; within what is allowed; surely an improvement."""

MOST = 100
"""More further repeats than this are not worth proposing."""


@dataclass(frozen=True)
class Pair:
    """The repeats of one point in two runs, all above zero. ``exact``: they have no spread by nature (a size), and one is enough."""

    old: tuple[float, ...]
    new: tuple[float, ...]
    exact: bool = False

    def __post_init__(self) -> None:
        if not self.old or not self.new:
            raise ValueError("a pair needs values on both sides")
        if wrong := [value for value in (*self.old, *self.new) if not (math.isfinite(value) and value > 0)]:
            raise ValueError(f"a ratio needs values above zero, not {wrong[0]:g}")

    @property
    def log(self) -> float:
        """Logarithm of the ratio of means, new ÷ old."""
        return math.log(statistics.fmean(self.new)) - math.log(statistics.fmean(self.old))

    @property
    def fewest(self) -> int:
        """The smaller number of repeats."""
        return min(len(self.old), len(self.new))


def joint(comparisons: int, confidence: float = 0.95) -> float:
    """The confidence of each of so many intervals that all hold together with at least ``confidence`` (Bonferroni)."""
    return 1 - (1 - confidence) / max(comparisons, 1)


def changes(pairs: Sequence[Pair], confidence: float = 0.95) -> list[Estimate]:
    """The ratio new ÷ old of each pair, at the confidence of each.

    Ratio of means with Student's t interval on its logarithm: Welch's from the pair's own spread, or from the pooled
    relative spread of all pairs with its degrees of freedom, whichever is wider. A pair with fewer than three repeats on
    a side has no interval.
    """
    return [_estimate(pair, _half(pair, 0, confidence, pairs), confidence) for pair in pairs]


def change_over_all(pairs: Sequence[Pair], confidence: float = 0.95) -> Estimate | None:
    """The geometric mean of the ratios of all pairs, with an interval from the spread within each (Satterthwaite's degrees).

    It sees a change that is everywhere when no point alone could show it. Pairs with one repeat on a side are left out, as
    nothing is known of their spread; None where fewer than two remain. All exact: their geometric mean, without spread.
    """
    used = _with_spread(pairs)
    if len(used) < 2:
        return None
    half = _half_over_all(used, 0, confidence)
    value = math.exp(statistics.fmean(pair.log for pair in used))
    left_out = len(pairs) - len(used)
    note = f"{left_out} of {len(pairs)} points have too few repeats and are left out" if left_out else ""
    method = f"geometric mean of the ratios of {len(used)} points, t interval on logarithms"
    n = sum(pair.fewest for pair in used)
    return Estimate(value, value / math.exp(half), value * math.exp(half), confidence, n, method, note)


def change_of_estimates(old: Estimate, new: Estimate, confidence: float = 0.95) -> Estimate:
    """The ratio new ÷ old of two independent estimates that come with intervals but without their data.

    On logarithms, by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008): each
    side's distance from its value to the interval's end stands for its error, and the two add as squares. Both intervals
    are first stretched to ``confidence`` as t intervals of n repeats would be.

    Raises:
        ValueError: a value is not above zero, so that there is no ratio.
    """
    if old.value <= 0 or new.value <= 0:
        raise ValueError(f"a change in per cent needs values above zero, not {min(old.value, new.value):g}")
    ratio, n = new.value / old.value, min(old.n, new.n)
    method = "ratio of two estimates, interval from both of theirs (Zou and Donner)"
    below_new, above_new = _reach(new, confidence)
    below_old, above_old = _reach(old, confidence)
    if below_new is None or above_new is None or below_old is None or above_old is None:
        return Estimate(ratio, None, None, None, n, method, "no interval: one of the two has none")
    low, high = ratio * math.exp(-math.hypot(below_new, above_old)), ratio * math.exp(min(math.hypot(above_new, below_old), 700.0))
    return Estimate(ratio, low, high, confidence, n, method)


def judge(change: Estimate, allowed: float, better: Direction) -> Verdict:
    """What a ratio new ÷ old means where a share of ``allowed`` may be lost (0.05: five per cent).

    Worse only if the whole interval lies beyond what is allowed; without an interval nothing can be told.
    """
    if change.low is None or change.high is None:
        return "cannot tell"
    limit = limit_of(allowed, better)
    worst, best = (change.low, change.high) if better == "higher" else (change.high, change.low)
    sign = 1 if better == "higher" else -1
    # An exact ratio (a size that did not change) may stand on the limit: that much is allowed.
    if sign * (best - limit) < -1e-12:
        return "worse"
    if sign * (worst - limit) < -1e-12:
        return "cannot tell"
    return "better" if sign * (worst - 1) > 1e-12 else "within"


def limit_of(allowed: float, better: Direction) -> float:
    """The ratio new ÷ old up to which a change is allowed: 0.95 where higher is better, 1.05 where lower is, of 0.05."""
    return 1 - allowed if better == "higher" else 1 + allowed


def further_repeats(pair: Pair, pairs: Sequence[Pair], limit: float, confidence: float = 0.95) -> int | None:
    """About how many further repeats in each run would take the limit out of the pair's interval, if ratio and spread stay as
    they are; None where there are none to be had (the ratio is too close to the limit) or needed.

    ``pairs`` are all with which it is compared jointly. With fewer than two repeats nothing is known of the spread, and
    what is missing to three is the answer.
    """
    if pair.exact:
        return None
    if min(len(pair.old), len(pair.new)) < 2:
        return LEAST - pair.fewest
    distance = _distance(pair.log, limit)
    start = max(0, LEAST - pair.fewest)
    return next((more or None for more in range(start, MOST + 1) if (_half(pair, more, confidence, pairs) or 0.0) <= distance), None)


def further_repeats_over_all(pairs: Sequence[Pair], limit: float, confidence: float = 0.95) -> int | None:
    """The same for the geometric mean of all pairs: further repeats of each of them in each run."""
    used = _with_spread(pairs)
    if len(used) < 2:
        return None
    distance = _distance(statistics.fmean(pair.log for pair in used), limit)
    return next((more or None for more in range(MOST + 1) if _half_over_all(used, more, confidence) <= distance), None)


def _with_spread(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.exact or pair.fewest >= 2]


def _distance(log: float, limit: float) -> float:
    return abs(log - math.log(limit)) if limit > 0 else math.inf


def _estimate(pair: Pair, half: float | None, confidence: float) -> Estimate:
    value = math.exp(pair.log)
    if half is None:
        few = f"no interval: {pair.fewest} repeat{'' if pair.fewest == 1 else 's'}, and fewer than {LEAST} say nothing reliable"
        return Estimate(value, None, None, None, pair.fewest, "ratio of means", f"{few} about their spread")
    if pair.exact:
        return Estimate(value, value, value, confidence, pair.fewest, "ratio", "exact: repeats would not differ")
    method = "ratio of means, log t interval (Welch's, or of the pooled spread where that is wider)"
    note = "the repeats do not differ at all" if half == 0 else ""
    return Estimate(value, value / math.exp(half), value * math.exp(half), confidence, pair.fewest, method, note)


def _half(pair: Pair, more: int, confidence: float, pairs: Sequence[Pair]) -> float | None:
    """Half the interval of a pair's log ratio with so many more repeats on each side; None below three repeats."""
    if pair.exact:
        return 0.0
    if pair.fewest + more < LEAST:
        return None
    sides = [(_relative_variance(values), len(values) + more) for values in (pair.old, pair.new)]
    return max(_t_half([(spread / n, n - 1) for spread, n in sides], confidence), _pooled_half(pair, more, confidence, pairs))


def _pooled_half(pair: Pair, more: int, confidence: float, pairs: Sequence[Pair]) -> float:
    """The same, from the pooled relative spread of all pairs; 0 where there is nothing to pool."""
    noisy = [one for one in pairs if not one.exact]
    sides = [values for one in noisy for values in (one.old, one.new) if len(values) > 1]
    squares = math.fsum(_relative_variance(values) * (len(values) - 1) for values in sides)
    degrees = sum(len(values) - 1 for values in sides)
    if len(noisy) < 2 or squares == 0:
        return 0.0
    variance = squares / degrees * (1 / (len(pair.old) + more) + 1 / (len(pair.new) + more))
    return student(confidence, degrees + more * len(sides)) * math.sqrt(variance)


def _half_over_all(used: Sequence[Pair], more: int, confidence: float) -> float:
    """Half the interval of the mean log ratio over pairs with so many more repeats on each side of each."""
    sides = [values for pair in used if not pair.exact for values in (pair.old, pair.new)]
    parts = [(_relative_variance(values) / (len(values) + more), len(values) + more - 1) for values in sides]
    return _t_half(parts, confidence) / len(used)


def _t_half(parts: Sequence[tuple[float, int]], confidence: float) -> float:
    """t times the root of a sum of variances, each with its degrees of freedom (Satterthwaite)."""
    variance = math.fsum(part for part, _ in parts)
    # Squares of tiny variances underflow to nothing; then there is no spread to speak of either.
    squares = math.fsum(part**2 / degrees for part, degrees in parts)
    return student(confidence, variance**2 / squares) * math.sqrt(variance) if squares > 0 else 0.0


def _relative_variance(values: Sequence[float]) -> float:
    """Sample variance over the square of the mean: what the logarithm of the mean varies by, times n."""
    mean = statistics.fmean(values)
    return statistics.variance([value / mean for value in values])


def _reach(estimate: Estimate, confidence: float) -> tuple[float | None, float | None]:
    """How far the interval reaches below and above the value, on logarithms, at another confidence; (None, None) without one."""
    if estimate.low is None or estimate.high is None:
        return None, None
    degrees = max(estimate.n - 1, 2)
    stretched = student(confidence, degrees) / student(estimate.confidence or 0.95, degrees)
    low, high = min(estimate.low, estimate.value), max(estimate.high, estimate.value)
    below = math.inf if low <= 0 else math.log(estimate.value / low)
    return below * stretched, math.log(high / estimate.value) * stretched if math.isfinite(high) else math.inf
