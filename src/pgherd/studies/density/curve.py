"""The density curve: points, ideal throughput, CPU received, efficiency, and the capacity at the target efficiency.

efficiency(N) = (share of the allocated CPU that the databases received) × (CPU per transaction of the reference ÷ that at N). The first
factor is known to a few tenths of a percent per trial. The second one varies by a quarter at a full host, where the CPU scheduler has two
modes. Therefore the answer is the crossing of the first factor, where it was measured, and the second one is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from pgherd.analysis.bootstrap import Spread, draw_means, mean_of_point, percentiles, relative_spreads
from pgherd.analysis.capacity import Capacity, LinearRegion, Retrograde, capacity, linear_region, retrograde
from pgherd.analysis.intervals import Estimate
from pgherd.analysis.levels import Levels, two_levels
from pgherd.analysis.scaling_model import Array
from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions, reference_point
from pgherd.study.repeats import Repeats, repeats

SINGLE_TOLERANCE = 0.05
"""Relative difference above which the single database and the reference are reported as different."""
FRACTION_TOLERANCE = 0.05
"""Largest distance of a point to a fraction of the cores that it can represent."""

ON_LEVELS = "the trials of a full host ran on two levels, and a run sees too few changes between them"
"""Reason why a quantity has no interval."""

Basis = Literal["cpu", "reference", "single"]
"""What a capacity compares: CPU received ÷ CPU allocated, throughput ÷ (N × reference), or throughput ÷ (N × single database)."""


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
    """Mean throughput per point, ideal throughput, CPU received, and bootstrap draws of them.

    Efficiency is throughput ÷ (N × reference). The reference is the throughput per database at the largest number up to 75 % of a full
    host. It is not a single database, which is the dearest case on a virtual CPU: it sleeps after each query, and the wake-up costs more
    than the query.

    Attributes:
        region: where throughput grows in proportion.
        reference_index: index of the reference's point.
        reference: its throughput per database.
        spreads: relative variance of the throughput at each point. None: too few repeats.
        draws: plausible mean throughputs, shape (resamples, points). None: too few repeats.
        cpu_shares: CPU received ÷ CPU allocated, per point and trial. None: not measured at every point, or no limit.
        cpu_draws: plausible means of ``cpu_shares``, shape (resamples, points).
        levels: two levels of transactions per CPU-second (or of throughput) in the trials of a full host. None: one level.
    """

    options: DensityOptions
    points: tuple[DensityPoint, ...]
    loads: tuple[float, ...]
    means: tuple[float, ...]
    single: DensityPoint | None
    region: LinearRegion
    reference_index: int
    reference: Estimate
    spreads: tuple[Spread, ...] | None
    draws: Array | None
    cpu_shares: tuple[tuple[float, ...], ...] | None
    cpu_draws: Array | None
    levels: Levels | None

    @property
    def basis(self) -> Basis:
        """What the answer compares: the CPU received if the CPU is the expected limit and was measured, otherwise throughput."""
        by_cpu = self.cpu_shares is not None and self.options.rate is None and self.options.bound_by == "cpu"
        return "cpu" if by_cpu else "reference"

    @property
    def single_deviation(self) -> float | None:
        """Reference ÷ single-database throughput, minus 1. None without that point."""
        return None if self.single is None else self.reference.value / self.single.mean - 1

    @property
    def reference_text(self) -> str:
        """The reference's point, such as ``5 databases``."""
        return plural(self.loads[self.reference_index])

    def ideal(self, basis: Basis) -> float:
        """Ideal throughput per database."""
        return self.single.mean if basis == "single" and self.single is not None else self.reference.value

    def throughput(self, index: int) -> Estimate:
        """Mean throughput at one point. A full host on two levels has no interval, see ``capacity``."""
        point = self.points[index]
        if self._on_levels(index):
            note = f"no interval: {ON_LEVELS}; the trials range from {min(point.throughputs):,.0f} to {max(point.throughputs):,.0f}"
            return Estimate(point.mean, None, None, None, len(point.used), "mean of repeats", note)
        return mean_of_point(point.throughputs, None if self.spreads is None else self.spreads[index])

    def _on_levels(self, index: int) -> bool:
        return self.levels is not None and self.options.near_full(self.loads[index])

    def efficiencies(self, basis: Basis) -> Array:
        """Efficiency at every point: CPU received ÷ allocated, or measured ÷ ideal throughput."""
        if basis == "cpu":
            return np.array([math.fsum(values) / len(values) for values in self.cpu_shares or ()])
        return np.asarray(self.means) / (np.asarray(self.loads) * self.ideal(basis))

    def efficiency_draws(self, basis: Basis) -> Array | None:
        """Bootstrap draws of the efficiencies, shape (resamples, points)."""
        if basis == "cpu":
            return self.cpu_draws
        if self.draws is None:
            return None
        per_database = self.draws / np.asarray(self.loads)
        single = basis == "single" and self.single is not None
        return np.asarray(per_database / per_database[:, 0 if single else self.reference_index][:, None])

    def capacity(self, basis: Basis) -> Capacity:
        """The largest number of databases at the target efficiency.

        The capacity by throughput leaves out the points before the reference. Otherwise a slow single database would be averaged into the
        falling curve of the others and lower the crossing. With two levels there is no interval, since a run sees too few changes between
        them.
        """
        first = self.reference_index if basis == "reference" else 0
        draws = None if self.levels is not None and basis != "cpu" else self.efficiency_draws(basis)
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

    @cached_property
    def at_crossing(self) -> list[int]:
        """Indices of the points on both sides of the answer's crossing, or of the last point if there is none."""
        found = self.capacity(self.basis)
        wanted = [n for n in (found.below, found.above) if n is not None] or [self.loads[-1]]
        return [i for i, n in enumerate(self.loads) if n in wanted]

    def efficiency_at(self, fraction: float, basis: Basis) -> tuple[Estimate | None, str]:
        """Efficiency at a fraction of the cores, with a note: measured at a close point, or interpolated."""
        index = self.near(fraction)
        values = self.efficiencies(basis)
        if index is not None:
            n = self.loads[index]
            return self.efficiency(index, basis), f"measured at {n:g} databases, {100 * self.options.fraction(n):.0f} % of the cores"
        if self.options.fleet:
            return None, "the cores of existing servers and their hosts are unknown"
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
        point = self.points[index]
        value, trials = float(self.efficiencies(basis)[index]), len(point.used)
        if basis == "single" and point is self.single:
            return Estimate(1.0, None, None, None, trials, "by definition", "no interval: 1 by definition")
        if basis == "reference" and index == self.reference_index:
            return Estimate(1.0, None, None, None, trials, "by definition", "no interval: it is the reference")
        draws = self.efficiency_draws(basis)
        method = {"cpu": "CPU received ÷ CPU allocated", "reference": "measured ÷ (N × reference)", "single": "measured ÷ (N × single)"}[
            basis
        ]
        if draws is None or (basis != "cpu" and self._on_levels(index)):
            reason = "too few repeats at all points" if draws is None else ON_LEVELS
            return Estimate(value, None, None, None, trials, method, f"no interval: {reason}")
        low, high = percentiles(draws[:, index])
        return Estimate(value, low, high, 0.95, trials, f"{method}, interval from the spread of repeats")


