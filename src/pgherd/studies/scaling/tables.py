"""Tables of a scaling run, and ratios of its variants to the first one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.bootstrap import percentiles
from pgherd.analysis.intervals import LEAST as MIN_TRIALS
from pgherd.analysis.intervals import Estimate, ratio_of_means
from pgherd.analysis.scaling_model import Array
from pgherd.model.analysis import Finding
from pgherd.studies.scaling.curve import FROM_REPEATS, ScalingCurve, client_cpu_share, linear_range_end, published_ratio, server_cpu_per_tx
from pgherd.studies.scaling.options import scripts_of
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import Observation
from pgherd.study.repeats import NO_CONTAINER_CPU, cpu_cells, mean_finding, named_parts

Row = dict[str, Finding | str | int | float | None]

NO_PERCENTILE = "too few sampled transactions above it"
NO_SPLIT = "CPU of server and pgbench was not measured separately"

_LATENCY: dict[str, Callable[[Observation], float | None]] = {
    "p50": lambda observation: observation.p50,
    "p95": lambda observation: observation.p95,
    "p99": lambda observation: observation.p99,
}


# ---- ratios


def ratio_findings(curves: Sequence[ScalingCurve]) -> dict[str, Finding]:
    """peak_ratio.NAME, slope_ratio.NAME, linear_range_ratio.NAME and server_cpu_per_tx_ratio.NAME of every variant except the first."""
    return {f"{name}.{curve.variant}": finding for curve in curves[1:] for name, finding in _ratios(curve, curves[0]).items()}


def ratio_rows(curves: Sequence[ScalingCurve]) -> list[Row]:
    """One row per variant except the first, with its ratios to the first."""
    return [{"variant": curve.variant, "baseline": curves[0].variant, **_ratios(curve, curves[0])} for curve in curves[1:]]


def _ratios(curve: ScalingCurve, base: ScalingCurve) -> dict[str, Finding]:
    return {
        "peak_ratio": _peak_ratio(curve, base),
        "slope_ratio": as_finding(
            _ratio(curve.region.slope, base.region.slope, curve.slope_draws(), base.slope_draws(), _min_trials(curve, base)),
            "ratio",
            f"slopes of the linear regions, per client; {_to(base)}",
            **published_ratio(curve.options, base.options, "slope"),
        ),
        "linear_range_ratio": _linear_range_ratio(curve, base),
        "server_cpu_per_tx_ratio": _cpu_ratio(curve, base),
    }


def ratio_at_same_clients(curve: ScalingCurve, base: ScalingCurve, index: int) -> Finding:
    """Throughput of a point ÷ that of the first variant with the same number of clients."""
    base_index = next((i for i, n in enumerate(base.loads) if n == curve.loads[index]), None)
    if base_index is None:
        return missing("ratio", f"'{base.variant}' was not measured with the same number of clients")
    draws, base_draws = _draws_at(curve, index), _draws_at(base, base_index)
    n = min(len(curve.points[index].used), len(base.points[base_index].used))
    return as_finding(_ratio(curve.medians[index], base.medians[base_index], draws, base_draws, n), "ratio", _to(base))


def _draws_at(curve: ScalingCurve, index: int) -> Array | None:
    return None if curve.draws is None else curve.draws[:, index]


def _peak_ratio(curve: ScalingCurve, base: ScalingCurve) -> Finding:
    both = (curve, base)
    n = min(len(each.points[each.best].used) for each in both)
    note = f"with {curve.loads[curve.best]:g} against {base.loads[base.best]:g} clients; {_to(base)}"
    rising = [each.variant for each in both if each.rising]
    if rising:
        note += f"; still rising at the last number measured, so that the true peak is higher: {', '.join(rising)}"
    draws, base_draws = (_draws_at(each, each.best) for each in both)
    estimate = _ratio(curve.medians[curve.best], base.medians[base.best], draws, base_draws, n)
    return as_finding(estimate, "ratio", note, **published_ratio(curve.options, base.options, "peak"))


def _linear_range_ratio(curve: ScalingCurve, base: ScalingCurve) -> Finding:
    """Ratio of the ends of both linear regions.

    Each end is between two measured numbers of clients, which the spread of the repeats can shift. The interval includes the
    ratios of all of them.
    """
    reference = published_ratio(curve.options, base.options, "linear")
    ends = f"ends at {curve.region.end:g} against {base.region.end:g} clients; {_to(base)}"
    open_end = [each.variant for each in (curve, base) if each.region.next is None]
    if open_end:
        return missing("ratio", f"{ends}; the data end before the linear region does: {', '.join(open_end)}", **reference)
    value, n = curve.region.end / base.region.end, _min_trials(curve, base)
    top, bottom = linear_range_end(curve), linear_range_end(base)
    if not top.confidence or not bottom.confidence or top.low is None or top.high is None or bottom.low is None or bottom.high is None:
        return as_finding(Estimate(value, None, None, None, n, "ratio", "no interval: the ends have none"), "ratio", ends, **reference)
    method = f"ratio, between the numbers measured around both ends, {FROM_REPEATS}"
    return as_finding(Estimate(value, top.low / bottom.high, top.high / bottom.low, 0.95, n, method), "ratio", ends, **reference)


def _cpu_ratio(curve: ScalingCurve, base: ScalingCurve) -> Finding:
    """Ratio of the servers' CPU time per transaction at their peaks."""
    top, bottom = (each.points[each.best].values(server_cpu_per_tx) for each in (curve, base))
    if not top or not bottom or min(*top, *bottom) <= 0:
        return missing("ratio", "CPU of the servers without their clients was not measured")
    return as_finding(ratio_of_means(top, bottom), "ratio", f"the server's CPU time per transaction at its peak; {_to(base)}")


