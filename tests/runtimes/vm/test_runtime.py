"""The runtime of guests, over an inner runtime and machines that are only pretended; tests/it/test_vm.py boots real ones."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.metrics.spool import Spool
from pgherd.model.deployment import Container, Host, VmMemoryPolicy, VmOptions
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.runtime_selection import RuntimePool, choose
from pgherd.runtimes.vm import runtime as module
from pgherd.runtimes.vm.boot_images import BootImages
from pgherd.runtimes.vm.runtime import DEFAULT_MEMORY, GuestBalloons, VmRuntime

NODE = LocalNode()


class Inner:
    """Rooms with a group each."""

    def __init__(self):
        self.made, self.removed = [], []

    def create(self, container):
        self.made.append(container)
        return ContainerHandle(container.name, join=(f"/groups/{container.name}/cgroup.procs",), cpus=(1,))

    def destroy(self, name):
        self.removed.append(name)

    def change_budget(self, memory):
        self.memory = memory

    def empty(self):
        self.emptied = True

    def budget_groups(self):
        return {"memory": "/groups"}


class Pretended:
    """A machine; ``events`` is what was done to which."""

    events: ClassVar[list] = []

    def __init__(self, node, guest, directory, hypervisor, journal, account=None):
        self.guest, self.directory, self.running = guest, directory, False
        self.agent_socket = f"{directory}/agent"
        self.name, self.pid, self.account = guest.name, os.getpid(), account

    def pin(self, cpus):
        self.events.append(("pin", self.guest.name, cpus))

    def start(self, join, cpus):
        self.running = True
        self.events.append(("start", self.guest.name, join, cpus))

    def wait_ready(self, timeout):
        self.events.append(("ready", self.guest.name))

    def execute(self, name, /, **arguments):
        return {"actual": self.guest.memory, "stats": {}, "last-update": 0}

    def heard(self, event):
        return 0

    @property
    def qmp(self):
        return self

    def ask(self, commands, then):
        asked = Future()
        asked.set_result(then([self.execute(name) for name, _ in commands]))
        return asked

    def stop(self):
        self.running = False
        self.events.append(("stop", self.guest.name))


class Connected:
    """A guest's node."""

    lost, silent = None, False

    @classmethod
    def connect(cls, name, socket, timeout, alive):
        found = cls()
        found.name, found.alive = name, alive
        return found

    def align_clock(self):
        """Its clock is ours."""

    def close(self):
        Pretended.events.append(("disconnect", self.name))


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "VirtualMachine", Pretended)
    monkeypatch.setattr(module, "GuestNode", Connected)
    monkeypatch.setattr(Pretended, "events", [])
    journal = Journal.open(NODE, tmp_path / "state", "run")
    found = VmRuntime(NODE, journal, gather(NODE), "x")
    found.inner = Inner()
    found.within(found.inner)
    yield found
    journal.close()


@pytest.fixture
def images():
    """What guests boot from; nothing of it is looked at."""

    class Hypervisor:
        accelerator = "tcg"

    class Root:
        path = "/root.img"

    return BootImages(kernel=None, boot="/vmlinux", initrd="/initrd", root=Root(), hypervisor=Hypervisor())


def test_a_guests_room_has_no_memory_limit_of_its_own(runtime):
    room = runtime.create(Container(name="a", runtime="vm", memory=2**30, vcpus=1))
    assert room.container == "a" and runtime.inner.made[0].memory is None


@pytest.mark.parametrize(("vcpus", "cores"), [(None, 1), (0.5, 1), (2.0, 2), (2.5, 3)])
def test_a_guest_is_what_its_container_asks(runtime, images, vcpus, cores):
    container = Container(name="a", runtime="vm", memory=2**30, vcpus=vcpus)
    machine = runtime.boot(container, runtime.create(container), images, (), "/run/x")
    assert (machine.guest.vcpus, machine.guest.memory, machine.guest.accelerator) == (cores, 2**30, "tcg")
    assert Pretended.events == [("start", "a", ("/groups/a/cgroup.procs",), (1,))]


