import pytest

from pgherd.host.kernel_files import TICKS
from pgherd.metrics import cgroup
from pgherd.metrics.cgroup import CGROUP_CPU, CGROUP_IO, CGROUP_MEMORY
from pgherd.metrics.sampler import CgroupView, ContainerView, SamplingView
from pgherd.node.protocol import SampleSource

# ---- accounting


@pytest.mark.parametrize(
    ("groups", "cpu", "memory"),
    [
        ({}, None, None),
        ({"v2": "/u/a"}, ("v2", "/u/a"), ("v2", "/u/a")),
        ({"cpuacct": "/c/a", "memory": "/m/a", "v2": "/u/a"}, ("v1", "/c/a"), ("v1", "/m/a")),
        ({"memory": "/m/a"}, None, ("v1", "/m/a")),
        ({"cpu": "/c/a"}, None, None),
    ],
)
def test_v1_counts_where_a_container_has_both(groups, cpu, memory) -> None:
    assert cgroup.cpu(groups) == cpu
    assert cgroup.memory(groups) == memory


# ---- CPU


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
    found = CGROUP_CPU.sources(SamplingView([hybrid, ContainerView("b", {"v2": "/u/b"}), ContainerView("c", pids=[1])]))
    assert [source.where for source in found] == ["/x/a/cpuacct.usage", "/x/a/cpuacct.stat", "/c/a/cpu.stat", "/u/b/cpu.stat"]


def test_other_groups_are_read_for_their_usage_only() -> None:
    groups = [CgroupView("platform:a", {"cpuacct": "/x/a"}), CgroupView("platform:b", {"v2": "/u/b"}), CgroupView("platform:c", {})]
    found = [(source.entity, source.where, source.tag) for source in CGROUP_CPU.sources(SamplingView(groups=groups))]
    assert found == [("platform:a", "/x/a/cpuacct.usage", "v1 usage"), ("platform:b", "/u/b/cpu.stat", "v2")]


# ---- memory


def test_reads_v1_of_cgroup_memory(parsed) -> None:
    assert parsed("cgroup_memory", "v1-memory.usage_in_bytes", "usage", A) == {A: {"memory.usage": 1925120}}
    assert parsed("cgroup_memory", "v1-memory.usage_in_bytes", "kernel", A) == {A: {"memory.kernel": 1925120}}
    assert parsed("cgroup_memory", "v1-memory.oom_control", "events", A) == {A: {"memory.oom_kills": 0}}
    values = parsed("cgroup_memory", "v1-memory.stat", "v1 stat", A)[A]
    assert values.pop("memory.active_file") + values.pop("memory.inactive_file") == 221184, "all of its page cache"
    assert values == {
        "memory.anon": 1232896,
        "memory.file": 221184,
        "memory.shmem": 0,
        "memory.swap": 0,
        "memory.refaults_file": 54,
        "memory.refaults_anon": 0,
        "memory.page_faults": 472,
        "memory.major_page_faults": 6,
    }


def test_reads_v2_of_cgroup_memory(parsed) -> None:
    assert parsed("cgroup_memory", "v1-memory.usage_in_bytes", "swap", A) == {A: {"memory.swap": 1925120}}
    values = parsed("cgroup_memory", "v2-memory.stat", "v2 stat", A)[A]
    expected = {
        "memory.anon": 335544320,
        "memory.file": 629145600,
        "memory.shmem": 545259520,
        "memory.refaults_file": 4242,
        "memory.refaults_anon": 17,
        "memory.page_faults": 1234567,
        "memory.major_page_faults": 321,
    }
    assert {name: values[name] for name in expected} == expected


def test_swapping_of_a_group_where_the_kernel_tells(parsed) -> None:
    source = SampleSource("cgroup_memory", A, "file", "/x", tag="v2 stat")
    assert list(CGROUP_MEMORY.parse("anon 1\npswpin 7\npswpout 9\n", source)) == [
        (A, {"memory.anon": 1, "memory.swapped_in_pages": 7, "memory.swapped_out_pages": 9})
    ]


@pytest.mark.parametrize(("raw", "read"), [("838860800\n", 838860800), ("max\n", None), ("9223372036854771712\n", None)])
def test_a_limit_that_is_none_is_absent(raw, read) -> None:
    found = list(CGROUP_MEMORY.parse(raw, SampleSource("cgroup_memory", "run-cgroup", "file", "/x", tag="limit")))
    assert found == ([] if read is None else [("run-cgroup", {"memory.limit": read})])


def test_takes_v1_where_a_container_has_both_of_cgroup_memory() -> None:
    view = SamplingView([ContainerView("a", {"memory": "/m/a", "v2": "/u/a"}), ContainerView("b", {"v2": "/u/b"}), ContainerView("c")])
    assert [source.where for source in CGROUP_MEMORY.sources(view)] == [
        *(f"/m/a/memory.{file}" for file in ("usage_in_bytes", "stat", "kmem.usage_in_bytes", "oom_control")),
        *(f"/u/b/memory.{file}" for file in ("current", "swap.current", "stat", "events")),
    ]


def test_the_group_around_all_is_read_right_before_its_containers() -> None:
    view = SamplingView([ContainerView("a", {"memory": "/m/r/a"})], run_cgroup={"memory": "/m/r"})
    found = CGROUP_MEMORY.sources(view)
    usages = [(source.entity, source.where) for source in found if source.tag == "usage"]
    assert usages == [("run-cgroup", "/m/r/memory.usage_in_bytes"), (A, "/m/r/a/memory.usage_in_bytes")]
    assert [source.where for source in found if source.tag == "limit"] == ["/m/r/memory.limit_in_bytes"]


def test_reads_what_changes_slowly_less_often_in_a_herd() -> None:
    view = SamplingView([ContainerView(f"c{i}", {"memory": f"/m/{i}"}) for i in range(40)])
    assert {(source.tag, source.every) for source in CGROUP_MEMORY.sources(view)} == {
        ("usage", 1),
        ("v1 stat", 5),
        ("kernel", 5),
        ("events", 5),
    }


# ---- I/O


def test_reads_io_of_v1_and_v2() -> None:
    view = SamplingView(
        [ContainerView("a", {"blkio": "/b/a"}), ContainerView("b", {"v2": "/u/b", "io": "/u/b"}), ContainerView("c", {"v2": "/u/c"})]
    )
    sources = {(source.entity, source.tag): source for source in CGROUP_IO.sources(view)}
    assert {source.where for source in sources.values()} == {
        "/b/a/blkio.throttle.io_serviced_recursive",
        "/b/a/blkio.throttle.io_service_bytes_recursive",
        "/u/b/io.stat",
    }
    v1 = "254:0 Read 12\n254:0 Write 30\n254:0 Sync 40\n254:0 Async 2\n254:0 Discard 0\n254:0 Total 42\n8:0 Read 1\n8:0 Write 2\nTotal 45\n"
    assert dict(CGROUP_IO.parse(v1, sources[A, "v1 requests"])) == {A: {"reads": 13, "writes": 32}}
    assert dict(CGROUP_IO.parse("254:0 Read 8192\nTotal 8192\n", sources[A, "v1 bytes"])) == {A: {"read_bytes": 8192, "write_bytes": 0}}
    v2 = "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:0 rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n"
    expected = {"reads": 2, "writes": 2, "read_bytes": 4097, "write_bytes": 8192}
    assert dict(CGROUP_IO.parse(v2, sources["container:b", "v2"])) == {"container:b": expected}
    assert dict(CGROUP_IO.parse("", sources["container:b", "v2"])) == {"container:b": dict.fromkeys(expected, 0)}, "no I/O yet"
