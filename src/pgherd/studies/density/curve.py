"""The density curve: perfect from one database and from the linear region, efficiency, and how many databases are held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pgherd.analysis.bootstrap import draw_means, percentiles
from pgherd.analysis.capacity import Capacity, LinearRegion, Retrograde, capacity, linear_region, retrograde
from pgherd.analysis.fit import Array
from pgherd.analysis.intervals import Estimate, mean_interval, ratio_of_means
from pgherd.model.finding import Finding
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import Point, plural
from pgherd.study.findings import as_finding, missing

DIFFER = 0.05
"""From this relative difference on, one database alone and the linear region's slope are said to differ."""
NEAR = 0.05
"""A point stands for a fraction of the cores when it is no further from it than this."""

OPEN = "the upper end lies beyond the largest number measured"
ALONE = "only one number of databases was measured, and efficiency compares two"

Basis = Literal["one", "slope"]


@dataclass(frozen=True)
class Curve:
    """Means over the points, what is perfect, and plausible values of all means (``draws``, shape (resamples, points);
    None where the repeats are too few). ``slope`` is throughput per database in the linear region; ``basis`` says
    against which perfect the databases held are judged."""

    options: DensityOptions
    points: tuple[Point, ...]
    loads: tuple[float, ...]
    means: tuple[float, ...]
    one: Point | None
    region: LinearRegion
    slope: Estimate
    draws: Array | None
    basis: Basis
    seed: int

    @property
    def difference(self) -> float | None:
        """Slope of the linear region over the one-database value, minus 1; None without one database."""
        return None if self.one is None else self.slope.value / self.one.mean - 1

    def base(self, basis: Basis) -> float:
        """Throughput of one database that counts as perfect."""
        return self.one.mean if basis == "one" and self.one is not None else self.slope.value

    def efficiencies(self, basis: Basis) -> Array:
        """Measured over perfect at every point."""
        return np.asarray(self.means) / (np.asarray(self.loads) * self.base(basis))

    def efficiency_draws(self, basis: Basis) -> Array | None:
        """Plausible efficiencies, shape (resamples, points)."""
        if self.draws is None:
            return None
        each = self.draws / np.asarray(self.loads)
        first = each[:, 0] if basis == "one" and self.one is not None else each[:, list(self.region.used)].mean(axis=1)
        return np.asarray(each / first[:, None])

    def held(self, basis: Basis) -> Capacity:
        """The largest number of databases at the wanted efficiency.

        Against the slope, a first point that the slope leaves out is left out here too: one database alone that is slow for
        reasons of its own would be averaged into the falling curve of the others, and pull the crossing down.
        """
        first = 1 if basis == "slope" and 0 not in self.region.used else 0
        drawn = self.efficiency_draws(basis)
        return capacity(
            self.loads[first:],
            self.efficiencies(basis)[first:].tolist(),
            self.options.at,
            repeats=[len(point.used) for point in self.points[first:]],
            draws=None if drawn is None else drawn[:, first:],
        )

    def trials(self, indices: Sequence[int] | None = None) -> int:
        """How many trials stand behind these points, or behind all."""
        chosen = range(len(self.points)) if indices is None else indices
        return sum(len(self.points[i].used) for i in chosen)

    def near(self, fraction: float) -> int | None:
        """Index of the point closest to a fraction of the cores; None if none is close."""
        distances = [abs(self.options.fraction(n) - fraction) for n in self.loads]
        best = min(range(len(distances)), key=distances.__getitem__)
        return best if distances[best] <= NEAR + 1e-9 else None

    def efficiency_at(self, fraction: float, basis: Basis) -> tuple[Estimate | None, str]:
        """Efficiency at a fraction of the cores, and a note saying where it was read: at a point close by, or between two."""
        index = self.near(fraction)
        values = self.efficiencies(basis)
        if index is not None:
            n = self.loads[index]
            return self.efficiency(index, basis), f"measured at {n:g} databases, {100 * self.options.fraction(n):.0f} % of the cores"
        at = fraction * self.options.full
        if not self.loads[0] <= at <= self.loads[-1]:
            return None, f"no point at or around {100 * fraction:.0f} % of the cores was measured"

        def read(row: Array) -> float:
            return float(np.interp(at, self.loads, row * np.asarray(self.loads))) / at  # throughput is what is linear between points

        value = read(values)
        note = f"interpolated at {at:.3g} databases"
        drawn = self.efficiency_draws(basis)
        above = next(i for i, n in enumerate(self.loads) if n >= at)
        repeats = min(len(self.points[i].used) for i in (above - 1, above))
        if drawn is None:
            return Estimate(value, None, None, None, repeats, "linear interpolation", "no interval: too few repeats"), note
        low, high = percentiles(np.array([read(row) for row in drawn]))
        return Estimate(value, low, high, 0.95, repeats, "linear interpolation, interval from the spread of repeats"), note

    def efficiency(self, index: int, basis: Basis) -> Estimate:
        """Efficiency at one point."""
        point, n = self.points[index], self.loads[index]
        if basis == "one" and self.one is not None:
            if point is self.one:
                return Estimate(1.0, None, None, None, len(point.used), "by definition", "no interval: 1 by definition")
            return ratio_of_means(point.throughputs, self.one.throughputs).scaled(1 / n)
        if self.region.used == (index,):
            return Estimate(1.0, None, None, None, len(point.used), "by definition", "no interval: the slope is this point's own")
        value = float(self.efficiencies("slope")[index])
        drawn = self.efficiency_draws("slope")
        if drawn is None:
            return Estimate(
                value, None, None, None, len(point.used), "measured ÷ (slope × N)", "no interval: too few repeats at all points"
            )
        low, high = percentiles(drawn[:, index])
        return Estimate(value, low, high, 0.95, len(point.used), "measured ÷ (slope × N), interval from the spread of repeats")


