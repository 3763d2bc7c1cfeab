"""The knee of a curve that ends in a plateau: how much is enough, beyond which more brings nothing.

The model is the linear plateau (R. L. Anderson & L. A. Nelson, A family of models involving intersecting straight lines and
concomitant experimental designs useful in evaluating response to fertilizer nutrients, Biometrics 31, 1975): a straight line up to
the knee, and a constant beyond it, fitted by least squares. The interval of the knee is that of the profile likelihood: all knees
whose residual sum of squares is at most RSS(best) × (1 + t²/(n − 3)) (D. M. Bates & D. G. Watts, Nonlinear Regression Analysis and
Its Applications, 1988, section 6.1); such a set need not lie evenly about the estimate.

Throughput against memory is fitted as *time per transaction*, with equal relative errors. Of a load whose accesses are all alike, every
page of memory saves the same number of reads until nothing is left to be read, so that time, and not throughput, falls in a straight
line. Of a skewed load it falls in a convex curve; so the line is fitted to the neighbourhood of the plateau only (LOCAL).

Pure Python: studies ask it between their trials, and must not wait for scientific libraries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.analysis.intervals import student

Kind = Literal["knee", "flat", "rising", "cliff", "unclear", "unknown"]
"""'knee': found. 'flat': the smallest size is as good as the largest. 'rising': the largest size is not yet enough. 'cliff': flat,
and what is smaller does not live at all. 'unclear': the spread could hide a knee. 'unknown': too few sizes."""

METHOD = "linear plateau of the time per transaction (Anderson & Nelson 1975), profile likelihood interval"
CLIFF = "smallest size that lives; low is the largest that does not"

LEAST_SIZES = 4
"""A line, a plateau and a knee are three unknowns: fewer sizes than this fit exactly, whatever they say."""
GAIN = 0.03
"""Throughput at the plateau must be higher than at the smallest size by this share, else there is no knee worth the name."""
RESOLVED = 0.10
"""A curve is called flat only where half of its measurements could be told from the other half if they differed by this share."""
LOCAL = 3.0
"""The line is fitted to sizes with at most so many times the time per transaction of the plateau, where enough sizes are left."""
_STEPS = 12
"""Knees tried between two neighbouring sizes; the interval's ends are then found by halving."""


