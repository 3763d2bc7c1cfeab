"""Findings, tables and warnings of a density curve: shape (E1), platform overhead (E2), fairness and CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from pgherd.analysis.intervals import Estimate
from pgherd.model.analysis import OPEN_END, Finding
from pgherd.model.result import TrialResult
from pgherd.studies.density.curve import (
    ON_LEVELS,
    SINGLE_TOLERANCE,
    Basis,
    DensityCurve,
    DensityPoint,
    capacity_floor,
    floor_tenths,
    plural,
)
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import CPU_LIMITS, Observation
from pgherd.study.repeats import (
    NO_CONTAINER_CPU,
    PART_NOT_SEEN,
    cpu_cells,
    mean_finding,
    mean_over_points,
    named_parts,
    part_cpu,
    pgherd_cpu,
)

Row = dict[str, Finding | str | int | float | None]

NEVER_BELOW = "efficiency never fell below"
"""Part of a capacity's note if no measured point is below the target efficiency."""
OVERHEAD_FRACTION = 0.8
"""Fraction of the cores at which E2 reads the overhead."""
OF_SUBSETS = "mean over subsets of different sizes"
NOT_STATED = "the list does not state it"
SINGLE_POINT = "only one number of databases was measured, and efficiency compares two"
NO_SINGLE = "a single database was not measured"
NO_CORES = "the cores of existing servers and their hosts are unknown"
NO_CPU_SHARE = "the CPU received was not measured at every point, or the CPU was not limited"
NO_PERCENTILE = "too few sampled transactions above it in at least one database"
NO_DATABASE_THROUGHPUT = "no throughput per database was measured"


# ---- published results of E1 and E2 (Gary Little, n0derunner.com; Nutanix, 4 hosts of 40 cores)

SOURCE = "E1, Gary Little, n0derunner.com"

E1 = (
    # databases, fraction of the cores, thousand transactions/s
    (1, 0.025, 64.0),
    (4, 0.1, 256.0),
    (8, 0.2, 512.0),
    (16, 0.4, 1045.0),
    (24, 0.6, 1540.0),
    (32, 0.8, 1957.0),
    (40, 1.0, 2194.0),
)

PUBLISHED_TOLERANCE = 0.02
"""Largest difference in the fraction of the cores at which a point is compared with a published one."""

PUBLISHED_EFFICIENCY = "85.7 % of ideal with all 160 cores allocated (the article's text has > 85 %, its summary about 90 %)"
PUBLISHED_LINEAR_RANGE_END = "linear up to 80 % of the cores (32 of 40 databases)"
PUBLISHED_CPU_BOUND = "each database at 98 % of its 4 vCPUs"
PUBLISHED_OVERHEAD_INFERRED = "about 5 % of 160 cores = 8 cores, 2 per host"
PUBLISHED_OVERHEAD_MEASURED = "16 vCPUs 12 % busy: about 2 vCPUs per host"


def published_efficiency(row: tuple[int, float, float]) -> float:
    """Efficiency of a published row, relative to one database × N."""
    databases, _, throughput = row
    return throughput / (databases * E1[0][2])


def published_efficiency_at(fraction: float) -> float | None:
    """E1's efficiency at this fraction of the cores. None if E1 has no point close to it."""
    nearest = min(E1, key=lambda row: abs(row[1] - fraction))
    return published_efficiency(nearest) if abs(nearest[1] - fraction) <= PUBLISHED_TOLERANCE + 1e-9 else None


def published_rows() -> list[dict[str, Any]]:
    """E1's rows for the figure: fraction, efficiency, databases, source."""
    return [{"allocated_share": row[1], "efficiency": published_efficiency(row), "databases": row[0], "source": SOURCE} for row in E1]


# ---- capacity and shape


