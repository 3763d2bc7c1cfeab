"""The plain line X = aN, the end of the linear region by a stated rule, and whether a curve turns back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgherd.analysis.fit import Array
from pgherd.analysis.intervals import Estimate, ratio_of_means
from pgherd.model.errors import UsageError


class Line:
    """X(N) = aN: the model that says 'no knee in the data'."""

    name = "linear"
    title = "straight line"
    parameters: tuple[str, ...] = ("a",)

    def curve(self, parameters: Array, loads: Array) -> Array:
        """Throughput at the loads."""
        return np.asarray(parameters[0] * loads, dtype=float)

    def jacobian(self, parameters: Array, loads: Array) -> Array:
        """Derivative by a."""
        return loads[:, None]

    def estimate(self, loads: Array, throughputs: Array, scale: Array) -> Array:
        """Least squares through the origin, row by row."""
        weights = 1 / scale**2
        return np.asarray(((weights * throughputs) @ loads / (weights @ loads**2))[:, None], dtype=float)

    def peak(self, parameters: Array) -> float | None:
        """None: a line has no peak."""
        return None

    def knee(self, parameters: Array) -> float | None:
        """None: a line has no knee."""
        return None

    def cautions(self, parameters: Array, loads: Array) -> list[str]:
        """Nothing to say."""
        return []


LINE = Line()


@dataclass(frozen=True)
class LinearRegion:
    """The loads over which throughput grows in proportion.

    ``end`` is the largest load that still is in it, ``next`` the next larger one measured (the true end lies between
    them; None: the data end first), ``slope`` the throughput per unit of load within it, ``used`` the indices of the
    loads that the slope rests on.
    """

    end: float
    next: float | None
    slope: float
    used: tuple[int, ...]
    share: float

    @property
    def rule(self) -> str:
        """The rule in words."""
        return (
            f"largest load with at least {100 * self.share:.0f} % of slope × N, the slope being the mean of throughput / N over the "
            "smaller loads, without the first once there are others"
        )


def linear_region(loads: Sequence[float], means: Sequence[float], share: float = 0.95) -> LinearRegion:
    """Find the end of the linear region.

    A load is in the region when its throughput is at least ``share`` of slope × N, where slope is the least-squares line
    through the origin with weights 1/N² (which is the mean of throughput / N) over all smaller loads. The first load is
    left out of the slope as soon as there is another: alone, it may be fast (boosting clocks) or slow (idle wake-ups)
    for reasons that have nothing to do with scaling. The region ends at the largest load that is in it.

    Args:
        loads: distinct loads, ascending.
        means: mean throughput at each.
        share: the tolerated fall, such as 0.95.

    Raises:
        UsageError: no loads, or they are not ascending.
    """
    if not loads or len(loads) != len(means) or any(a >= b for a, b in itertools.pairwise(loads)):
        raise UsageError(f"the linear region needs ascending loads with one throughput each, not {list(loads)}")
    each = [x / n for n, x in zip(loads, means, strict=True)]
    last = 0
    for i in range(1, len(loads)):
        before = each[1:i] or each[:1]
        if each[i] >= share * sum(before) / len(before):
            last = i
    used = tuple(range(1, last + 1)) or (0,)
    slope = sum(each[i] for i in used) / len(used)
    return LinearRegion(end=loads[last], next=loads[last + 1] if last + 1 < len(loads) else None, slope=slope, used=used, share=share)


@dataclass(frozen=True)
class Retrograde:
    """Whether throughput falls beyond its peak. ``falls`` is None where the data cannot tell; ``ratio`` is the largest
    load's throughput over the best one's."""

    falls: bool | None
    best: float
    ratio: Estimate
    note: str


def retrograde(loads: Sequence[float], repeats: Sequence[Sequence[float]]) -> Retrograde:
    """Judge whether the curve turns back: the whole interval of (largest load ÷ best load) must lie below 1.

    Args:
        loads: distinct loads, ascending.
        repeats: throughputs measured at each.
    """
    means = [sum(values) / len(values) for values in repeats]
    best = max(range(len(loads)), key=means.__getitem__)
    if best == len(loads) - 1:
        itself = Estimate(1.0, None, None, None, len(repeats[best]), "by definition", "no interval: 1 by definition")
        return Retrograde(False, loads[best], itself, "the largest load has the highest throughput")
    ratio = ratio_of_means(repeats[-1], repeats[best])
    if ratio.high is None:
        return Retrograde(None, loads[best], ratio, f"too few repeats to tell a fall from noise ({ratio.note})")
    if ratio.high < 1:
        return Retrograde(
            True, loads[best], ratio, f"throughput at {loads[-1]:g} is {100 * (1 - ratio.value):.1f} % below that at {loads[best]:g}"
        )
    return Retrograde(None if ratio.low is not None and ratio.low < 0.95 else False, loads[best], ratio, "no fall beyond the noise")
