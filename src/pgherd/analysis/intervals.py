"""Confidence intervals for means, medians and ratios of few repeats.

With fewer than three repeats, six of a median, there is no interval, and the note has the reason: the spread of two values is unreliable.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST = 3
"""Minimum number of repeats for an interval."""


@dataclass(frozen=True)
class Estimate:
    """Value with its interval. ``low`` and ``high`` are None if the data do not support one, and ``note`` has the reason."""

    value: float
    low: float | None
    high: float | None
    confidence: float | None
    n: int
    method: str
    note: str = ""

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate times a known positive factor, such as a change of unit."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return replace(self, value=self.value * factor, low=low, high=high)


def student(confidence: float, degrees: float) -> float:
    """Return the two-sided quantile of Student's t, such as 4.303 for 95 % and 2 degrees of freedom.

    The first call imports scipy.special, about 0.2 s once per process.
    """
    from scipy.special import stdtrit  # scipy.stats takes four times as long to import

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def t_half(parts: Sequence[tuple[float, int]], confidence: float) -> float:
    """Return t times the root of a sum of variances, each with its degrees of freedom (Welch–Satterthwaite)."""
    variance = math.fsum(part for part, _ in parts)
    # Squares of tiny variances underflow to zero. The spread is then negligible.
    squares = math.fsum(part**2 / degrees for part, degrees in parts if part)
    return student(confidence, variance**2 / squares) * math.sqrt(variance) if squares > 0 else 0.0


def _too_few(n: int) -> str:
    return f"no interval: {n} repeat{'' if n == 1 else 's'}, at least {LEAST} are needed"


def mean_interval(values: Sequence[float], confidence: float = 0.95, *, signed: bool = False) -> Estimate:
    """Estimate the mean with Student's t interval over the repeats.

    ``signed`` is whether the quantity, such as a logarithm, may be negative. If it may not and the interval would be, there is no
    interval, and the note has the range of the repeats: an example are retransmits of 214 ± 239 %.

    Raises:
        ValueError: no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("a mean needs at least one value")
    mean = math.fsum(values) / n
    if n < LEAST:
        return Estimate(mean, None, None, None, n, "mean of repeats", _too_few(n))
    half = student(confidence, n - 1) * statistics.stdev(values) / math.sqrt(n)
    if not signed and min(values) >= 0 and half > mean:
        scatter = f"no interval: the {n} repeats range from {min(values):.3g} to {max(values):.3g}"
        return Estimate(mean, None, None, None, n, "mean of repeats", scatter)
    return Estimate(mean, mean - half, mean + half, confidence, n, "mean of repeats, Student's t interval")


def share_interval(hits: int, n: int, confidence: float = 0.95) -> Estimate:
    """Estimate a share of independent trials with the exact interval of Clopper and Pearson (Biometrika 26, 1934).

    Raises:
        ValueError: no trials.
    """
    if n < 1:
        raise ValueError("a share needs at least one trial")
    from scipy.special import betaincinv  # scipy.stats takes four times as long to import

    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return Estimate(hits / n, low, high, confidence, n, "share of the trials, Clopper-Pearson interval")


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Estimate the median with the exact interval of order statistics (Hahn and Meeker, Statistical Intervals, section 5.2).

    From the k-th smallest to the k-th largest of n values it covers with 1 - 2 P(B < k), where B is binomial of n and 1/2, in any
    distribution. Fewer than six values do not reach 95 %.

    Raises:
        ValueError: no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("a median needs at least one value")
    ordered = sorted(values)
    median = float(statistics.median(ordered))
    outside = _rank(n, (1 - confidence) / 2)
    if outside == 0:
        least = math.ceil(1 - math.log2(1 - confidence))
        return Estimate(median, None, None, None, n, "median of repeats", f"no interval: {n} repeats, a median needs at least {least}")
    return Estimate(median, float(ordered[outside - 1]), float(ordered[n - outside]), confidence, n, "median of repeats, order statistics")


def _rank(n: int, tail: float) -> int:
    """Return the largest k with P(B < k) at most ``tail``, where B is binomial of n and 1/2. From 1,000 on by the normal approximation."""
    if n > 1000:
        return math.floor(n / 2 + statistics.NormalDist().inv_cdf(tail) * math.sqrt(n) / 2)
    k, below = 0, 0.0
    while (below := below + math.comb(n, k) / 2**n) <= tail:
        k += 1
    return k


def ratio_of_means(numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Estimate the ratio of two independent means, with an interval on the logarithm.

    Delta method with Welch–Satterthwaite degrees of freedom: ln(ȳ/x̄) ± t √(s²ᵧ/(nᵧ ȳ²) + s²ₓ/(nₓ x̄²)). For relative errors of
    a few percent it agrees with Fieller's interval, and it is never negative. ``n`` is the smaller number of repeats.

    Raises:
        ValueError: no values on a side, or a mean that is not above zero.
    """
    if not numerator or not denominator:
        raise ValueError("a ratio of means needs values on both sides")
    n = min(len(numerator), len(denominator))
    mean_above, mean_below = math.fsum(numerator) / len(numerator), math.fsum(denominator) / len(denominator)
    if mean_above <= 0 or mean_below <= 0:
        raise ValueError(f"a ratio of means needs means above zero, not {mean_above:g} and {mean_below:g}")
    ratio = mean_above / mean_below
    if n < LEAST:
        return Estimate(ratio, None, None, None, n, "ratio of means", _too_few(n))
    parts = [(statistics.variance(v) / (len(v) * m**2), len(v) - 1) for v, m in ((numerator, mean_above), (denominator, mean_below))]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Estimate(ratio, ratio, ratio, confidence, n, "ratio of means, log t interval", "the repeats do not differ at all")
    spread = math.exp(t_half(parts, confidence))
    return Estimate(ratio, ratio / spread, ratio * spread, confidence, n, "ratio of means, log t interval (Welch)")