def capacity_finding(curve: DensityCurve, basis: Basis) -> Finding:
    """The capacity at the target efficiency, or the reason why there is no number."""
    options, largest = curve.options, plural(curve.loads[-1])
    if len(curve.points) == 1:
        return missing("databases", SINGLE_POINT)
    if basis == "single" and curve.single is None:
        return missing("databases", NO_SINGLE)
    if basis == "cpu" and curve.cpu_shares is None:
        return missing("databases", NO_CPU_SHARE)
    estimate = curve.capacity(basis)
    method = f"{_compared(curve, basis)}; closest falling curve, interpolated"
    target = f"{100 * options.efficiency:.3g} %"
    if estimate.value is None:
        if not estimate.never_below:
            return missing("databases", f"efficiency is below {target} at every point", method=method)
        certain = capacity_floor(estimate, curve.loads[-1])
        note = f"{NEVER_BELOW} {target} from {plural(curve.loads[curve.first_index(basis)])} on"
        if estimate.low is None:
            note += f": capacity at least {largest}; {_no_interval(curve, basis)}"
        elif certain < curve.loads[-1]:
            note += f", but the spread of the repeats reaches below it: capacity at least {plural(certain)}"
            note += f" (from {floor_tenths(estimate.low)})"
        else:
            note += f", nor does the spread of its repeats: capacity at least {largest}"
        return missing("databases", note, method=method)
    exact = estimate.below == estimate.value
    note = f"at the measured {estimate.below:g}" if exact else f"between the measured {estimate.below:g} and {estimate.above:g}"
    if estimate.low is None:
        note += f"; {_no_interval(curve, basis)}, the measured points bracket it"
        return Finding(value=estimate.value, unit="databases", n=curve.trials(), method=method, note=note)
    if estimate.open:
        note += f"; {OPEN_END} by the largest number measured ({curve.loads[-1]:g})"
    return Finding(
        value=estimate.value,
        unit="databases",
        low=min(estimate.low, estimate.value),
        high=max(estimate.high or estimate.value, estimate.value),
        confidence=estimate.confidence,
        n=curve.trials(),
        method=method + ", interval from the spread of repeats",
        note=note,
    )


def _no_interval(curve: DensityCurve, basis: Basis) -> str:
    if curve.levels is None or basis == "cpu":
        return "no interval: too few repeats"
    return f"no interval: {ON_LEVELS}"


def _compared(curve: DensityCurve, basis: Basis) -> str:
    if basis == "cpu":
        return "CPU received ÷ CPU allocated"
    if basis == "single":
        return "throughput ÷ (N × single database)"
    return f"throughput ÷ (N × that of each of {curve.reference_text})"


def capacity_findings(curve: DensityCurve) -> dict[str, Finding]:
    """The answer's capacity, and the capacities by CPU, by throughput, and against a single database."""
    by_cpu, by_throughput = capacity_finding(curve, "cpu"), capacity_finding(curve, "reference")
    return {
        "capacity": by_cpu if curve.basis == "cpu" else by_throughput,
        "capacity_by_cpu": by_cpu,
        "capacity_by_throughput": by_throughput,
        "capacity_vs_single": capacity_finding(curve, "single"),
    }


def shape_findings(curve: DensityCurve) -> dict[str, Finding]:
    """single_database_throughput, reference_throughput, linear_range_end, peak_throughput, saturation_point, retrograde_ratio."""
    if curve.single is not None:
        note = "; ".join(t for t in ("" if curve.options.fleet else f"with {curve.options.vcpus:g} vCPU", curve.single.note) if t)
        single = as_finding(curve.throughput(0), "tps", note)
    else:
        single = missing("tps", NO_SINGLE)
    best, beyond = curve.peak.index, curve.beyond_peak
    rising = best == len(curve.means) - 1 and len(curve.means) > 1
    note = f"at {_peak_numbers(curve)}" + ("; still rising at the largest number measured" if rising else "")
    rule = "the smallest number, as the cores are unknown" if curve.options.fleet else "the largest number up to 75 % of a full host"
    return {
        "single_database_throughput": single,
        "reference_throughput": as_finding(curve.reference, "tps per database", f"of each of {curve.reference_text}, {rule}"),
        "linear_range_end": _linear_range_end(curve),
        "peak_throughput": as_finding(curve.peak.value, "tps", note),
        "saturation_point": _saturation(curve, best, rising=rising),
        "retrograde_ratio": as_finding(beyond.ratio, "ratio", f"largest number ÷ best ({plural(beyond.best)}): {beyond.note}"),
    }


