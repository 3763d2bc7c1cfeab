"""Processes and threads that a trial starts on this host, and whether the limits around pgherd allow them."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.host.server_user import server_account
from pgherd.host.task_limits import require_tasks, task_limits
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node

SERVER_TASKS = 6
"""Least number of processes of a server: postmaster, checkpointer, two writers, launcher of autovacuum, and pgherd's session."""
LOCAL = ("process", "cgroup")


def require_processes(node: Node, trials: Sequence[Trial], run_as: str | None) -> None:
    """Require that servers, sessions and drivers of each trial can start on this host.

    Raises:
        CapabilityError: pids.max of a group or the limit of a user is too low.
    """
    for in_cgroups in (False, True):
        counts = [tasks_of(trial) for trial in trials if _starts_servers(trial, in_cgroups)]
        if counts:
            require_tasks(max(counts), task_limits(node, server_account(run_as), in_cgroups=in_cgroups))


def _starts_servers(trial: Trial, in_cgroups: bool) -> bool:
    """Return whether a trial starts servers on this host only, and all of them in cgroups or not."""
    runtimes = {container.runtime for _, container in trial.deployment.containers() if container.servers}
    return len(trial.deployment.hosts) == 1 and not runtimes.isdisjoint(LOCAL) and (runtimes == {"cgroup"}) == in_cgroups


def tasks_of(trial: Trial) -> int:
    """Return the least number of processes and threads: those of servers, and in the largest phase the sessions and threads of drivers."""
    local = {container.name for _, container in trial.deployment.containers() if container.runtime in LOCAL}
    servers = sum(SERVER_TASKS for _, container, _ in trial.deployment.servers() if container.name in local)
    phases = ([load for target, load in phase.loads.items() if local.intersection(target.split("/")[1:2])] for phase in trial.phases)
    return servers + max((sum(load.clients + load.threads for load in loads) for loads in phases), default=0)
