"""Knee of a curve that ends in a plateau: the size beyond which more brings no gain.

The model is the linear plateau (R. L. Anderson & L. A. Nelson, A family of models involving intersecting straight lines and
concomitant experimental designs useful in evaluating response to fertilizer nutrients, Biometrics 31, 1975): a straight line up
to the knee and a constant beyond it, fitted by least squares. The knee's interval is that of the profile likelihood: all knees
with a residual sum of squares of at most RSS(best) × (1 + t²/(n − 3)) (D. M. Bates & D. G. Watts, Nonlinear Regression Analysis
and Its Applications, 1988, section 6.1). Such an interval can be asymmetric.

Throughput against memory is fitted as *time per transaction*, with equal relative errors. With uniform access every page of
memory saves the same number of reads until no reads remain, so that time falls linearly, and throughput does not. With skewed
access time falls in a convex curve, so the line is fitted only near the plateau (LOCAL).

Pure Python, because studies call it between trials. Only the t quantile uses SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.analysis.intervals import student

Kind = Literal["knee", "flat", "rising", "cliff", "unclear", "unknown"]
"""'knee': located. 'flat': the smallest size is as good as the largest. 'rising': the largest size is not enough. 'cliff': flat,
and smaller sizes run out of memory. 'unclear': the spread could hide a knee. 'unknown': too few sizes."""

METHOD = "linear plateau of the time per transaction (Anderson & Nelson 1975), profile likelihood interval"
CLIFF = "smallest size that runs; low is the largest that runs out of memory"

LEAST_SIZES = 4
"""Minimum number of sizes. A line, a plateau and a knee are three unknowns, so fewer sizes always fit exactly."""
GAIN = 0.03
"""Minimum share by which the plateau's throughput exceeds that of the smallest size. Below it there is no knee."""
RESOLVED = 0.10
"""A curve is flat only if a difference of this share between the two halves of its measurements would be detectable."""
LOCAL = 3.0
"""Maximum time per transaction, as a multiple of the plateau's, of sizes in the fit, if enough sizes remain."""
_STEPS = 12
"""Knees tried between two neighbouring sizes. Bisection then locates the interval's ends."""


@dataclass(frozen=True)
class Knee:
    """Result of a fit. ``at``, ``low`` and ``high`` are sizes. An end of the interval beyond the data is None.

    ``plateau`` is the throughput beyond the knee. ``gain`` is the plateau over the fitted throughput of the smallest fitted
    size, less one. ``slope`` is in time per transaction per size. ``n`` measurements were fitted, from size ``first`` on.
    ``note`` is the reason for a missing number, or a limitation.
    """

    kind: Kind
    at: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    n: int = 0
    plateau: float | None = None
    gain: float | None = None
    slope: float = 0.0
    first: float = 0.0
    chance: float = 1.0
    note: str = ""

    @property
    def half_width(self) -> float | None:
        """Half of the interval as a share of the knee. None if an end is open."""
        if self.at is None or self.low is None or self.high is None or self.at <= 0:
            return None
        return (self.high - self.low) / 2 / self.at

    def throughput(self, size: float) -> float | None:
        """Return the fitted throughput at a size. None without a fit, or below the fitted sizes."""
        if self.plateau is None or self.plateau <= 0 or size < self.first:
            return None
        if self.at is None:
            return self.plateau
        time = 1 / self.plateau + self.slope * min(size - self.at, 0.0)
        return 1 / time if time > 0 else None


def find_knee(sizes: Sequence[float], throughputs: Sequence[float], *, dead: Sequence[float] = (), confidence: float = 0.95) -> Knee:
    """Find the knee of throughput against size.

    Args:
        sizes: one for each measurement, in any unit. A size with repeats occurs several times.
        throughputs: above zero.
        dead: sizes that ran out of memory.
        confidence: of the interval.

    Raises:
        ValueError: the lengths differ, or a throughput is not above zero.
    """
    if len(sizes) != len(throughputs) or any(not value > 0 for value in throughputs):
        raise ValueError(f"a knee needs one throughput above zero for each size, not {len(throughputs)} for {len(sizes)}")
    largest_dead = max(dead, default=None)
    pairs = sorted((s, x) for s, x in zip(sizes, throughputs, strict=True) if largest_dead is None or s > largest_dead)
    knee = _fit_near_plateau([s for s, _ in pairs], [1 / x for _, x in pairs], confidence)
    if knee.kind in ("flat", "unknown") and largest_dead is not None and pairs:
        plateau = knee.plateau or sum(x for _, x in pairs) / len(pairs)
        smallest = pairs[0][0]
        if knee.kind == "flat" or all(x >= plateau / (1 + GAIN) for _, x in pairs):
            note = "throughput is the same at all sizes that run"
            return replace(
                knee, kind="cliff", at=smallest, low=largest_dead, high=smallest, plateau=plateau, first=smallest, slope=0.0, note=note
            )
    if largest_dead is not None and knee.kind == "knee" and (knee.low is None or knee.low < largest_dead):
        knee = replace(knee, low=largest_dead)
    return knee


