"""Stability of a throughput over hours and within a trial, steady state of a series of rounds, and fairness among equal databases.

The steady-state rule is that of SNIA's Solid State Storage Performance Test Specification (version 2.0.2, "Steady State"). Over
a window of five rounds the values range by at most 20 % of their mean. The least-squares line through them changes by at most
10 % of the mean from the first round to the last.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate, student

LEAST_WINDOWS = 5
"""Minimum number of windows of a soak."""
LEAST_FOR_INTERVAL = 20
"""Minimum number of windows for a drift interval: fewer cannot show how much neighbours resemble each other."""
_MAX_AUTOCORRELATION = 0.99
LEAST_SECONDS = 5
"""Minimum number of seconds of a trial that show its spread."""
_MOST_WITHIN_TRIAL = 0.8
"""Maximum autocorrelation of the seconds of a trial."""


@dataclass(frozen=True)
class Steadiness:
    """Drift, worst window and spread of a series.

    ``drift`` is the relative change per hour (0.01 = +1 %/h). ``worst`` is the smallest window over the median, and
    ``worst_at`` its index. ``variation`` is the coefficient of variation. ``autocorrelation`` is that of the residuals at lag
    1, at least 0.
    """

    drift: Estimate
    worst: float
    worst_at: int
    variation: float
    autocorrelation: float


def steadiness(hours: Sequence[float], throughputs: Sequence[float], confidence: float = 0.95) -> Steadiness:
    """Measure the stability of a series of window throughputs.

    Drift is the least-squares slope over time, relative to the mean. Neighbouring windows are correlated: they are taken as a
    first-order autoregressive series. The residuals' autocorrelation ρ is biased towards 0, the more the shorter the series, so
    the ρ is used whose expected value is the residuals' plus half its standard error. The slope's variance is that of such a
    series, and its degrees of freedom are two fewer than n (1−ρ)/(1+ρ) (Santer et al. 2000), at least one. There is no interval
    of fewer than 20 windows. Simulated coverage: ``benchmarks/coverage_models.py``.

    Args:
        hours: middle of each window, in hours.
        throughputs: mean throughput in each.
        confidence: of the drift's interval.

    Raises:
        ValueError: fewer than two windows, or a mean that is not above zero.
    """
    n = len(throughputs)
    if n < 2 or len(hours) != n:
        raise ValueError(f"steadiness needs two windows or more with one time each, not {n} and {len(hours)}")
    mean = math.fsum(throughputs) / n
    if mean <= 0:
        raise ValueError(f"steadiness needs a mean above zero, not {mean:g}")
    centre = math.fsum(hours) / n
    spread = math.fsum((t - centre) ** 2 for t in hours)
    slope = math.fsum((t - centre) * (x - mean) for t, x in zip(hours, throughputs, strict=True)) / spread
    residuals = [x - mean - slope * (t - centre) for t, x in zip(hours, throughputs, strict=True)]
    squares = math.fsum(r * r for r in residuals)
    lag = math.fsum(a * b for a, b in itertools.pairwise(residuals))
    rho = min(lag / squares, _MAX_AUTOCORRELATION) if squares > 0 else 0.0
    method = "least-squares slope over the windows' mean"
    if n < LEAST_FOR_INTERVAL:
        note = f"no interval: {n} windows do not show how much neighbouring ones resemble each other; {LEAST_FOR_INTERVAL} are needed"
        drift = Estimate(slope / mean, None, None, None, n, method, note)
    else:
        likely = _series_autocorrelation(rho + 0.5 * math.sqrt((1 - rho**2) / n), n)
        independent = n * (1 - likely) / (1 + likely)
        moments = _residual_moments(likely, n)
        error = math.sqrt(squares * moments.slope / moments.squares / spread)
        half = student(confidence, max(independent - 2, 1.0)) * error / mean
        method += f", t interval for {independent:.0f} independent windows"
        drift = Estimate(slope / mean, slope / mean - half, slope / mean + half, confidence, n, method)
    worst = min(range(n), key=throughputs.__getitem__)
    median = statistics.median(throughputs)
    return Steadiness(drift, throughputs[worst] / median if median > 0 else 0.0, worst, statistics.stdev(throughputs) / mean, max(rho, 0.0))


@dataclass(frozen=True)
class _ResidualMoments:
    """Expected values for a straight line through a first-order autoregressive series of variance 1, at equal distances.

    ``squares`` and ``lag`` are sums of squares of the residuals, and of products of neighbours. ``slope`` is the variance of the
    slope, times the sum of squared distances from the middle.
    """

    squares: float
    lag: float
    slope: float


def _residual_moments(rho: float, n: int) -> _ResidualMoments:
    middle = (n - 1) / 2
    spread = math.fsum((i - middle) ** 2 for i in range(n))
    squares, lag, slope = float(n), rho * (n - 1), 0.0
    for column in ([1 / math.sqrt(n)] * n, [(i - middle) / math.sqrt(spread) for i in range(n)]):
        smeared = _smeared(column, rho)
        slope = math.fsum(a * b for a, b in zip(column, smeared, strict=True))
        squares -= slope
        lag += sum(
            slope * a * b - a * d - c * b for (a, b), (c, d) in zip(itertools.pairwise(column), itertools.pairwise(smeared), strict=True)
        )
    return _ResidualMoments(squares, lag, slope)


def _smeared(values: Sequence[float], rho: float) -> list[float]:
    """Return the product of the correlation matrix ρ^|i−j| with a vector."""
    forward = list(itertools.accumulate(values, lambda before, value: rho * before + value))
    backward = list(itertools.accumulate(reversed(values), lambda before, value: rho * before + value))[::-1]
    return [a + b - value for a, b, value in zip(forward, backward, values, strict=True)]


def _series_autocorrelation(residuals: float, n: int) -> float:
    """Return the autocorrelation of a series of n whose residuals from a line are expected to have this one, from 0 to 0.99."""
    low, high = 0.0, _MAX_AUTOCORRELATION
    for _ in range(20):
        middle = (low + high) / 2
        moments = _residual_moments(middle, n)
        low, high = (middle, high) if moments.lag < residuals * moments.squares else (low, middle)
    return (low + high) / 2


ROUNDS = 5
RANGE = 0.20
SLOPE = 0.10


@dataclass(frozen=True)
class SteadyWindow:
    """One window of rounds.

    ``range`` is (largest − smallest) / mean. ``excursion`` is the rise of the line over the window / mean, negative for a fall.
    """

    range: float
    excursion: float

    @property
    def steady(self) -> bool:
        """Whether both values are within the rule's bounds."""
        return self.range <= RANGE and abs(self.excursion) <= SLOPE


