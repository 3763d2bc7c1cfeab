"""Trials that go on from each other, put together: one long measurement, cut in pieces so that an interruption costs little. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Verdict
from pgherd.model.result import TrialResult


def join_continuations(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The results, with each trial that goes on from the one before it as further phases of that; those that failed stand by themselves."""
    found: list[TrialResult] = []
    last: int | None = None
    for result in results:
        if result.error is None and result.trial.goes_on and last is not None:
            found[last] = _and(found[last], result)
            continue
        if result.error is None:
            last = len(found)
        found.append(result)
    return found


def failed_phases(result: TrialResult, verdict: Verdict) -> tuple[str, ...]:
    """The phases of a trial in which a check failed; all of them where it failed for the trial as a whole."""
    return () if verdict.result != "fail" else verdict.failed_in or tuple(phase.phase for phase in result.phases)


def _and(before: TrialResult, after: TrialResult) -> TrialResult:
    verdicts = {(v.check, v.kind): v.model_copy(update={"failed_in": failed_phases(before, v)}) for v in before.verdicts}
    for later in after.verdicts:
        failed = failed_phases(after, later)
        known = verdicts.get((later.check, later.kind))
        worst = later if known is None or later.gravity > known.gravity else known
        verdicts[later.check, later.kind] = worst.model_copy(update={"failed_in": (*(known.failed_in if known else ()), *failed)})
    return before.model_copy(
        update={
            "ended": after.ended,
            "trial": before.trial.model_copy(update={"phases": (*before.trial.phases, *after.trial.phases)}),
            "phases": [*before.phases, *after.phases],
            "verdicts": list(verdicts.values()),
            "memory_kills": (*before.memory_kills, *after.memory_kills),
        }
    )
