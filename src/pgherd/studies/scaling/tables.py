"""The tables of a scaling analysis: one row per number of clients, and where the CPU went."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgherd.model.finding import Finding
from pgherd.studies.scaling.curve import Curve
from pgherd.studies.scaling.points import client_share, server_cpu_per_tx
from pgherd.studies.scaling.ratios import at_same_clients
from pgherd.study.findings import as_finding
from pgherd.study.observation import Observation
from pgherd.study.repeats import NO_CONTAINER_CPU, cpu_cells, mean_finding, named_parts

Row = dict[str, Finding | str | int | float | None]

NO_PERCENTILE = "too few sampled transactions lie beyond it"
NO_SPLIT = "the CPU of the server and of pgbench was not seen apart"

_LATENCY: dict[str, Callable[[Observation], float | None]] = {"p50": lambda o: o.p50, "p95": lambda o: o.p95, "p99": lambda o: o.p99}


def scaling_rows(lines: Sequence[Curve]) -> list[Row]:
    """One row per variant and number of clients."""
    return [_row(line, lines[0], index) for line in lines for index in range(len(line.points))]


def _row(line: Curve, base: Curve, index: int) -> Row:
    point = line.points[index]
    row: Row = {"variant": line.variant} if line.variant else {}
    row["clients"] = point.clients
    row["clients_per_core"] = point.clients / line.options.vcpus
    row["throughput"] = as_finding(line.median(index), "tps", point.note)
    row["efficiency_linear"] = as_finding(line.linear_share(index), "ratio", point.note)
    if line.variant:
        row["ratio"] = (
            Finding(
                value=1.0, unit="ratio", n=len(point.used), method="by definition", note="no interval: it is what the others are held to"
            )
            if line is base
            else at_same_clients(line, base, index)
        )
    if any(o.notpm is not None for o in point.used):
        row["notpm"] = mean_finding(point, lambda o: o.notpm, "NOTPM", "", "committed new orders per minute")
    place = "the container with the clients in it" if line.options.client_place == "inside" else "the server alone, without clients"
    row["cpu_per_tx"] = mean_finding(point, lambda o: o.cpu_per_tx, "ms", NO_CONTAINER_CPU, f"CPU time of {place}")
    row["server_cpu_per_tx"] = mean_finding(point, server_cpu_per_tx, "ms", NO_SPLIT, "CPU time of the server without pgbench")
    row["client_share"] = mean_finding(point, client_share, "ratio", NO_SPLIT, "pgbench's part of the CPU that it and the server used")
    for name, take in _LATENCY.items():
        row[name] = mean_finding(point, take, "ms", NO_PERCENTILE)
    row["limited_by"] = line.limits()[index]
    row["trials"] = point.tried
    row["tainted"] = point.tainted
    return row


def cpu_rows(lines: Sequence[Curve]) -> list[Row]:
    """Where the host's CPU went at each number of clients, in cores."""
    named = named_parts([point for line in lines for point in line.points])
    rows = []
    for line in lines:
        for point in line.points:
            row: Row = {"variant": line.variant} if line.variant else {}
            row["clients"] = point.clients
            # "clients" is taken: what pgbench used goes by another name than in a table of databases.
            row.update({"clients_cpu" if name == "clients" else name: cell for name, cell in cpu_cells(point, named).items()})
            rows.append(row)
    return rows