@dataclass(frozen=True)
class Knee:
    """What was found. ``at`` with ``low`` and ``high`` are sizes; an end of the interval that lies beyond the data is None.

    ``plateau`` is the throughput beyond the knee, ``gain`` that throughput over the fitted one of the smallest size fitted, less one;
    ``slope`` is in time per transaction per size; ``n`` measurements were fitted, the smallest of which was of size ``first``.
    ``note`` says why there is no number, or what is open.
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
        """Half of the interval as a share of the knee; None where an end is open."""
        if self.at is None or self.low is None or self.high is None or self.at <= 0:
            return None
        return (self.high - self.low) / 2 / self.at

    def throughput(self, size: float) -> float | None:
        """Fitted throughput at a size; None where nothing was fitted, or below the sizes fitted."""
        if self.plateau is None or self.plateau <= 0 or size < self.first:
            return None
        if self.at is None:
            return self.plateau
        time = 1 / self.plateau + self.slope * min(size - self.at, 0.0)
        return 1 / time if time > 0 else None


def find_knee(sizes: Sequence[float], throughputs: Sequence[float], *, dead: Sequence[float] = (), confidence: float = 0.95) -> Knee:
    """The knee of throughput against size.

    Args:
        sizes: of any unit, one for each measurement; repeats of a size stand several times.
        throughputs: above zero.
        dead: sizes at which nothing lived.
        confidence: of the interval.

    Raises:
        ValueError: not one throughput for each size, or one that is not above zero.
    """
    if len(sizes) != len(throughputs) or any(not value > 0 for value in throughputs):
        raise ValueError(f"a knee needs one throughput above zero for each size, not {len(throughputs)} for {len(sizes)}")
    below = max(dead, default=None)
    pairs = sorted((s, x) for s, x in zip(sizes, throughputs, strict=True) if below is None or s > below)
    found = _local([s for s, _ in pairs], [1 / x for _, x in pairs], confidence)
    if found.kind in ("flat", "unknown") and below is not None and pairs:
        plateau = found.plateau or sum(x for _, x in pairs) / len(pairs)
        smallest = pairs[0][0]
        if found.kind == "flat" or all(x >= plateau / (1 + GAIN) for _, x in pairs):
            note = "it lives or it does not: throughput is the same at all sizes that live"
            return replace(
                found, kind="cliff", at=smallest, low=below, high=smallest, plateau=plateau, first=smallest, slope=0.0, note=note
            )
    if below is not None and found.kind == "knee" and (found.low is None or found.low < below):
        found = replace(found, low=below)
    return found


def hinge(
    x: Sequence[float], y: Sequence[float], *, weights: Sequence[float] | None = None, falling: bool = False, confidence: float = 0.95
) -> Knee:
    """The linear plateau of any y against x, without the words on throughput: ``kind`` is 'knee' or 'unknown'.

    ``plateau`` is the constant and ``slope`` the line's, which with ``falling`` is at most 0; ``gain`` is by how much the line's begin
    lies above the plateau, as a share of it. ``chance`` is the probability that a constant alone fits so much worse by chance.
    """
    pairs = sorted(zip(x, y, weights or [1.0] * len(x), strict=True))
    distinct = sorted({a for a, *_ in pairs})
    if len(distinct) < LEAST_SIZES:
        few = f"{len(distinct)} size{'' if len(distinct) == 1 else 's'} measured, and a knee needs {LEAST_SIZES}"
        return Knee("unknown", confidence=confidence, n=len(pairs), note=few)
    fit = _Fit([a for a, _, _ in pairs], [b for _, b, _ in pairs], [c for *_, c in pairs], falling=falling)
    at = fit.best()
    low, high = fit.interval(at, confidence)
    plateau, slope, rss = fit.at(at)
    gain = slope * min(distinct[0] - at, 0.0) / plateau if plateau else None
    chance = _same(fit.constant, rss, len(pairs))
    return Knee("knee", at, low, high, confidence, len(pairs), plateau, gain, slope, distinct[0], chance)


def _local(sizes: Sequence[float], times: Sequence[float], confidence: float) -> Knee:
    """Fit all, then once more without what lies far above the plateau."""
    found = _fit(sizes, times, confidence)
    if not found.plateau:
        return found
    # The largest size is the best guess of a plateau that a bad fit may have missed.
    level = min(1 / found.plateau, _mean([t for s, t in zip(sizes, times, strict=True) if s == sizes[-1]]))
    near = [(s, t) for s, t in zip(sizes, times, strict=True) if t <= LOCAL * level]
    left_out = len(sizes) - len(near)
    if not left_out or len({s for s, _ in near}) < LEAST_SIZES:
        return found
    again = _fit([s for s, _ in near], [t for _, t in near], confidence)
    return again if again.kind == "knee" else found


def _fit(sizes: Sequence[float], times: Sequence[float], confidence: float) -> Knee:
    found = hinge(sizes, times, weights=[1 / t**2 for t in times], falling=True, confidence=confidence)  # equal relative errors
    if found.at is None or found.plateau is None:
        return found
    largest = max(sizes)
    if (found.gain or 0.0) < GAIN or found.chance > 1 - confidence:
        note = f"throughput at {found.first:g} is that at {largest:g}: the knee lies below what was measured, if there is one"
        level = math.fsum(1 / t for t in times) / len(times)
        spread = math.sqrt(math.fsum((1 / t / level - 1) ** 2 for t in times) / (len(times) - 1))
        if student(confidence, len(times) - 2) * spread * 2 / math.sqrt(len(times)) > RESOLVED:
            note = (
                f"throughputs differ by ±{100 * spread:.0f} % whatever the size: that could hide a knee; measure longer, or in more quiet"
            )
            return replace(found, kind="unclear", at=None, low=None, high=None, plateau=level, slope=0.0, note=note)
        return replace(found, kind="flat", at=None, low=None, high=None, plateau=level, slope=0.0, note=note)
    at, found = found.at, replace(found, plateau=1 / found.plateau)
    if sum(size >= at * (1 - 1e-9) for size in set(sizes)) < 2:
        note = f"throughput still rises at {largest:g}, the largest size measured: the knee lies beyond"
        return replace(found, kind="rising", at=None, high=None, note=note)
    notes = (
        "the interval reaches beyond the largest size measured" if found.high is None else "",
        "the interval reaches below the smallest size measured" if found.low is None else "",
    )
    return replace(found, note="; ".join(filter(None, notes)))


def _same(constant: float, rss: float, n: int) -> float:
    """Probability of so large an improvement over a constant by chance: F with 2 and n − 3 degrees of freedom, in closed form."""
    if n <= 3 or constant <= 0:
        return 1.0
    if rss <= 1e-24 * constant:
        return 0.0
    ratio = max(constant - rss, 0.0) / 2 / (rss / (n - 3))
    return float((1 + 2 * ratio / (n - 3)) ** (-(n - 3) / 2))


class _Fit:
    """Weighted least squares of plateau and slope for any knee; sizes ascend."""

    def __init__(self, x: Sequence[float], y: Sequence[float], weights: Sequence[float], *, falling: bool = False) -> None:
        self.rows = list(zip(x, y, weights, strict=True))
        self.distinct = sorted(set(x))
        self.falling = falling
        total = math.fsum(w for *_, w in self.rows)
        self.level = math.fsum(w * b for _, b, w in self.rows) / total
        self.constant = math.fsum(w * (b - self.level) ** 2 for _, b, w in self.rows)

    def at(self, knee: float) -> tuple[float, float, float]:
        """(plateau, slope, RSS) with the knee given: y = plateau + slope × min(x − knee, 0)."""
        rows = [(min(a - knee, 0.0), b, w) for a, b, w in self.rows]
        total = math.fsum(w for *_, w in rows)
        mean = math.fsum(w * z for z, _, w in rows) / total
        across = math.fsum(w * (z - mean) * b for z, b, w in rows)
        square = math.fsum(w * (z - mean) ** 2 for z, _, w in rows)
        slope = across / square if square > 0 else 0.0
        if self.falling and slope > 0:
            return self.level, 0.0, self.constant
        plateau = self.level - slope * mean
        return plateau, slope, math.fsum(w * (b - plateau - slope * z) ** 2 for z, b, w in rows)

    def best(self) -> float:
        """The knee of the least RSS: the exact solution of each split where it lies in its gap, else a measured size.

        The knee is at least the second size: a line through one size alone is none.
        """
        candidates = list(self.distinct[1:])
        for left, right in zip(self.distinct[1:-1], self.distinct[2:], strict=True):
            knee = self._split(left)
            if knee is not None and left < knee < right:
                candidates.append(knee)
        return min(candidates, key=lambda knee: self.at(knee)[2])

    def _split(self, left: float) -> float | None:
        """Where the line through the sizes up to ``left`` meets the mean of the others."""
        lower = [row for row in self.rows if row[0] <= left]
        upper = [row for row in self.rows if row[0] > left]
        total = math.fsum(w for *_, w in lower)
        mean_x = math.fsum(w * a for a, _, w in lower) / total
        mean_y = math.fsum(w * b for _, b, w in lower) / total
        square = math.fsum(w * (a - mean_x) ** 2 for a, _, w in lower)
        slope = math.fsum(w * (a - mean_x) * b for a, b, w in lower) / square
        level = math.fsum(w * b for _, b, w in upper) / math.fsum(w for *_, w in upper)
        return mean_x + (level - mean_y) / slope if slope else None

    def interval(self, best: float, confidence: float) -> tuple[float | None, float | None]:
        """The outermost knees that the data do not rule out; None for an end beyond the data."""
        free = len(self.rows) - 3
        rss = self.at(best)[2]
        limit = rss * (1 + student(confidence, free) ** 2 / free) + 1e-15 * self.constant
        grid = [best]
        for left, right in zip(self.distinct[:-1], self.distinct[1:], strict=True):
            grid += [left + (right - left) * step / _STEPS for step in range(_STEPS)]
        grid = sorted({*grid, self.distinct[-1]})
        inside = [knee for knee in grid if self.at(knee)[2] <= limit]
        if not inside:
            return best, best

        def edge(within: float, without: float) -> float:
            for _ in range(40):
                middle = (within + without) / 2
                within, without = (middle, without) if self.at(middle)[2] <= limit else (within, middle)
            return within

        first, last = grid.index(inside[0]), grid.index(inside[-1])
        low = None if first == 0 else edge(grid[first], grid[first - 1])
        high = None if last == len(grid) - 1 else edge(grid[last], grid[last + 1])
        return low, high


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
