from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.facts import HostFacts
from pgherd.runtimes.external import ExternalRuntime
from pgherd.runtimes.runtime import Runtime

FACTS = HostFacts(hostname="h", kernel="k", cores=4, logical_cpus=4, memory=1 << 30)


@pytest.fixture
def runtime(tmp_path: Path, fake) -> Runtime:
    node = fake.FakeNode(tmp_path / "root", {})
    runtime = ExternalRuntime(node, Journal.open(node, tmp_path / "state", "run"), FACTS, "ab12")
    runtime.open(Host(cores=2, memory=1 << 28))
    return runtime


def test_a_room_without_walls(runtime: Runtime) -> None:
    able = runtime.capabilities()
    assert able.available and not (able.cpu_quota or able.cpuset or able.memory_limit or able.accounting)
    room = runtime.create(Container(name="theirs", runtime="external"))
    assert (room.join, room.cpus, room.groups) == ((), None, {})
    runtime.destroy("theirs")
    runtime.close()


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
def test_limits_are_refused(runtime: Runtime, asked: dict[str, object], words: str) -> None:
    with pytest.raises(CapabilityError, match=f"container theirs asks for {words}.*set where it runs"):
        runtime.create(Container.model_validate({"name": "theirs", "runtime": "external", **asked}))


def test_it_has_no_budget_that_could_change(runtime: Runtime) -> None:
    with pytest.raises(CapabilityError, match="set where it runs"):
        runtime.change_budget(1 << 28)
    runtime.empty()
    assert runtime.budget_groups() == {}
