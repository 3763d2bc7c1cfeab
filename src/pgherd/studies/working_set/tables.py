"""The tables of a working-set run: what was found for each load, and every size that was measured."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding
from pgherd.studies.working_set import inside
from pgherd.studies.working_set.curves import Measured, difference
from pgherd.studies.working_set.knees import knee_finding
from pgherd.studies.working_set.options import MB, WorkingSetOptions
from pgherd.study.findings import as_finding
from pgherd.study.observation import Observation, observe
from pgherd.study.trial_schedule import throughput

Cell = Finding | str | int | float | None
Row = dict[str, Cell]

WORDS = {
    "knee": "a knee",
    "cliff": "lives or not",
    "flat": "none: flat",
    "rising": "none: still rising",
    "unclear": "unclear: noise",
    "unknown": "none: too few sizes",
}
"""Kind of a knee → in the table."""


def summary_rows(options: WorkingSetOptions, curves: Sequence[Measured]) -> list[Row]:
    """One row for each curve: the knee of throughput, and what is seen from inside."""
    rows: list[Row] = []
    for measured in curves:
        curve, knee = measured.curve, measured.knee
        row: Row = {
            "varied": "container memory" if curve.sweep == "memory" else "shared buffers",
            "clients": curve.clients,
            "working_set": knee_finding(options, measured),
            "shape": WORDS[knee.kind],
            "by_misses": inside.by_misses(measured),
            "by_use": inside.by_use(measured) if measured.lived else None,
            "by_pressure": inside.by_pressure(measured) if curve.sweep == "memory" else None,
            "plateau": knee.plateau,
            "gain_share": knee.gain,
            "sizes": len(measured.sizes),
            "trials": len(measured.trials),
            "tainted": sum(result.tainted and result.error is None for result in measured.trials),
            "dead": ", ".join(map(str, measured.dead)) or None,
        }
        rows.append(row)
    return rows


def sweep_rows(options: WorkingSetOptions, curves: Sequence[Measured]) -> list[Row]:
    """One row for each size of each curve, ascending."""
    return [_size_row(options, measured, size) for measured in curves for size in measured.sizes]


def _size_row(options: WorkingSetOptions, measured: Measured, size: int) -> Row:
    trials = measured.at(size)
    point = trials[0].trial.point
    memory, buffers = int(point["memory"]), int(point["buffers"])
    used = [result for result in measured.used if measured.size(result) == size]
    seen = [observation for result in used if (observation := observe(options, result)) is not None]
    row: Row = {
        "varied": "container memory" if measured.curve.sweep == "memory" else "shared buffers",
        "clients": measured.curve.clients,
        "memory": memory,
        "buffers": buffers,
        "buffers_share": buffers / memory,
        "state": "lives" if used else "does not live" if size in measured.dead else "failed",
        "throughput": as_finding(mean_interval([throughput(result) for result in used]), "tps") if used else None,
        "fitted": measured.knee.throughput(size) if used else None,
    }
    if any(one.notpm is not None for one in seen):
        row["notpm"] = as_finding(mean_interval([one.notpm for one in seen if one.notpm is not None]), "NOTPM")
    row["p95"] = _mean([one.p95 for one in seen])
    row["buffer_misses"] = _mean([inside.buffer_misses(result) for result in used])
    row["refaults"] = _mean([inside.refaults(result) for result in used])
    row["swapped"] = _in_mb(_mean([inside.of_container("memory.swap")(result) for result in used]))
    row["in_use"] = _mean([inside.in_use(result) for result in used])
    row["reused_buffers"] = _mean([inside.reused_buffers(result) for result in used])
    row["waiting"] = _mean([inside.waiting(result) for result in used])
    row["limited_by"] = _limits(seen)
    row["trials"] = len(trials)
    row["tainted"] = sum(result.tainted and result.error is None for result in trials)
    return row


def _limits(seen: Sequence[Observation]) -> str | None:
    found = [one.limited_by for one in seen]
    return max(set(found), key=found.count) if found else None


def _mean(values: Sequence[float | None]) -> float | None:
    seen = [value for value in values if value is not None]
    return sum(seen) / len(seen) if seen else None


def _in_mb(value: float | None) -> float | None:
    return None if value is None else value / MB


def difference_rows(options: WorkingSetOptions, curves: Sequence[Measured]) -> list[Row]:
    """How much larger than their shared buffers containers were while these were varied, and why."""
    if "buffers" not in options.sweeps:
        return []
    results = [result for measured in curves for result in measured.trials if measured.curve.sweep == "memory"]
    rows: list[Row] = []
    for clients in options.clients:
        beyond, why = difference(options, results, clients)
        rows.append({"clients": clients, "difference": beyond, "from": why})
    return rows
