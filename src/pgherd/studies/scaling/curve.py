"""One server's curve: medians per number of clients, its peak, linear region and saturation, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgherd.analysis.bootstrap import draw_medians, median_estimate, percentiles
from pgherd.analysis.capacity import LinearRegion, Retrograde, linear_region, retrograde
from pgherd.analysis.fit import Array
from pgherd.analysis.intervals import Estimate
from pgherd.model.finding import Finding
from pgherd.studies.scaling import published
from pgherd.studies.scaling.options import plural
from pgherd.studies.scaling.points import Point
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing

ENOUGH = 0.95
"""A number of clients saturates the server from this share of the highest throughput on."""
RISE = 0.02
"""Throughput that is higher by less than this share is no rise."""
FEW_CLIENTS = "few clients"
"""What limited a point that nothing else limited, when the next number of clients made more."""

ALONE = "only one number of clients was measured, and this compares several"
FROM_REPEATS = "interval from the spread of repeats"
_NO_SPREAD = "no interval: too few repeats at all points"


@dataclass(frozen=True)
class Curve:
    """The points of one variant ('' where there are none), ascending, and plausible values of all medians (``draws``, shape
    (resamples, points); None where the repeats are too few)."""

    variant: str
    options: DatabaseOptions
    points: tuple[Point, ...]
    draws: Array | None

    @property
    def loads(self) -> tuple[float, ...]:
        """Numbers of clients."""
        return tuple(float(point.clients) for point in self.points)

    @property
    def medians(self) -> tuple[float, ...]:
        """Median throughput at each."""
        return tuple(point.median for point in self.points)

    @cached_property
    def region(self) -> LinearRegion:
        """The linear region."""
        return linear_region(self.loads, self.medians)

    @cached_property
    def regions(self) -> list[LinearRegion] | None:
        """The linear region of each draw."""
        return None if self.draws is None else [linear_region(self.loads, row) for row in self.draws.tolist()]

    @property
    def best(self) -> int:
        """Index of the highest point."""
        return max(range(len(self.points)), key=self.medians.__getitem__)

    @property
    def at_edge(self) -> bool:
        """Whether the highest point is the last of several: a higher one may lie beyond."""
        return len(self.points) > 1 and self.best == len(self.points) - 1

    @property
    def rising(self) -> bool:
        """Whether throughput still rises at the last point, by more than the scatter of the repeats where that is known."""
        if not self.at_edge or self.medians[-1] <= (1 + RISE) * self.medians[-2]:
            return False
        return self.draws is None or percentiles(self.draws[:, -1] / self.draws[:, -2])[0] > 1

    @cached_property
    def turning(self) -> Retrograde:
        """Whether throughput falls beyond its peak."""
        return retrograde(self.loads, [point.throughputs for point in self.points])

    def median(self, index: int) -> Estimate:
        """Median throughput of one point."""
        return median_estimate(self.points[index].throughputs, None if self.draws is None else self.draws[:, index])

    def trials(self) -> int:
        """How many trials stand behind the curve."""
        return sum(len(point.used) for point in self.points)

    def limits(self) -> list[str]:
        """What limited each point; FEW_CLIENTS where nothing was seen to, and the next point made more."""
        found = []
        for index, point in enumerate(self.points):
            more = index + 1 < len(self.points) and self.medians[index + 1] > (1 + RISE) * self.medians[index]
            found.append(FEW_CLIENTS if point.limited_by == "unknown" and more else point.limited_by)
        return found

    def slope_draws(self) -> Array | None:
        """Plausible slopes of the linear region."""
        return None if self.draws is None else (self.draws / np.asarray(self.loads))[:, list(self.region.used)].mean(axis=1)

    def slope(self) -> Estimate:
        """Throughput per client over the linear region."""
        method = "mean of throughput / N over the linear region"
        repeats = sum(len(self.points[i].used) for i in self.region.used)
        drawn = self.slope_draws()
        if drawn is None:
            return Estimate(self.region.slope, None, None, None, repeats, method, _NO_SPREAD)
        low, high = percentiles(drawn)
        return Estimate(self.region.slope, low, high, 0.95, repeats, f"{method}, {FROM_REPEATS}")

    def linear_share(self, index: int) -> Estimate:
        """Throughput of a point over the linear region's slope × N."""
        value = self.medians[index] / (self.loads[index] * self.region.slope)
        n = len(self.points[index].used)
        if self.region.used == (index,):
            return Estimate(1.0, None, None, None, n, "by definition", "no interval: the slope is this point's own")
        drawn = self.slope_draws()
        if drawn is None or self.draws is None:
            return Estimate(value, None, None, None, n, "measured ÷ (slope × N)", _NO_SPREAD)
        low, high = percentiles(self.draws[:, index] / (self.loads[index] * drawn))
        return Estimate(value, min(low, value), max(high, value), 0.95, n, f"measured ÷ (slope × N), {FROM_REPEATS}")

    def saturation(self, medians: Sequence[float] | None = None) -> int:
        """Index of the smallest number of clients with 95 % of the highest throughput."""
        values = self.medians if medians is None else medians
        return next(i for i, value in enumerate(values) if value >= ENOUGH * max(values))


