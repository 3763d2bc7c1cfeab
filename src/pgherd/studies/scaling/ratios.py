"""Variants held against the first one: ratios of their peaks, slopes and linear regions, and of throughput point by point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgherd.analysis.bootstrap import percentiles
from pgherd.analysis.fit import Array
from pgherd.analysis.intervals import LEAST, Estimate, ratio_of_means
from pgherd.model.finding import Finding
from pgherd.studies.scaling import published
from pgherd.studies.scaling.curve import FROM_REPEATS, Curve, end_of_linear
from pgherd.studies.scaling.options import scripts_of
from pgherd.studies.scaling.points import server_cpu_per_tx
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.findings import as_finding, missing

Row = dict[str, Finding | str | int | float | None]


def ratio_findings(lines: Sequence[Curve]) -> dict[str, Finding]:
    """peak_ratio.NAME, slope_ratio.NAME, linear_ratio.NAME and cpu_ratio.NAME of every variant but the first."""
    found = {}
    for line in lines[1:]:
        for name, finding in _ratios(line, lines[0]).items():
            found[f"{name}.{line.variant}"] = finding
    return found


def ratio_rows(lines: Sequence[Curve]) -> list[Row]:
    """One row for each variant but the first: its ratios to that."""
    return [{"variant": line.variant, "to": lines[0].variant, **_ratios(line, lines[0])} for line in lines[1:]]


def _ratios(line: Curve, base: Curve) -> dict[str, Finding]:
    return {
        "peak_ratio": _peak(line, base),
        "slope_ratio": as_finding(
            _estimate(line.region.slope, base.region.slope, line.slope_draws(), base.slope_draws(), _fewest(line, base)),
            "ratio",
            f"slopes of the linear regions, per client; {_to(base)}",
            **published.ratio(line.options, base.options, "slope"),
        ),
        "linear_ratio": _linear(line, base),
        "cpu_ratio": _cpu(line, base),
    }


def at_same_clients(line: Curve, base: Curve, index: int) -> Finding:
    """Throughput of a point over that of the first variant with as many clients."""
    other = next((i for i, n in enumerate(base.loads) if n == line.loads[index]), None)
    if other is None:
        return missing("ratio", f"'{base.variant}' was not measured with so many clients")
    drawn = [None if one.draws is None else one.draws[:, i] for one, i in ((line, index), (base, other))]
    n = min(len(line.points[index].used), len(base.points[other].used))
    return as_finding(_estimate(line.medians[index], base.medians[other], drawn[0], drawn[1], n), "ratio", _to(base))


def _peak(line: Curve, base: Curve) -> Finding:
    drawn = [None if one.draws is None else one.draws[:, one.best] for one in (line, base)]
    n = min(len(one.points[one.best].used) for one in (line, base))
    where = f"with {line.loads[line.best]:g} against {base.loads[base.best]:g} clients; {_to(base)}"
    edge = [one.variant for one in (line, base) if one.rising]
    if edge:
        where += f"; still rising at the last number measured, so that its peak is higher than what is compared: {', '.join(edge)}"
    estimate = _estimate(line.medians[line.best], base.medians[base.best], drawn[0], drawn[1], n)
    return as_finding(estimate, "ratio", where, **published.ratio(line.options, base.options, "peak"))


def _linear(line: Curve, base: Curve) -> Finding:
    """Ratio of the ends of both linear regions. Each end lies somewhere between two numbers of clients that were measured, and
    by the spread of the repeats perhaps between others: the interval holds the ratios of all of them."""
    beside = published.ratio(line.options, base.options, "linear")
    ends = f"ends at {line.region.end:g} against {base.region.end:g} clients; {_to(base)}"
    open_end = [one.variant for one in (line, base) if one.region.next is None]
    if open_end:
        return missing("ratio", f"{ends}; the data end before the linear region does: {', '.join(open_end)}", **beside)
    value, n = line.region.end / base.region.end, _fewest(line, base)
    top, bottom = end_of_linear(line), end_of_linear(base)
    if not top.confidence or not bottom.confidence or top.low is None or top.high is None or bottom.low is None or bottom.high is None:
        return as_finding(Estimate(value, None, None, None, n, "ratio", "no interval: the ends have none"), "ratio", ends, **beside)
    method = f"ratio, between the numbers measured around both ends, {FROM_REPEATS}"
    return as_finding(Estimate(value, top.low / bottom.high, top.high / bottom.low, 0.95, n, method), "ratio", ends, **beside)


def _cpu(line: Curve, base: Curve) -> Finding:
    """Ratio of the servers' CPU time per transaction at their peaks."""
    top, bottom = (one.points[one.best].values(server_cpu_per_tx) for one in (line, base))
    if not top or not bottom or min(*top, *bottom) <= 0:
        return missing("ratio", "the CPU of the servers without their clients was not seen")
    return as_finding(ratio_of_means(top, bottom), "ratio", f"the server's CPU time per transaction at each one's peak; {_to(base)}")


def _estimate(top: float, bottom: float, drawn: Array | None, under: Array | None, n: int) -> Estimate:
    """A ratio of two quantities with an interval from draws of both, which are independent (each curve has a seed of its own)."""
    value = top / bottom
    if drawn is None or under is None or n < 1:
        return Estimate(value, None, None, None, n, "ratio", f"no interval: too few repeats ({LEAST} of each point give one)")
    low, high = percentiles(drawn / under)
    return Estimate(value, min(low, value), max(high, value), 0.95, n, f"ratio, {FROM_REPEATS}")


def _fewest(line: Curve, base: Curve) -> int:
    return min(len(point.used) for one in (line, base) for point in one.points)


def _to(base: Curve) -> str:
    return f"to '{base.variant}'"


def variant_rows(servers: Mapping[str, DatabaseOptions]) -> list[Row]:
    """What each variant is, and the settings in which they differ."""
    names = sorted({name for one in servers.values() for name in one.settings})
    differing = [name for name in names if len({one.settings.get(name) for one in servers.values()}) > 1]
    return [
        {
            "variant": name,
            "PostgreSQL": one.pg_version,
            "load": scripts_of(one),
            "scale": one.scale,
            "protocol": one.protocol,
            "runtime": one.runtime,
            "vcpus": one.vcpus if one.cpu_mode != "none" else None,
            "settings": ", ".join(f"{setting}={one.settings.get(setting, 'default')}" for setting in differing) or "the same",
        }
        for name, one in servers.items()
    ]
