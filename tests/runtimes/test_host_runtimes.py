from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.runtimes.host_runtimes import CgroupRuntime, ExternalRuntime, ProcessRuntime
from pgherd.runtimes.runtime import Runtime

SCOPE = "/user.slice/user@1000.service/app.slice/run-u1.scope"
UNIFIED = "/sys/fs/cgroup"
CGROUP_FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=1 << 34)


@pytest.fixture
def make_cgroups(tmp_path: Path, fake):
    """A cgroup runtime in a delegated scope, and that scope's directory."""

    def made(controllers: str = "cpu cpuset memory io", may_write: str = UNIFIED + SCOPE, cpus: tuple[int, ...] | None = None):
        node = fake.unified(tmp_path / "root", SCOPE, controllers=controllers, may_write=may_write)
        journal = Journal.open(node, tmp_path / "state", "run")
        return CgroupRuntime(node, journal, CGROUP_FACTS, "ab12", cpus), tmp_path / "root" / (UNIFIED + SCOPE).lstrip("/"), node

    return made


def test_a_container_from_begin_to_end(make_cgroups) -> None:
    runtime, scope, node = make_cgroups()
    checked: Runtime = runtime
    able = checked.capabilities()
    assert (able.available, able.cpu_quota, able.cpuset, able.memory_limit, able.accounting) == (True,) * 5
    assert "pgherd-leaf" in able.note
    runtime.open(Host(cores=2, memory=1 << 30))
    assert (scope / "pgherd-ab12/cpu.max").read_text() == "200000 100000"
    assert (scope / "pgherd-ab12/memory.max").read_text() == str(1 << 30)

    room = runtime.create(Container(name="db01", vcpus=0.25, cpu_mode="quota", memory=1 << 28, weight=50))
    directory = f"{UNIFIED}{SCOPE}/pgherd-ab12/db01"
    assert (room.container, room.join, room.cpus, dict(room.groups)) == ("db01", (f"{directory}/cgroup.procs",), None, {"v2": directory})
    child = scope / "pgherd-ab12/db01"
    assert [(child / name).read_text() for name in ("cpu.max", "memory.max", "cpu.weight")] == ["25000 100000", str(1 << 28), "50"]

    node.add_process(5000, f"{SCOPE}/pgherd-ab12/db01")
    runtime.destroy("db01")
    assert node.killed == [5000]
    runtime.close()
    assert [path.name for path in scope.iterdir() if path.is_dir()] == []
    assert node.group_of(os.getpid()) == SCOPE
    runtime.close()


def test_the_budget_changes_and_swap_is_limited_beside_it(make_cgroups) -> None:
    runtime, scope, _ = make_cgroups()
    assert runtime.budget_groups() == {}
    with pytest.raises(RuntimeError, match="open"):
        runtime.change_budget(1 << 29)
    runtime.open(Host(memory=1 << 30, swap=1 << 28))
    group = scope / "pgherd-ab12"
    assert (group / "memory.swap.max").read_text() == str(1 << 28)
    assert dict(runtime.budget_groups()) == {"v2": f"{UNIFIED}{SCOPE}/pgherd-ab12"}
    runtime.create(Container(name="db01", memory=1 << 27, swap=0))
    assert (group / "db01/memory.swap.max").read_text() == "0"
    runtime.empty()
    runtime.change_budget(1 << 29)
    assert ((group / "memory.max").read_text(), (group / "memory.swap.max").read_text()) == (str(1 << 29), str(1 << 28))
    assert (group / "db01/memory.max").read_text() == str(1 << 27)
    runtime.close()


def test_without_a_memory_budget_the_host_group_is_not_limited(make_cgroups) -> None:
    runtime, scope, _ = make_cgroups()
    runtime.open(Host(cores=4))
    assert (scope / "pgherd-ab12/memory.max").read_text() == "max"
    assert (scope / "pgherd-ab12/cpu.max").read_text() == "max 100000", "all cores are no limit"


