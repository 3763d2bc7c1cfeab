"""The tables of a density analysis: E1's table and where the CPU went."""

from __future__ import annotations

from collections.abc import Callable

from pgherd.analysis.intervals import mean_interval, ratio_of_means
from pgherd.model.finding import Finding
from pgherd.studies.density import published
from pgherd.studies.density.curve import Curve
from pgherd.studies.density.points import Point
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import Observation
from pgherd.study.repeats import NO_CONTAINER_CPU, cpu_cells, mean_finding, named_parts

Row = dict[str, Finding | str | int | float | None]

NO_PERCENTILE = "too few sampled transactions lie beyond it in at least one database"


def density_rows(line: Curve) -> list[Row]:
    """One row per number of databases, as E1's table, with what else is known of each."""
    return [_density_row(line, index) for index in range(len(line.points))]


def _density_row(line: Curve, index: int) -> Row:
    options, point = line.options, line.points[index]
    n = point.databases
    fraction = options.fraction(n)
    row: Row = {
        "databases": n,
        "cores": n * options.vcpus,
        "fraction": fraction,
        "throughput": mean_finding(point, lambda o: o.throughput, "tps", ""),
    }
    if any(o.notpm is not None for o in point.used):
        row["notpm"] = mean_finding(point, lambda o: o.notpm, "NOTPM", "", "committed new orders per minute of all databases")
    if line.one is not None:
        row["perfect"] = as_finding(mean_interval(line.one.throughputs).scaled(n), "tps", method="one-database value × N")
        row["efficiency"] = as_finding(line.efficiency(index, "one"), "ratio", point.note, **_beside_e1(fraction))
    else:
        row["perfect"] = missing("tps", "one database alone was not measured")
        row["efficiency"] = missing("ratio", "one database alone was not measured")
    row["perfect_linear"] = as_finding(line.slope.scaled(n), "tps", method="slope of the linear region × N")
    row["efficiency_linear"] = as_finding(line.efficiency(index, "slope"), "ratio", point.note)
    row["cpu_per_tx"] = _cpu_per_tx(line, point)
    row["efficiency_cpu"] = efficiency_cpu(line, point)
    for name, take in _LATENCY.items():
        row[name] = mean_finding(point, take, "ms", NO_PERCENTILE, "median over the databases")
    nothing = "nothing was measured per database"
    row["jain"] = mean_finding(point, lambda o: o.jain, "ratio", nothing, "1 by definition" if n == 1 else "", most=1)
    row["min_max"] = mean_finding(point, lambda o: o.min_max, "ratio", nothing, "1 by definition" if n == 1 else "", most=1)
    row["limited_by"] = point.limited_by
    row["trials"] = point.tried
    row["tainted"] = point.tainted
    row["published_efficiency"] = published.efficiency_at(fraction)
    return row


_LATENCY: dict[str, Callable[[Observation], float | None]] = {"p50": lambda o: o.p50, "p95": lambda o: o.p95, "p99": lambda o: o.p99}


def _beside_e1(fraction: float) -> dict[str, str]:
    value = published.efficiency_at(fraction)
    return {} if value is None else {"experiment": "E1", "published": f"{value:.3f} at about the same fraction of the cores"}


def _cpu_per_tx(line: Curve, point: Point) -> Finding:
    place = (
        "the loaded containers with the clients in them" if line.options.client_place == "inside" else "the servers alone, without clients"
    )
    return mean_finding(point, lambda o: o.cpu_per_tx, "ms", NO_CONTAINER_CPU, f"CPU time of {place}")


def efficiency_cpu(line: Curve, point: Point) -> Finding:
    """CPU time per transaction of one database over that of N."""
    if line.one is None:
        return missing("ratio", "one database alone was not measured")
    alone, here = (p.values(lambda o: o.cpu_per_tx) for p in (line.one, point))
    if not alone or not here:
        return missing("ratio", NO_CONTAINER_CPU)
    if point is line.one:
        return Finding(value=1.0, unit="ratio", n=len(here), method="by definition", note="no interval: 1 by definition")
    return as_finding(ratio_of_means(alone, here), "ratio", point.note, method="CPU/tx of one database ÷ CPU/tx of N, log t interval")


def cpu_rows(line: Curve) -> list[Row]:
    """Where the host's CPU went at each number of databases, in cores. A column ``platform.NAME`` for each named part."""
    named = named_parts(line.points)
    rows = []
    for point in line.points:
        row: Row = {"databases": point.databases, "fraction": line.options.fraction(point.databases)}
        row.update(cpu_cells(point, named))
        rows.append(row)
    return rows
