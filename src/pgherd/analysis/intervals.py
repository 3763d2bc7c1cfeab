"""Intervals for means, medians and ratios of few repeats.

With fewer than three repeats there is no interval, and the note says why: two values say nothing reliable about their
own spread.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST = 3
"""Repeats below which no interval is given."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval. ``low`` and ``high`` are None where the data cannot support one; ``note`` says why."""

    value: float
    low: float | None
    high: float | None
    confidence: float | None
    n: int
    method: str
    note: str = ""

    def scaled(self, factor: float) -> Estimate:
        """The same estimate in other units, or times a known positive number."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return replace(self, value=self.value * factor, low=low, high=high)


def student(confidence: float, degrees: float) -> float:
    """Two-sided quantile of Student's t, such as 4.303 for 95 % and 2 degrees of freedom."""
    from scipy.special import stdtrit  # scipy.stats costs several times as much to import

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def _few(n: int) -> str:
    return f"no interval: {n} repeat{'' if n == 1 else 's'}, and fewer than {LEAST} say nothing reliable about their spread"


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean with Student's t interval over the repeats.

    Raises:
        ValueError: no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("a mean needs at least one value")
    mean = math.fsum(values) / n
    if n < LEAST:
        return Estimate(mean, None, None, None, n, "mean of repeats", _few(n))
    half = student(confidence, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, confidence, n, "mean of repeats, Student's t interval")


def repeats_for(values: Sequence[float], share: float, confidence: float = 0.95, most: int = 50) -> int | None:
    """How many repeats it takes until Student's t interval of their mean reaches no further than a ``share`` of it to either side, if
    they scatter as these do; None where even ``most`` are too few, or the mean is not above zero.

    What these few have for a spread is itself uncertain, and the answer no more than a hint.

    Raises:
        ValueError: fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"a spread needs at least two values, not {len(values)}")
    mean, spread = math.fsum(values) / len(values), statistics.stdev(values)
    enough = (n for n in range(max(LEAST, len(values)), most + 1) if student(confidence, n - 1) * spread / math.sqrt(n) <= share * mean)
    return next(enough, None) if mean > 0 else None


def median_interval(values: Sequence[float], confidence: float = 0.95, resamples: int = 1000, seed: int = 1) -> Estimate:
    """Median with a percentile bootstrap interval over the repeats.

    Raises:
        ValueError: no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("a median needs at least one value")
    median = float(statistics.median(values))
    if n < LEAST:
        return Estimate(median, None, None, None, n, "median of repeats", _few(n))
    rng = random.Random(seed)
    draws = sorted(statistics.median(rng.choices(values, k=n)) for _ in range(resamples))
    tail = (1 - confidence) / 2
    low, high = draws[int(tail * (resamples - 1))], draws[math.ceil((1 - tail) * (resamples - 1))]
    return Estimate(median, float(low), float(high), confidence, n, f"median of repeats, percentile bootstrap of {resamples} resamples")


def ratio_of_means(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Ratio of two independent means with an interval on the logarithm (delta method, Welch–Satterthwaite degrees).

    ln(ȳ/x̄) ± t √(s²ᵧ/(nᵧ ȳ²) + s²ₓ/(nₓ x̄²)); for relative errors of a few per cent it agrees with Fieller's interval and
    it is never negative. ``n`` is the smaller number of repeats.

    Raises:
        ValueError: a side has no values, or its mean is not above zero.
    """
    if not numerator or not denominator:
        raise ValueError("a ratio of means needs values on both sides")
    n = min(len(numerator), len(denominator))
    top, bottom = math.fsum(numerator) / len(numerator), math.fsum(denominator) / len(denominator)
    if top <= 0 or bottom <= 0:
        raise ValueError(f"a ratio of means needs means above zero, not {top:g} and {bottom:g}")
    ratio = top / bottom
    if n < LEAST:
        return Estimate(ratio, None, None, None, n, "ratio of means", _few(n))
    parts = [(statistics.variance(v) / (len(v) * m**2), len(v) - 1) for v, m in ((numerator, top), (denominator, bottom))]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Estimate(ratio, ratio, ratio, confidence, n, "ratio of means, log t interval", "the repeats do not differ at all")
    degrees = variance**2 / sum(part**2 / free for part, free in parts)
    spread = math.exp(student(confidence, degrees) * math.sqrt(variance))
    return Estimate(ratio, ratio / spread, ratio * spread, confidence, n, "ratio of means, log t interval (Welch)")
