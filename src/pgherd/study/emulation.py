"""What may be said of trials in guests whose processors were emulated: that they worked, and nothing of how fast. Pure.

For every study: emulation (QEMU's TCG) is tens of times slower than the processor, and not evenly so; a throughput measured there, or a
ratio of two, says nothing about any platform.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Analysis, Finding, Verdict
from pgherd.model.result import PhaseResult, TrialResult

EMULATED_METRIC = "emulated"
"""Metric of a ``guest:NAME`` entity: 1 where its processors were emulated."""
FUNCTIONAL_TABLE = "functional"
"""Table of a run of which nothing but that it worked may be said."""
EMULATION_REASON = "the guests' processors were emulated (TCG): functional only"
_OF_SPEED = ("cpu-bound", "io-bound", "not-client-bound", "rate-met")
"""Checks that pass for how fast something was, or for what CPU it took. Among them io-bound: it divides the reads of all the host's devices
by transactions, and where these are tens of times fewer, the reads of others pass it. With cached it is the other way: few reads are few,
whoever caused them, and it is a pass that stays."""
_OF_MEMORY = ("memory_kills",)
"""Tables of studies that mean something although processors were emulated."""


def is_emulated(phases: Sequence[PhaseResult]) -> bool:
    """Whether some guest in these phases ran by emulation."""
    return any(metrics.get(EMULATED_METRIC) == 1 for phase in phases for metrics in phase.metrics.values())


def discount_checks(verdicts: Sequence[Verdict], phases: Sequence[PhaseResult]) -> list[Verdict]:
    """Verdicts of a trial by emulation: what is judged by speed or by CPU is unknown, passed or not, for nothing is concluded from it; and
    so is whatever else failed, since slowness may be why."""
    if not is_emulated(phases):
        return list(verdicts)
    unknown = {"result": "unknown", "why": EMULATION_REASON, "failed_in": ()}
    return [one.model_copy(update=unknown) if one.result != "pass" or one.check in _OF_SPEED else one for one in verdicts]


def with_emulation(analysis: Analysis, results: Sequence[TrialResult]) -> Analysis:
    """The analysis as it is; of a run in which some trial ran by emulation, one that says which trials ran to their end."""
    ran = [result for result in results if is_emulated(result.phases)]
    if not ran:
        return analysis
    failed = [result for result in results if result.error is not None]
    points: dict[str, list[TrialResult]] = {}
    for result in results:
        points.setdefault(", ".join(f"{name} {value}" for name, value in sorted(result.trial.point.items())) or "all", []).append(result)
    rows: list[dict[str, Finding | str | int | float | None]] = [
        {"point": point, "trials": len(some), "finished": sum(one.error is None for one in some)} for point, some in points.items()
    ]
    many = max(sum(1 for _ in result.trial.deployment.containers()) for result in ran)
    guests = "1 guest" if many == 1 else f"up to {many} guests"
    whole = "the one trial" if len(results) == 1 else f"all {len(results)} trials"
    ended = f"{whole} ran to the end" if not failed else f"{len(failed)} of {len(results)} trials failed"
    return Analysis(
        answer=f"Functional only: {ended} with {guests}; their processors were emulated (no KVM), so nothing is said of throughput.",
        grade="C",
        findings={
            "trials_finished": _count(len(results) - len(failed), "trials that ran to their end"),
            "trials_failed": _count(len(failed), "trials that did not"),
            "guests": _count(many, "guests at once, at most"),
        },
        tables={FUNCTIONAL_TABLE: rows} | {name: analysis.tables[name] for name in _OF_MEMORY if name in analysis.tables},
        warnings=[
            "No throughput, latency or CPU of these trials means anything: the guests' processors were emulated. Where KVM works, the same "
            "command measures",
            *[f"trial {result.id} failed: {result.error}" for result in failed[:3]],
        ],
        look_at=["'pgherd doctor' says whether KVM works here, and if not, why"],
    )


def _count(value: int, method: str) -> Finding:
    return Finding(value=value, unit="", n=1, method=method, note="counted, not estimated: it has no interval")