def curve(options: DatabaseOptions, points: Sequence[Point], variant: str = "", seed: int = 1) -> Curve:
    """Work out the curve of at least one point."""
    draws = draw_medians([point.throughputs for point in points], seed=seed)
    return Curve(variant, options, tuple(points), draws)


def shape_findings(line: Curve) -> dict[str, Finding]:
    """peak_throughput, peak_clients, slope, end_of_linear, saturation, throughput_beyond_peak."""
    best = line.points[line.best]
    where = f"with {plural(best.clients)}"
    if line.rising:
        where += "; throughput still rises at the largest number measured: the peak lies beyond the data, and this is less than it"
    elif line.at_edge:
        where += "; that is the largest number measured, and a higher peak may lie beyond"
    return {
        "peak_throughput": as_finding(line.median(line.best), "tps", "; ".join(filter(None, (where, best.note)))),
        "peak_clients": _peak_clients(line),
        "slope": as_finding(line.slope(), "tps per client", f"over the linear region, up to {plural(line.region.end)}"),
        "end_of_linear": end_of_linear(line),
        "saturation": _saturation(line),
        "throughput_beyond_peak": as_finding(
            line.turning.ratio, "ratio", f"largest number ÷ best ({plural(line.turning.best)}): {line.turning.note}"
        ),
    }


def _peak_clients(line: Curve) -> Finding:
    method = "number of clients with the highest median"
    if len(line.points) == 1:
        return missing("clients", ALONE)
    if line.rising:
        return missing("clients", f"throughput still rises at the largest number measured ({line.loads[-1]:g})", method=method)
    note = "the largest number measured; a higher peak may lie beyond" if line.at_edge else ""
    return _count(line, line.best, lambda row: int(np.argmax(row)), method, note)


def end_of_linear(line: Curve) -> Finding:
    """The largest number of clients in the linear region; its interval reaches to the next number measured."""
    beside = published.linear_region(line.options)
    if len(line.points) == 1:
        return missing("clients", ALONE, **beside)
    region = line.region
    note = f"the next number measured, {region.next:g}, is no longer in it" if region.next else "the data end before the linear region does"
    low: float | None = region.end if region.next else None
    high, confidence = region.next, None
    method = f"{region.rule}; low and high are the measured numbers around the true end"
    if line.regions is not None and region.next is not None:
        least, most = percentiles(np.array([one.end for one in line.regions]))
        after = next(one.next for one in line.regions if one.end == most)
        if after is None:
            low = high = None
            note += "; no interval: by the spread of repeats the region may go on past the last number measured"
        else:
            low, high, confidence = min(least, region.end), max(after, region.next), 0.95
            method += f", {FROM_REPEATS}"
    return Finding(
        value=region.end, unit="clients", low=low, high=high, confidence=confidence, n=line.trials(), method=method, note=note, **beside
    )


def _saturation(line: Curve) -> Finding:
    beside = published.saturation(line.options)
    if len(line.points) == 1:
        return missing("clients", ALONE, **beside)
    if line.at_edge and line.medians[-1] * ENOUGH > line.medians[-2]:
        more = f"throughput still rises by more than {100 * (1 / ENOUGH - 1):.0f} % at the largest number measured ({line.loads[-1]:g})"
        return missing("clients", more, **beside)
    method = f"smallest number measured with at least {100 * ENOUGH:.0f} % of the highest throughput"
    note = "throughput still rises at the largest number measured" if line.rising else ""
    return _count(line, line.saturation(), line.saturation, method, note, **beside)


def _count(line: Curve, index: int, find: Callable[[list[float]], int], method: str, note: str, **beside: str) -> Finding:
    """A number of clients among those measured, with the range of it in plausible curves."""
    value = line.loads[index]
    if line.draws is None:
        text = "; ".join(filter(None, (note, _NO_SPREAD)))
        return Finding(value=value, unit="clients", n=line.trials(), method=method, note=text, **beside)
    low, high = percentiles(np.array([line.loads[find(row)] for row in line.draws.tolist()]))
    return Finding(
        value=value,
        unit="clients",
        low=min(low, value),
        high=max(high, value),
        confidence=0.95,
        n=line.trials(),
        method=f"{method}, {FROM_REPEATS}",
        note=note,
        **beside,
    )
