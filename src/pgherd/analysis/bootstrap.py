"""Intervals by resampling: parameters of a fitted model, functions of the means of repeats, and medians.

Medians of six or more repeats have exact intervals. The k-th smallest and k-th largest of n repeats enclose the true median
with probability 1 − 2 P(B ≤ k − 1), with B binomial of n and 1/2, for any distribution (David and Nagaraja, Order Statistics,
3rd ed. 2003, section 7.1). The range of fewer than six repeats has a confidence below 95 %: three repeats' range has 75 %.
Their intervals use a pooled spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgherd.analysis.intervals import LEAST, Estimate, student
from pgherd.analysis.scaling_model import Array, Fit, observations

OUTLYING = 0.02
"""Probability of a variance as large as a point's, given the pooled one of the others, below which the point keeps its own spread."""
MIN_DEGREES = 3
"""Minimum degrees of freedom of a pooled spread."""


@dataclass(frozen=True)
class Spread:
    """Relative variance of the repeats of one point, with its degrees of freedom."""

    variance: float
    degrees: int


def percentiles(draws: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of draws. Infinite draws are kept, so an unbounded end is infinite."""
    ordered = np.sort(draws)
    tail = (1 - confidence) / 2
    last = len(ordered) - 1
    return float(ordered[math.floor(tail * last)]), float(ordered[math.ceil((1 - tail) * last)])


def bootstrap_fit(
    fitted: Fit, loads: Sequence[float], throughputs: Sequence[float], *, resamples: int = 200, seed: int = 1, confidence: float = 0.95
) -> Fit:
    """Add percentile intervals of the parameters, the knee and the peak, by a parametric bootstrap.

    Each draw takes, for each load, a standard deviation from the posterior of its residuals' variance (``load_variances``), then
    normal throughputs around the fitted curve, and the model is fitted again. Residuals are in the units of the weights
    (relative or equal). Lack of fit counts as noise, so a poor model gets wide intervals. Intervals of rates are bias-corrected
    (``corrected_percentiles``). Those of positions (k, knee, peak) are not, because their draws heap at the measured loads. The
    seed makes intervals reproducible. A fit with no more observations than parameters is returned unchanged.
    """
    x, y = observations(loads, throughputs)
    if len(x) <= len(fitted.parameters):
        return fitted
    curve = fitted.model.curve(fitted.vector, x)
    scale = y if fitted.weights == "relative" else np.full_like(y, y.mean())
    rng = np.random.default_rng(seed)
    drawn = np.empty((resamples, len(x)))
    variances = load_variances(x, (y - curve) / scale, _leverages(fitted, x, scale))
    for load, (variance, free) in variances.items():
        at = x == load
        deviation = np.sqrt(variance * free / rng.chisquare(free, resamples))
        drawn[:, at] = curve[at] + scale[at] * deviation[:, None] * rng.standard_normal((resamples, int(at.sum())))
    drawn = np.maximum(drawn, y.min() * 1e-3)  # a throughput cannot be negative
    scales = drawn if fitted.weights == "relative" else np.full_like(drawn, y.mean())
    estimates = fitted.model.estimate(x, drawn, scales)
    intervals = {}
    for i, name in enumerate(fitted.model.parameters):
        draws = estimates[:, i]
        intervals[name] = (
            percentiles(draws, confidence) if name == "k" else corrected_percentiles(draws, fitted.parameters[name], confidence)
        )
    for name, locate in (("knee", fitted.model.knee), ("peak", fitted.model.peak)):
        if getattr(fitted, name) is not None:
            locations = [locate(row) for row in estimates]
            low, high = percentiles(np.array([math.inf if place is None else place for place in locations]), confidence)
            last = np.unique(x)[-2:]
            if name == "knee" and last[0] * (1 - 1e-9) <= high <= last[-1]:
                high = float(last[-1])  # with one load beyond the knee, any position between the last two fits equally well
            intervals[name] = (low, high)
    return replace(fitted, intervals=intervals)


NOISY = 2.5
"""Ratio of a load's variance to that of the others from which it has a separate one. A lower ratio doubles the intervals of equally noisy
loads. At a higher one, intervals miss the truth if a single load is noisy."""


def load_variances(loads: Array, residuals: Array, leverages: Array) -> dict[float, tuple[float, float]]:
    """Return load → (variance of its residuals, degrees of freedom).

    Loads share a pooled variance, except those with repeats that are much noisier than the rest, one after another and at most
    half of them. Squares are divided by 1 − leverage, the expected share that the fit leaves of them.
    """
    distinct = [float(load) for load in np.unique(loads)]
    squares = {load: float(np.sum(residuals[loads == load] ** 2)) for load in distinct}
    free = {load: max(float(np.sum(1 - leverages[loads == load])), 1e-3) for load in distinct}
    quiet, noisy = set(distinct), set[float]()
    while len(noisy) < len(distinct) // 2 and len(quiet) > 2:
        ratios = {load: squares[load] / free[load] / _common_variance(quiet - {load}, squares, free) for load in quiet if free[load] >= 1}
        worst = max(sorted(ratios), key=lambda load: ratios[load], default=None)
        if worst is None or ratios[worst] <= NOISY:
            break
        quiet.remove(worst)
        noisy.add(worst)
    together = (_common_variance(quiet, squares, free), sum(free[load] for load in quiet))
    return {load: together if load in quiet else (squares[load] / free[load], free[load]) for load in distinct}


def _common_variance(chosen: set[float], squares: Mapping[float, float], free: Mapping[float, float]) -> float:
    variance = math.fsum(squares[load] for load in chosen) / math.fsum(free[load] for load in chosen)
    return max(variance, 1e-30)  # a perfect fit: rounding errors are no noise


def _leverages(fitted: Fit, loads: Array, scale: Array) -> Array:
    """Return the share of each observation in its own fitted value, at most 0.95."""
    jacobian = fitted.model.jacobian(fitted.vector, loads) / scale[:, None]
    unit = jacobian / np.maximum(np.linalg.norm(jacobian, axis=0), 1e-300)  # columns differ by orders of magnitude
    return np.asarray(np.clip(np.einsum("ij,ji->i", unit, np.linalg.pinv(unit)), 0, 0.95), dtype=float)


def corrected_percentiles(draws: Array, value: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the bias-corrected percentile interval of draws around an estimated value.

    The interval is shifted by the share of draws below the value (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
    section 14.3). At a bound, such as a parameter of zero, half of the draws that are equal to the value count as below it.
    """
    from scipy.special import ndtr, ndtri

    count = len(draws)
    below = float(np.mean(draws < value) + 0.5 * np.mean(draws == value))
    shift = 2 * ndtri(min(max(below, 0.5 / count), 1 - 0.5 / count))
    tail = ndtri(0.5 + confidence / 2)
    ordered = np.sort(draws)
    return float(ordered[math.floor(ndtr(shift - tail) * (count - 1))]), float(ordered[math.ceil(ndtr(shift + tail) * (count - 1))])


def relative_spreads(
    repeats: Sequence[Sequence[float]], groups: Sequence[int] | None = None, least: Sequence[float] | None = None
) -> list[Spread] | None:
    """Return the spread of each point's repeats, or None with fewer than three degrees of freedom in all.

    Points of a group share a pooled spread, since two or three repeats of one point say little about it: those of a two-level noise are
    on one level in a quarter of the cases. A point whose variance is larger than the pooled one of the others by more than chance (F test
    with ``OUTLYING``) keeps its own, so that it neither gets their narrow interval nor widens theirs. At most half of the points of a
    group do, the most deviating first. Where a point and its neighbours together scatter more, they decide: noise that begins at one number
    of databases or clients also meets the next one. ``benchmarks/coverage.py`` has the coverage of the intervals.

    Args:
        repeats: values of each point.
        groups: the group of each point, such as below a full host and from there on. None: one group. Groups with too few repeats are
            merged into one.
        least: the smallest variance of each point that other evidence allows, such as the seconds within its trials.
    """
    means = [math.fsum(values) / len(values) for values in repeats]
    single = [
        Spread(float(np.var(np.asarray(values) / mean, ddof=1)) if len(values) > 1 and mean > 0 else 0.0, len(values) - 1)
        for values, mean in zip(repeats, means, strict=True)
    ]
    of_point = list(groups) if groups is not None else [0] * len(repeats)
    members = [[i for i, group in enumerate(of_point) if group == name] for name in sorted(set(of_point))]
    if any(sum(single[i].degrees for i in group) < MIN_DEGREES for group in members):
        members = [list(range(len(repeats)))]
    if sum(spread.degrees for spread in single) < MIN_DEGREES:
        return None
    spreads = list(single)
    for group in members:
        for i, spread in _pooled(group, single).items():
            spreads[i] = spread
        for at, i in enumerate(group):
            near = _pool([single[j] for j in group[max(at - 1, 0) : at + 2]])
            if near.variance > spreads[i].variance * (1 + 1e-9):
                spreads[i] = near
    return [
        replace(spread, variance=max(spread.variance, bound)) for spread, bound in zip(spreads, least or [0.0] * len(means), strict=True)
    ]


def _pooled(group: Sequence[int], single: Sequence[Spread]) -> dict[int, Spread]:
    """Return the pooled spread of the points of a group that do not keep their own."""
    from scipy.special import fdtrc

    pool = list(group)
    while len(pool) > (len(group) + 1) // 2:
        probabilities = []
        for i in pool:
            others = _pool([single[j] for j in pool if j != i])
            if others.degrees > MIN_DEGREES and others.variance > 0 and single[i].degrees:
                probabilities.append((float(fdtrc(single[i].degrees, others.degrees, single[i].variance / others.variance)), i))
        probability, outlying = min(probabilities, default=(1.0, -1))
        if probability >= OUTLYING:
            break
        pool.remove(outlying)
    return dict.fromkeys(pool, _pool([single[i] for i in pool]))


def _pool(spreads: Sequence[Spread]) -> Spread:
    degrees = sum(spread.degrees for spread in spreads)
    return Spread(sum(spread.variance * spread.degrees for spread in spreads) / degrees if degrees else 0.0, degrees)


def mean_of_point(values: Sequence[float], spread: Spread | None, confidence: float = 0.95) -> Estimate:
    """Estimate the mean of a point's repeats, with Student's t interval by its spread of ``relative_spreads``.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a mean needs at least one value")
    mean = math.fsum(values) / len(values)
    if spread is None or not spread.degrees:
        return Estimate(mean, None, None, None, len(values), "mean of repeats", "no interval: too few repeats")
    half = student(confidence, spread.degrees) * math.sqrt(spread.variance / len(values)) * mean
    method = "mean of repeats, Student's t interval" + (" by the pooled spread" if spread.degrees >= len(values) else "")
    return Estimate(mean, mean - half, mean + half, confidence, len(values), method)


def repeats_for(spread: Spread, share: float, confidence: float = 0.95, most: int = 50) -> int | None:
    """Return the number of repeats for which the t interval of a mean is within ±``share`` of it, or None if ``most`` are not enough.

    It assumes that further repeats have the same spread. The result is a hint, because the spread of few values is uncertain.
    """
    deviation = math.sqrt(spread.variance)
    return next(
        (n for n in range(LEAST, most + 1) if student(confidence, max(spread.degrees, n - 1)) * deviation / math.sqrt(n) <= share), None
    )


def draw_means(
    repeats: Sequence[Sequence[float]],
    groups: Sequence[int] | None = None,
    least: Sequence[float] | None = None,
    *,
    resamples: int = 400,
    seed: int = 1,
) -> Array | None:
    """Draw plausible true means of several points, shape (resamples, points).

    Each mean is moved by its standard error times a draw of Student's t, with the spread of ``relative_spreads``. None if that
    is None.
    """
    spreads = relative_spreads(repeats, groups, least)
    if spreads is None:
        return None
    means = np.array([math.fsum(values) / len(values) for values in repeats])
    rng = np.random.default_rng(seed)
    draws = np.empty((resamples, len(means)))
    for i, (values, spread) in enumerate(zip(repeats, spreads, strict=True)):
        draws[:, i] = means[i] * (1 + math.sqrt(spread.variance / len(values)) * rng.standard_t(max(spread.degrees, 1), resamples))
    return np.maximum(draws, means * 1e-3)


POOLED = "median of repeats, interval from the spread of repeats pooled over the points"


def exact_median(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Estimate the median with the narrowest symmetric interval of order statistics that has at least this confidence.

    The result's ``confidence`` is the exact one. There is no interval if the range of all repeats does not reach the
    confidence.

    Raises:
        ValueError: no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("a median needs at least one value")
    ordered = sorted(values)
    median = float(statistics.median(ordered))
    rank = _rank(n, confidence)
    if rank is None:
        coverage = f", whose range contains the true median with {100 * _coverage(n, 1):.0f} % confidence" if n > 1 else ""
        note = f"no interval: {n} repeat{'' if n == 1 else 's'}{coverage}"
        return Estimate(median, None, None, None, n, "median of repeats", note)
    method = f"median of repeats, exact interval from the {_ordinal(rank)} to the {_ordinal(n + 1 - rank)} of {n} in order"
    return Estimate(median, float(ordered[rank - 1]), float(ordered[n - rank]), _coverage(n, rank), n, method)


def draw_medians(repeats: Sequence[Sequence[float]], *, resamples: int = 1000, seed: int = 1) -> Array | None:
    """Draw plausible true medians of several points, shape (resamples, points). None if no spread is known.

    A parametric bootstrap. Each draw takes a standard deviation from its posterior (that of ``relative_spreads`` times √(df /
    χ²)), then as many normal repeats as the point has. Their median is the relative error of the point's median.
    """
    spreads = relative_spreads(repeats)
    if spreads is None:
        return None
    rng = np.random.default_rng(seed)
    draws = np.empty((resamples, len(repeats)))
    for i, (values, spread) in enumerate(zip(repeats, spreads, strict=True)):
        deviation = np.sqrt(spread.variance * spread.degrees / rng.chisquare(max(spread.degrees, 1), resamples))
        errors = np.median(rng.standard_normal((resamples, len(values))), axis=1) * deviation
        draws[:, i] = float(statistics.median(values)) * np.maximum(1 + errors, 1e-3)
    return draws


def median_estimate(values: Sequence[float], drawn: Array | None, confidence: float = 0.95) -> Estimate:
    """Estimate the median of one point: with the exact interval if possible, otherwise from its column of ``draw_medians``.

    Raises:
        ValueError: no values.
    """
    exact = exact_median(values, confidence)
    if exact.low is not None or drawn is None:
        return exact
    low, high = percentiles(drawn, confidence)
    return Estimate(exact.value, min(low, exact.value), max(high, exact.value), confidence, exact.n, POOLED)


def _rank(n: int, confidence: float) -> int | None:
    """Return the largest k for which the k-th smallest to the k-th largest reach the confidence, or None."""
    fitting = [k for k in range(1, n // 2 + 1) if _coverage(n, k) >= confidence]
    return fitting[-1] if fitting else None


def _coverage(n: int, rank: int) -> float:
    """Return the probability that the rank-th smallest to the rank-th largest of n values enclose the median."""
    return 1 - 2 * sum(math.comb(n, i) for i in range(rank)) / 2.0**n


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
