import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.sampler import (
    MANY_CONTAINERS,
    ContainerView,
    ProcessView,
    SamplingView,
    ServerView,
    cadence,
    metric,
    metrics,
    samplers,
    sources,
)
from pgherd.node.protocol import SampleSource

TAGS = ["", "cpu", "usage", "swap", "tree", "v1 usage", "v1 stat", "v1 throttling", "v2", "v2 stat"]
KINDS = ["cgroup_cpu", "cgroup_memory", "cpu", "database", "diskstats", "memory", "pg_io", "pressure", "processes", "vmstat"]


def test_finds_every_sampler_by_its_own_name() -> None:
    assert set(KINDS) <= set(samplers())
    assert all(name == sampler.name for name, sampler in samplers().items())


def test_one_name_means_the_same_everywhere() -> None:
    for sampler in samplers().values():
        for one in sampler.metrics:
            known = metric(one.name)
            assert (known.unit, known.kind, known.resets) == (one.unit, one.kind, one.resets)
    assert metric("cpu.usage").kind == "counter"
    assert metric("memory.rss").kind == "gauge"
    with pytest.raises(KeyError):
        metric("cpu.nothing")


def test_two_meanings_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace
    from types import SimpleNamespace

    from pgherd.metrics import sampler

    wrong = SimpleNamespace(name="wrong", metrics=[replace(metric("cpu.usage"), unit="ms")])
    monkeypatch.setattr(sampler, "samplers", lambda: {**samplers(), "wrong": wrong})
    metrics.cache_clear()
    with pytest.raises(ValueError, match="'wrong' defines cpu.usage"):
        metrics()
    metrics.cache_clear()


def test_an_empty_view_is_a_host() -> None:
    assert {source.sampler for source in sources(SamplingView())} == {"cpu", "memory", "vmstat", "pressure", "diskstats"}


def test_every_source_names_its_sampler_and_is_read_once() -> None:
    view = SamplingView(
        [ContainerView("a", {"v2": "/g/a"}), ContainerView("b", pids=[10, 11])],
        [ServerView("a/pg", "host=/s", 18, 10)],
        [ProcessView("pgherd", 12)],
    )
    found = sources(view)
    assert all(source.sampler in samplers() for source in found)
    assert len({(source.kind, source.where, source.statement) for source in found}) == len(found)


def test_no_statement_runs_on_a_server_that_should_be_idle() -> None:
    servers = [ServerView(f"{name}/pg", f"host=/{name}", 18, 10, waits=True, quiet=name == "idle") for name in ("idle", "busy")]
    view = SamplingView([ContainerView("idle", {}, [10], quiet=True), ContainerView("busy", {}, [11])], servers)
    found = sources(view)
    assert {source.where for source in found if source.kind == "sql"} == {"host=/busy"}
    assert [(source.entity, source.where) for source in found if source.sampler == "wakeups"] == [("container:idle", "10")]


@given(st.sampled_from(KINDS), st.sampled_from(TAGS), st.text())
def test_text_of_another_kind_is_a_value_error_or_skipped(sampler: str, tag: str, raw: str) -> None:
    try:
        readings = list(samplers()[sampler].parse(raw, SampleSource(sampler, "e", "file", "/x", tag=tag)))
    except ValueError:
        return
    names = {one.name for one in samplers()[sampler].metrics}
    assert all(set(values) <= names for _, values in readings)


def test_what_exists_once_per_container_is_read_less_often_when_there_are_many() -> None:
    assert (cadence(1), cadence(MANY_CONTAINERS), cadence(MANY_CONTAINERS + 1)) == (1, 1, 5)
