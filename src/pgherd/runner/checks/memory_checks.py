"""Checks of a host's memory: is all of it accounted for, and were there OOM kills? Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Check, Thresholds
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import OomKill, PhaseResult
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes

ACCOUNTED = "memory-accounted"
NO_OOM_KILL = "no-oom-kill"


def judge(trial: Trial, phases: Sequence[PhaseResult], kills: Sequence[OomKill], thresholds: Thresholds) -> list[Check]:
    """Return both checks for a trial in cgroups or in guests, which also run in cgroups.

    A trial that did not finish has no phases, so only its OOM kills are checked. Other runtimes count neither memory
    nor kills, so there is no check, and no answer depends on one.
    """
    if not any(capabilities_of(container.runtime).accounting for _, container in trial.deployment.containers()):
        return []
    checks = [_accounted(phases, thresholds)] if any(phase.memory is not None for phase in phases) else []
    if phases or kills:  # a trial that failed for a different reason gives no information on memory
        checks.append(_no_oom_kill(kills))
    return checks


def _accounted(phases: Sequence[PhaseResult], limits: Thresholds) -> Check:
    account = max((phase.memory for phase in phases if phase.memory is not None), key=lambda account: abs(account.worst))
    ok = abs(account.worst) <= limits.max_unaccounted_memory
    observed = (
        f"{abs(account.worst):.2%} {'missing' if account.worst >= 0 else 'too much'} in the worst of {account.seconds} seconds: containers "
        f"{format_bytes(account.containers)} + unallocated {format_bytes(account.unallocated)} of {format_bytes(account.budget)}"
    )
    reason = "the run cgroup is charged for memory that no container has, such as page cache of a removed one"
    return Check(
        name=ACCOUNTED,
        kind="noise",
        result="pass" if ok else "fail",
        observed=observed,
        expected=f"containers + unallocated = budget within {limits.max_unaccounted_memory:.1%} in every second",
        reason="" if ok else reason,
        severity="warn",
    )


def _no_oom_kill(kills: Sequence[OomKill]) -> Check:
    observed = "; ".join(words(kill) for kill in kills) or "none"
    reason = "the containers needed more memory than they had, and no swap was left"
    return Check(
        name=NO_OOM_KILL,
        kind="noise",
        result="fail" if kills else "pass",
        observed=observed,
        expected="no OOM kill",
        reason=reason if kills else "",
    )


def words(kill: OomKill) -> str:
    """Describe a kill, such as ``db1: postgres (4711) killed, at the container's limit``."""
    victims = ", ".join(kill.names) or f"{kill.processes} process{'' if kill.processes == 1 else 'es'}"
    unnamed = kill.processes - len(kill.names)
    remainder = f" and {unnamed} more" if kill.names and unnamed > 0 else ""
    limit = {"container": ", at the container's limit", "run": ", at the limit of all containers together", None: ""}[kill.limit]
    return f"{kill.container}: {victims}{remainder} killed{limit}"