def _ratio(top: float, bottom: float, top_draws: Array | None, bottom_draws: Array | None, n: int) -> Estimate:
    """A ratio with an interval from draws of both quantities, which are independent since each curve has a different seed."""
    value = top / bottom
    if top_draws is None or bottom_draws is None or n < 1:
        return Estimate(value, None, None, None, n, "ratio", f"no interval: too few repeats (at least {MIN_TRIALS} per point needed)")
    low, high = percentiles(top_draws / bottom_draws)
    return Estimate(value, min(low, value), max(high, value), 0.95, n, f"ratio, {FROM_REPEATS}")


def _min_trials(curve: ScalingCurve, base: ScalingCurve) -> int:
    return min(len(point.used) for each in (curve, base) for point in each.points)


def _to(base: ScalingCurve) -> str:
    return f"to '{base.variant}'"


# ---- tables


def scaling_rows(curves: Sequence[ScalingCurve]) -> list[Row]:
    """One row per variant and number of clients."""
    return [_scaling_row(curve, curves[0], index) for curve in curves for index in range(len(curve.points))]


def _scaling_row(curve: ScalingCurve, base: ScalingCurve, index: int) -> Row:
    point = curve.points[index]
    row: Row = {"variant": curve.variant} if curve.variant else {}
    row["clients"] = point.clients
    row["clients_per_core"] = point.clients / curve.options.vcpus
    row["throughput"] = as_finding(curve.median(index), "tps", point.note)
    row["efficiency_linear"] = as_finding(curve.linear_share(index), "ratio", point.note)
    if curve.variant:
        row["ratio_to_baseline"] = (
            Finding(value=1.0, unit="ratio", n=len(point.used), method="by definition", note="no interval: this is the baseline")
            if curve is base
            else ratio_at_same_clients(curve, base, index)
        )
    if any(observation.nopm is not None for observation in point.used):
        row["nopm"] = mean_finding(point, lambda observation: observation.nopm, "NOPM", "", "committed new orders per minute")
    scope = "the container with the clients in it" if curve.options.client_placement == "inside" else "the server without clients"
    row["cpu_per_tx"] = mean_finding(point, lambda observation: observation.cpu_per_tx, "ms", NO_CONTAINER_CPU, f"CPU time of {scope}")
    row["server_cpu_per_tx"] = mean_finding(point, server_cpu_per_tx, "ms", NO_SPLIT, "CPU time of the server without pgbench")
    row["client_cpu_share"] = mean_finding(
        point, client_cpu_share, "ratio", NO_SPLIT, "pgbench's share of the CPU that it and the server used"
    )
    for name, latency in _LATENCY.items():
        row[name] = mean_finding(point, latency, "ms", NO_PERCENTILE)
    row["bottleneck"] = curve.limits()[index]
    row["trials"] = point.tried
    row["tainted_trials"] = point.tainted
    return row


def cpu_rows(curves: Sequence[ScalingCurve]) -> list[Row]:
    """CPU use of the host at each number of clients, in cores."""
    named = named_parts([point for curve in curves for point in curve.points])
    rows = []
    for curve in curves:
        for point in curve.points:
            row: Row = {"variant": curve.variant} if curve.variant else {}
            row["clients"] = point.clients
            row.update(cpu_cells(point, named))
            rows.append(row)
    return rows


def variant_rows(servers: Mapping[str, DatabaseOptions]) -> list[Row]:
    """One row per variant: version, load, limits, and the settings that differ between variants."""
    names = sorted({name for options in servers.values() for name in options.settings})
    differing = [name for name in names if len({options.settings.get(name) for options in servers.values()}) > 1]
    return [
        {
            "variant": name,
            "PostgreSQL": options.pg_version,
            "load": scripts_of(options),
            "scale": options.scale,
            "protocol": options.protocol,
            "runtime": options.runtime,
            "vcpus": options.vcpus if options.cpu_limited else None,
            "settings": ", ".join(f"{setting}={options.settings.get(setting, 'default')}" for setting in differing) or "the same",
        }
        for name, options in servers.items()
    ]
