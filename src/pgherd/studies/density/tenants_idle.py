"""Idle tenants: memory, CPU and wake-ups of each server, its first query after that, and how many fit. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis.intervals import LEAST, mean_interval, median_interval
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.result import TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.tenant_mix import TenantClass, class_of, shares, tenant_names
from pgherd.studies.density.tenants import FIRST_QUERY, search_of
from pgherd.study import objectives as judged
from pgherd.study.findings import as_finding, labelled_name, missing
from pgherd.study.grade import grade_of, qualify_answer, trial_warnings
from pgherd.study.objective_analysis import Row

TABLE = "idle_servers"
MB = 2**20
NO_MEMORY = "no cgroup counts the servers' memory; it needs --runtime cgroup, as root or with a delegated cgroup"
_UNKNOWN = "How many idle servers fit is unknown: no cgroup counts their memory."
_NOT_READ = "it could not be read"
_NO_TICK = "less than a tick of 10 ms, in which CPU time is counted without a cgroup; a longer --duration shows it"
_RUN_CGROUP, _CONTAINER = "run-cgroup", "container:"
_OVER_SERVERS = "mean over servers of their medians over trials, Student's t interval"
"""The first trial after a start has more: autovacuum's first run, and a background writer that does not hibernate yet."""

Metrics = Mapping[str, float]