def _peak_numbers(curve: DensityCurve) -> str:
    """Return ``10 databases``, or ``9, 10 or 12 databases, which cannot be told apart``."""
    *others, last = (curve.loads[i] for i in curve.peak.candidates or (curve.peak.index,))
    if not others:
        return plural(last)
    return f"{', '.join(f'{n:g}' for n in others)} or {plural(last)}, which cannot be told apart"


def _linear_range_end(curve: DensityCurve) -> Finding:
    shape = {"experiment": "E1", "published": PUBLISHED_LINEAR_RANGE_END}
    if len(curve.points) == 1:
        return missing("databases", SINGLE_POINT, **shape)
    region = curve.region
    note = f"the next number measured, {region.next:g}, is no longer in it" if region.next else "the data end before the linear region does"
    limited = [point for point in curve.points if point.bottleneck in CPU_LIMITS and point.databases <= region.end]
    if limited:
        limit = CPU_LIMITS[limited[-1].bottleneck]
        note += f"; a {limit} limits the databases up to {limited[-1].databases}, which makes the curve linear there by construction"
    return Finding(
        value=region.end,
        unit="databases",
        low=region.end if region.next else None,
        high=region.next,
        n=curve.trials(),
        method=f"{region.rule}; low and high are the measured numbers around the true end",
        note=note,
        **shape,
    )


def _saturation(curve: DensityCurve, best: int, *, rising: bool) -> Finding:
    if len(curve.points) == 1:
        return missing("databases", SINGLE_POINT)
    if rising and curve.means[-1] > 1.05 * curve.means[-2]:
        return missing("databases", f"throughput still rises by more than 5 % at the largest number measured ({curve.loads[-1]:g})")
    saturated = next(i for i, mean in enumerate(curve.means) if mean >= 0.95 * curve.means[best])
    return Finding(
        value=curve.loads[saturated],
        unit="databases",
        low=curve.loads[saturated - 1] if saturated else None,
        high=curve.loads[saturated] if saturated else None,
        n=curve.trials(),
        method="smallest number measured with at least 95 % of the highest throughput; low is the number measured before it",
    )


# ---- evidence for the curve: efficiency with all cores allocated, overhead, CPU-bound, fairness


def evidence_findings(curve: DensityCurve) -> dict[str, Finding]:
    """Efficiency with all cores allocated, platform overhead, use of the CPU limit, fairness, CPU of pgherd."""
    return {
        **_full_host_efficiency(curve),
        **_overhead_inferred(curve),
        **_overhead_measured(curve),
        "cpu_limit_utilization": _cpu_bound(curve),
        **_fairness(curve),
        "pgherd_cpu": pgherd_cpu(curve.points),
    }


def _full_host_efficiency(curve: DensityCurve) -> dict[str, Finding]:
    reference = {"experiment": "E1", "published": PUBLISHED_EFFICIENCY}
    estimate, note = curve.efficiency_at(1.0, "reference")
    single, single_note = curve.efficiency_at(1.0, "single")
    if curve.single is None:
        single, single_note = None, NO_SINGLE
    index = curve.near(1.0)
    return {
        "efficiency_at_saturation": missing("ratio", note)
        if estimate is None
        else as_finding(estimate, "ratio", note + "; all cores allocated"),
        "efficiency_vs_single_at_saturation": missing("ratio", single_note, **reference)
        if single is None
        else as_finding(single, "ratio", single_note + "; all cores allocated", **reference),
        "cpu_efficiency_at_saturation": missing("ratio", "no point with all cores allocated was measured")
        if index is None
        else cpu_efficiency(curve, index),
    }


