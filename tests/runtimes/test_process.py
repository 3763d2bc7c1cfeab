from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.host_facts import HostFacts
from pgherd.runtimes.process import ExternalRuntime, ProcessRuntime
from pgherd.runtimes.runtime import Runtime

FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=1 << 30)


@pytest.fixture
def make(tmp_path: Path, fake):
    node = fake.FakeNode(tmp_path / "root", {"/proc/self/status": "Cpus_allowed_list:\t0-3\n"})
    journal = Journal.open(node, tmp_path / "state", "run")

    def made(host: Host | None = None, cpus: tuple[int, ...] | None = None) -> ProcessRuntime:
        runtime = ProcessRuntime(node, journal, FACTS, "ab12", cpus)
        runtime.open(host or Host())
        return runtime

    return made


def test_it_follows_the_protocol(make) -> None:
    runtime: Runtime = make()
    able = runtime.capabilities()
    assert (able.available, able.cpuset, able.cpu_quota, able.memory_limit, able.accounting) == (True, True, False, False, False)
    assert "cgroup" in able.missing["cpu_quota"]


def test_without_a_budget_a_room_is_the_whole_host(make) -> None:
    room = make().create(Container(name="db01"))
    assert (room.join, room.cpus, room.groups) == ((), None, {})


def test_a_budget_of_cores_is_a_set_of_cpus(make) -> None:
    runtime = make(Host(cores=3))
    assert runtime.create(Container(name="db01")).cpus == (0, 1, 2)
    assert [runtime.create(Container(name=f"db{i}", vcpus=2, cpu_mode="cpuset")).cpus for i in (2, 3)] == [(0, 1), (0, 2)]


def test_the_cpus_of_a_reservation_are_used(make) -> None:
    assert make(Host(cores=2), cpus=(2, 3)).create(Container(name="db01")).cpus == (2, 3)


@pytest.mark.parametrize(
    ("asked", "what"),
    [({"cpu_mode": "quota", "vcpus": 0.25}, "a CPU quota"), ({"memory": 1 << 20}, "a memory limit"), ({"weight": 50}, "a CPU weight")],
)
def test_what_it_can_not_give_names_what_can(make, asked: dict, what: str) -> None:
    with pytest.raises(CapabilityError, match=f"db01 asks for {what}.*cgroup runtime"):
        make().create(Container(name="db01", **asked))


@pytest.mark.parametrize("host", [Host(memory=1 << 20), Host(cores=1.5)])
def test_budgets_that_it_can_not_keep(make, host: Host) -> None:
    with pytest.raises(CapabilityError, match="cgroup runtime"):
        make(host)


def test_a_quota_around_us_is_no_budget_of_ours(make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of 4 CPUs with a quota of 1.5 cores around pgherd: its whole budget is 1.5 cores, and needs no affinity."""
    monkeypatch.setitem(globals(), "FACTS", FACTS.model_copy(update={"cores": 1.5}))
    assert make(Host(cores=1.5)).create(Container(name="db01")).cpus is None


def test_it_has_no_budget_that_could_change(make) -> None:
    runtime = make()
    with pytest.raises(CapabilityError, match="use the cgroup runtime"):
        runtime.change_budget(1 << 28)
    runtime.empty()
    assert runtime.budget_groups() == {}


@pytest.fixture
def external(tmp_path: Path, fake) -> Runtime:
    node = fake.FakeNode(tmp_path / "root", {})
    runtime = ExternalRuntime(node, Journal.open(node, tmp_path / "state", "run"), FACTS, "ab12")
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