def hinge(
    x: Sequence[float], y: Sequence[float], *, weights: Sequence[float] | None = None, falling: bool = False, confidence: float = 0.95
) -> Knee:
    """Fit the linear plateau to any y against x. ``kind`` is 'knee' or 'unknown'.

    ``plateau`` is the constant and ``slope`` the line's, which with ``falling`` is at most 0. ``gain`` is the excess of the
    line's start over the plateau, as a share of the plateau. ``chance`` is the probability that a constant fits this much worse
    by chance.
    """
    pairs = sorted(zip(x, y, weights or [1.0] * len(x), strict=True))
    distinct = sorted({a for a, *_ in pairs})
    if len(distinct) < LEAST_SIZES:
        note = f"{len(distinct)} size{'' if len(distinct) == 1 else 's'} measured; a knee requires {LEAST_SIZES}"
        return Knee("unknown", confidence=confidence, n=len(pairs), note=note)
    fit = _Fit([a for a, _, _ in pairs], [b for _, b, _ in pairs], [c for *_, c in pairs], falling=falling)
    at = fit.best()
    low, high = fit.interval(at, confidence)
    plateau, slope, rss = fit.at(at)
    gain = slope * min(distinct[0] - at, 0.0) / plateau if plateau else None
    chance = _chance_of_no_knee(fit.constant, rss, len(pairs))
    return Knee("knee", at, low, high, confidence, len(pairs), plateau, gain, slope, distinct[0], chance)


def _fit_near_plateau(sizes: Sequence[float], times: Sequence[float], confidence: float) -> Knee:
    """Fit all sizes, then again without those far above the plateau."""
    knee = _fit(sizes, times, confidence)
    if not knee.plateau:
        return knee
    # A poor fit can miss the plateau. The largest size is then its best estimate.
    level = min(1 / knee.plateau, _mean([t for s, t in zip(sizes, times, strict=True) if s == sizes[-1]]))
    near = [(s, t) for s, t in zip(sizes, times, strict=True) if t <= LOCAL * level]
    excluded = len(sizes) - len(near)
    if not excluded or len({s for s, _ in near}) < LEAST_SIZES:
        return knee
    refitted = _fit([s for s, _ in near], [t for _, t in near], confidence)
    return refitted if refitted.kind == "knee" else knee


def _fit(sizes: Sequence[float], times: Sequence[float], confidence: float) -> Knee:
    knee = hinge(sizes, times, weights=[1 / t**2 for t in times], falling=True, confidence=confidence)  # equal relative errors
    if knee.at is None or knee.plateau is None:
        return knee
    largest = max(sizes)
    if (knee.gain or 0.0) < GAIN or knee.chance > 1 - confidence:
        note = f"throughput at {knee.first:g} equals that at {largest:g}: the knee, if any, is below the smallest size measured"
        level = math.fsum(1 / t for t in times) / len(times)
        spread = math.sqrt(math.fsum((1 / t / level - 1) ** 2 for t in times) / (len(times) - 1))
        if student(confidence, len(times) - 2) * spread * 2 / math.sqrt(len(times)) > RESOLVED:
            note = (
                f"throughputs vary by ±{100 * spread:.0f} % regardless of size, which could hide a knee; measure longer, or on an idle host"
            )
            return replace(knee, kind="unclear", at=None, low=None, high=None, plateau=level, slope=0.0, note=note)
        return replace(knee, kind="flat", at=None, low=None, high=None, plateau=level, slope=0.0, note=note)
    at, knee = knee.at, replace(knee, plateau=1 / knee.plateau)
    if sum(size >= at * (1 - 1e-9) for size in set(sizes)) < 2:
        note = f"throughput still rises at {largest:g}, the largest size measured: the knee is beyond it"
        return replace(knee, kind="rising", at=None, high=None, note=note)
    notes = (
        "the interval reaches beyond the largest size measured" if knee.high is None else "",
        "the interval reaches below the smallest size measured" if knee.low is None else "",
    )
    return replace(knee, note="; ".join(filter(None, notes)))