def analyse(options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return how many servers fit if all classes are idle, and what each uses."""
    blocks = judged.blocks_of(search_of(options, results), results)
    finished = {size: used for size, trials in blocks.items() if (used := judged.used_blocks(trials))}
    if not finished:
        fault = "no trial of idle servers finished"
        unknown = {"capacity": missing("servers", fault)}
        warnings = trial_warnings(results, "a number of servers")
        return Analysis(answer=f"No answer: {fault}.", grade="C", grade_reason=fault, findings=unknown, warnings=warnings)
    trials = [trial for used in finished.values() for trial in used]
    rows = [row for size, used in finished.items() for row in idle_rows(options, size, used)]
    largest = [row for row in rows if row["tenants"] == max(finished)]
    limits = _limits(options, largest)
    memory = limits[format_bytes(options.host_memory)]
    where, capacity = min(limits.items(), key=lambda limit: math.inf if limit[1].value is None else limit[1].value)
    findings = {
        "capacity": capacity if memory.value is not None else memory,
        **memory_findings(trials),
        **idle_findings(largest),
    }
    whole = all(len(finished.get(size, ())) >= LEAST for size in options.databases)
    grade = grade_of([not trial.tainted for trial in trials], {trial.trial.key() for trial in trials}, results, whole=whole)
    grade, reason = (grade, "") if memory.value is not None else ("C", memory.note)
    text = _UNKNOWN if memory.value is None else _answer(where, capacity, largest[0])
    return Analysis(
        answer=text if memory.value is None else qualify_answer(text, grade),
        details=[
            *(f"A server of class {row['class']} takes {_use(row)}." for row in largest),
            *(f"{where} hold {limit.value:,.0f} idle servers." for where, limit in limits.items() if limit.value is not None),
            *_memory_sentence(findings),
        ],
        grade=grade,
        grade_reason=reason,
        findings=findings,
        tables={TABLE: rows},
        warnings=trial_warnings(results, "a number of servers"),
        next_steps=[f"--databases {2 * max(options.databases)} measures more servers at once"],
    )


def _answer(where: str, capacity: Finding, row: Row) -> str:
    """Return the number of servers that fit, and what each takes; of several classes, the first."""
    between = "" if capacity.low is None or capacity.high is None else f" ({capacity.low:,.0f}–{capacity.high:,.0f})"
    return f"{capacity.value:,.0f}{between} idle servers fit into {where}, at {_use(row)}."


def _use(row: Row) -> str:
    """Return what a server takes, such as ``13 MB and 0.4 ms/s of CPU; first query 3.1 ms``."""
    memory, cpu, query = (_value(row[name]) for name in ("memory_without_cache", "cpu_time", "first_query"))
    memory = _value(row["memory_charged"]) if memory is None else memory
    parts = [] if memory is None else [f"{memory:.3g} MB"]
    parts += [] if cpu is None else [f"{cpu:.2g} ms/s of CPU"]
    return " and ".join(parts) + ("" if query is None else f"; first query {query:.3g} ms")


def _value(cell: object) -> float | None:
    return cell.value if isinstance(cell, Finding) else None


def _memory_sentence(findings: Mapping[str, Finding]) -> list[str]:
    """Return a sentence that compares the memory of the servers' cgroups with that of the cgroup around them."""
    if "memory_ratio" not in findings:
        return []
    sums, whole, ratio = (findings[name].value or 0.0 for name in ("memory_of_servers", "memory_of_run_cgroup", "memory_ratio"))
    return [f"The servers' cgroups are charged {sums:,.4g} MB, and the cgroup around them {whole:,.4g} MB ({100 * ratio:.1f} %)."]


# ---- rows


def idle_rows(options: DensityOptions, size: float, trials: Sequence[TrialResult]) -> list[Row]:
    """Return a row for each idle class with tenants at a size. Values are per server."""
    named = tenant_names(options.tenants, int(size), options.seed)
    servers = {one.name: [name for name, other in named if other.name == one.name] for one in options.tenants if one.idle}
    return [_row(int(size), one, servers[one.name], trials) for one in options.tenants if servers.get(one.name)]


def _row(size: int, one: TenantClass, names: Sequence[str], trials: Sequence[TrialResult]) -> Row:
    def of_servers(take: Callable[[Metrics], float | None], unit: str, why_not: str) -> Finding:
        values = [value for name in names if (value := _of_server(trials, name, take)) is not None]
        return as_finding(mean_interval(values), unit, "per server", method=_OVER_SERVERS) if values else missing(unit, why_not)

    last = [target for trial in trials for phase in trial.phases if phase.phase == FIRST_QUERY for target in phase.targets]
    first = [target for target in last if class_of(target.target) == one.name]
    cpu = of_servers(lambda metrics: _scaled(metrics, "cpu.usage", 1000), "ms/s", _NOT_READ)
    queries = [target.latency.maximum for target in first if target.latency.maximum is not None]
    connects = [target.values["connect_ms"] for target in first if "connect_ms" in target.values]
    return {
        "tenants": size,
        "class": one.name,
        "class_tenants": len(names),
        "memory_charged": of_servers(lambda metrics: _scaled(metrics, "memory.usage", 1 / MB), "MB", NO_MEMORY),
        "memory_without_cache": of_servers(_without_cache, "MB", NO_MEMORY),
        "cpu_time": missing("ms/s", _NO_TICK) if cpu.value == 0 else cpu,
        "wakeups": of_servers(lambda metrics: metrics.get("wakeups"), "1/s", _NOT_READ),
        "autovacuum_runs": _autovacuum(names, trials),
        "first_query": as_finding(median_interval(queries), "ms", "after the connection") if queries else missing("ms", "no query ended"),
        "first_query_max": Finding(value=max(queries, default=None), unit="ms", n=len(queries), method="maximum"),
        "connect": as_finding(median_interval(connects), "ms") if connects else missing("ms", "no query ended"),
        "tainted_trials": sum(trial.tainted for trial in trials),
        "trials": len(trials),
    }


def _of_server(trials: Sequence[TrialResult], name: str, take: Callable[[Metrics], float | None]) -> float | None:
    """Return the median of a server's value over all trials and their phases, without the phase of first queries."""
    metrics = [phase.metrics.get(f"{_CONTAINER}{name}", {}) for trial in trials for phase in trial.phases if phase.phase != FIRST_QUERY]
    values = [value for one in metrics if (value := take(one)) is not None]
    return statistics.median(values) if values else None


def _scaled(metrics: Metrics, name: str, factor: float) -> float | None:
    return metrics[name] * factor if name in metrics else None


def _without_cache(metrics: Metrics) -> float | None:
    """Return the memory in MB that the kernel cannot take back at once: without page cache, but with shared memory."""
    if not {"memory.usage", "memory.file", "memory.shmem"} <= set(metrics):
        return None
    return (metrics["memory.usage"] - metrics["memory.file"] + metrics["memory.shmem"]) / MB


def _autovacuum(names: Sequence[str], trials: Sequence[TrialResult]) -> Finding:
    """Return on how many tables of all servers autovacuum ran during the trials."""
    readings = [trial.phases[0].metrics.get(f"server:{name}/pg", {}).get("autovacuum.runs") for trial in trials for name in names]
    known = [value for value in readings if value is not None]
    if not known:
        return missing("tables", _NOT_READ)
    seconds = math.fsum(trial.phases[-1].end - trial.phases[0].start for trial in trials)
    note = f"of {len(names)} servers in {seconds:.0f} s"
    return Finding(value=math.fsum(known), unit="tables", n=len(known), method="increase of the counts in pg_stat_all_tables", note=note)


# ---- findings


def idle_findings(rows: Sequence[Row]) -> dict[str, Finding]:
    """Return the values of each class."""
    cells = [(name, row["class"], cell) for row in rows for name, cell in row.items() if isinstance(cell, Finding)]
    return {labelled_name(name, **{"class": of}): cell for name, of, cell in cells}


def memory_findings(trials: Sequence[TrialResult]) -> dict[str, Finding]:
    """Return the sum of the memory of all servers' cgroups, that of the cgroup around them, and the ratio. Empty if it is not counted."""
    sums, wholes = [], []
    for phase in (phase for trial in trials for phase in trial.phases if phase.phase != FIRST_QUERY):
        parts = [
            values["memory.usage"] for name, values in phase.metrics.items() if name.startswith(_CONTAINER) and "memory.usage" in values
        ]
        whole = phase.metrics.get(_RUN_CGROUP, {}).get("memory.usage")
        if parts and whole:
            sums.append(math.fsum(parts) / MB)
            wholes.append(whole / MB)
    if not sums:
        return {}
    ratios = [whole / part for whole, part in zip(wholes, sums, strict=True)]
    return {
        "memory_of_servers": as_finding(mean_interval(sums), "MB", "sum over the servers' cgroups"),
        "memory_of_run_cgroup": as_finding(mean_interval(wholes), "MB", "cgroup around all servers"),
        "memory_ratio": as_finding(mean_interval(ratios), "ratio", "cgroup around all servers ÷ sum over their cgroups"),
    }


def _limits(options: DensityOptions, rows: Sequence[Row]) -> dict[str, Finding]:
    """Return how many servers of the mix the host's memory holds, and its cores, by the resource in words."""
    known = all(_value(row["memory_without_cache"]) is not None for row in rows)
    memory = "memory_without_cache" if known else "memory_charged"
    return {
        format_bytes(options.host_memory): _limit(options, rows, memory, options.host_memory / MB),
        f"{options.host_cores:g} cores": _limit(options, rows, "cpu_time", 1000 * options.host_cores),
    }


def _limit(options: DensityOptions, rows: Sequence[Row], column: str, budget: float) -> Finding:
    """Return the budget ÷ the mean of a column over the mix of the classes that have a row."""
    weights = {one.name: one.weight for one in options.tenants}
    parts = [float(part) for part in shares([weights[str(row["class"])] for row in rows])]
    cells = [cell for row in rows if isinstance(cell := row[column], Finding)]
    absent = next((cell for cell in cells if cell.value is None), None)
    if absent is not None:
        return missing("servers", absent.note)

    def mean(values: Sequence[float | None]) -> float | None:
        return None if None in values else math.fsum(part * (value or 0.0) for part, value in zip(parts, values, strict=True))

    use, low, high = mean([cell.value for cell in cells]), mean([cell.low for cell in cells]), mean([cell.high for cell in cells])
    if not use:
        return missing("servers", "the servers took nothing that was counted")
    return Finding(
        value=_whole(budget / use),
        unit="servers",
        low=_whole(budget / high) if high and low else None,
        high=_whole(budget / low) if high and low else None,
        confidence=0.95 if high and low else None,
        n=min(cell.n for cell in cells),
        method=f"{budget:,.0f} {cells[0].unit} ÷ {column.replace('_', ' ')} of a server of the mix",
        note=f"extrapolated from {rows[0]['tenants']} servers",
    )


def _whole(servers: float) -> float:
    """Return a number of servers rounded down. A difference by the arithmetic of floats is none."""
    return float(math.floor(servers + 1e-9))