def curve(options: DensityOptions, points: Sequence[Point]) -> Curve:
    """Work out the curve of at least one point.

    Databases held are judged against one database, as E1 does, unless the linear region's slope is more than 5 % steeper
    (or one database was not measured): then one database alone is slower than its share, and measuring against it would
    flatter.
    """
    loads = tuple(float(point.databases) for point in points)
    means = tuple(point.mean for point in points)
    region = linear_region(loads, means)
    draws = draw_means([point.throughputs for point in points], seed=options.seed)
    repeats = sum(len(points[i].used) for i in region.used)
    slope = Estimate(
        region.slope, None, None, None, repeats, "mean of throughput / N over the linear region", "no interval: too few repeats"
    )
    if draws is not None:
        each = (draws / np.asarray(loads))[:, list(region.used)].mean(axis=1)
        low, high = percentiles(each)
        method = "mean of throughput / N over the linear region, interval from the spread of repeats"
        slope = Estimate(region.slope, low, high, 0.95, repeats, method)
    one = points[0] if points[0].databases == 1 else None
    basis: Basis = "one" if one is not None and region.slope / one.mean - 1 <= DIFFER else "slope"
    return Curve(options, tuple(points), loads, means, one, region, slope, draws, basis, options.seed)


def held_finding(line: Curve, basis: Basis) -> Finding:
    """Databases held at the wanted efficiency, or why there is no number."""
    options, largest = line.options, plural(line.loads[-1])
    if len(line.points) == 1:
        return missing("databases", ALONE)
    if basis == "one" and line.one is None:
        return missing("databases", "one database alone was not measured")
    found = line.held(basis)
    against = "the one-database value" if basis == "one" else "the slope of the linear region"
    method = f"efficiency against {against}; closest falling curve, interpolated"
    wanted = f"{100 * options.at:.3g} %"
    if found.value is None:
        if found.never_below:
            sure = surely(found, line.loads[-1])
            note = f"efficiency never fell below {wanted} in the data"
            if found.low is None:
                note += f": at least {largest} {_are(line.loads[-1])} held; no interval: too few repeats"
            elif sure < line.loads[-1]:
                note += ", but the spread of the repeats reaches below it"
                note += f": at least {plural(sure)} {_are(sure)} held (from {tenths(found.low)})"
            else:
                note += f", nor does its spread over the repeats: at least {largest} {_are(sure)} held"
            return missing("databases", note, method=method)
        return missing("databases", f"efficiency is below {wanted} from the first point on", method=method)
    between = f"{found.below:g}" if found.below == found.value else f"{found.below:g} and {found.above:g}"
    note = f"between the measured {between}" if "and" in between else f"at the measured {between}"
    if found.low is None:
        note += "; no interval: too few repeats, the measured points bracket it"
        return Finding(value=found.value, unit="databases", n=line.trials(), method=method, note=note)
    if found.open:
        note += f"; {OPEN} ({line.loads[-1]:g})"
    return Finding(
        value=found.value,
        unit="databases",
        low=min(found.low, found.value),
        high=max(found.high or found.value, found.value),
        confidence=found.confidence,
        n=line.trials(),
        method=method + ", interval from the spread of repeats",
        note=note,
    )


