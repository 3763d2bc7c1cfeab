"""Cost of a transaction at each number of databases, and the modes of the CPU scheduler at a full host.

efficiency(N) = share of the allocated CPU received × (CPU per transaction of the reference ÷ that at N). At a full host the second factor
has two modes. In the fast one a container runs in a burst with warm caches until its quota ends, and is throttled. In the slow one each
wake-up runs a task of another container, nobody reaches the quota, and a transaction costs up to twice as much CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pgherd.analysis.intervals import mean_interval, ratio_of_means
from pgherd.model.analysis import Finding
from pgherd.studies.density.curve import DensityCurve, DensityPoint, plural
from pgherd.study.findings import as_finding, missing
from pgherd.study.observation import Observation
from pgherd.study.repeats import NO_CONTAINER_CPU, mean_finding

Row = dict[str, Finding | str | int | float | None]

NO_LEVELS = "the trials of a full host show one level with noise"
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
    """One row per number of databases: cost of a transaction, and what distinguishes the scheduler's modes."""
    rows: list[Row] = []
    for point in curve.points:
        row: Row = {"databases": point.databases, "cost_ratio": cost_ratio(curve, point)}
        for name, (take, unit) in _COLUMNS.items():
            row[name] = mean_finding(point, take, unit, _NOT_MEASURED, most=1.0 if unit == "ratio" else float("inf"))
        row["lowest_throughput"], row["highest_throughput"] = min(point.throughputs), max(point.throughputs)
        rows.append(row)
    return rows


def reference_costs(curve: DensityCurve) -> list[float]:
    """Return the CPU per transaction (ms) of each trial of the reference."""
    return curve.points[curve.reference_index].values(lambda o: o.cpu_per_tx)


def cost_ratio(curve: DensityCurve, point: DensityPoint) -> Finding:
    """CPU per transaction at a point ÷ that of the reference."""
    reference, values = reference_costs(curve), point.values(lambda o: o.cpu_per_tx)
    if not reference or not values:
        return missing("ratio", NO_CONTAINER_CPU)
    trials = f"single trials {_trial_range(reference, values)}; reference: {curve.reference_text}"
    return as_finding(ratio_of_means(values, reference), "ratio", trials, method="CPU/tx of N ÷ CPU/tx of the reference, log t interval")


def _trial_range(reference: Sequence[float], values: Sequence[float]) -> str:
    """Return the range of single trials relative to the mean of the reference, such as ``0.84 to 0.93``."""
    mean = sum(reference) / len(reference)
    return f"{min(values) / mean:.2f} to {max(values) / mean:.2f}"


def mode_findings(curve: DensityCurve) -> dict[str, Finding]:
    """Cost ratio beyond the crossing, share of the clients in the cost, the two levels, and the share of time in the fast one."""
    point = curve.points[curve.at_crossing[-1]]
    ratio = cost_ratio(curve, point)
    shares = [
        o.scheduler.client_per_tx / o.cpu_per_tx
        for p in curve.points
        for o in p.used
        if o.cpu_per_tx and o.scheduler.client_per_tx is not None and curve.options.client_placement == "inside"
    ]
    client = (
        as_finding(mean_interval(shares), "ratio", "part of the CPU per transaction that pgbench uses; clients usually run elsewhere")
        if shares
        else missing("ratio", "the clients run outside the containers, or their CPU was not measured")
    )
    return {
        "cost_ratio": ratio.model_copy(update={"note": f"at {plural(point.databases)}; {ratio.note}"}),
        "client_cpu_share": client,
        **_level_findings(curve),
    }


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
    return "tps" if curve.cpu_shares is None else "tx per CPU-second"


def seconds_near_full(curve: DensityCurve) -> list[dict[str, Any]]:
    """Return each second of the trials from 90 % of the cores on: databases, trial, second, throughput, rate per CPU-second."""
    rows = []
    for point in curve.points:
        if not curve.options.near_full(point.databases):
            continue
        for observation in point.used:
            cores = observation.cpu.loaded if curve.cpu_shares is not None else 1.0
            for second, throughput in enumerate(observation.per_second):
                rows.append(
                    {
                        "databases": point.databases,
                        "trial": observation.key,
                        "second": second,
                        "throughput": throughput,
                        "rate": throughput / cores if cores else None,
                    }
                )
    return rows


def mode_sentence(curve: DensityCurve) -> str:
    """Describe the cost of a transaction beyond the crossing and the two levels. '' if that is the reference, or CPU was not measured."""
    point = curve.points[curve.at_crossing[-1]]
    ratio = cost_ratio(curve, point)
    if ratio.value is None or curve.at_crossing[-1] == curve.reference_index:
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
