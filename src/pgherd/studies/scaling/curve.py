"""The scaling curve of one server: medians per number of clients, peak, linear region and saturation, with intervals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgherd.analysis.best_load import BestLoad, best_load, contradictions
from pgherd.analysis.bootstrap import draw_medians, median_estimate, percentiles
from pgherd.analysis.capacity import LinearRegion, Retrograde, linear_region, retrograde
from pgherd.analysis.intervals import Estimate
from pgherd.analysis.scaling_model import Array
from pgherd.model.analysis import Finding
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import TrialResult
from pgherd.studies.scaling.options import plural, scripts_of
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import Observation
from pgherd.study.repeats import Repeats, repeats

NEAR_PEAK_SHARE = 0.95
"""Share of the highest throughput at which a number of clients saturates the server."""
MIN_RISE = 0.02
"""Relative increase of throughput that counts as a rise."""
TOO_FEW_CLIENTS = "too-few-clients"
"""Bottleneck of a point without another one, if the next number of clients has more throughput."""

SINGLE_POINT = "only one number of clients was measured, and this compares several"
FROM_REPEATS = "interval from the spread of repeats"
_NO_SPREAD = "no interval: too few repeats at all points"
NO_PEAK = "no peak is named: too few repeats at all points"


# ---- points


@dataclass(frozen=True)
class ScalingPoint(Repeats):
    """All trials of one number of clients, of one variant."""

    clients: int

    @property
    def median(self) -> float:
        """Median throughput of the used trials."""
        return float(statistics.median(self.throughputs))


def scaling_points(options: DatabaseOptions, results: Sequence[TrialResult], variant: str = "") -> list[ScalingPoint]:
    """Group a variant's trials by number of clients. Points without a finished trial are left out."""
    by_clients: dict[int, list[TrialResult]] = {}
    for result in results:
        clients = result.trial.point.get("clients")
        if isinstance(clients, int) and result.trial.point.get("variant", "") == variant:
            by_clients.setdefault(clients, []).append(result)
    points = []
    for clients, trials in sorted(by_clients.items()):
        usable = repeats(options, trials)
        if usable is not None:
            points.append(ScalingPoint(usable.used, usable.tried, usable.tainted, usable.failed, clients))
    return points


def server_cpu_per_tx(observation: Observation) -> float | None:
    """CPU time of the server per transaction in ms, without pgbench."""
    used = observation.cpu.databases
    return None if used is None or observation.throughput <= 0 else 1000 * used / observation.throughput


def client_cpu_share(observation: Observation) -> float | None:
    """pgbench's share of the CPU that it and the server used."""
    server, clients = observation.cpu.databases, observation.cpu.clients
    return None if server is None or clients is None or server + clients <= 0 else clients / (server + clients)


# ---- published results of E3 (VMware's white paper on vFabric Postgres 9.2: one server on 32 cores, pgbench scale 100)

SOURCE = "VMware vFabric Postgres 9.2: Performance and Best Practices (32 cores, scale 100)"

PUBLISHED_LINEAR = "linear region 8 → 20 clients, from the older version to the newer"
PUBLISHED_SATURATION = "saturation ≈ 20 → beyond 48 clients, from the older version to the newer"
PUBLISHED_PEAKS = {"select-only": "peak ≈ 4 × the older version's", "tpcb-like": "peak almost +100 % against the older version"}
PUBLISHED_VIRTUAL = "virtual is on par with physical"


def published_linear_region(options: DatabaseOptions) -> dict[str, str]:
    """E3's end of the linear region, which is from its select-only curve. Empty for other workloads."""
    return _published(PUBLISHED_LINEAR) if scripts_of(options) == "select-only" else {}


def published_saturation(options: DatabaseOptions) -> dict[str, str]:
    """E3's saturation point, which is from its default workload. Empty for other workloads."""
    return _published(PUBLISHED_SATURATION) if scripts_of(options) == "tpcb-like" else {}


