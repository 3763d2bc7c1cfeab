"""A soak: one point for hours. Does throughput drift, and how bad is the worst minute?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis.steadiness import Steadiness, steadiness
from pgherd.model.finding import Finding
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.units import format_seconds
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import plural
from pgherd.studies.density.tables import Row
from pgherd.studies.findings import as_finding, missing

STEADY_DRIFT = 0.02
"""Drift per hour below which a soak counts as steady."""

# Metrics of servers shown per window, as marks of what happened in it: counters become counts, gauges stay.
_CHECKPOINTS = ("ckpt.timed", "ckpt.requested")


def soak_rows(phases: Sequence[PhaseResult]) -> list[Row]:
    """One row per window: start (hours), throughput, relative (to the median), p95, checkpoints, vacuum workers, iowait."""
    ordered = sorted(phase.throughput for phase in phases)
    median = ordered[len(ordered) // 2]
    return [
        {
            "window": index,
            "hours": (phase.start - phases[0].start) / 3600,
            "throughput": phase.throughput,
            "relative": phase.throughput / median if median > 0 else None,
            "p95": _worst_p95(phase),
            "checkpoints": _checkpoints(phase),
            "vacuum_workers": _servers(phase, "vacuum.workers"),
            "iowait": phase.metrics.get("host", {}).get("cpu.iowait"),
        }
        for index, phase in enumerate(phases)
    ]


def _worst_p95(phase: PhaseResult) -> float | None:
    values = [target.latency.p95 for target in phase.targets if target.latency.p95 is not None]
    return max(values, default=None)


def _checkpoints(phase: PhaseResult) -> float | None:
    rates = [rate for name in _CHECKPOINTS if (rate := _servers(phase, name)) is not None]
    return round(sum(rates) * phase.seconds) if rates else None


def _servers(phase: PhaseResult, name: str) -> float | None:
    values = [m[name] for entity, m in phase.metrics.items() if entity.startswith("server:") and name in m]
    return sum(values) if values else None


def soak_phases(results: Sequence[TrialResult]) -> list[PhaseResult]:
    """The windows of the soak's trial, in order: of the last one that finished."""
    finished = [result for result in results if result.error is None and len(result.phases) > 1]
    return list(finished[-1].phases) if finished else []


def soak_findings(phases: Sequence[PhaseResult]) -> dict[str, Finding]:
    """soak_throughput, soak_drift (relative, per hour), soak_worst_window (ratio to the median), soak_variation."""
    judged = _judge(phases)
    if judged is None:
        return {
            name: missing("ratio", "fewer than two windows with throughput")
            for name in ("soak_drift", "soak_worst_window", "soak_variation")
        }
    hours = (phases[-1].end - phases[0].start) / 3600
    mean = sum(phase.throughput * phase.seconds for phase in phases) / sum(phase.seconds for phase in phases)
    at = (phases[judged.worst_at].start - phases[0].start) / 3600
    window = format_seconds(phases[0].seconds)
    extrapolated = "" if hours >= 1 else "; extrapolated from less than an hour"
    return {
        "soak_throughput": Finding(
            value=mean, unit="tps", n=len(phases), method="mean over all windows", note=f"over {format_seconds(3600 * hours)}"
        ),
        "soak_drift": as_finding(judged.drift, "per hour", "relative change; 0.01 is +1 % per hour" + extrapolated),
        "soak_worst_window": Finding(
            value=judged.worst,
            unit="ratio",
            n=len(phases),
            method=f"worst window of {window} ÷ median window",
            note=f"{at:.2f} h after the start",
        ),
        "soak_variation": Finding(
            value=judged.variation,
            unit="ratio",
            n=len(phases),
            method="coefficient of variation of the windows",
            note=f"lag-1 autocorrelation {judged.autocorrelation:.2f}",
        ),
    }


def _judge(phases: Sequence[PhaseResult]) -> Steadiness | None:
    if len(phases) < 2 or sum(phase.throughput for phase in phases) <= 0:
        return None
    return steadiness([(phase.start + phase.end) / 7200 for phase in phases], [phase.throughput for phase in phases])


def soak_answer(options: DensityOptions, phases: Sequence[PhaseResult]) -> str:
    """One sentence: how many databases ran for how long at what throughput, its drift and worst window."""
    judged = _judge(phases)
    if judged is None:
        return "The soak has fewer than two windows with throughput: nothing can be said of its steadiness."
    drift, seconds = judged.drift, phases[-1].end - phases[0].start
    # Of less than an hour nothing is said per hour: what some minutes show is not what an hour would.
    hours, over = (1.0, " per hour") if seconds >= 3600 else (seconds / 3600, " over that time")
    text = f"{plural(options.soak_point)} of {options.vcpus:g} vCPU ran for {format_seconds(seconds)}"
    text += f"; throughput drifted by {100 * hours * drift.value:+.1f} %{over}"
    if drift.low is None or drift.high is None:
        text += ", and too few windows were measured to tell that from noise"
    else:
        text += f" ({100 * hours * drift.low:+.1f} % to {100 * hours * drift.high:+.1f} %)"
        steady = drift.low >= -STEADY_DRIFT and drift.high <= STEADY_DRIFT
        text += (
            ", which is steady"
            if steady
            else ", which cannot be told from steady"
            if drift.low <= 0 <= drift.high
            else ", which is not steady"
        )
    return f"{text}; the worst {format_seconds(phases[0].seconds)} had {100 * judged.worst:.0f} % of the median."