def _overhead_inferred(curve: DensityCurve) -> dict[str, Finding]:
    """1 − measured ÷ ideal at 80 % of the cores, as a share and in cores."""
    reference = {"experiment": "E2", "published": PUBLISHED_OVERHEAD_INFERRED}
    bound = "an upper bound: it includes clock boost of a single database and contention between databases"
    limit = _point_at_or_before(curve, OVERHEAD_FRACTION).bottleneck
    if limit in ("rate-limit", "vcpus") or (limit == "cpu-quota" and curve.options.cpu_mode == "quota"):
        # The platform uses cores that the databases leave idle.
        limiter = {"rate-limit": "the rate", "vcpus": "the guests' vCPUs"}.get(limit, "a CPU quota")
        bound = f"no bound: {limiter} limits the databases there, and the platform uses cores that they leave idle"
    basis: Basis = "reference" if curve.single is None else "single"
    ideal = curve.reference_text if curve.single is None else "a single database"
    estimate, where = curve.efficiency_at(OVERHEAD_FRACTION, basis)
    units = (("platform_overhead_inferred", "cores"), ("platform_overhead_inferred_share", "ratio"))
    if curve.near(OVERHEAD_FRACTION) == curve.ideal_index(basis):
        estimate = None
        where = f"the throughput near {100 * OVERHEAD_FRACTION:.0f} % of the cores is the ideal itself (as {ideal})"
    if estimate is None:
        return {name: missing(unit, where, **reference) for name, unit in units}
    if estimate.value > 1:
        note = f"measured is {100 * (estimate.value - 1):.1f} % above ideal (as {ideal}), {where}: no overhead can be inferred from that"
        return {name: missing(unit, note, **reference) for name, unit in units}
    low = None if estimate.high is None else 1 - estimate.high
    high = None if estimate.low is None else 1 - estimate.low
    share = Estimate(1 - estimate.value, low, high, estimate.confidence, estimate.n, "1 − measured ÷ ideal", estimate.note)
    note = f"{bound}; ideal as {ideal}, {where}"
    return {
        "platform_overhead_inferred": as_finding(share.scaled(curve.options.host_cores), "cores", note, **reference),
        "platform_overhead_inferred_share": as_finding(share, "ratio", note, **reference),
    }


def _point_at_or_before(curve: DensityCurve, fraction: float) -> DensityPoint:
    """The point close to a fraction of the cores, or the last one before it."""
    index = curve.near(fraction)
    if index is not None:
        return curve.points[index]
    below = [point for point in curve.points if curve.options.fraction(point.databases) <= fraction]
    return below[-1] if below else curve.points[0]


def _overhead_measured(curve: DensityCurve) -> dict[str, Finding]:
    """CPU used outside the containers at the point nearest to 80 % of the cores, with its named parts."""
    reference = {"experiment": "E2", "published": PUBLISHED_OVERHEAD_MEASURED}
    if curve.options.fleet:
        return {"platform_overhead_measured": missing("cores", NO_CORES, **reference)}
    distances = [abs(curve.options.fraction(n) - OVERHEAD_FRACTION) for n in curve.loads]
    point = curve.points[min(range(len(distances)), key=distances.__getitem__)]
    where = f"at {plural(point.databases)}, {100 * curve.options.fraction(point.databases):.0f} % of the cores"
    if not point.values(lambda observation: observation.cpu.platform):
        return {"platform_overhead_measured": missing("cores", NO_CONTAINER_CPU, **reference)}
    method = "all CPU used on the host outside the containers, without pgherd and clients"
    total = mean_finding(point, lambda observation: observation.cpu.platform, "cores", NO_CONTAINER_CPU, where)
    findings = {"platform_overhead_measured": total.model_copy(update={"method": method, **reference})}
    for name in named_parts([point]):
        findings[f"platform_overhead_measured.{name}"] = mean_finding(point, part_cpu(name), "cores", PART_NOT_SEEN, where)
    return findings