def published_ratio(options: DatabaseOptions, baseline: DatabaseOptions, quantity: str) -> dict[str, str]:
    """E3's ratio of two variants' ``peak``, ``slope`` or ``linear`` region. Empty if E3 did not compare such variants."""
    workload = scripts_of(options)
    if workload != scripts_of(baseline):
        return {}
    if major_version(options) != major_version(baseline):
        if quantity == "peak" and workload in PUBLISHED_PEAKS:
            return _published(PUBLISHED_PEAKS[workload])
        return _published(PUBLISHED_LINEAR) if quantity == "linear" and workload == "select-only" else {}
    kinds = {_machine_kind(options), _machine_kind(baseline)}
    return _published(PUBLISHED_VIRTUAL) if quantity == "peak" and kinds == {"vm", "physical"} else {}


def _machine_kind(options: DatabaseOptions) -> str:
    """``vm`` or ``physical``; ``unknown`` for an external server."""
    if options.dsn is not None:
        return "unknown"
    return "vm" if capabilities_of(options.runtime).own_kernel else "physical"


def major_version(options: DatabaseOptions) -> str:
    return options.pg_version.partition(".")[0]


def _published(text: str) -> dict[str, str]:
    return {"experiment": "E3", "published": f"{text} ({SOURCE})"}


# ---- curve


@dataclass(frozen=True)
class ScalingCurve:
    """The points of one variant, in ascending order, and bootstrap draws of their medians.

    ``variant`` is empty in a run without variants. ``draws`` has the shape (resamples, points), and is None with too few repeats.
    """

    variant: str
    options: DatabaseOptions
    points: tuple[ScalingPoint, ...]
    draws: Array | None

    @property
    def loads(self) -> tuple[float, ...]:
        """Numbers of clients."""
        return tuple(float(point.clients) for point in self.points)

    @property
    def medians(self) -> tuple[float, ...]:
        """Median throughput of each point."""
        return tuple(point.median for point in self.points)

    @cached_property
    def region(self) -> LinearRegion:
        return linear_region(self.loads, self.medians)

    @cached_property
    def regions(self) -> list[LinearRegion] | None:
        """The linear region of each draw."""
        return None if self.draws is None else [linear_region(self.loads, row) for row in self.draws.tolist()]

    @property
    def best(self) -> int:
        """Index of the point with the highest throughput."""
        return self.peak.index

    @cached_property
    def peak(self) -> BestLoad:
        """The highest throughput, and the points that cannot be told from the one that has it."""
        return best_load(self.medians, self.draws, self.trials())

    @property
    def peak_clients(self) -> list[int]:
        """The numbers of clients that cannot be told from the best, ascending. Only the best if the spread is unknown."""
        return [self.points[i].clients for i in self.peak.candidates or (self.best,)]

    @property
    def contradicting(self) -> list[int]:
        """The numbers of clients with far less throughput than the next smaller and the next larger number."""
        return [self.points[i].clients for i in contradictions(self.medians)]

    @property
    def at_edge(self) -> bool:
        """True if the highest point is the last of several, so that a higher one may follow."""
        return len(self.points) > 1 and self.best == len(self.points) - 1

    @property
    def rising(self) -> bool:
        """True if throughput still rises at the last point, by more than the scatter of the repeats."""
        if not self.at_edge or self.medians[-1] <= (1 + MIN_RISE) * self.medians[-2]:
            return False
        return self.draws is None or percentiles(self.draws[:, -1] / self.draws[:, -2])[0] > 1

    @cached_property
    def beyond_peak(self) -> Retrograde:
        """Throughput at the largest number of clients, relative to the peak."""
        return retrograde(self.loads, self.medians, self.draws, self.trials())

    def median(self, index: int) -> Estimate:
        """Median throughput of one point, with its interval."""
        return median_estimate(self.points[index].throughputs, None if self.draws is None else self.draws[:, index])

    def trials(self) -> int:
        """The number of trials used, over all points."""
        return sum(len(point.used) for point in self.points)

    def limits(self) -> list[str]:
        """The bottleneck of each point. TOO_FEW_CLIENTS if none was found and the next point has more throughput."""
        limits = []
        for index, point in enumerate(self.points):
            rises = index + 1 < len(self.points) and self.medians[index + 1] > (1 + MIN_RISE) * self.medians[index]
            limits.append(TOO_FEW_CLIENTS if point.bottleneck == "unknown" and rises else point.bottleneck)
        return limits

    def slope_draws(self) -> Array | None:
        """Bootstrap draws of the slope of the linear region."""
        return None if self.draws is None else (self.draws / np.asarray(self.loads))[:, list(self.region.used)].mean(axis=1)

    def slope(self) -> Estimate:
        """Throughput per client over the linear region."""
        method = "mean of throughput / N over the linear region"
        trials = sum(len(self.points[i].used) for i in self.region.used)
        draws = self.slope_draws()
        if draws is None:
            return Estimate(self.region.slope, None, None, None, trials, method, _NO_SPREAD)
        low, high = percentiles(draws)
        return Estimate(self.region.slope, low, high, 0.95, trials, f"{method}, {FROM_REPEATS}")

    def linear_share(self, index: int) -> Estimate:
        """Throughput of a point ÷ (slope of the linear region × N)."""
        value = self.medians[index] / (self.loads[index] * self.region.slope)
        n = len(self.points[index].used)
        if self.region.used == (index,):
            return Estimate(1.0, None, None, None, n, "by definition", "no interval: the slope is from this point only")
        draws = self.slope_draws()
        if draws is None or self.draws is None:
            return Estimate(value, None, None, None, n, "measured ÷ (slope × N)", _NO_SPREAD)
        low, high = percentiles(self.draws[:, index] / (self.loads[index] * draws))
        return Estimate(value, min(low, value), max(high, value), 0.95, n, f"measured ÷ (slope × N), {FROM_REPEATS}")

    def saturation(self, medians: Sequence[float] | None = None) -> int:
        """Index of the smallest number of clients with 95 % of the highest throughput."""
        values = self.medians if medians is None else medians
        return next(i for i, value in enumerate(values) if value >= NEAR_PEAK_SHARE * max(values))