def rounds_of(series: Sequence[float], count: int = ROUNDS) -> list[float]:
    """Return the means of ``count`` consecutive parts of a series, whose lengths differ by at most one value.

    Empty if the series has fewer than ``count`` values.
    """
    n = len(series)
    if n < count:
        return []
    borders = [at * n // count for at in range(count + 1)]
    return [statistics.fmean(series[start:end]) for start, end in itertools.pairwise(borders)]


def steady_window(rounds: Sequence[float]) -> SteadyWindow | None:
    """Apply the rule to a whole window. None for fewer than two rounds, or if the mean is not above zero."""
    n = len(rounds)
    mean = math.fsum(rounds) / n if n else 0.0
    if n < 2 or not mean > 0:
        return None
    centre = (n - 1) / 2
    slope = math.fsum((at - centre) * (value - mean) for at, value in enumerate(rounds)) / math.fsum((at - centre) ** 2 for at in range(n))
    return SteadyWindow((max(rounds) - min(rounds)) / mean, slope * (n - 1) / mean)


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's fairness index (Σx)² / (n Σx²): 1 if all values are equal, 1/n if all but one are zero.

    R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984. None without values, or if all are zero.
    """
    top = max(values, default=0.0)
    if top <= 0:
        return None
    shares = [value / top for value in values]  # squares of raw rates could overflow or underflow
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def min_max(values: Sequence[float]) -> float | None:
    """Return smallest ÷ largest. None without values, or if all are zero."""
    top = max(values, default=0.0)
    return None if top <= 0 else min(values) / top


def variance_of_mean(trials: Sequence[Sequence[float]]) -> float:
    """Return the relative variance of a trial's mean by its seconds, pooled over the trials. 0: no trial has enough seconds.

    The seconds are a first-order autoregressive series, whose autocorrelation ρ is pooled over the trials and corrected for its bias in
    short series, (1 + 3ρ) / n (Kendall, Biometrika 41, 1954). The variance of the mean of n seconds is that of one second times f / n,
    f = 1 + 2 Σ (1 − k/n) ρᵏ. The variance within a trial is too low by (n − f) / (n − 1), which is corrected as well.
    """
    deviations = [
        [value / mean - 1 for value in seconds]
        for seconds in trials
        if len(seconds) >= LEAST_SECONDS and (mean := statistics.fmean(seconds)) > 0
    ]
    squares = math.fsum(value * value for series in deviations for value in series)
    if squares == 0:
        return 0.0
    n = statistics.fmean([len(series) for series in deviations])
    found = math.fsum(a * b for series in deviations for a, b in itertools.pairwise(series)) / squares
    rho = min(max(found + (1 + 3 * found) / n, 0.0), _MOST_WITHIN_TRIAL)
    inflation = 1 + 2 * math.fsum((1 - lag / n) * rho**lag for lag in range(1, math.ceil(n)))
    return squares / math.fsum(len(series) for series in deviations) * inflation / (n - inflation)