def _cpu_bound(curve: DensityCurve) -> Finding:
    """Mean share of their allocated CPU that the loaded containers used, over all points that fit into the cores."""
    reference = {"experiment": "E1", "published": PUBLISHED_CPU_BOUND}
    if not curve.options.cpu_limited:
        return missing("ratio", "CPU of the databases was not limited: there is no allocation to compare with", **reference)
    within = [point for point in curve.points if curve.options.fraction(point.databases) <= 1 + 1e-9]
    shares = [point.values(lambda observation: observation.given) for point in within]
    means = [sum(values) / len(values) for values in shares if values]
    if not means:
        return missing("ratio", NO_CONTAINER_CPU, **reference)
    return as_finding(
        mean_over_points(shares),
        "ratio",
        f"lowest point {100 * min(means):.1f} %",
        method="CPU used ÷ CPU allocated, of the loaded containers; mean over the points up to 100 % of the cores",
        **reference,
    )


def _fairness(curve: DensityCurve) -> dict[str, Finding]:
    """Fairness at the largest point that fits into the cores, and the lowest of all points."""
    several = [point for point in curve.points if point.databases > 1]
    if not several:
        return {"jain_index": missing("ratio", "only one database was measured")}
    within = [point for point in several if curve.options.fleet or curve.options.fraction(point.databases) <= 1 + 1e-9]
    point = within[-1] if within else several[0]
    where = f"at {point.databases} databases"
    worst = min(several, key=lambda point: fmean(point.values(_min_max) or [1.0]))
    worst_note = f"slowest ÷ fastest at {worst.databases} databases, the lowest of all points"
    return {
        "jain_index": mean_finding(point, _jain, "ratio", NO_DATABASE_THROUGHPUT, f"Jain's index {where}", most=1),
        "min_max_ratio": mean_finding(point, _min_max, "ratio", NO_DATABASE_THROUGHPUT, f"slowest ÷ fastest {where}", most=1),
        "min_max_ratio_worst": mean_finding(worst, _min_max, "ratio", NO_DATABASE_THROUGHPUT, worst_note, most=1),
    }


def _jain(observation: Observation) -> float | None:
    return observation.jain_index


def _min_max(observation: Observation) -> float | None:
    return observation.min_max_ratio


def cpu_efficiency(curve: DensityCurve, index: int) -> Finding:
    """CPU time per transaction of the reference ÷ that of N databases."""
    cost = curve.relative_costs[index]
    if cost is None:
        return missing("ratio", NO_CONTAINER_CPU)
    low, high = (None if end is None else 1 / end for end in (cost.high, cost.low))
    note = "; ".join(text for text in (f"reference: {curve.reference_text}", curve.points[index].note) if text)
    return as_finding(
        replace(cost, value=1 / cost.value, low=low, high=high),
        "ratio",
        note,
        method=f"CPU/tx of the reference ÷ CPU/tx of N, {cost.method}",
    )


# ---- warnings about the ideal


def ideal_warnings(curve: DensityCurve) -> list[str]:
    """Explain a difference between a single database and the reference, and efficiencies above 100 %."""
    warnings = []
    if curve.single is not None and curve.single_deviation is not None and abs(curve.single_deviation) > SINGLE_TOLERANCE:
        warnings.append(_deviation_warning(curve, curve.single, curve.single_deviation))
    return warnings + _above_ideal_warnings(curve)