def density_curve(options: DensityOptions, points: Sequence[DensityPoint]) -> DensityCurve:
    """Build the curve from at least one point."""
    loads = tuple(float(point.databases) for point in points)
    means = tuple(point.mean for point in points)
    throughputs = [point.throughputs for point in points]
    groups = [options.near_full(n) for n in loads]
    index = loads.index(reference_point(options, loads))
    shares = [tuple(point.values(lambda observation: observation.given)) for point in points]
    limited = options.cpu_mode != "none" and all(len(values) == len(point.used) for values, point in zip(shares, points, strict=True))
    draws = draw_means(throughputs, groups, seed=options.seed)
    spreads = relative_spreads(throughputs, groups)
    reference = mean_of_point(throughputs[index], None if spreads is None else spreads[index])
    return DensityCurve(
        options=options,
        points=tuple(points),
        loads=loads,
        means=means,
        single=points[0] if points[0].databases == 1 else None,
        region=linear_region(loads, means),
        reference_index=index,
        reference=reference.scaled(1 / loads[index]),
        spreads=None if spreads is None else tuple(spreads),
        draws=draws,
        cpu_shares=tuple(shares) if limited else None,
        cpu_draws=draw_means(shares, groups, seed=options.seed + 1) if limited else None,
        levels=two_levels(rates_near_full(options, points)),
    )


def rates_near_full(options: DensityOptions, points: Sequence[DensityPoint]) -> list[float]:
    """Transactions per CPU-second of each trial from 90 % of the cores on, or per second if a trial's CPU was not measured."""
    observations = [observation for point in points if options.near_full(point.databases) for observation in point.used]
    costs = [observation.cpu_per_tx for observation in observations]
    if all(cost is not None for cost in costs):
        return [1000 / cost for cost in costs if cost]
    return [observation.throughput for observation in observations]


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
