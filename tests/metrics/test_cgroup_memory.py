from pgherd.metrics.cgroup_memory import SAMPLER
from pgherd.metrics.sampler import ContainerView, View

A = "container:a"


def test_reads_v1(parsed) -> None:
    assert parsed("cgroup_memory", "v1-memory.usage_in_bytes", "usage", A) == {A: {"memory.usage": 1925120}}
    assert parsed("cgroup_memory", "v1-memory.stat", "v1 stat", A)[A] == {
        "memory.anon": 1232896,
        "memory.file": 221184,
        "memory.shmem": 0,
        "memory.swap": 0,
        "memory.refault_file": 54,
        "memory.refault_anon": 0,
        "memory.fault": 472,
        "memory.majfault": 6,
    }


def test_reads_v2(parsed) -> None:
    assert parsed("cgroup_memory", "v1-memory.usage_in_bytes", "swap", A) == {A: {"memory.swap": 1925120}}
    assert parsed("cgroup_memory", "v2-memory.stat", "v2 stat", A)[A] == {
        "memory.anon": 335544320,
        "memory.file": 629145600,
        "memory.shmem": 545259520,
        "memory.refault_file": 4242,
        "memory.refault_anon": 17,
        "memory.fault": 1234567,
        "memory.majfault": 321,
    }


def test_takes_v1_where_a_container_has_both() -> None:
    view = View([ContainerView("a", {"memory": "/m/a", "v2": "/u/a"}), ContainerView("b", {"v2": "/u/b"}), ContainerView("c")])
    assert [source.where for source in SAMPLER.sources(view)] == [
        "/m/a/memory.usage_in_bytes",
        "/m/a/memory.stat",
        "/u/b/memory.current",
        "/u/b/memory.swap.current",
        "/u/b/memory.stat",
    ]


def test_reads_what_changes_slowly_less_often_in_a_herd() -> None:
    view = View([ContainerView(f"c{i}", {"memory": f"/m/{i}"}) for i in range(40)])
    assert {(source.tag, source.every) for source in SAMPLER.sources(view)} == {("usage", 1), ("v1 stat", 5)}
