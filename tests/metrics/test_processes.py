import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.host.kernel_files import TICKS
from pgherd.metrics import processes
from pgherd.metrics.processes import PAGE, PROCESSES, SHARED_MEMORY
from pgherd.metrics.sampler import ContainerView, ProcessView, SamplingView
from pgherd.node.protocol import SampleSource

# ---- CPU and memory


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
    (reading,) = PROCESSES.parse(line, SampleSource("processes", "pgherd", "file", "/proc/1/stat"))
    assert reading[1]["cpu.usage"] == pytest.approx((2 + 45) / TICKS)


def test_agrees_with_the_process_itself() -> None:
    with open("/proc/self/stat") as file:
        (reading,) = PROCESSES.parse(file.read(), SampleSource("processes", "pgherd", "file", "/proc/self/stat"))
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
    found = PROCESSES.sources(SamplingView(containers, processes=[ProcessView("platform:nfsd", 6), ProcessView("platform:nfsd", 7)]))
    assert [(source.entity, source.kind, source.where) for source in found] == [
        ("container:c", "tree", "3"),
        ("container:c", "tree", "4"),
        ("container:d", "tree", "5"),
        ("platform:nfsd", "file", "/proc/6/stat"),
        ("platform:nfsd", "file", "/proc/7/stat"),
    ]


def test_a_backend_is_read_by_the_schedulers_clock() -> None:
    (source,) = PROCESSES.sources(SamplingView(processes=[ProcessView("backend:a/pg", os.getpid())]))
    assert source.where.endswith("/schedstat")
    assert list(PROCESSES.parse("1234567890 55 7\n", source)) == [("backend:a/pg", {"cpu.usage": 1.23456789})]
    with pytest.raises(ValueError, match="schedstat"):
        list(PROCESSES.parse("1 2", source))


@pytest.mark.parametrize("raw", ["", "1 (x) S 1 2 3", "no parentheses " + "1 " * 40, "1 (x) S " + "x " * 40])
def test_refuses_other_text(raw: str) -> None:
    with pytest.raises(ValueError):
        list(PROCESSES.parse(raw, SampleSource("processes", "pgherd", "file", "/x")))


# ---- shared memory


FIXTURES = Path(__file__).parents[1] / "fixtures/metrics"
SOURCE = SHARED_MEMORY.once("db01/pg", 4711)
MB = 2**20


def reading(name: str) -> dict[str, float]:
    [(entity, values)] = SHARED_MEMORY.parse((FIXTURES / name).read_text(), SOURCE)
    assert entity == "server:db01/pg"
    return values


@pytest.mark.parametrize(
    ("name", "size", "mapped", "huge"),
    [
        ("smaps-ordinary", 4096, 23212 * 1024, 0),
        ("smaps-2mb", 2 * MB, (28672 + 268288) * 1024, (28672 + 268288) * 1024),
        ("smaps-1gb", 1024 * MB, 2048 * MB, 2048 * MB),
        ("smaps-thp", 4096, None, None),
    ],
)
def test_real_memory_maps(name: str, size: int, mapped: int | None, huge: int | None) -> None:
    found = reading(name)
    assert found["pages.size"] == size
    if mapped is not None:
        assert (found["pages.mapped"], found["pages.huge"], found["pages.reserved"]) == (mapped, huge, huge)
    else:
        assert found["pages.reserved"] == 0
        assert 0.9 * found["pages.mapped"] <= found["pages.huge"] <= found["pages.mapped"]


def test_it_is_read_once_and_not_while_a_trial_runs() -> None:
    assert SHARED_MEMORY.sources(SamplingView()) == []
    assert SOURCE.where == "/proc/4711/smaps" and SOURCE.sampler == SHARED_MEMORY.name


def test_a_process_without_shared_memory_has_no_reading() -> None:
    text = "7fff2e774000-7fff2e795000 rw-p 00000000 00:00 0   [stack]\nSize:  132 kB\nRss:  20 kB\n"
    assert list(SHARED_MEMORY.parse(text, SOURCE)) == []
    assert list(SHARED_MEMORY.parse("", SOURCE)) == []


def test_the_largest_mapping_counts() -> None:
    def entry(name: str, size: int) -> str:
        return f"7f0000000000-7f0000001000 rw-s 00000000 00:01 5   {name}\nSize: {size} kB\nKernelPageSize: 4 kB\nRss: {size} kB\n"

    text = entry("/SYSV0 (deleted)", 4) + entry("/dev/zero (deleted)", 900) + entry("/home/file", 5000) + entry("/dev/shm/x", 5000)
    [(_, values)] = SHARED_MEMORY.parse(text, SOURCE)
    assert values["pages.mapped"] == 900 * 1024


