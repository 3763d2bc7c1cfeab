import os

import pytest

from pgherd.host.kernel_files import TICKS
from pgherd.metrics.processes import PAGE, SAMPLER
from pgherd.metrics.sampler import ContainerView, ProcessView, SamplingView
from pgherd.node.protocol import SampleSource


def test_a_name_with_parentheses_and_spaces_is_read(parsed) -> None:
    values = parsed("processes", "pid-stat-odd-name", entity="driver:x")["driver:x"]
    assert values == {"cpu.usage": 0, "cpu.user": 0, "cpu.system": 0, "memory.rss": 421 * PAGE}


def test_a_tree_counts_its_processes_and_those_that_ended(parsed) -> None:
    values = parsed("processes", "tree-postmaster", "tree", "container:a")
    user, system = 2 + 6628 + 11 + 1 + 2 + 1, 45 + 5325 + 15 + 3
    assert values == {
        "container:a": pytest.approx({"cpu.usage": (user + system) / TICKS, "cpu.user": user / TICKS, "cpu.system": system / TICKS})
    }


def test_a_single_process_leaves_ended_children_out(text) -> None:
    line = text("tree-postmaster").splitlines()[0]
    (reading,) = SAMPLER.parse(line, SampleSource("processes", "pgherd", "file", "/proc/1/stat"))
    assert reading[1]["cpu.usage"] == pytest.approx((2 + 45) / TICKS)


def test_agrees_with_the_process_itself() -> None:
    with open("/proc/self/stat") as file:
        (reading,) = SAMPLER.parse(file.read(), SampleSource("processes", "pgherd", "file", "/proc/self/stat"))
    now = os.times()
    assert -1e-6 < now.user + now.system - reading[1]["cpu.usage"] < 1  # sums of floats
    assert reading[1]["memory.rss"] > 1e6


def test_watches_trees_only_where_no_group_counts() -> None:
    containers = [
        ContainerView("a", {"v2": "/g"}, [1]),
        ContainerView("b", {"cpuacct": "/g"}, [2]),
        ContainerView("c", {"memory": "/g"}, [3, 4]),
        ContainerView("d", {}, [5]),
    ]
    found = SAMPLER.sources(SamplingView(containers, processes=[ProcessView("platform:nfsd", 6), ProcessView("platform:nfsd", 7)]))
    assert [(source.entity, source.kind, source.where) for source in found] == [
        ("container:c", "tree", "3"),
        ("container:c", "tree", "4"),
        ("container:d", "tree", "5"),
        ("platform:nfsd", "file", "/proc/6/stat"),
        ("platform:nfsd", "file", "/proc/7/stat"),
    ]


def test_a_backend_is_read_by_the_schedulers_clock() -> None:
    (source,) = SAMPLER.sources(SamplingView(processes=[ProcessView("backend:a/pg", os.getpid())]))
    assert source.where.endswith("/schedstat")
    assert list(SAMPLER.parse("1234567890 55 7\n", source)) == [("backend:a/pg", {"cpu.usage": 1.23456789})]
    with pytest.raises(ValueError, match="schedstat"):
        list(SAMPLER.parse("1 2", source))


@pytest.mark.parametrize("raw", ["", "1 (x) S 1 2 3", "no parentheses " + "1 " * 40, "1 (x) S " + "x " * 40])
def test_refuses_other_text(raw: str) -> None:
    with pytest.raises(ValueError):
        list(SAMPLER.parse(raw, SampleSource("processes", "pgherd", "file", "/x")))