def test_whole_cpus(make_cgroups) -> None:
    runtime, scope, _ = make_cgroups(cpus=(1, 2, 3))
    runtime.open(Host(cores=2.5))
    assert (scope / "pgherd-ab12/cpuset.cpus").read_text() == "1,2,3"
    assert (scope / "pgherd-ab12/cpu.max").read_text() == "250000 100000"
    for name, expected in (("db01", "1,2"), ("db02", "1,3")):
        assert runtime.create(Container(name=name, vcpus=2, cpu_mode="cpuset")).cpus is None
        assert (scope / f"pgherd-ab12/{name}/cpuset.cpus").read_text() == expected


def test_servers_keep_to_the_cpus_that_pgherd_may_use(make_cgroups, tmp_path: Path) -> None:
    """As with systemd-run -p AllowedCPUs=0-3, or taskset, on 16 CPUs."""
    runtime, scope, _ = make_cgroups()
    online = tmp_path / "root/sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-15\n")
    runtime.open(Host(cores=4))
    assert (scope / "pgherd-ab12/cpuset.cpus").read_text() == "0,1,2,3"
    runtime.close()
    online.write_text("0-3\n")
    runtime.open(Host(cores=4))
    assert (scope / "pgherd-ab12/cpuset.cpus").read_text() == "", "all CPUs"


def test_affinity_stands_in_for_a_cpuset_controller_that_was_not_delegated(make_cgroups) -> None:
    runtime, scope, _ = make_cgroups(controllers="cpu memory", cpus=(1, 2))
    runtime.open(Host())
    assert runtime.create(Container(name="db01", vcpus=1, cpu_mode="cpuset")).cpus == (1,)
    assert runtime.create(Container(name="db02", vcpus=0.5, cpu_mode="quota")).cpus == (1, 2)
    assert not (scope / "pgherd-ab12/db01/cpuset.cpus").exists()


def test_unavailable_says_what_would_help(make_cgroups) -> None:
    runtime, _, _ = make_cgroups(may_write="/nowhere")
    able = runtime.capabilities()
    assert able.available is False
    assert "Delegate=yes" in able.missing["cpu_quota"]
    with pytest.raises(CapabilityError, match="Delegate=yes.*--runtime process"):
        runtime.open(Host())


def test_impossible_containers(make_cgroups) -> None:
    runtime, scope, _ = make_cgroups()
    runtime.open(Host())
    with pytest.raises(UsageError, match="db01 has cpu_mode quota but no vcpus"):
        runtime.create(Container(name="db01", cpu_mode="quota"))
    with pytest.raises(CapabilityError, match=r"0\.005.*0\.01"):
        runtime.create(Container(name="db01", cpu_mode="quota", vcpus=0.005))
    with pytest.raises(CapabilityError, match="CPU 9"):
        runtime.create(Container(name="db01", cpus=(9,)))
    assert not (scope / "pgherd-ab12/db01").exists()
    runtime.create(Container(name="db01"))
    with pytest.raises(CapabilityError, match="different names"):
        runtime.create(Container(name="db01"))
    assert (scope / "pgherd-ab12/db01").exists()


PROCESS_FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=1 << 30)


@pytest.fixture
def make_processes(tmp_path: Path, fake):
    node = fake.FakeNode(tmp_path / "root", {"/proc/self/status": "Cpus_allowed_list:\t0-3\n"})
    journal = Journal.open(node, tmp_path / "state", "run")

    def made(host: Host | None = None, cpus: tuple[int, ...] | None = None) -> ProcessRuntime:
        runtime = ProcessRuntime(node, journal, PROCESS_FACTS, "ab12", cpus)
        runtime.open(host or Host())
        return runtime

    return made


def test_it_follows_the_protocol(make_processes) -> None:
    runtime: Runtime = make_processes()
    able = runtime.capabilities()
    assert (able.available, able.cpuset, able.cpu_quota, able.memory_limit, able.accounting) == (True, True, False, False, False)
    assert "cgroup" in able.missing["cpu_quota"]