@given(st.text())
def test_other_text_is_refused_or_skipped(text: str) -> None:
    try:
        assert list(SHARED_MEMORY.parse(text, SOURCE)) == []
    except ValueError as error:
        assert "smaps" in str(error) or "count" in str(error)


# ---- TLB misses


TLB_SOURCE = SampleSource("tlb", "server:db01/pg", "file", "perf.txt")
# The form of perf stat -x; -I (perf-stat(1), CSV FORMAT), as in the captured text beside it; no machine with counters was at hand.
COUNTED = """# started on Sun Nov 22 03:23:01 2026

     0.500126083;1000;;dTLB-load-misses:u;500000000;83.20;;
     0.500126083;200;;dTLB-store-misses:u;500000000;83.20;;
     0.500126083;700;;dtlb_load_misses.walk_completed;500000000;83.20;;
     0.500126083;100;;dtlb_store_misses.walk_completed;500000000;83.20;;
     0.500126083;9000000;;cycles;500000000;83.20;;
     1.000226083;<not counted>;;dTLB-load-misses:u;0;100.00;;
     1.000226083;50;;dTLB-store-misses:u;500000000;83.20;;
     1.000226083;10;;dtlb_load_misses.walk_completed;500000000;83.20;;
     1.000226083;5;;dtlb_store_misses.walk_completed;500000000;83.20;;
     1.000226083;1000000;;cycles;500000000;83.20;;
     1.500326083;77;;dTLB-lo"""


def test_what_a_virtual_machine_shows_is_nothing() -> None:
    """Captured where the processor's counters are not passed on; the other events are none of ours."""
    text = (FIXTURES / "perf-stat-virtual-machine.txt").read_text()
    assert "<not supported>" in text
    assert list(processes.tlb_intervals(text)) == [] and list(processes.tlb_readings(text, 100.0, "server:a")) == []


def test_intervals_and_growing_counters() -> None:
    found = list(processes.tlb_intervals(COUNTED))
    assert [at for at, _ in found] == [0.500126083, 1.000226083]
    assert found[0][1] == {"tlb.load_misses": 1000, "tlb.store_misses": 200, "tlb.walks": 800, "tlb.cycles": 9e6}
    assert found[1][1] == {"tlb.load_misses": 0, "tlb.store_misses": 50, "tlb.walks": 15, "tlb.cycles": 1e6}
    grown = list(processes.tlb_readings(COUNTED, 100.0, "server:a"))
    assert [(round(t, 3), sampler, entity) for t, sampler, entity, _ in grown] == [
        (100.0, "tlb", "server:a"), (100.5, "tlb", "server:a"), (101.0, "tlb", "server:a")
    ]  # fmt: skip
    assert [values["tlb.walks"] for *_, values in grown] == [0, 800, 815]
    [(entity, totals)] = processes.TLB.parse(COUNTED, TLB_SOURCE)
    assert entity == "server:db01/pg" and totals["tlb.store_misses"] == 250


def test_both_kinds_of_cores_count() -> None:
    raw = "0.5;1000;;cpu_core/dTLB-load-misses/;1;100;;\n0.5;50;;cpu_atom/dTLB-load-misses/u;1;100;;\n0.5;9;;cpu_core/cycles/;1;100;;\n"
    assert list(processes.tlb_intervals(raw)) == [(0.5, {"tlb.load_misses": 1050, "tlb.cycles": 9})]


def test_every_event_leads_to_a_metric_of_the_sampler() -> None:
    assert set(processes.TLB_EVENTS) == {metric.name for metric in processes.TLB.metrics}


@pytest.mark.parametrize("text", ["no perf", "x;1;;cycles;1;100"])
def test_text_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="perf stat"):
        list(processes.tlb_intervals(text))


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    try:
        list(processes.tlb_intervals(text))
    except ValueError as error:
        assert "perf stat" in str(error)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_counters_never_fall_and_end_at_the_sum(counts: list[int]) -> None:
    text = "".join(f"{index + 1}.5;{count};;cycles;1;100.00;;\n" for index, count in enumerate(counts))
    values = [found["tlb.cycles"] for *_, found in processes.tlb_readings(text, 0.0, "x")]
    assert values == sorted(values) and values[-1] == sum(counts) and len(values) == len(counts) + 1
