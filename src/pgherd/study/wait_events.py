"""Table of wait events: the share of the active sessions in each class. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Finding
from pgherd.model.result import TrialResult
from pgherd.study.findings import as_finding
from pgherd.study.wait_event_columns import LABELS, SHARES

_SERVER = "server:"

Row = dict[str, Finding | str | int | float | None]


def wait_row(trials: Sequence[TrialResult], counts: Callable[[str], bool] = lambda server: True) -> Row:
    """Return active sessions and the share in each class over these trials, or nothing if none was sampled.

    ``counts`` is whether a server, as ``CONTAINER/SERVER``, belongs to the row.
    """
    sessions: list[float] = []
    shares: list[dict[str, float]] = []
    for trial in trials:
        sampled = [
            (phase.seconds, values)
            for phase in trial.phases
            for entity, values in phase.metrics.items()
            if entity.startswith(_SERVER) and "waits.cpu" in values and counts(entity.removeprefix(_SERVER))
        ]
        totals = {name: math.fsum(seconds * values[f"waits.{name}"] for seconds, values in sampled) for name in SHARES}
        total = math.fsum(totals.values())
        if sampled:
            sessions.append(total / math.fsum(phase.seconds for phase in trial.phases))
        if total:
            shares.append({name: value / total for name, value in totals.items()})
    if not shares:
        return {}
    row: Row = {"active_sessions": as_finding(mean_interval(sessions), "sessions", "of all servers of the row")}
    for name, column in SHARES.items():
        row[column] = _share([share[name] for share in shares])
    return row


def largest_difference(rows: Mapping[str, Row]) -> str:
    """Return a sentence on the class of wait events whose share differs most between two named rows, or '' with fewer than two rows.

    It names means and claims no difference. The table has the intervals.
    """
    columns = [column for name, column in SHARES.items() if name != "cpu"]
    shares = {name: {column: _value(row[column]) for column in columns} for name, row in rows.items() if row}
    if len(shares) < 2:
        return ""
    ordered = {column: sorted(shares, key=lambda name: shares[name][column]) for column in columns}
    column = max(ordered, key=lambda key: shares[ordered[key][-1]][key] - shares[ordered[key][0]][key])
    high, low = (f"{100 * shares[name][column]:.0f} % in {name}" for name in (ordered[column][-1], ordered[column][0]))
    return f"Active sessions differ most in the share {LABELS[column]}: {high}, {low}."


def _value(cell: object) -> float:
    return cell.value or 0.0 if isinstance(cell, Finding) else 0.0


def _share(values: Sequence[float]) -> Finding:
    found = mean_interval(values)
    if found.high is not None:
        found = replace(found, high=min(found.high, 1.0))
    return as_finding(found, "ratio", "of the active sessions, by pg_stat_activity")