def test_each_of_a_guests_servers_has_a_port_that_leads_to_its_own(runtime, images):
    container = Container(name="a", runtime="vm")
    guest = runtime.boot(container, runtime.create(container), images, (), "/run/x", 3).guest
    assert len(set(guest.ports)) == 3 and [there for _, there in guest.further] == [5433, 5434]


def test_no_guest_gets_a_port_of_one_that_has_not_bound_it_yet(runtime, images, monkeypatch):
    monkeypatch.setattr(
        module, "free_ports", lambda address, count, taken=(): [port for port in range(6001, 6009) if port not in taken][:count]
    )
    ports = []
    for name in ("a", "b"):
        container = Container(name=name, runtime="vm")
        ports += runtime.boot(container, runtime.create(container), images, (), "/run/x", 2).guest.ports
    assert ports == [6001, 6002, 6003, 6004]


def test_what_is_held_by_others_is_not_the_guests_to_share(runtime):
    runtime.share(VmMemoryPolicy(policy="virtio-balloon", reserve=0), 2**30)
    runtime.withhold(2**29)
    with pytest.raises(UsageError, match="are guaranteed"):
        runtime.create(Container(name="a", runtime="vm", memory=2**30, vm_memory_min=3 * 2**28))
    runtime.withhold(0)
    runtime.create(Container(name="a", runtime="vm", memory=2**30, vm_memory_min=3 * 2**28))


def test_a_container_that_does_not_say_gets_some_memory(runtime, images):
    container = Container(name="a", runtime="vm")
    assert runtime.boot(container, runtime.create(container), images, (), "/run/x").guest.memory == DEFAULT_MEMORY


def test_a_guest_is_ended_before_it_is_booted_anew_and_when_its_container_goes(runtime, images):
    container = Container(name="a", runtime="vm")
    room = runtime.create(container)
    runtime.boot(container, room, images, (), "/run/x")
    node = runtime.connect("a")
    assert node.alive()
    runtime.boot(container, room, images, (), "/run/x")
    assert [event[0] for event in Pretended.events] == ["start", "ready", "disconnect", "stop", "start"]
    runtime.destroy("a")
    assert Pretended.events[-1] == ("stop", "a") and runtime.inner.removed == ["a"] and not runtime.machines()
    runtime.destroy("a")


def test_closing_ends_all_guests_and_leaves_rooms_to_the_inner_runtime(runtime, images):
    for name in ("a", "b"):
        container = Container(name=name, runtime="vm")
        runtime.boot(container, runtime.create(container), images, (), "/run/x")
    assert set(runtime.machines()) == {"a", "b"}
    runtime.close()
    assert [event for event in Pretended.events if event[0] == "stop"] == [("stop", "a"), ("stop", "b")]
    assert not runtime.inner.removed


def test_the_budget_is_the_inner_runtimes(runtime):
    runtime.open(Host(cores=1))
    runtime.change_budget(5)
    runtime.empty()
    assert runtime.inner.memory == 5 and runtime.inner.emptied and runtime.budget_groups() == {"memory": "/groups"}


def test_what_is_missing_is_named(runtime, monkeypatch):
    def missing():
        raise CapabilityError("qemu-system-x86_64 is missing; install it")

    monkeypatch.setattr(module.hypervisor, "program", missing)
    found = runtime.capabilities()
    assert not found.available and "install it" in found.note


def test_it_is_chosen_by_name_only_and_stands_in_the_best_of_the_others(tmp_path):
    journal = Journal.open(NODE, tmp_path / "state", "run")
    try:
        assert choose(NODE, journal, gather(NODE), None, "x")[0].name != "vm"
        runtimes = RuntimePool(NODE, journal, gather(NODE), Host(cores=1), "vmtest")
        if not VmRuntime(NODE, journal, gather(NODE), "x").capabilities().available:
            pytest.skip("no virtual machines here")
        try:
            vm = runtimes.get("vm")
            assert vm.name == "vm" and len(runtimes._open) == 2
        finally:
            runtimes.close()
    finally:
        journal.close()