def _deviation_warning(curve: DensityCurve, single: DensityPoint, deviation: float) -> str:
    """Direction of the difference, whether chance explains it, and its usual causes."""
    direction = "less" if deviation > 0 else "more"
    text = f"A single database makes {single.mean:,.0f} tps, {100 * abs(single.mean / curve.reference.value - 1):.0f} % {direction} than "
    text += f"each of {curve.reference_text} ({curve.reference.value:,.0f} tps)"
    spread = curve.throughput(0)
    if spread.low is not None and spread.high is not None and spread.low <= curve.reference.value <= spread.high:
        text += ", which the spread of its repeats also explains"
    if deviation > 0:
        return (
            f"{text}. A lone client sleeps after each query, and waking an idle CPU costs more than the query. Efficiency vs. single "
            "database is therefore too high; the efficiency of this report compares with the reference"
        )
    return (
        f"{text}. A single database gains from boosted clocks, unshared caches or an idle SMT sibling. Efficiency vs. single database "
        "includes this loss, and the efficiency of this report does not"
    )


def _above_ideal_warnings(curve: DensityCurve) -> list[str]:
    """Points above the ideal, and whether chance explains them."""
    above = [index for index, value in enumerate(curve.efficiencies("reference")) if value > 1 + SINGLE_TOLERANCE and index]
    if not above:
        return []
    points, beyond_chance = [], False
    for index in above:
        efficiency = curve.efficiency(index, "reference")
        spread = ""
        if efficiency.low is None or efficiency.low <= 1:
            spread = f", {efficiency.note or 'within the spread of the repeats'}"
        beyond_chance = beyond_chance or not spread
        points.append(f"{100 * efficiency.value:.0f} % at {plural(curve.points[index].databases)}{spread}")
    text = f"Efficiency is above 100 %: {'; '.join(points)}. Transactions cost less CPU time there than at the reference if CPU efficiency "
    text += "is above 100 % as well, as where idle CPUs are slow to wake; otherwise other load slowed the reference"
    return [text + ("" if beyond_chance else ". Chance may explain it: add repeats to decide (--repeats)")]


# ---- tables


def density_rows(curve: DensityCurve) -> list[Row]:
    """One row per number of databases: E1's columns, CPU, latency and fairness."""
    means = {name: curve.estimates(take) for name, (take, *_) in _MEANS.items()}
    return [_density_row(curve, index, {name: column[index] for name, column in means.items()}) for index in range(len(curve.points))]


def _density_row(curve: DensityCurve, index: int, means: dict[str, Estimate | None]) -> Row:
    options, point = curve.options, curve.points[index]
    n = point.databases
    fraction = options.fraction(n)
    row: Row = {
        "databases": n,
        "cores_allocated": missing("cores", NO_CORES) if options.fleet else n * options.vcpus,
        "allocated_share": missing("ratio", NO_CORES) if options.fleet else fraction,
        "throughput": as_finding(curve.throughput(index), "tps", point.note),
    }
    if means["nopm"] is not None:
        row["nopm"] = _mean_cell(curve, point, "nopm", means["nopm"])
    row["ideal"] = as_finding(curve.reference.scaled(n), "tps", method="reference × N")
    row["efficiency"] = as_finding(curve.efficiency(index, "reference"), "ratio", point.note)
    if curve.single is not None:
        row["efficiency_vs_single"] = as_finding(curve.efficiency(index, "single"), "ratio", point.note, **_e1_reference(fraction))
    else:
        row["efficiency_vs_single"] = missing("ratio", NO_SINGLE)
    row["cpu_share"] = missing("ratio", NO_CPU_SHARE) if curve.cpu_shares is None else as_finding(curve.efficiency(index, "cpu"), "ratio")
    row["throughput_per_core"] = _mean_cell(curve, point, "throughput_per_core", means["throughput_per_core"])
    row["cpu_per_tx"] = _mean_cell(curve, point, "cpu_per_tx", means["cpu_per_tx"])
    row["cpu_efficiency"] = cpu_efficiency(curve, index)
    for name, latency in _LATENCY.items():
        row[name] = mean_finding(point, latency, "ms", NO_PERCENTILE, "median over the databases")
    row["jain_index"] = mean_finding(point, _jain, "ratio", NO_DATABASE_THROUGHPUT, "1 by definition" if n == 1 else "", most=1)
    row["min_max_ratio"] = mean_finding(point, _min_max, "ratio", NO_DATABASE_THROUGHPUT, "1 by definition" if n == 1 else "", most=1)
    row["bottleneck"] = point.bottleneck
    row["trials"] = point.tried
    row["tainted_trials"] = point.tainted
    row["published_efficiency"] = published_efficiency_at(fraction)
    return row


