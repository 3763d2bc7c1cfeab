from __future__ import annotations

import pytest

from pgherd.host.task_limits import TaskLimit
from pgherd.model.deployment import Container, Deployment, Host, Server
from pgherd.model.errors import CapabilityError
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.prepare import tasks
from pgherd.prepare.tasks import SERVER_TASKS, require_processes, tasks_of


def trial(*runtimes: str, hosts: int = 1, clients: int = 8) -> Trial:
    """One container of each runtime with a server, and a load of each; the second phase has one client more."""
    containers = tuple(
        Container(name=f"db{number}", runtime=runtime, vcpus=1, servers=(Server(bin="/b", version="18.1"),))  # type: ignore[arg-type]
        for number, runtime in enumerate(runtimes)
    )
    places = tuple(Host(name=f"h{number}", cores=2, containers=() if number else containers) for number in range(hosts))
    targets = [f"h0/db{number}/pg/bench" for number in range(len(runtimes))]
    phases = tuple(Phase(name=f"p{more}", loads={name: Load(clients=clients + more, threads=2) for name in targets}) for more in (0, 1))
    return Trial(point={"n": 1}, deployment=Deployment(hosts=places), phases=phases)


def test_servers_sessions_and_threads_of_the_largest_phase_count() -> None:
    assert tasks_of(trial("process")) == SERVER_TASKS + 9 + 2
    assert tasks_of(trial("process", "cgroup")) == 2 * (SERVER_TASKS + 9 + 2)
    assert tasks_of(trial("cgroup", "vm")) == SERVER_TASKS + 9 + 2, "those of a guest are in the guest"


def test_the_largest_trial_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def limits(node: object, account: object, *, in_cgroups: bool) -> list[TaskLimit]:
        asked.append(in_cgroups)
        return [TaskLimit("the limit", 50, 10, "raise {}")]

    monkeypatch.setattr(tasks, "task_limits", limits)
    monkeypatch.setattr(tasks, "server_account", lambda run_as: run_as)
    require_processes(LocalNode(), [trial("process"), trial("cgroup")], "postgres")
    assert asked == [False, True]
    with pytest.raises(CapabilityError, match="at least 49 processes and threads, but the limit is 50, of which 10"):
        require_processes(LocalNode(), [trial("process"), trial("process", clients=40)], "postgres")
    asked.clear()
    require_processes(LocalNode(), [trial("vm", clients=99), trial("process", hosts=2, clients=99)], "postgres")
    assert asked == [], "neither guests nor other hosts have the limits of this process"
