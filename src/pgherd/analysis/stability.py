"""Stability of a throughput over hours, steady state of a series of rounds, and fairness among equal databases.

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
"""Minimum number of independent windows for a drift interval: three more than its two parameters."""


@dataclass(frozen=True)
class Steadiness:
    """Drift, worst window and spread of a series.

    ``drift`` is the relative change per hour (0.01 = +1 %/h). ``worst`` is the smallest window over the median, and
    ``worst_at`` its index. ``variation`` is the coefficient of variation. ``autocorrelation`` is that of the residuals at lag
    1.
    """

    drift: Estimate
    worst: float
    worst_at: int
    variation: float
    autocorrelation: float


def steadiness(hours: Sequence[float], throughputs: Sequence[float], confidence: float = 0.95) -> Steadiness:
    """Measure the stability of a series of window throughputs.

    Drift is the least-squares slope over time, relative to the mean. Neighbouring windows are correlated, so the number of
    independent windows is n (1−ρ)/(1+ρ), with ρ the residuals' lag-1 autocorrelation (at least 0). There is no interval if
    fewer than three remain beyond the two parameters (Santer et al. 2000).

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
    rho = min(max(lag / squares, 0.0), 0.99) if squares > 0 else 0.0
    independent = n * (1 - rho) / (1 + rho)
    method = "least-squares slope over the windows' mean"
    if independent < LEAST_WINDOWS:
        note = f"no interval: {n} windows correspond to {independent:.1f} independent ones (lag-1 autocorrelation {rho:.2f})"
        note += f"; {LEAST_WINDOWS} are needed"
        drift = Estimate(slope / mean, None, None, None, n, method, note)
    else:
        error = math.sqrt(squares / (independent - 2) / spread)
        half = student(confidence, independent - 2) * error / mean
        method += f", t interval for {independent:.0f} independent windows"
        drift = Estimate(slope / mean, slope / mean - half, slope / mean + half, confidence, n, method)
    worst = min(range(n), key=throughputs.__getitem__)
    median = statistics.median(throughputs)
    return Steadiness(drift, throughputs[worst] / median if median > 0 else 0.0, worst, statistics.stdev(throughputs) / mean, rho)


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
    """Return the means of ``count`` consecutive parts of a series, all of the same length.

    Values beyond the last part are ignored. Empty if the series has fewer than ``count`` values.
    """
    length = len(series) // count
    if length == 0:
        return []
    return [math.fsum(series[at * length : (at + 1) * length]) / length for at in range(count)]


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
