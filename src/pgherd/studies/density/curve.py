"""The density curve: points, ideal throughput, efficiency, and the capacity at the target efficiency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pgherd.analysis.bootstrap import draw_means, percentiles
from pgherd.analysis.capacity import Capacity, LinearRegion, Retrograde, capacity, linear_region, retrograde
from pgherd.analysis.intervals import Estimate, ratio_of_means
from pgherd.analysis.scaling_model import Array
from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions
from pgherd.study.repeats import Repeats, repeats

SLOPE_TOLERANCE = 0.05
"""Relative difference above which the single database and the linear fit are reported as different."""
FRACTION_TOLERANCE = 0.05
"""Largest distance of a point to a fraction of the cores that it can represent."""

Basis = Literal["single", "slope"]
"""The reference for ideal throughput: one database × N, or the slope of the linear region × N."""


@dataclass(frozen=True)
class DensityPoint(Repeats):
    """All trials of one number of databases."""

    databases: int


def density_points(options: DensityOptions, results: Sequence[TrialResult]) -> list[DensityPoint]:
    """Group trials by number of databases. Points without a finished trial are left out."""
    by_databases: dict[int, list[TrialResult]] = {}
    for result in results:
        databases = result.trial.point.get("databases")
        if isinstance(databases, int):
            by_databases.setdefault(databases, []).append(result)
    points = []
    for databases, trials in sorted(by_databases.items()):
        usable = repeats(options, trials)
        if usable is not None:
            points.append(DensityPoint(usable.used, usable.tried, usable.tainted, usable.failed, databases))
    return points


def plural(databases: float) -> str:
    """``1 database``, ``8 databases``."""
    return f"{databases:g} database{'' if databases == 1 else 's'}"


@dataclass(frozen=True)
class DensityCurve:
    """Mean throughput per point, ideal throughput, and bootstrap draws of the means.

    ``draws`` has the shape (resamples, points), and is None with too few repeats. ``slope`` is the throughput per database in
    the linear region. ``single`` is the point of one database. ``basis`` is the reference that the capacity uses.
    """

    options: DensityOptions
    points: tuple[DensityPoint, ...]
    loads: tuple[float, ...]
    means: tuple[float, ...]
    single: DensityPoint | None
    region: LinearRegion
    slope: Estimate
    draws: Array | None
    basis: Basis
    seed: int

    @property
    def slope_deviation(self) -> float | None:
        """Slope of the linear region ÷ single-database throughput, minus 1. None without that point."""
        return None if self.single is None else self.slope.value / self.single.mean - 1

    def ideal(self, basis: Basis) -> float:
        """Ideal throughput per database."""
        return self.single.mean if basis == "single" and self.single is not None else self.slope.value

    def efficiencies(self, basis: Basis) -> Array:
        """Measured ÷ ideal throughput at every point."""
        return np.asarray(self.means) / (np.asarray(self.loads) * self.ideal(basis))

    def efficiency_draws(self, basis: Basis) -> Array | None:
        """Bootstrap draws of the efficiencies, shape (resamples, points)."""
        if self.draws is None:
            return None
        per_database = self.draws / np.asarray(self.loads)
        ideal = (
            per_database[:, 0] if basis == "single" and self.single is not None else per_database[:, list(self.region.used)].mean(axis=1)
        )
        return np.asarray(per_database / ideal[:, None])

    def capacity(self, basis: Basis) -> Capacity:
        """The largest number of databases at the target efficiency.

        If the slope excludes the first point, the capacity against the slope excludes it too. Otherwise a slow single database
        would be averaged into the falling curve of the others and lower the crossing.
        """
        first = 1 if basis == "slope" and 0 not in self.region.used else 0
        draws = self.efficiency_draws(basis)
        return capacity(
            self.loads[first:],
            self.efficiencies(basis)[first:].tolist(),
            self.options.efficiency,
            repeats=[len(point.used) for point in self.points[first:]],
            draws=None if draws is None else draws[:, first:],
        )

    def trials(self) -> int:
        """The number of trials used, over all points."""
        return sum(len(point.used) for point in self.points)

    def near(self, fraction: float) -> int | None:
        """Index of the point closest to a fraction of the cores. None if no point is within FRACTION_TOLERANCE."""
        distances = [abs(self.options.fraction(n) - fraction) for n in self.loads]
        closest = min(range(len(distances)), key=distances.__getitem__)
        return closest if distances[closest] <= FRACTION_TOLERANCE + 1e-9 else None

    def efficiency_at(self, fraction: float, basis: Basis) -> tuple[Estimate | None, str]:
        """Efficiency at a fraction of the cores, with a note: measured at a close point, or interpolated."""
        index = self.near(fraction)
        values = self.efficiencies(basis)
        if index is not None:
            n = self.loads[index]
            return self.efficiency(index, basis), f"measured at {n:g} databases, {100 * self.options.fraction(n):.0f} % of the cores"
        at = fraction * self.options.full
        if not self.loads[0] <= at <= self.loads[-1]:
            return None, f"no point at or around {100 * fraction:.0f} % of the cores was measured"

        def interpolate(efficiencies: Array) -> float:
            # Throughput, not efficiency, is linear between two points.
            return float(np.interp(at, self.loads, efficiencies * np.asarray(self.loads))) / at

        value = interpolate(values)
        note = f"interpolated at {at:.3g} databases"
        draws = self.efficiency_draws(basis)
        above = next(i for i, n in enumerate(self.loads) if n >= at)
        trials = min(len(self.points[i].used) for i in (above - 1, above))
        if draws is None:
            return Estimate(value, None, None, None, trials, "linear interpolation", "no interval: too few repeats"), note
        low, high = percentiles(np.array([interpolate(row) for row in draws]))
        return Estimate(value, low, high, 0.95, trials, "linear interpolation, interval from the spread of repeats"), note

    def efficiency(self, index: int, basis: Basis) -> Estimate:
        """Efficiency at one point."""
        point, n = self.points[index], self.loads[index]
        if basis == "single" and self.single is not None:
            if point is self.single:
                return Estimate(1.0, None, None, None, len(point.used), "by definition", "no interval: 1 by definition")
            return ratio_of_means(point.throughputs, self.single.throughputs).scaled(1 / n)
        if self.region.used == (index,):
            return Estimate(1.0, None, None, None, len(point.used), "by definition", "no interval: the slope is from this point only")
        value = float(self.efficiencies("slope")[index])
        draws = self.efficiency_draws("slope")
        if draws is None:
            return Estimate(
                value, None, None, None, len(point.used), "measured ÷ (slope × N)", "no interval: too few repeats at all points"
            )
        low, high = percentiles(draws[:, index])
        return Estimate(value, low, high, 0.95, len(point.used), "measured ÷ (slope × N), interval from the spread of repeats")


def density_curve(options: DensityOptions, points: Sequence[DensityPoint]) -> DensityCurve:
    """Build the curve from at least one point.

    The capacity is measured against the single database, as in E1, with two exceptions: that point was not measured, or the
    slope of the linear region is more than 5 % steeper. In the second case a single database is slower than its share of many,
    and efficiencies against it would be too high.
    """
    loads = tuple(float(point.databases) for point in points)
    means = tuple(point.mean for point in points)
    region = linear_region(loads, means)
    draws = draw_means([point.throughputs for point in points], seed=options.seed)
    trials = sum(len(points[i].used) for i in region.used)
    slope = Estimate(
        region.slope, None, None, None, trials, "mean of throughput / N over the linear region", "no interval: too few repeats"
    )
    if draws is not None:
        per_database = (draws / np.asarray(loads))[:, list(region.used)].mean(axis=1)
        low, high = percentiles(per_database)
        method = "mean of throughput / N over the linear region, interval from the spread of repeats"
        slope = Estimate(region.slope, low, high, 0.95, trials, method)
    single = points[0] if points[0].databases == 1 else None
    basis: Basis = "single" if single is not None and region.slope / single.mean - 1 <= SLOPE_TOLERANCE else "slope"
    return DensityCurve(options, tuple(points), loads, means, single, region, slope, draws, basis, options.seed)


def beyond_peak(curve: DensityCurve) -> Retrograde:
    """Throughput at the largest number of databases, relative to the peak."""
    return retrograde(curve.loads, [point.throughputs for point in curve.points])


def capacity_floor(estimate: Capacity, largest: float) -> int:
    """The capacity that is certain where the measured efficiency never fell below the target.

    It is limited by the lower bound of the interval. Without an interval it is the largest number measured.
    """
    return math.floor((largest if estimate.low is None else min(estimate.low, largest)) + 1e-9)


def floor_tenths(databases: float) -> str:
    """Format a capacity with one decimal, rounded down: 8.98 becomes 8.9, since 9 databases do not fit."""
    return f"{math.floor(10 * databases + 1e-6) / 10:.1f}"
