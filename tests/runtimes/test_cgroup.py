from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.runtimes.cgroup import CgroupRuntime
from pgherd.runtimes.runtime import Runtime

SCOPE = "/user.slice/user@1000.service/app.slice/run-u1.scope"
UNIFIED = "/sys/fs/cgroup"
FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=1 << 34)


@pytest.fixture
def make(tmp_path: Path, fake):
    """A cgroup runtime in a delegated scope, and that scope's directory."""

    def made(controllers: str = "cpu cpuset memory io", may_write: str = UNIFIED + SCOPE, cpus: tuple[int, ...] | None = None):
        node = fake.unified(tmp_path / "root", SCOPE, controllers=controllers, may_write=may_write)
        journal = Journal.open(node, tmp_path / "state", "run")
        return CgroupRuntime(node, journal, FACTS, "ab12", cpus), tmp_path / "root" / (UNIFIED + SCOPE).lstrip("/"), node

    return made


def test_a_container_from_begin_to_end(make) -> None:
    runtime, scope, node = make()
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


def test_the_budget_changes_and_swap_is_limited_beside_it(make) -> None:
    runtime, scope, _ = make()
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


def test_without_a_memory_budget_the_host_group_is_not_limited(make) -> None:
    runtime, scope, _ = make()
    runtime.open(Host(cores=4))
    assert (scope / "pgherd-ab12/memory.max").read_text() == "max"
    assert (scope / "pgherd-ab12/cpu.max").read_text() == "max 100000", "all cores are no limit"


def test_whole_cpus(make) -> None:
    runtime, scope, _ = make(cpus=(1, 2, 3))
    runtime.open(Host(cores=2.5))
    assert (scope / "pgherd-ab12/cpuset.cpus").read_text() == "1,2,3"
    assert (scope / "pgherd-ab12/cpu.max").read_text() == "250000 100000"
    for name, expected in (("db01", "1,2"), ("db02", "1,3")):
        assert runtime.create(Container(name=name, vcpus=2, cpu_mode="cpuset")).cpus is None
        assert (scope / f"pgherd-ab12/{name}/cpuset.cpus").read_text() == expected


def test_affinity_stands_in_for_a_cpuset_controller_that_was_not_delegated(make) -> None:
    runtime, scope, _ = make(controllers="cpu memory", cpus=(1, 2))
    runtime.open(Host())
    assert runtime.create(Container(name="db01", vcpus=1, cpu_mode="cpuset")).cpus == (1,)
    assert runtime.create(Container(name="db02", vcpus=0.5, cpu_mode="quota")).cpus == (1, 2)
    assert not (scope / "pgherd-ab12/db01/cpuset.cpus").exists()


def test_unavailable_says_what_would_help(make) -> None:
    runtime, _, _ = make(may_write="/nowhere")
    able = runtime.capabilities()
    assert able.available is False
    assert "Delegate=yes" in able.missing["cpu_quota"]
    with pytest.raises(CapabilityError, match="Delegate=yes.*--runtime process"):
        runtime.open(Host())


def test_impossible_containers(make) -> None:
    runtime, scope, _ = make()
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