def _per_available_core(observation: Observation) -> float | None:
    """Throughput per core that the hypervisor left, so that steal does not count as a loss of the host."""
    cpu = observation.cpu
    return None if not cpu.total or cpu.steal is None else observation.throughput / (cpu.total - cpu.steal)


_LATENCY: dict[str, Callable[[Observation], float | None]] = {
    "p50": lambda observation: observation.p50,
    "p95": lambda observation: observation.p95,
    "p99": lambda observation: observation.p99,
}


def _e1_reference(fraction: float) -> dict[str, str]:
    value = published_efficiency_at(fraction)
    return {} if value is None else {"experiment": "E1", "published": f"{value:.3f} at about the same fraction of the cores"}


_MEANS: dict[str, tuple[Callable[[Observation], float | None], str, str]] = {
    "nopm": (lambda observation: observation.nopm, "NOPM", ""),
    "throughput_per_core": (_per_available_core, "tps per core", "the host's CPU was not measured"),
    "cpu_per_tx": (lambda observation: observation.cpu_per_tx, "ms", NO_CONTAINER_CPU),
}
"""Quantities that vary with the throughput, and have an interval only where it has: how to get them, unit, reason of an absence."""


def _mean_cell(curve: DensityCurve, point: DensityPoint, name: str, mean: Estimate | None) -> Finding:
    _, unit, absent = _MEANS[name]
    if mean is None:
        return missing(unit, absent)
    servers = (
        "the loaded containers with the clients in them" if curve.options.client_placement == "inside" else "the servers without clients"
    )
    notes = {"nopm": "committed new orders per minute of all databases", "cpu_per_tx": f"CPU time of {servers}"}
    return as_finding(mean, unit, "; ".join(text for text in (notes.get(name), point.note) if text))


def server_rows(curve: DensityCurve, results: Sequence[TrialResult]) -> list[Row]:
    """One row per listed server: its mean throughput over the points that loaded it, also per core and per unit of its price.

    Trials count as they do for the curve: tainted ones only at a point without a clean one.
    """
    used = {observation.key for point in curve.points for observation in point.used}
    rows: list[Row] = []
    for server in curve.options.fleet:
        values: dict[object, list[float]] = {}
        for result in results:
            if result.error is None and result.trial.key() in used:
                of_server = [t.throughput for phase in result.phases for t in phase.targets if t.target.split("/")[1] == server.name]
                values.setdefault(result.trial.point["databases"], []).extend(of_server)
        mean = mean_over_points(list(values.values())) if any(values.values()) else None
        row: Row = {"server": server.name, "host": server.host, "container": server.container, "version": server.version}
        divisors = (("throughput_per_core", "tps per core", server.capacity), ("throughput_per_price", "tps", server.price))
        row["throughput"] = missing("tps", "no finished trial loaded it") if mean is None else as_finding(mean, "tps", OF_SUBSETS)
        for name, unit, divisor in divisors:
            row[name] = missing(unit, NOT_STATED) if mean is None or not divisor else as_finding(mean.scaled(1 / divisor), unit, OF_SUBSETS)
        rows.append(row)
    return rows


def cpu_rows(curve: DensityCurve) -> list[Row]:
    """CPU use of the host at each number of databases, in cores. Each named part has a column ``platform_cpu.NAME``."""
    named = named_parts(curve.points)
    rows = []
    for point in curve.points:
        share = missing("ratio", NO_CORES) if curve.options.fleet else curve.options.fraction(point.databases)
        row: Row = {"databases": point.databases, "allocated_share": share}
        row.update(cpu_cells(point, named))
        rows.append(row)
    return rows
