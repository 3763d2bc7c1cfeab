"""Verdicts on a host's memory: is all of the budget accounted for, and was anything ended for want of it? Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Thresholds, Verdict
from pgherd.model.result import MemoryKill, PhaseResult
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes

ACCOUNTED = "memory-accounted"
NO_OOM_KILL = "no-oom-kill"


def judge(trial: Trial, phases: Sequence[PhaseResult], kills: Sequence[MemoryKill], thresholds: Thresholds) -> list[Verdict]:
    """Both, for a trial in control groups or in guests, which run in some; of a trial that did not finish there are no phases, and the
    kills alone are judged.

    Elsewhere nothing counts a container's memory or its kills, and there is no verdict: no answer rests on one.
    """
    if not any(container.runtime in ("cgroup", "vm") for _, container in trial.deployment.containers()):
        return []
    found = [_accounted(phases, thresholds)] if any(phase.memory is not None for phase in phases) else []
    if phases or kills:  # a trial that ended for another reason says nothing of memory
        found.append(_no_oom_kill(kills))
    return found


def _accounted(phases: Sequence[PhaseResult], limits: Thresholds) -> Verdict:
    account = max((phase.memory for phase in phases if phase.memory is not None), key=lambda one: abs(one.worst))
    ok = abs(account.worst) <= limits.memory_accounted
    observed = (
        f"{abs(account.worst):.2%} {'missing' if account.worst >= 0 else 'too much'} in the worst of {account.seconds} seconds: containers "
        f"{format_bytes(account.containers)} + unallocated {format_bytes(account.unallocated)} of {format_bytes(account.budget)}"
    )
    why = "memory is charged to the host's group that none of its containers has, such as page cache of one that was removed"
    return Verdict(
        check=ACCOUNTED,
        kind="noise",
        result="pass" if ok else "fail",
        observed=observed,
        wanted=f"containers + unallocated = budget within {limits.memory_accounted:.1%} in every second",
        why="" if ok else why,
        severity="warn",
    )


def _no_oom_kill(kills: Sequence[MemoryKill]) -> Verdict:
    observed = "; ".join(words(kill) for kill in kills) or "none"
    why = "the containers needed more memory than they had, and there was no swap left for it: what the trial says of this deployment"
    return Verdict(
        check=NO_OOM_KILL,
        kind="noise",
        result="fail" if kills else "pass",
        observed=observed,
        wanted="no process ended for want of memory",
        why=why if kills else "",
    )


def words(kill: MemoryKill) -> str:
    """``db1: postgres (4711) ended, the container's own limit was reached``."""
    who = ", ".join(kill.names) or f"{kill.processes} process{'' if kill.processes == 1 else 'es'}"
    more = kill.processes - len(kill.names)
    rest = f" and {more} more" if kill.names and more > 0 else ""
    reached = {"container": ", at the container's own limit", "budget": ", at the limit of all containers together", None: ""}[kill.limit]
    return f"{kill.container}: {who}{rest} ended{reached}"