def test_guests_report_free_pages_only_where_that_is_the_policy(runtime, images):
    container = Container(name="a", runtime="vm", memory=2**30)
    assert not runtime.boot(container, runtime.create(container), images, (), "/run/x").guest.reporting
    runtime.share(VmMemoryPolicy(policy="free-page-reporting"), 2**30)
    assert runtime.boot(container, runtime.create(container), images, (), "/run/x").guest.reporting


def test_more_than_there_is_cannot_be_promised(runtime):
    runtime.share(VmMemoryPolicy(policy="virtio-balloon"), 2**30)
    runtime.create(Container(name="a", runtime="vm", memory=2**30, vm_memory_min=6 * 2**27))
    with pytest.raises(UsageError, match="2 guests are guaranteed"):
        runtime.create(Container(name="b", runtime="vm", memory=2**30, vm_memory_min=6 * 2**27))
    assert [one.name for one in runtime.inner.made] == ["a"]


def test_huge_pages_are_reserved_while_the_guest_runs_and_its_memory_lies_on_them(runtime, images, monkeypatch):
    reserved, undone = [], []
    monkeypatch.setattr(module.huge_pages, "reserve", lambda node, journal, size, pages: reserved.append((size, pages)) or 7)
    monkeypatch.setattr(runtime._journal, "undo", undone.append)
    container = Container(name="a", runtime="vm", memory=2**30, vm=VmOptions(huge_page=2**21))
    for _ in range(2):
        guest = runtime.boot(container, runtime.create(container), images, (), "/run/x").guest
    assert (guest.backing, guest.huge_page, guest.merge) == ("huge", 2**21, False)
    assert reserved == [(2**21, 512)] * 2 and undone == [7], "the first guest's went with it"
    runtime.end("a")
    assert undone == [7, 7]


def test_pages_are_merged_from_the_first_guest_that_wants_it_to_the_end(runtime, images, monkeypatch):
    switched, undone = [], []
    monkeypatch.setattr(module.ksm, "switch_on", lambda node, journal: switched.append(1) or 9)
    monkeypatch.setattr(runtime._journal, "undo", undone.append)
    for name in ("a", "b"):
        container = Container(name=name, runtime="vm", vm=VmOptions(merge=True))
        assert runtime.boot(container, runtime.create(container), images, (), "/run/x").guest.merge
    assert switched == [1] and not undone
    runtime.close()
    assert undone == [9]


def test_vcpus_are_pinned_to_the_same_cpus_whenever_the_guest_is_booted(runtime, images):
    if len(runtime._cpus) < 2:
        pytest.skip("there is one CPU only")
    for name in ("a", "b", "a"):
        container = Container(name=name, runtime="vm", vm=VmOptions(pinned=True))
        runtime.boot(container, runtime.create(container), images, (), "/run/x")
        runtime.connect(name)
    first, second, again = [event for event in Pretended.events if event[0] == "pin"]
    assert first == again and first[2] != second[2] and len(first[2]) == 1


def test_a_guest_is_pinned_to_the_cpus_that_one_has_left(runtime, images):
    if len(runtime._cpus) < 2:
        pytest.skip("there is one CPU only")
    runtime._cpus = runtime._cpus[:2]

    def pinned(name):
        container = Container(name=name, runtime="vm", vm=VmOptions(pinned=True))
        runtime.boot(container, runtime.create(container), images, (), "/run/x")
        runtime.connect(name)
        return Pretended.events[-1][2]

    kept, left = pinned("a"), pinned("b")
    runtime.destroy("b")
    assert pinned("c") == left and pinned("d") == kept and pinned("e") in (kept, left)
    runtime.destroy("c")
    assert pinned("f") == left


