from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from pgherd.metrics.spool import Spool
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.runtimes.guest_balloons import GuestBalloons

MB = 2**20
BALLOONS = VmMemoryPolicy(policy="virtio-balloon", reserve=0)


class Machine:
    """A QEMU whose guest follows at once; it uses a tenth of its memory."""

    def __init__(self, memory: int) -> None:
        self.running, self.memory, self.actual = True, memory, memory

    def execute(self, command, /, **arguments):
        if command == "query-balloon":
            return {"actual": self.actual}
        if command == "balloon":
            self.actual = arguments["value"]
        if command == "qom-get":
            available = max(self.actual - self.memory // 10, 0)
            return {"stats": {"stat-available-memory": available, "stat-free-memory": available}, "last-update": int(time.time())}
        return []

    def heard(self, event):
        return 0

    @property
    def qmp(self):
        return self

    def ask(self, commands, then):
        asked = Future()
        asked.set_result(then([self.execute(command, **(arguments or {})) for command, arguments in commands]))
        return asked


def container(name: str, memory: int = 1000, least: int | None = None) -> Container:
    return Container(name=name, runtime="vm", memory=memory * MB, vm_memory_min=None if least is None else least * MB)


def eventually(true) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def balloons():
    made = GuestBalloons(LocalNode(), dict)
    yield made
    made.close()


def test_guests_share_what_there_is_and_get_it_back(balloons, tmp_path: Path) -> None:
    balloons.share(BALLOONS, 1500 * MB)
    balloons.record(tmp_path / "spool")
    machines = {name: Machine(1000 * MB) for name in ("a", "b")}
    for name, machine in machines.items():
        balloons.promise(container(name))
        balloons.entered(container(name), machine)
    eventually(lambda: sum(one.actual for one in machines.values()) < 1700 * MB)
    balloons.record(None)
    balloons.close()
    assert all(one.actual == 1000 * MB for one in machines.values())
    with (tmp_path / "spool").open() as lines:
        assert {entity for _, _, entity, _ in Spool(lines)} == {"guest:a", "guest:b", "platform:balloon-manager"}


def test_a_guest_that_left_is_left_alone(balloons) -> None:
    balloons.share(BALLOONS, 1500 * MB)
    machines = {name: Machine(1000 * MB) for name in ("a", "b")}
    for name, machine in machines.items():
        balloons.entered(container(name), machine)
    balloons.left("b")
    eventually(lambda: machines["a"].actual == 1000 * MB)


def test_what_is_promised_is_looked_at_before_any_guest_is_there(balloons) -> None:
    balloons.share(BALLOONS, 1500 * MB)
    balloons.promise(container("a", least=800))
    with pytest.raises(UsageError, match="2 guests are guaranteed"):
        balloons.promise(container("b", least=800))
    balloons.withdraw("a")
    balloons.promise(container("b", least=800))
    balloons.promise(container("b", least=900))


def test_only_a_policy_that_moves_needs_room_for_minima(balloons) -> None:
    balloons.share(VmMemoryPolicy(policy="free-page-reporting"), 100 * MB)
    balloons.promise(container("a", least=800))
    assert balloons.reporting
    balloons.share(None, 100 * MB)
    assert not balloons.reporting


def test_a_lower_budget_is_checked(balloons) -> None:
    balloons.share(BALLOONS, 1500 * MB)
    balloons.entered(container("a", least=800), Machine(1000 * MB))
    with pytest.raises(UsageError, match="are guaranteed"):
        balloons.change_budget(500 * MB)
    balloons.change_budget(1000 * MB)
    with pytest.raises(UsageError, match="are guaranteed"):
        balloons.withhold(500 * MB)
    balloons.change_budget(1000 * MB)  # what was refused counts for nothing


def test_what_something_else_holds_of_the_budget_is_taken_from_guests(balloons) -> None:
    balloons.share(BALLOONS, 2100 * MB)
    machine = Machine(1000 * MB)
    balloons.entered(container("a"), machine)
    balloons.withhold(1500 * MB)
    eventually(lambda: machine.actual < 700 * MB)
    balloons.withhold(0)
    eventually(lambda: machine.actual == 1000 * MB)


@pytest.mark.parametrize(
    ("controller", "usage", "stat"),
    [("memory", "memory.usage_in_bytes", "total_inactive_file"), ("v2", "memory.current", "inactive_file")],
)
def test_what_the_host_has_left_is_what_the_group_could_still_take(tmp_path, controller, usage, stat) -> None:
    (tmp_path / usage).write_text(f"{700 * MB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ntotal_rss 5\n{stat} {50 * MB}\n")
    found = GuestBalloons(LocalNode(), lambda: {controller: str(tmp_path)})
    found.share(BALLOONS, 1000 * MB)
    assert found._free() == 350 * MB
    without = GuestBalloons(LocalNode(), dict)
    without.share(BALLOONS, 1000 * MB)
    assert without._free() is None


@pytest.mark.parametrize(
    ("controller", "usage", "stat", "kernel"),
    [
        ("memory", "memory.usage_in_bytes", "total_rss {0}\ntotal_cache {1}\ntotal_inactive_file {2}\n", True),
        ("v2", "memory.current", "anon {0}\nfile {1}\nkernel {3}\nsock 0\ninactive_file {2}\n", False),
    ],
)
def test_what_is_left_of_split_huge_pages_can_be_had_too(tmp_path, controller, usage, stat, kernel) -> None:
    """A process of 128 MB on huge pages that has given back every other page was charged with 128 MB, and had 64 (Linux 6.18)."""
    (tmp_path / usage).write_text(f"{(128 + 40 + 5) * MB}\n")
    (tmp_path / "memory.stat").write_text(stat.format(64 * MB, 40 * MB, 10 * MB, 5 * MB))
    if kernel:
        (tmp_path / "memory.kmem.usage_in_bytes").write_text(f"{5 * MB}\n")
    found = GuestBalloons(LocalNode(), lambda: {controller: str(tmp_path)})
    found.share(BALLOONS, 200 * MB)
    assert found._free() == (200 - 173 + 10 + 64) * MB
