"""Checks of a trial's memory: is all memory of its host accounted for, and were there OOM kills? Pure. They also serve a failed trial."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Check, Thresholds
from pgherd.model.capabilities import capabilities_of
from pgherd.model.prometheus import CONTAINER_OOM
from pgherd.model.result import OomKill, PhaseResult
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.runner.trial_checks import check_of

ACCOUNTED = "memory-accounted"
NO_OOM_KILL = "no-oom-kill"


def judge_memory(trial: Trial, phases: Sequence[PhaseResult], kills: Sequence[OomKill], thresholds: Thresholds) -> list[Check]:
    """Return both checks for a trial in cgroups, those of external servers included, or in guests, which also run in cgroups.

    A trial that did not finish has no phases, so only its OOM kills are checked. Other runtimes count neither memory
    nor kills, so there is no check, and no answer depends on one.
    """
    counted = any(capabilities_of(container.runtime).accounting for _, container in trial.deployment.containers())
    seen = {f"container:{c.name}" for _, c in trial.deployment.containers() if c.runtime == "external"}
    if not (counted or kills or any("memory.usage" in one.metrics.get(entity, {}) for one in phases for entity in seen)):
        return []
    unseen = ""
    for phase, view in [(one, view) for one in phases for view in one.prometheus]:
        if CONTAINER_OOM not in view.series:
            unseen = f"Prometheus at {view.url} has no {CONTAINER_OOM} of container {view.container} in the window"
        # A kill between two samples around a border of the window counts in part.
        elif (killed := phase.metrics[f"container:{view.container}"]["memory.oom_kills"] * phase.seconds) > 0:
            kills = [*kills, OomKill(container=view.container, processes=max(1, round(killed)), time=phase.end)]
    checks = [_accounted(phases, thresholds)] if any(phase.memory is not None for phase in phases) else []
    if unseen and not kills:
        checks.append(check_of(NO_OOM_KILL, None, "not seen", "no OOM kill", unseen))
    elif phases or kills:  # a trial that failed for a different reason gives no information on memory
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
    expected = f"containers + unallocated = budget within {limits.max_unaccounted_memory:.1%} in every second"
    return check_of(ACCOUNTED, ok, observed, expected, reason, warn=True)


def _no_oom_kill(kills: Sequence[OomKill]) -> Check:
    observed = "; ".join(kill_words(kill) for kill in kills) or "none"
    reason = "the containers needed more memory than they had, and no swap was left"
    return check_of(NO_OOM_KILL, not kills, observed, "no OOM kill", reason)


def kill_words(kill: OomKill) -> str:
    """Describe a kill, such as ``db1: postgres (4711) killed, at the container's limit``."""
    victims = ", ".join(kill.names) or f"{kill.processes} process{'' if kill.processes == 1 else 'es'}"
    unnamed = kill.processes - len(kill.names)
    remainder = f" and {unnamed} more" if kill.names and unnamed > 0 else ""
    limit = {"container": ", at the container's limit", "run": ", at the limit of all containers together", None: ""}[kill.limit]
    return f"{kill.container}: {victims}{remainder} killed{limit}"
