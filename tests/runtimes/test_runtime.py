from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.deployment import Container
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.runtimes.runtime import CpuAssignment


def container(vcpus: float | None = None, cpus: tuple[int, ...] | None = None) -> Container:
    return Container(name="db", vcpus=vcpus, cpus=cpus, cpu_mode="cpuset")


def test_round_robin() -> None:
    placement = CpuAssignment((0, 1, 2, 3, 4))
    assert [placement.place(container(2)) for _ in range(4)] == [(0, 1), (2, 3), (0, 4), (1, 2)]


@given(st.integers(1, 16), st.lists(st.integers(1, 16), max_size=20))
def test_cpus_are_used_evenly(size: int, wanted: list[int]) -> None:
    placement = CpuAssignment(range(size))
    use = dict.fromkeys(range(size), 0)
    for count in wanted:
        if count <= size:
            given_cpus = placement.place(container(count))
            assert len(set(given_cpus)) == count
            for cpu in given_cpus:
                use[cpu] += 1
    assert max(use.values()) - min(use.values()) <= 1


def test_named_cpus() -> None:
    assert CpuAssignment((0, 1, 2)).place(container(cpus=(2, 0))) == (2, 0)
    with pytest.raises(CapabilityError, match="asks for CPU 7.*has CPUs 0, 1, 2"):
        CpuAssignment((0, 1, 2)).place(container(cpus=(1, 7)))


def test_what_can_not_be_placed() -> None:
    with pytest.raises(CapabilityError, match=r"0\.25 vCPUs.*whole"):
        CpuAssignment((0, 1)).place(container(0.25))
    with pytest.raises(CapabilityError, match="3 vCPUs.*2 CPUs"):
        CpuAssignment((0, 1)).place(container(3))
    with pytest.raises(UsageError, match="neither vcpus nor cpus"):
        CpuAssignment((0, 1)).place(container())
