from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pgherd.host.task_limits import TaskLimit, require_tasks, task_limits
from pgherd.model.errors import CapabilityError
from reports import GROUP_TASKS, GroupTasks

UNIFIED = "/sys/fs/cgroup"


@pytest.fixture
def user_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's user has uid 123 and a limit of 90 tasks, whoever runs the tests."""
    monkeypatch.setattr("pgherd.host.task_limits.os.geteuid", lambda: 123)
    monkeypatch.setattr("pgherd.host.task_limits.resource.getrlimit", lambda which: (90, 900))


@pytest.fixture
def no_user_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgherd.host.task_limits.resource.getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)


@pytest.mark.parametrize("row", GROUP_TASKS, ids=lambda row: row.report)
def test_each_limited_group_of_the_chain_counts(row: GroupTasks, tmp_path: Path, fake, no_user_limit: None) -> None:
    node = fake.unified(tmp_path, "/a.slice/b.scope")
    for name, text in row.files.items():
        (tmp_path / "sys/fs/cgroup" / name).write_text(f"{text}\n")
    found = task_limits(node, None, in_cgroups=False)
    assert [(limit.name, limit.maximum, limit.used) for limit in found] == [
        (f"pids.max of {UNIFIED}/{group}", maximum, used) for group, maximum, used in row.right
    ]


@pytest.mark.parametrize(("uid", "memory", "counts"), [(0, "max", False), (0, "4294967296", True), (1000, "max", True)])
def test_servers_of_root_leave_a_group_unless_it_limits_their_memory(
    uid: int, memory: str, counts: bool, tmp_path: Path, fake, no_user_limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgherd.host.task_limits.os.geteuid", lambda: uid)
    node = fake.unified(tmp_path, "/a.slice/b.scope")
    (tmp_path / "sys/fs/cgroup/a.slice/pids.max").write_text("100\n")
    (tmp_path / "sys/fs/cgroup/a.slice/memory.max").write_text(f"{memory}\n")
    assert bool(task_limits(node, None, in_cgroups=True)) == counts


def test_servers_of_root_stay_in_the_group_of_a_container(
    tmp_path: Path, fake, no_user_limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with docker run --privileged --pids-limit 100: the top is the container's group."""
    monkeypatch.setattr("pgherd.host.task_limits.os.geteuid", lambda: 0)
    node = fake.unified(tmp_path, "/", namespace=True)
    (tmp_path / "sys/fs/cgroup/pids.max").write_text("100\n")
    (limit,) = task_limits(node, None, in_cgroups=True)
    assert (limit.name, limit.maximum) == (f"pids.max of {UNIFIED}", 100)


def test_tasks_of_the_servers_user_are_in_use(tmp_path: Path, fake, user_limit: None) -> None:
    states = {7: (123, 3), 8: (1234, 50), 9: (123, 1)}
    files = {
        f"/proc/{pid}/status": f"Name:\tx\nUid:\t{uid}\t0\t0\t0\nThreads:\t{count}\nNoNewPrivs:\t0\n"
        for pid, (uid, count) in states.items()
    }
    (limit,) = task_limits(fake.FakeNode(tmp_path, files), None, in_cgroups=False)
    assert (limit.name, limit.maximum, limit.used) == ("the limit of uid 123 (ulimit -u)", 90, 4)


def test_all_limits_that_are_too_low_are_in_one_message_with_the_new_values() -> None:
    limits = [
        TaskLimit("pids.max of /a", 100, 51, "echo {} >/a/pids.max"),
        TaskLimit("pids.max of /b", 200, 100, "echo {} >/b/pids.max"),
        TaskLimit("the limit of uid 7 (ulimit -u)", 90, 80, "ulimit -u {}"),
    ]
    require_tasks(10, limits)
    with pytest.raises(CapabilityError) as refusal:
        require_tasks(50, limits)
    for part in ("at least 50", "/a is 100, of which 51", "(ulimit -u) is 90, of which 80", "echo 165 >/a/pids.max", "ulimit -u 194"):
        assert part in str(refusal.value)
    assert "/b" not in str(refusal.value)