def scaling_curve(options: DatabaseOptions, points: Sequence[ScalingPoint], variant: str = "", seed: int = 1) -> ScalingCurve:
    """Build the curve from at least one point."""
    draws = draw_medians([point.throughputs for point in points], seed=seed)
    return ScalingCurve(variant, options, tuple(points), draws)


# ---- findings of its shape


def shape_findings(curve: ScalingCurve) -> dict[str, Finding]:
    """peak_throughput, peak_clients, linear_slope, linear_range_end, saturation_point, retrograde_ratio."""
    best, beyond = curve.points[curve.best], curve.beyond_peak
    where = f"with {clients_text(curve.peak_clients)}" if curve.peak.candidates or len(curve.points) == 1 else ""
    if not where:
        where = NO_PEAK
    elif curve.rising:
        where += "; throughput still rises at the largest number measured: the peak is beyond the data, and higher than this"
    elif curve.at_edge:
        where += "; this is the largest number measured, and a higher peak is possible beyond it"
    return {
        "peak_throughput": as_finding(curve.peak.value, "tps", "; ".join(filter(None, (where, best.note)))),
        "peak_clients": _peak_clients(curve),
        "linear_slope": as_finding(curve.slope(), "tps per client", f"over the linear region, up to {plural(curve.region.end)}"),
        "linear_range_end": linear_range_end(curve),
        "saturation_point": _saturation(curve),
        "retrograde_ratio": as_finding(beyond.ratio, "ratio", f"largest number ÷ best ({plural(beyond.best)}): {beyond.note}"),
    }


