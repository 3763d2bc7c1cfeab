"""Cost of a transaction at each number of databases, and the modes of the CPU scheduler at a full host.

efficiency(N) = share of the allocated CPU received × (CPU per transaction of the reference ÷ that at N). At a full host the second factor
has two modes. In the fast one a container runs in a burst with warm caches until its quota ends, and is throttled. In the slow one each
wake-up runs a task of another container, nobody reaches the quota, and a transaction costs up to twice as much CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean as mean
from typing import Any

from pgherd.analysis.bootstrap import Spread, relative_spreads
from pgherd.analysis.clusters import MIN_RATIO, Levels
from pgherd.analysis.intervals import student
from pgherd.model.analysis import Finding
from pgherd.studies.density.curve import DensityCurve, DensityPoint, cpu_rates, plural, rates_near_full
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import Observation
from pgherd.study.repeats import NO_CONTAINER_CPU, mean_finding, mean_over_points

Row = dict[str, Finding | str | int | float | None]

NO_LEVELS = "the trials of a full host show one level with noise"
OF_MODE = "no interval: the trials were divided by their cost"
ERRORS = 0.05
"""Probability that a run without levels has a warning of them."""
_NOT_MEASURED = "not measured by this runtime"

_COLUMNS: dict[str, tuple[Callable[[Observation], float | None], str]] = {
    "cpu_per_tx": (lambda o: o.cpu_per_tx, "ms"),
    "client_per_tx": (lambda o: o.scheduler.client_per_tx, "ms"),
    "system_per_tx": (lambda o: o.scheduler.system_per_tx, "ms"),
    "switches_per_tx": (lambda o: o.scheduler.switches_per_tx, "switches"),
    "throttled_share": (lambda o: o.scheduler.throttled, "ratio"),
    "runnable": (lambda o: o.scheduler.runnable, "tasks"),
    "p50": (lambda o: o.p50, "ms"),
    "under_50us": (lambda o: o.scheduler.under_50us, "ratio"),
}


def mode_rows(curve: DensityCurve) -> list[Row]:
    """One row per number of databases, and per mode where two are told apart: cost of a transaction, and what distinguishes the modes."""
    rates, costs = rates_near_full(curve.options, curve.points), curve.estimates(lambda o: o.cpu_per_tx)
    rows: list[Row] = []
    for index, point in enumerate(curve.points):
        of_point = rates.get(point.databases)
        if curve.levels is not None and of_point is not None:
            rows += _rows_of_modes(curve, point, of_point, curve.levels)
            continue
        row = _mode_row(point, "", cost_ratio(curve, index))
        cost = costs[index]
        rows.append(row if cost is None else {**row, "cpu_per_tx": as_finding(cost, "ms", point.note)})
    return rows


def _rows_of_modes(curve: DensityCurve, point: DensityPoint, rates: Sequence[float], levels: Levels) -> list[Row]:
    """Return a row of the slow and of the fast trials, without intervals: the trials were divided by what they show."""
    rows = []
    for mode in ("slow", "fast"):
        used = tuple(o for o, rate in zip(point.used, rates, strict=True) if levels.mode(rate) == mode)
        if not used:
            continue
        trials = replace(point, used=used)
        costs, reference = trials.values(lambda o: o.cpu_per_tx), reference_costs(curve)
        ratio = (
            Finding(value=mean(costs) / mean(reference), unit="ratio", n=len(costs), method="CPU/tx of the mode ÷ CPU/tx of the reference")
            if costs and reference
            else missing("ratio", NO_CONTAINER_CPU)
        )
        row = _mode_row(trials, mode, ratio)
        rows.append({name: _of_mode(cell) if isinstance(cell, Finding) else cell for name, cell in row.items()})
    return rows


def _of_mode(cell: Finding) -> Finding:
    note = cell.note if cell.value is None else OF_MODE
    return cell.model_copy(update={"low": None, "high": None, "confidence": None, "note": note})


def _mode_row(point: DensityPoint, mode: str, ratio: Finding) -> Row:
    row: Row = {"databases": point.databases, "mode": mode, "trials": len(point.used), "cost_ratio": ratio}
    for name, (take, unit) in _COLUMNS.items():
        row[name] = mean_finding(point, take, unit, _NOT_MEASURED, most=1.0 if unit == "ratio" else float("inf"))
    row["lowest_throughput"], row["highest_throughput"] = min(point.throughputs), max(point.throughputs)
    return row


def reference_costs(curve: DensityCurve) -> list[float]:
    """Return the CPU per transaction (ms) of each trial of the reference."""
    return curve.points[curve.reference_index].values(lambda o: o.cpu_per_tx)


def cost_ratio(curve: DensityCurve, index: int) -> Finding:
    """CPU per transaction at a point ÷ that of the reference."""
    ratio = curve.relative_costs[index]
    if ratio is None:
        return missing("ratio", NO_CONTAINER_CPU)
    values = curve.points[index].values(lambda o: o.cpu_per_tx)
    trials = f"single trials {_trial_range(reference_costs(curve), values)}; reference: {curve.reference_text}"
    return as_finding(ratio, "ratio", trials, method=f"CPU/tx of N ÷ CPU/tx of the reference, {ratio.method}")


def _trial_range(reference: Sequence[float], values: Sequence[float]) -> str:
    """Return the range of single trials relative to the mean of the reference, such as ``0.84 to 0.93``."""
    mean = sum(reference) / len(reference)
    return f"{min(values) / mean:.2f} to {max(values) / mean:.2f}"


def mode_findings(curve: DensityCurve) -> dict[str, Finding]:
    """Cost ratio beyond the crossing, share of the clients in the cost, the two levels, and the share of time in the fast one."""
    index = curve.at_crossing[-1]
    point, ratio = curve.points[index], cost_ratio(curve, index)
    shares = [point.values(_client_share) for point in curve.points] if curve.options.client_placement == "inside" else []
    client = (
        as_finding(mean_over_points(shares), "ratio", "part of the CPU per transaction that pgbench uses; clients usually run elsewhere")
        if any(shares)
        else missing("ratio", "the clients run outside the containers, or their CPU was not measured")
    )
    return {
        "cost_ratio": ratio.model_copy(update={"note": f"at {plural(point.databases)}; {ratio.note}"}),
        "client_cpu_share": client,
        **_level_findings(curve),
    }


def _client_share(observation: Observation) -> float | None:
    clients, cost = observation.scheduler.client_per_tx, observation.cpu_per_tx
    return clients / cost if cost and clients is not None else None


def _level_findings(curve: DensityCurve) -> dict[str, Finding]:
    levels, unit = curve.levels, _unit(curve)
    if levels is None:
        return {name: missing(u, NO_LEVELS) for name, u in (("slow_level", unit), ("fast_level", unit), ("fast_share", "ratio"))}
    seconds = [value for second in seconds_near_full(curve) if (value := second["rate"]) is not None]
    fast = sum(value > levels.split for value in seconds) / len(seconds) if seconds else levels.high_share
    trials = sum(len(point.used) for point in curve.points if curve.options.near_full(point.databases))
    note = f"no interval: two levels in {trials} trials from 90 % of the cores on"
    method = "split of the trials with the largest distance in units of the spread within"
    return {
        "slow_level": Finding(value=levels.low, unit=unit, n=trials, method=method, note=note),
        "fast_level": Finding(value=levels.high, unit=unit, n=trials, method=method, note=note),
        "fast_share": Finding(
            value=fast, unit="ratio", n=len(seconds) or trials, method="share of the seconds above the middle of the levels", note=note
        ),
    }


def _unit(curve: DensityCurve) -> str:
    return "tx per CPU-second" if cpu_rates(curve.options, curve.points) else "tps"


def seconds_near_full(curve: DensityCurve) -> list[dict[str, Any]]:
    """Return each second of the trials from 90 % of the cores on: its trial and mode, throughput, and rate per CPU-second."""
    rows, rates, per_cpu = [], rates_near_full(curve.options, curve.points), cpu_rates(curve.options, curve.points)
    for point in curve.points:
        if not curve.options.near_full(point.databases):
            continue
        for observation, of_trial in zip(point.used, rates[point.databases], strict=True):
            cores = observation.cpu.loaded if per_cpu else 1.0
            for second, throughput in enumerate(observation.per_second):
                rows.append(
                    {
                        "databases": point.databases,
                        "trial": observation.key,
                        "mode": "" if curve.levels is None else curve.levels.mode(of_trial),
                        "second": second,
                        "throughput": throughput,
                        "rate": throughput / cores if cores else None,
                    }
                )
    return rows


def mode_sentence(curve: DensityCurve) -> str:
    """Describe the cost of a transaction beyond the crossing and the two levels. '' if that is the reference, or CPU was not measured."""
    index = curve.at_crossing[-1]
    point, ratio = curve.points[index], cost_ratio(curve, index)
    if ratio.value is None or index == curve.reference_index:
        return ""
    trials = _trial_range(reference_costs(curve), point.values(lambda o: o.cpu_per_tx))
    text = f"At {plural(point.databases)} a transaction costs {ratio.value:.2f} times as much CPU as at {curve.reference_text}"
    text += f" ({trials} in single trials)"
    if curve.levels is not None:
        latencies = [o.p50 for p in curve.points if curve.options.near_full(p.databases) for o in p.used if o.p50 is not None]
        text += f", in two modes: {curve.levels.low:,.0f} and {curve.levels.high:,.0f} {_unit(curve)}"
        if latencies:
            text += f", with median latencies of {min(latencies):.3g} to {max(latencies):.3g} ms"
    return text


def level_warnings(curve: DensityCurve) -> list[str]:
    """Name the points whose best and worst trial differ by more than their spread explains."""
    points = []
    for index, point in enumerate(curve.points):
        low, high = min(point.throughputs), max(point.throughputs)
        told_apart = curve.levels is not None and curve.options.near_full(point.databases)
        if high >= MIN_RATIO * low and (told_apart or _beyond_spread(curve, index)):
            points.append(f"{plural(point.databases)} ({low:,.0f} to {high:,.0f} tps)")
    if not points:
        return []
    return [f"Two levels: the best and the worst trial of {', '.join(points)} differ by more than their spread explains"]


def _beyond_spread(curve: DensityCurve, index: int) -> bool:
    """Return whether two trials of a point differ by more than chance explains, with all pairs of all points compared at once."""
    values = curve.points[index].throughputs
    spread = _spread_explained(curve, index)
    if spread is None or len(values) < 2:
        return False
    pairs = math.comb(len(values), 2) * len(curve.points)
    return (max(values) - min(values)) / mean(values) > student(1 - ERRORS / pairs, spread.degrees) * math.sqrt(2 * spread.variance)


def _spread_explained(curve: DensityCurve, index: int) -> Spread | None:
    """Return the spread of a trial's mean by its seconds, or by the trials of the other points with idle CPUs or without."""
    if curve.least[index] > 0:
        return Spread(curve.least[index], 4 * len(curve.points[index].used))
    full = curve.options.near_full(curve.loads[index])
    others = [p for i, p in enumerate(curve.points) if i != index and curve.options.near_full(curve.loads[i]) == full]
    spreads = relative_spreads([point.throughputs for point in others])
    return max(spreads, key=lambda spread: spread.variance) if spreads else None
