"""Results of trials whose guests ran on emulated processors. They only show that the trials worked, for every study. Pure.

Emulation (QEMU's TCG) is tens of times slower than the processor, and not uniformly. Throughput and ratios of it describe no real platform.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Analysis, Check, Finding
from pgherd.model.result import PhaseResult, TrialResult

EMULATED_METRIC = "emulated"
"""Metric of a ``guest:NAME`` entity: 1 if its processors were emulated."""
FUNCTIONAL_TABLE = "functional"
"""Table of a run whose only result is that its trials worked."""
EMULATION_REASON = "the guests' processors were emulated (TCG): functional only"
_SPEED_CHECKS = ("cpu-bound", "io-bound", "not-client-bound", "rate-achieved")
"""Checks whose pass depends on speed or CPU use, so emulation makes them unknown.

io-bound divides the reads of all devices by transactions. With far fewer transactions, reads of other programs pass it. A pass of cached
stays valid, because few reads are few regardless of their cause.
"""
_VALID_TABLES = ("oom_kills",)
"""Tables of studies that stay valid with emulated processors."""


def is_emulated(phases: Sequence[PhaseResult]) -> bool:
    """Return True if a guest in these phases had emulated processors."""
    return any(metrics.get(EMULATED_METRIC) == 1 for phase in phases for metrics in phase.metrics.values())


def discount_checks(verdicts: Sequence[Check], phases: Sequence[PhaseResult]) -> list[Check]:
    """Return the checks of a trial, adapted to emulation.

    Checks of speed or CPU use become unknown. Other failed checks become unknown too, because slowness may be the cause.
    """
    if not is_emulated(phases):
        return list(verdicts)
    unknown = {"result": "unknown", "reason": EMULATION_REASON, "failed_phases": ()}
    return [check.model_copy(update=unknown) if check.result != "pass" or check.name in _SPEED_CHECKS else check for check in verdicts]


def with_emulation(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """Return the analysis unchanged, or a functional one that only counts finished trials if any trial was emulated."""
    affected = [result for result in results if is_emulated(result.phases)]
    if not affected:
        return analysis
    failed = [result for result in results if result.error is not None]
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(", ".join(f"{name} {value}" for name, value in sorted(result.trial.point.items())) or "all", []).append(result)
    rows: list[dict[str, Finding | str | int | float | None]] = [
        {"point": point, "trials": len(trials), "finished": sum(trial.error is None for trial in trials)}
        for point, trials in points.items()
    ]
    guest_count = max(sum(1 for _ in result.trial.deployment.containers()) for result in affected)
    guests = "1 guest" if guest_count == 1 else f"up to {guest_count} guests"
    trials_text = "the only trial" if len(results) == 1 else f"all {len(results)} trials"
    outcome = f"{trials_text} finished" if not failed else f"{len(failed)} of {len(results)} trials failed"
    return Analysis(
        answer=f"Functional only: {outcome} with {guests}; their processors were emulated (no KVM), so throughput is not reported.",
        grade="C",
        findings={
            "trials_finished": _count(len(results) - len(failed), "finished trials"),
            "trials_failed": _count(len(failed), "failed trials"),
            "guests": _count(guest_count, "maximum number of simultaneous guests"),
        },
        tables={FUNCTIONAL_TABLE: rows} | {name: analysis.tables[name] for name in _VALID_TABLES if name in analysis.tables},
        warnings=[
            "Throughput, latency and CPU use of these trials are invalid, because the guests' processors were emulated. Run the same "
            "command on a host with KVM.",
            *[f"trial {result.id} failed: {result.error}" for result in failed[:3]],
        ],
        next_steps=["'pgherd doctor' reports whether KVM works on this host"],
    )


def _count(value: int, method: str) -> Finding:
    return Finding(value=value, unit="", n=1, method=method, note="counted, so without an interval")