def test_without_a_budget_a_room_is_the_whole_host(make_processes) -> None:
    room = make_processes().create(Container(name="db01"))
    assert (room.join, room.cpus, room.groups) == ((), None, {})


def test_a_budget_of_cores_is_a_set_of_cpus(make_processes) -> None:
    runtime = make_processes(Host(cores=3))
    assert runtime.create(Container(name="db01")).cpus == (0, 1, 2)
    assert [runtime.create(Container(name=f"db{i}", vcpus=2, cpu_mode="cpuset")).cpus for i in (2, 3)] == [(0, 1), (0, 2)]


def test_the_cpus_of_a_reservation_are_used(make_processes) -> None:
    assert make_processes(Host(cores=2), cpus=(2, 3)).create(Container(name="db01")).cpus == (2, 3)


@pytest.mark.parametrize(
    ("asked", "what"),
    [({"cpu_mode": "quota", "vcpus": 0.25}, "a CPU quota"), ({"memory": 1 << 20}, "a memory limit"), ({"weight": 50}, "a CPU weight")],
)
def test_what_it_can_not_give_names_what_can(make_processes, asked: dict, what: str) -> None:
    with pytest.raises(CapabilityError, match=f"db01 asks for {what}.*cgroup runtime"):
        make_processes().create(Container(name="db01", **asked))


@pytest.mark.parametrize("host", [Host(memory=1 << 20), Host(cores=1.5)])
def test_budgets_that_it_can_not_keep(make_processes, host: Host) -> None:
    with pytest.raises(CapabilityError, match="cgroup runtime"):
        make_processes(host)


def test_a_quota_around_us_is_no_budget_of_ours(make_processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of 4 CPUs with a quota of 1.5 cores around pgherd: its whole budget is 1.5 cores, and needs no affinity."""
    monkeypatch.setitem(globals(), "PROCESS_FACTS", PROCESS_FACTS.model_copy(update={"cores": 1.5}))
    assert make_processes(Host(cores=1.5)).create(Container(name="db01")).cpus is None


def test_it_has_no_budget_that_could_change(make_processes) -> None:
    runtime = make_processes()
    with pytest.raises(CapabilityError, match="use the cgroup runtime"):
        runtime.change_budget(1 << 28)
    runtime.empty()
    assert runtime.budget_groups() == {}


@pytest.fixture
def external(tmp_path: Path, fake) -> Runtime:
    node = fake.FakeNode(tmp_path / "root", {})
    runtime = ExternalRuntime(node, Journal.open(node, tmp_path / "state", "run"), PROCESS_FACTS, "ab12")
    runtime.open(Host(cores=2, memory=1 << 28))
    return runtime


def test_an_external_server_has_a_room_without_walls(external: Runtime) -> None:
    able = external.capabilities()
    assert able.available and not (able.cpu_quota or able.cpuset or able.memory_limit or able.accounting)
    room = external.create(Container(name="theirs", runtime="external"))
    assert (room.join, room.cpus, room.groups) == ((), None, {})
    external.destroy("theirs")
    external.close()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"vcpus": 2.0}, "vCPUs"),
        ({"cpu_mode": "cpuset"}, "vCPUs"),
        ({"cpus": (0,)}, "vCPUs"),
        ({"memory": 1 << 30}, "a memory limit"),
        ({"weight": 50}, "a CPU weight"),
    ],
)
def test_limits_of_external_servers_are_refused(external: Runtime, asked: dict[str, object], words: str) -> None:
    with pytest.raises(CapabilityError, match=f"container theirs asks for {words}.*set where it runs"):
        external.create(Container.model_validate({"name": "theirs", "runtime": "external", **asked}))


def test_an_external_server_has_no_budget_that_could_change(external: Runtime) -> None:
    with pytest.raises(CapabilityError, match="set where it runs"):
        external.change_budget(1 << 28)
    external.empty()
    assert external.budget_groups() == {}
