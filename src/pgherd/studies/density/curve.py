"""The density curve: points, ideal throughput, CPU received, efficiency, and the capacity at the target efficiency.

efficiency(N) = (share of the allocated CPU that the databases received) × (CPU per transaction of the reference ÷ that at N). The first
factor is known to a few tenths of a percent per trial. The second one varies by a quarter at a full host, where the CPU scheduler has two
modes. Therefore the answer is the crossing of the first factor, where it was measured, and the second one is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from pgherd.analysis.best_load import BestLoad, best_load
from pgherd.analysis.bootstrap import Spread, draw_means, mean_of_point, percentiles, relative_spreads
from pgherd.analysis.capacity import Capacity, LinearRegion, Retrograde, capacity, first_point, linear_region, retrograde
from pgherd.analysis.clusters import Levels, two_levels
from pgherd.analysis.intervals import Estimate
from pgherd.analysis.scaling_model import Array
from pgherd.analysis.stability import variance_of_mean
from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions, answer_by_cpu, reference_point
from pgherd.study.observation import Observation
from pgherd.study.repeats import Repeats, repeats

SINGLE_TOLERANCE = 0.05
"""Relative difference above which the single database and the reference are reported as different."""
FRACTION_TOLERANCE = 0.05
"""Largest distance of a point to a fraction of the cores that it can represent."""

ON_LEVELS = "the trials of a full host ran on two levels, and a run sees too few changes between them"
"""Reason why a quantity has no interval."""
TOO_FEW = "too few repeats at all points"

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
        least: the smallest relative variance of each point, by the seconds within its trials.
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
    least: tuple[float, ...]
    spreads: tuple[Spread, ...] | None
    draws: Array | None
    cpu_shares: tuple[tuple[float, ...], ...] | None
    cpu_draws: Array | None
    levels: Levels | None

    @property
    def basis(self) -> Basis:
        """What the answer compares: the CPU received if the CPU is the expected limit and was measured, otherwise throughput."""
        return "cpu" if self.cpu_shares is not None and answer_by_cpu(self.options) else "reference"

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

    @cached_property
    def reference(self) -> Estimate:
        """Throughput per database of the reference."""
        index = self.reference_index
        per_database = [throughput / self.loads[index] for throughput in self.points[index].throughputs]
        return self._mean(index, per_database, None if self.spreads is None else self.spreads[index])

    def throughput(self, index: int) -> Estimate:
        """Mean throughput at one point. A full host on two levels has no interval, see ``capacity``."""
        return self._mean(index, self.points[index].throughputs, None if self.spreads is None else self.spreads[index])

    def estimates(self, take: Callable[[Observation], float | None]) -> list[Estimate | None]:
        """Mean of a quantity at each point, such as CPU per transaction, by the rules of its throughput. None: no trial has it."""
        values = [point.values(take) for point in self.points]
        known = self._measured(values)
        spreads = relative_spreads([values[i] for i in known], self._groups(known), [self.least[i] for i in known])
        of_point = dict(zip(known, spreads or (), strict=False))
        return [self._mean(i, values[i], of_point.get(i)) if i in known else None for i in range(len(values))]

    @cached_property
    def relative_costs(self) -> list[Estimate | None]:
        """CPU per transaction at each point ÷ that of the reference. None: it was not measured at one of the two."""
        values = [point.values(lambda observation: observation.cpu_per_tx) for point in self.points]
        known = self._measured(values)
        if self.reference_index not in known:
            return [None] * len(values)
        drawn = draw_means([values[i] for i in known], self._groups(known), [self.least[i] for i in known], seed=self.options.seed + 2)
        return [self._relative_cost(i, values, known, drawn) if i in known else None for i in range(len(values))]

    def _relative_cost(self, index: int, values: Sequence[Sequence[float]], known: Sequence[int], drawn: Array | None) -> Estimate:
        reference = values[self.reference_index]
        ratio = math.fsum(values[index]) / len(values[index]) / (math.fsum(reference) / len(reference))
        trials = min(len(values[index]), len(reference))
        if index == self.reference_index:
            return Estimate(1.0, None, None, None, trials, "by definition", "no interval: 1 by definition")
        if drawn is None or self._on_levels(index, self.reference_index):
            return Estimate(ratio, None, None, None, trials, "ratio of means", f"no interval: {TOO_FEW if drawn is None else ON_LEVELS}")
        low, high = percentiles(drawn[:, known.index(index)] / drawn[:, known.index(self.reference_index)])
        return Estimate(ratio, low, high, 0.95, trials, "ratio of means, interval from the spread of repeats")

    def _measured(self, values: Sequence[Sequence[float]]) -> list[int]:
        return [i for i, of_point in enumerate(values) if of_point and math.fsum(of_point) > 0]

    def _groups(self, indices: Sequence[int]) -> list[int]:
        return [self.options.near_full(self.loads[i]) for i in indices]

    def _mean(self, index: int, values: Sequence[float], spread: Spread | None) -> Estimate:
        if self._on_levels(index):
            low, high = (f"{end:,.0f}" if end >= 100 else f"{end:.3g}" for end in (min(values), max(values)))
            note = f"no interval: {ON_LEVELS}; the trials range from {low} to {high}"
            return Estimate(math.fsum(values) / len(values), None, None, None, len(values), "mean of repeats", note)
        mean = mean_of_point(values, spread)
        return mean if mean.low is None else replace(mean, low=max(mean.low, 0.0))

    def _on_levels(self, *indices: int) -> bool:
        return self.levels is not None and any(self.options.near_full(self.loads[index]) for index in indices)

    @cached_property
    def peak(self) -> BestLoad:
        """The highest throughput, and the numbers that cannot be told from the one that has it."""
        if self.levels is None:
            return best_load(self.means, self.draws, self.trials())
        best = best_load(self.means, None, self.trials())
        return replace(best, value=replace(best.value, note=f"no interval: {ON_LEVELS}"))

    @cached_property
    def beyond_peak(self) -> Retrograde:
        """Throughput at the largest number of databases, relative to the peak."""
        if self.levels is None:
            return retrograde(self.loads, self.means, self.draws, self.trials())
        return retrograde(self.loads, self.means, None, self.trials(), ON_LEVELS)

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
        return np.asarray(per_database / per_database[:, self.ideal_index(basis)][:, None])

    def ideal_index(self, basis: Basis) -> int:
        """Index of the point that has the ideal throughput per database."""
        return 0 if basis == "single" and self.single is not None else self.reference_index

    def capacity(self, basis: Basis) -> Capacity:
        """The largest number of databases at the target efficiency.

        With two levels there is no interval, since a run sees too few changes between them.
        """
        return capacity(
            self.loads,
            self.efficiencies(basis).tolist(),
            self.options.efficiency,
            reference=self._first_reference(basis),
            repeats=[len(point.used) for point in self.points],
            draws=None if self.levels is not None and basis != "cpu" else self.efficiency_draws(basis),
        )

    def first_index(self, basis: Basis) -> int:
        """Index of the first point of the falling curve on which the capacity is: the reference, if it reaches the target efficiency.

        Otherwise a slow single database, or one that its clients leave idle, would be averaged into the falling curve of the others and
        lower the crossing. A reference below the target is beyond the crossing.
        """
        return first_point(self.efficiencies(basis), self.options.efficiency, self._first_reference(basis))

    def _first_reference(self, basis: Basis) -> int:
        return 0 if basis == "single" else self.reference_index

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
        if draws is None or (basis != "cpu" and self._on_levels(above - 1, above, self.ideal_index(basis))):
            reason = TOO_FEW if draws is None else ON_LEVELS
            return Estimate(value, None, None, None, trials, "linear interpolation", f"no interval: {reason}"), note
        low, high = percentiles(np.array([interpolate(row) for row in draws]))
        return Estimate(value, low, high, 0.95, trials, "linear interpolation, interval from the spread of repeats"), note

    def efficiency(self, index: int, basis: Basis) -> Estimate:
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
        if draws is None or (basis != "cpu" and self._on_levels(index, self.ideal_index(basis))):
            reason = TOO_FEW if draws is None else ON_LEVELS
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
    limited = options.cpu_limited and all(len(values) == len(point.used) for values, point in zip(shares, points, strict=True))
    least = tuple(variance_of_mean([observation.per_second for observation in point.used]) for point in points)
    spreads = relative_spreads(throughputs, groups, least)
    return DensityCurve(
        options=options,
        points=tuple(points),
        loads=loads,
        means=means,
        single=points[0] if points[0].databases == 1 else None,
        region=linear_region(loads, means),
        reference_index=index,
        least=least,
        spreads=None if spreads is None else tuple(spreads),
        draws=draw_means(throughputs, groups, least, seed=options.seed),
        cpu_shares=tuple(shares) if limited else None,
        cpu_draws=draw_means(shares, groups, seed=options.seed + 1) if limited else None,
        levels=levels_near_full(options, points),
    )


def rates_near_full(options: DensityOptions, points: Sequence[DensityPoint]) -> dict[int, list[float]]:
    """Return the rate of each trial from 90 % of the cores on, by number of databases.

    It is transactions per CPU-second, or per second if the CPU of a trial was not measured.
    """
    full = [point for point in points if options.near_full(point.databases)]
    if cpu_rates(options, points):
        return {point.databases: [1000 / cost for cost in point.values(lambda observation: observation.cpu_per_tx)] for point in full}
    return {point.databases: point.throughputs for point in full}


def cpu_rates(options: DensityOptions, points: Sequence[DensityPoint]) -> bool:
    """Return whether the rates near full are per CPU-second: the CPU of every trial there was measured."""
    near_full = [observation for point in points if options.near_full(point.databases) for observation in point.used]
    return bool(near_full) and all(observation.cpu_per_tx for observation in near_full)


def levels_near_full(options: DensityOptions, points: Sequence[DensityPoint]) -> Levels | None:
    """Return the two levels of the trials from 90 % of the cores on, or None if they are on one level.

    Where no number of databases had both levels, it is the number that makes the difference, as in a fall beyond the peak.
    """
    rates = rates_near_full(options, points).values()
    levels = two_levels([rate for of_point in rates for rate in of_point])
    if levels is None or not any(min(of_point) < levels.split < max(of_point) for of_point in rates):
        return None
    return levels


def capacity_floor(estimate: Capacity, largest: float) -> int:
    """The capacity that is certain where the measured efficiency never fell below the target.

    It is limited by the lower bound of the interval. Without an interval it is the largest number measured.
    """
    return math.floor((largest if estimate.low is None else min(estimate.low, largest)) + 1e-9)


def floor_tenths(databases: float, places: int = 1) -> str:
    """Format a capacity with one decimal, or ``places``, rounded down: 8.98 becomes 8.9, since 9 databases do not fit."""
    unit = 10**places
    return f"{math.floor(unit * databases + 1e-6) / unit:.{places}f}"


def with_interval(value: float, low: float, high: float) -> tuple[str, str]:
    """Format a capacity and its interval with one decimal, or with two where one would print both ends as the same number."""
    places = 1 if floor_tenths(low) != f"{high:.1f}" else 2
    return floor_tenths(value, places), f"{floor_tenths(low, places)}–{high:.{places}f}"