def test_a_guest_is_pinned_within_a_numa_node_while_that_costs_others_nothing(runtime, images, monkeypatch):
    """Eight CPUs, of two nodes in turn, as some machines number them."""
    runtime._cpus = tuple(range(8))
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(module, "numa_nodes", lambda node, cpus: {cpu: cpu % 2 for cpu in cpus})
    monkeypatch.setattr(module, "siblings", lambda node, cpus: {cpu: (cpu,) for cpu in cpus})

    def pinned(name, vcpus):
        container = Container(name=name, runtime="vm", vcpus=vcpus, vm=VmOptions(pinned=True))
        runtime.boot(container, runtime.create(container), images, (), "/run/x")
        runtime.connect(name)
        return Pretended.events[-1][2]

    assert pinned("a", 3) == (0, 2, 4) and pinned("b", 3) == (1, 3, 5)
    assert pinned("c", 2) == (6, 7), "the only two that are free, although of both"
    assert pinned("d", 5) == (0, 1, 2, 3, 4), "no node has so many"


def test_guests_are_pinned_to_cores_of_their_own_before_they_share_one(runtime, images, monkeypatch):
    """Four cores of two hardware threads, 0 and 4, 1 and 5 and so on, as most machines number them."""
    runtime._cpus = tuple(range(8))
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(module, "numa_nodes", lambda node, cpus: {})
    monkeypatch.setattr(module, "siblings", lambda node, cpus: {cpu: (cpu % 4, cpu % 4 + 4) for cpu in cpus})

    def pinned(name, vcpus):
        container = Container(name=name, runtime="vm", vcpus=vcpus, vm=VmOptions(pinned=True))
        runtime.boot(container, runtime.create(container), images, (), "/run/x")
        runtime.connect(name)
        return Pretended.events[-1][2]

    assert pinned("a", 2) == (0, 1) and pinned("b", 2) == (2, 3)
    assert pinned("c", 3) == (4, 5, 6), "the second threads, before anybody shares a thread"
    runtime.destroy("b")
    assert pinned("d", 1) == (3,), "of the three that are free, the one on whose core nobody is"


def test_a_guests_memory_is_whole_megabytes(runtime, images):
    container = Container(name="a", runtime="vm", memory=2**28 + 5)
    assert runtime.boot(container, runtime.create(container), images, (), "/run/x").guest.memory == 2**28


def test_a_guest_that_leaves_a_question_without_an_answer_is_mute(runtime, images):
    container = Container(name="a", runtime="vm")
    machine = runtime.boot(container, runtime.create(container), images, (), "/run/x", account="pg")
    assert machine.account == "pg"
    node = runtime.connect("a")
    assert runtime.mute() == []
    node.silent = True
    assert runtime.mute() == ["a"]
    node.lost = "it has died"
    assert runtime.mute() == [], "which is something else"


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


def test_a_target_that_the_caller_sets_is_recorded_and_moves_nothing(balloons, tmp_path: Path) -> None:
    balloons.record(tmp_path / "spool")
    machine = Machine(1000 * MB)
    balloons.entered(container("a"), machine)
    balloons.set_target("a", 600 * MB)

    def targets() -> list[float]:
        with (tmp_path / "spool").open() as lines:
            return [values["guest.target"] for _, _, entity, values in Spool(lines) if entity == "guest:a" and "guest.target" in values]

    eventually(lambda: 600 * MB in targets())
    assert machine.actual == 1000 * MB


def test_a_policy_that_moves_balloons_takes_no_target(balloons) -> None:
    balloons.share(BALLOONS, 1500 * MB)
    with pytest.raises(CapabilityError, match="--vm-memory-policy virtio-balloon decides on the memory of guest a"):
        balloons.set_target("a", 600 * MB)


def test_a_guest_that_left_is_left_alone(balloons) -> None:
    balloons.share(BALLOONS, 1500 * MB)
    machines = {name: Machine(1000 * MB) for name in ("a", "b")}
    for name, machine in machines.items():
        balloons.entered(container(name), machine)
    eventually(lambda: sum(one.actual for one in machines.values()) < 1700 * MB)
    balloons.left("b")
    left_with = machines["b"].actual
    assert left_with < 1000 * MB
    eventually(lambda: machines["a"].actual == 1000 * MB)
    assert machines["b"].actual == left_with


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
