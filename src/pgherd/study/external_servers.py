"""Tables of what external servers show of themselves: statements by time, and checkpoints, WAL and replication. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.result import PhaseResult, StatementCounters, TrialResult, clean_or_all
from pgherd.model.units import MB_PER_SECOND
from pgherd.study.device_io import point_name
from pgherd.study.findings import as_finding, missing

STATEMENTS_TABLE, ACTIVITY_TABLE = "statements", "server_activity"
SHOWN = 5
"""Statements of each point in the table."""
HIDDEN = "(statements of other users, hidden)"
_METHOD = "pg_stat_statements, increase from border to border of the phases"
_MB = 2**20

Row = dict[str, Finding | str | int | float | None]


def with_external_servers(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis with the tables ``statements`` and ``server_activity``, if external servers were observed."""
    observed = [result for result in results if result.error is None and any(_servers(phase) for phase in result.phases)]
    points: dict[str, list[TrialResult]] = {}
    for result in observed:
        points.setdefault(point_name(result), []).append(result)
    used = {point: clean_or_all(trials) for point, trials in points.items()}
    candidates = {
        ACTIVITY_TABLE: [_activity(point, trials) for point, trials in used.items()],
        STATEMENTS_TABLE: [row for point, trials in used.items() for row in _statements(point, trials)],
    }
    tables = {name: rows for name, rows in candidates.items() if rows}
    return analysis.model_copy(update={"tables": {**analysis.tables, **tables}}) if tables else analysis


def _servers(phase: PhaseResult) -> list[str]:
    """Return the external servers of a phase, as entities. Only these have waits by second."""
    return [entity for name in sorted(phase.waits) if (entity := f"server:{name}") in phase.metrics]


def _statements(point: str, trials: Sequence[TrialResult]) -> list[Row]:
    """Return the statements of a point with the most time, summed over servers, phases and trials."""
    views = [view for trial in trials for phase in trial.phases for view in phase.statements.values()]
    total = math.fsum(view.time_ms for view in views)
    # The same statement has another identifier on each server, because the identifier depends on object identifiers.
    sums: dict[str, StatementCounters] = {}
    for view in views:
        for use in view.top:
            text = use.text or (HIDDEN if not use.queryid else f"queryid {use.queryid}")
            names = StatementCounters.model_fields
            before = sums.get(text, StatementCounters())
            sums[text] = StatementCounters(**{name: getattr(before, name) + getattr(use, name) for name in names})
    largest = sorted(sums.items(), key=lambda item: -item[1].time_ms)[:SHOWN]
    seconds = math.fsum(phase.seconds for trial in trials for phase in trial.phases if phase.statements)
    return [_statement(point, text, counters, total, seconds, len(trials)) for text, counters in largest]


def _statement(point: str, text: str, counters: StatementCounters, total: float, seconds: float, n: int) -> Row:
    def finding(value: float, unit: str) -> Finding:
        return Finding(value=value, unit=unit, n=n, method=_METHOD)

    return {
        "point": point,
        "statement": text if len(text) <= 200 else f"{text[:200]}…",
        "time_share": finding(counters.time_ms / total if total else 0.0, "1"),
        "calls": finding(counters.calls / seconds, "1/s"),
        "mean_time": finding(counters.time_ms / counters.calls, "ms"),
        "rows_per_call": finding(counters.rows / counters.calls, "rows"),
        "shared_hits_per_call": finding(counters.shared_hits / counters.calls, "blocks"),
        "shared_reads_per_call": finding(counters.shared_reads / counters.calls, "blocks"),
        "wal_per_call": finding(counters.wal_bytes / counters.calls, "bytes"),
    }


def _activity(point: str, trials: Sequence[TrialResult]) -> Row:
    """Return checkpoints, WAL, I/O and replication of a point: sums over its external servers, and the largest lag."""

    def mean(names: Sequence[str], unit: str, scale: float, method: str, over: Callable[[list[float]], float] = math.fsum) -> Finding:
        values = [value for trial in trials if (value := _of_trial(trial, names, over)) is not None]
        if not values:
            return missing(unit, "not shown to this user, or not counted by this version", method=method)
        return as_finding(mean_interval([scale * value for value in values]), unit, method=f"{method}; mean over trials")

    row: Row = {"point": point, "servers": max(len(_servers(phase)) for trial in trials for phase in trial.phases)}
    row["wal_rate"] = mean(("wal.bytes",), "MB/s", 1 / MB_PER_SECOND, "pg_stat_wal")
    row["wal_syncs"] = mean(("wal.syncs",), "1/s", 1.0, "pg_stat_wal, or pg_stat_io of version 18 and later")
    checkpoints = "pg_stat_checkpointer, or pg_stat_bgwriter before version 17"
    row["checkpoints"] = mean(("checkpoint.timed", "checkpoint.requested"), "1/min", 60.0, checkpoints)
    row["checkpoint_buffers"] = mean(("checkpoint.buffers_written",), "blocks/s", 1.0, checkpoints)
    row["relation_reads"] = mean(("io.reads",), "1/s", 1.0, "pg_stat_io")
    row["relation_writes"] = mean(("io.writes", "io.extends"), "1/s", 1.0, "pg_stat_io, with extends")
    row["standbys"] = mean(("replication.standbys",), "servers", 1.0, "pg_stat_replication")
    row["replay_lag"] = mean(("replication.replay_lag",), "s", 1.0, "pg_stat_replication, largest of the servers", max)
    lag = "pg_stat_replication, or a standby's functions, largest of the servers"
    row["replay_lag_bytes"] = mean(("replication.replay_lag_bytes",), "MB", 1 / _MB, lag, max)
    return {name: cell for name, cell in row.items() if not isinstance(cell, Finding) or cell.value is not None}


def _of_trial(trial: TrialResult, names: Sequence[str], over: Callable[[list[float]], float]) -> float | None:
    """Return the sum of metrics, combined over servers, as the mean over the trial's phases. None if no server has them."""
    weighted, seconds = 0.0, 0.0
    for phase in trial.phases:
        servers = [phase.metrics[entity] for entity in _servers(phase)]
        values = [math.fsum(metrics[name] for name in names) for metrics in servers if all(name in metrics for name in names)]
        if values:
            weighted, seconds = weighted + over(values) * phase.seconds, seconds + phase.seconds
    return weighted / seconds if seconds else None
