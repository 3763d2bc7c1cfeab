import pytest

from pgherd.metrics.cgroup_cpu import SAMPLER
from pgherd.metrics.cpu import TICKS
from pgherd.metrics.sampler import ContainerView, GroupView, View

A = "container:a"


def test_reads_v1(parsed) -> None:
    assert parsed("cgroup_cpu", "v1-cpuacct.usage", "v1 usage", A) == {A: {"cpu.usage": pytest.approx(0.339753085)}}
    assert parsed("cgroup_cpu", "v1-cpuacct.stat", "v1 stat", A) == {A: {"cpu.user": 6 / TICKS, "cpu.system": 27 / TICKS}}
    throttling = {"cpu.periods": 16, "cpu.throttled_periods": 16, "cpu.throttled": pytest.approx(0.821553106)}
    assert parsed("cgroup_cpu", "v1-cpu.stat", "v1 throttling", A) == {A: throttling}


def test_reads_v2(parsed) -> None:
    assert parsed("cgroup_cpu", "v2-cpu.stat", "v2", A)[A] == pytest.approx(
        {
            "cpu.usage": 12.345678,
            "cpu.user": 8.0,
            "cpu.system": 4.345678,
            "cpu.throttled": 25.0,
            "cpu.periods": 700,
            "cpu.throttled_periods": 350,
        }
    )


def test_a_v2_group_without_the_controller_has_usage_only(parsed) -> None:
    values = parsed("cgroup_cpu", "v2-hybrid-cpu.stat", "v2", A)[A]
    assert values == pytest.approx({"cpu.usage": 0.339753, "cpu.user": 0.065314, "cpu.system": 0.274438})


def test_takes_v1_where_a_container_has_both() -> None:
    hybrid = ContainerView("a", {"cpu": "/c/a", "cpuacct": "/x/a", "memory": "/m/a", "v2": "/u/a"})
    found = SAMPLER.sources(View([hybrid, ContainerView("b", {"v2": "/u/b"}), ContainerView("c", pids=[1])]))
    assert [source.where for source in found] == ["/x/a/cpuacct.usage", "/x/a/cpuacct.stat", "/c/a/cpu.stat", "/u/b/cpu.stat"]


def test_other_groups_are_read_for_their_usage_only() -> None:
    groups = [GroupView("platform:a", {"cpuacct": "/x/a"}), GroupView("platform:b", {"v2": "/u/b"}), GroupView("platform:c", {})]
    found = [(source.entity, source.where, source.tag) for source in SAMPLER.sources(View(groups=groups))]
    assert found == [("platform:a", "/x/a/cpuacct.usage", "v1 usage"), ("platform:b", "/u/b/cpu.stat", "v2")]