def surely(found: Capacity, largest: float) -> int:
    """How many databases are held at least where the measured efficiency never fell below what is wanted: no more than its interval
    bears out; without an interval all that were measured."""
    return math.floor((largest if found.low is None else min(found.low, largest)) + 1e-9)


def tenths(databases: float) -> str:
    """To one decimal, rounded down as a number of databases that are held is: 8.98 is not 9."""
    return f"{math.floor(10 * databases + 1e-6) / 10:.1f}"


def _are(databases: float) -> str:
    return "is" if databases == 1 else "are"


def turning(line: Curve) -> Retrograde:
    """Whether throughput falls beyond its peak."""
    return retrograde(line.loads, [point.throughputs for point in line.points])


def shape_findings(line: Curve) -> dict[str, Finding]:
    """one_database, slope, end_of_linear, peak_throughput, saturation, throughput_beyond_peak."""
    from pgherd.studies.density import published

    options, found = line.options, {}
    if line.one is not None:
        note = "; ".join(t for t in (f"with {options.vcpus:g} vCPU", line.one.note) if t)
        found["one_database"] = as_finding(mean_interval(line.one.throughputs), "tps", note)
    else:
        found["one_database"] = missing("tps", "one database alone was not measured")
    found["slope"] = as_finding(line.slope, "tps per database", f"over the linear region, up to {plural(line.region.end)}")
    straight = [point.databases for point in line.points if point.limited_by == "quota" and point.databases <= line.region.end]
    note = (
        f"the next number measured, {line.region.next:g}, is no longer in it"
        if line.region.next
        else "the data end before the linear region does"
    )
    if straight:
        note += f"; a CPU quota limits the databases up to {straight[-1]}, so that the curve is straight there by construction"
    shape = {"experiment": "E1", "published": published.END_OF_LINEAR}
    found["end_of_linear"] = (
        missing("databases", ALONE, **shape)
        if len(line.points) == 1
        else Finding(
            value=line.region.end,
            unit="databases",
            low=line.region.end if line.region.next else None,
            high=line.region.next,
            n=line.trials(),
            method=f"{line.region.rule}; low and high are the measured numbers around the true end",
            note=note,
            **shape,
        )
    )
    best = max(range(len(line.means)), key=line.means.__getitem__)
    rising = best == len(line.means) - 1 and len(line.means) > 1
    note = f"at {plural(line.loads[best])}" + ("; still rising at the largest number measured" if rising else "")
    found["peak_throughput"] = as_finding(mean_interval(line.points[best].throughputs), "tps", note)
    enough = next(i for i, mean in enumerate(line.means) if mean >= 0.95 * line.means[best])
    if len(line.points) == 1:
        found["saturation"] = missing("databases", ALONE)
    elif rising and line.means[-1] > 1.05 * line.means[-2]:
        found["saturation"] = missing(
            "databases", f"throughput still rises by more than 5 % at the largest number measured ({line.loads[-1]:g})"
        )
    else:
        found["saturation"] = Finding(
            value=line.loads[enough],
            unit="databases",
            low=line.loads[enough - 1] if enough else None,
            high=line.loads[enough] if enough else None,
            n=line.trials(),
            method="smallest number measured with at least 95 % of the highest throughput; low is the number measured before it",
        )
    turn = turning(line)
    found["throughput_beyond_peak"] = as_finding(turn.ratio, "ratio", f"largest number ÷ best ({plural(turn.best)}): {turn.note}")
    return found