def _chance_of_no_knee(constant: float, rss: float, n: int) -> float:
    """Return the probability of such an improvement over a constant by chance.

    It is the tail of the F distribution with 2 and n − 3 degrees of freedom, in closed form.
    """
    if n <= 3 or constant <= 0:
        return 1.0
    if rss <= 1e-24 * constant:
        return 0.0
    ratio = max(constant - rss, 0.0) / 2 / (rss / (n - 3))
    return float((1 + 2 * ratio / (n - 3)) ** (-(n - 3) / 2))


class _Fit:
    """Weighted least squares of plateau and slope for any knee. Sizes ascend."""

    def __init__(self, x: Sequence[float], y: Sequence[float], weights: Sequence[float], *, falling: bool = False) -> None:
        self.rows = list(zip(x, y, weights, strict=True))
        self.distinct = sorted(set(x))
        self.falling = falling
        total = math.fsum(w for *_, w in self.rows)
        self.level = math.fsum(w * b for _, b, w in self.rows) / total
        self.constant = math.fsum(w * (b - self.level) ** 2 for _, b, w in self.rows)

    def at(self, knee: float) -> tuple[float, float, float]:
        """Return (plateau, slope, RSS) for a given knee: y = plateau + slope × min(x − knee, 0)."""
        rows = [(min(a - knee, 0.0), b, w) for a, b, w in self.rows]
        total = math.fsum(w for *_, w in rows)
        mean = math.fsum(w * z for z, _, w in rows) / total
        covariance = math.fsum(w * (z - mean) * b for z, b, w in rows)
        variance = math.fsum(w * (z - mean) ** 2 for z, _, w in rows)
        slope = covariance / variance if variance > 0 else 0.0
        if self.falling and slope > 0:
            return self.level, 0.0, self.constant
        plateau = self.level - slope * mean
        return plateau, slope, math.fsum(w * (b - plateau - slope * z) ** 2 for z, b, w in rows)

    def best(self) -> float:
        """Return the knee with the smallest RSS.

        Candidates are the exact solution of each split if it is within the gap, and the measured sizes. The knee is at least
        the second size, because one size does not determine a line.
        """
        candidates = list(self.distinct[1:])
        for left, right in zip(self.distinct[1:-1], self.distinct[2:], strict=True):
            knee = self._split(left)
            if knee is not None and left < knee < right:
                candidates.append(knee)
        return min(candidates, key=lambda knee: self.at(knee)[2])

    def _split(self, left: float) -> float | None:
        """Return the intersection of the line through sizes up to ``left`` with the mean of the others."""
        lower = [row for row in self.rows if row[0] <= left]
        upper = [row for row in self.rows if row[0] > left]
        total = math.fsum(w for *_, w in lower)
        mean_x = math.fsum(w * a for a, _, w in lower) / total
        mean_y = math.fsum(w * b for _, b, w in lower) / total
        variance = math.fsum(w * (a - mean_x) ** 2 for a, _, w in lower)
        slope = math.fsum(w * (a - mean_x) * b for a, b, w in lower) / variance
        level = math.fsum(w * b for _, b, w in upper) / math.fsum(w for *_, w in upper)
        return mean_x + (level - mean_y) / slope if slope else None

    def interval(self, best: float, confidence: float) -> tuple[float | None, float | None]:
        """Return the outermost knees consistent with the data. None for an end beyond the data."""
        degrees = len(self.rows) - 3
        rss = self.at(best)[2]
        limit = rss * (1 + student(confidence, degrees) ** 2 / degrees) + 1e-15 * self.constant
        grid = [best]
        for left, right in zip(self.distinct[:-1], self.distinct[1:], strict=True):
            grid += [left + (right - left) * step / _STEPS for step in range(_STEPS)]
        grid = sorted({*grid, self.distinct[-1]})
        accepted_knees = [knee for knee in grid if self.at(knee)[2] <= limit]
        if not accepted_knees:
            return best, best

        def edge(accepted: float, rejected: float) -> float:
            for _ in range(40):
                middle = (accepted + rejected) / 2
                accepted, rejected = (middle, rejected) if self.at(middle)[2] <= limit else (accepted, middle)
            return accepted

        first_index, last_index = grid.index(accepted_knees[0]), grid.index(accepted_knees[-1])
        low = None if first_index == 0 else edge(grid[first_index], grid[first_index - 1])
        high = None if last_index == len(grid) - 1 else edge(grid[last_index], grid[last_index + 1])
        return low, high


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