def clients_text(clients: Sequence[int]) -> str:
    """Return ``4 clients``, or ``2, 3 or 4 clients``."""
    if len(clients) == 1:
        return plural(clients[0])
    return f"{', '.join(map(str, clients[:-1]))} or {plural(clients[-1])}"


def _peak_clients(curve: ScalingCurve) -> Finding:
    method, best = "number of clients with the highest median", curve.loads[curve.best]
    if len(curve.points) == 1:
        return missing("clients", SINGLE_POINT)
    if curve.rising:
        return missing("clients", f"throughput still rises at the largest number measured ({curve.loads[-1]:g})", method=method)
    if not curve.peak.candidates:
        return missing("clients", NO_PEAK, method=method)
    note = "the largest number measured; a higher peak is possible beyond it" if curve.at_edge else ""
    if len(curve.peak_clients) > 1:
        note = "; ".join(filter(None, (note, f"{clients_text(curve.peak_clients)} cannot be told apart")))
    return Finding(
        value=best,
        unit="clients",
        low=min(curve.peak_clients),
        high=max(curve.peak_clients),
        confidence=0.95,
        n=curve.trials(),
        method=f"{method}; low and high are the smallest and largest number that cannot be told from it",
        note=note,
    )


def linear_range_end(curve: ScalingCurve) -> Finding:
    """The largest number of clients in the linear region. Its interval extends to the next number measured."""
    reference = published_linear_region(curve.options)
    if len(curve.points) == 1:
        return missing("clients", SINGLE_POINT, **reference)
    region = curve.region
    note = f"the next number measured, {region.next:g}, is no longer in it" if region.next else "the data end before the linear region does"
    low: float | None = region.end if region.next else None
    high, confidence = region.next, None
    method = f"{region.rule}; low and high are the measured numbers around the true end"
    if curve.regions is not None and region.next is not None:
        lowest, highest = percentiles(np.array([drawn.end for drawn in curve.regions]))
        after = next(drawn.next for drawn in curve.regions if drawn.end == highest)
        if after is None:
            low = high = None
            note += "; no interval: by the spread of the repeats the region may extend past the last number measured"
        else:
            low, high, confidence = min(lowest, region.end), max(after, region.next), 0.95
            method += f", {FROM_REPEATS}"
    return Finding(
        value=region.end, unit="clients", low=low, high=high, confidence=confidence, n=curve.trials(), method=method, note=note, **reference
    )


def _saturation(curve: ScalingCurve) -> Finding:
    reference = published_saturation(curve.options)
    if len(curve.points) == 1:
        return missing("clients", SINGLE_POINT, **reference)
    if curve.at_edge and curve.medians[-1] * NEAR_PEAK_SHARE > curve.medians[-2]:
        percent = 100 * (1 / NEAR_PEAK_SHARE - 1)
        reason = f"throughput still rises by more than {percent:.0f} % at the largest number measured ({curve.loads[-1]:g})"
        return missing("clients", reason, **reference)
    method = f"smallest number measured with at least {100 * NEAR_PEAK_SHARE:.0f} % of the highest throughput"
    note = "throughput still rises at the largest number measured" if curve.rising else ""
    return _clients_finding(curve, curve.saturation(), curve.saturation, method, note, **reference)


def _clients_finding(
    curve: ScalingCurve, index: int, find: Callable[[list[float]], int], method: str, note: str, **reference: str
) -> Finding:
    """A measured number of clients, with its range over the bootstrap draws."""
    value = curve.loads[index]
    if curve.draws is None:
        text = "; ".join(filter(None, (note, _NO_SPREAD)))
        return Finding(value=value, unit="clients", n=curve.trials(), method=method, note=text, **reference)
    low, high = percentiles(np.array([curve.loads[find(medians)] for medians in curve.draws.tolist()]))
    return Finding(
        value=value,
        unit="clients",
        low=min(low, value),
        high=max(high, value),
        confidence=0.95,
        n=curve.trials(),
        method=f"{method}, {FROM_REPEATS}",
        note=note,
        **reference,
    )
