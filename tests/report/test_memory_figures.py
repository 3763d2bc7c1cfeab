import json
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.metrics.processes import PAGE
from pgherd.model.analysis import Analysis
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Phase
from pgherd.model.result import MemoryBalance, PhaseResult, TrialResult
from pgherd.model.run import RunEnvironment, RunRecord, Swap
from pgherd.model.trial import Trial
from pgherd.report import drawing, memory_figures
from pgherd.report.drawing import FigureInputs, FigureUnavailable
from pgherd.report.memory_figures import CACHE, COMPRESSED, IN_SWAP, PRIVATE, REST, SHARED, SWAPPED_IN, TAKEN, rates, read, thinned
from pgherd.store.samples import write_samples

MB, GB, BEGAN = 2.0**20, 2**30, 1_000_000.0


def samples(containers=("a", "b"), *, zram=True):
    """Ten seconds of two containers in 400 MB; what b has grows at the cost of a, whose pages go to swap and come back."""
    for i in range(-2, 11):
        t = BEGAN + i
        inputs = {"a": 250 - 10 * i, "b": 100 + 10 * i}
        yield t, "cgroup_memory", "run-cgroup", {"memory.usage": sum(inputs[name] for name in containers) * MB}
        yield t, "cgroup_memory", "run-cgroup", {"memory.limit": 400 * MB}
        for name in containers:
            usage = inputs[name]
            yield t, "cgroup_memory", f"container:{name}", {"memory.usage": usage * MB}
            parts = {"memory.anon": 20 * MB, "memory.file": (usage - 30) * MB, "memory.shmem": 60 * MB}
            swap = {
                "memory.swap": max(10 * i, 0) * MB * (name == "a"),
                "memory.refaults_anon": 256.0 * (i + 2),
                "memory.refaults_file": 0.0,
            }
            yield t, "cgroup_memory", f"container:{name}", parts | swap
            yield t, "pressure", f"container:{name}", {"psi.memory.some": 0.25 * (i + 2)}
        yield t, "vmstat", "host", {"vm.pswpin": 512.0 * (i + 2), "vm.pswpout": 1024.0 * (i + 2)}
        if zram:
            yield t, "zram", "zram:zram1", {"zram.orig_data": 90 * MB, "zram.mem_used": 30 * MB}
            yield t, "swap", "swap:ours", {"swap.used": 95 * MB}
        yield t, "balloon", "server:a/pg", {"balloon.bytes": 16 * MB}


def result(directory: Path, rows, name="0001", memory=400, point=None) -> TrialResult:
    """A finished trial of two phases with these samples in a run's directory."""
    (directory / "trials" / name).mkdir(parents=True)
    write_samples(directory / "trials" / name, rows)
    host = Host(memory=int(memory * MB), containers=(Container(name="a", runtime="cgroup"), Container(name="b", runtime="cgroup")))
    phases = (Phase(name="first", warmup=2, seconds=5), Phase(name="second", warmup=0, seconds=5))
    trial = Trial(point=point or {"scheme": 3, "rate": 0.4}, deployment=Deployment(hosts=(host,)), phases=phases)
    results = [
        PhaseResult(phase=item.name, start=BEGAN + 5 * i, end=BEGAN + 5 * i + 5, overlap=1, targets=[]) for i, item in enumerate(phases)
    ]
    return TrialResult(id=name, trial=trial, started=BEGAN - 5, ended=BEGAN + 12, phases=results)


def test_everything_of_a_trial(tmp_path) -> None:
    series = read(tmp_path, result(tmp_path, samples()))
    assert series is not None
    assert series.borders == [("first", 0, 5), ("second", 5, 10)] and series.budget == 400 * MB
    for i, (t, free) in enumerate(series.unallocated):
        complete = sum(part[i][1] for parts in series.parts.values() for part in parts.values())
        assert t == i - 2 and complete + free == pytest.approx(400 * MB), "every second adds up to the budget"
    first = {kind: item[2][1] / MB for kind, item in series.parts["a"].items()}
    assert first == pytest.approx({SHARED: 60, CACHE: 160, PRIVATE: 20, REST: 10})
    assert series.swapped["a"][-1] == (10, 100 * MB)
    assert {value for _, value in series.stalled["memory"]["b"]} == {0.25}
    assert {value for _, value in series.refaults["a"]} == {256 * PAGE}
    assert {value for _, value in series.host[SWAPPED_IN]} == {512 * PAGE}
    assert series.ballooned["a/pg"][0][1] == 16 * MB
    assert series.ratio == 3
    assert series.host[IN_SWAP][0][1] == 95 * MB


def test_zswap_where_there_is_no_zram(tmp_path) -> None:
    zswap = [(BEGAN + i, "memory", "host", {"memory.zswap": 10 * MB, "memory.zswapped": 40 * MB}) for i in range(9)]
    series = read(tmp_path, result(tmp_path, [*samples(zram=False), *zswap]))
    assert series is not None and series.ratio == 4
    assert series.host[COMPRESSED][0][1] == 40 * MB and series.host[TAKEN][0][1] == 10 * MB


def test_without_a_budget_or_a_phase_there_is_none(tmp_path) -> None:
    plain = [sample for sample in samples() if sample[2] != "run-cgroup"]
    finished = result(tmp_path, plain)
    assert read(tmp_path, finished) is None
    assert read(tmp_path, finished.model_copy(update={"phases": []})) is None
    assert read(tmp_path / "elsewhere", finished) is None


def test_a_rate_is_over_whole_seconds_and_never_negative() -> None:
    counter = [(0.0, 0.0), (1.0, 10.0), (1.01, 11.0), (2.0, 20.0), (3.0, 5.0), (4.0, 6.0)]
    assert rates(counter) == [(1, 10), (2, 10), (4, 1)], "a reading at a phase border makes no interval"
    assert rates([]) == [] and rates([(0.0, 1.0)]) == []


def test_thinning_keeps_the_mean() -> None:
    series = [(float(i), float(i)) for i in range(100)]
    thin = thinned(series, 10)
    assert len(thin) == 10 and sum(value for _, value in thin) / 10 == pytest.approx(49.5)
    assert thinned(series, 100) is series


def test_parts_never_come_to_more_than_the_whole() -> None:
    memory = {"usage": {"a": [(0.0, 100.0)]}, "anon": {"a": [(0.0, 50.0)]}, "file": {"a": [(0.0, 70.0)]}, "shmem": {"a": [(0.0, 40.0)]}}
    parts = memory_figures._memory_by_kind("a", memory)
    assert sum(part[0][1] for part in parts.values()) == pytest.approx(100)
    assert parts[REST][0][1] == pytest.approx(0)


MB = 2**20
NAMES = ("memory", "swapping", "memory_pressure")


def inputs(directory, results, *, swap=True, memory=800, study="consolidation"):
    around = RunEnvironment(runtime="cgroup", cores=2, memory=memory * MB, swap=Swap(kind="zram", size=MB) if swap else None)
    record = RunRecord(run="r", study=study, options={}, environment=around, started=0, pgherd="0")
    return FigureInputs(record, Analysis(answer="", grade="A"), results, directory)


def test_pages_have_the_size_of_those_of_the_measured_host(tmp_path) -> None:
    given = inputs(tmp_path, [result(tmp_path, samples())])
    facts = HostFacts(hostname="h", kernel="k", cores=2, logical_cpus=2, memory=GB, page_size=16 * PAGE)
    record = given.record.model_copy(update={"hosts": {"local": facts}})
    ((_, series),) = memory_figures._chosen(replace(given, record=record))
    assert {value for _, value in series.host[SWAPPED_IN]} == {512 * 16 * PAGE}
    assert {value for _, value in series.refaults["a"]} == {256 * 16 * PAGE}


def draw(name, given):
    figure = drawing.builders("consolidation")[name](given)
    return figure, json.dumps(drawing.specification(figure, validate=True))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_valid_and_drawn(name, tmp_path) -> None:
    requested = inputs(tmp_path, [result(tmp_path, samples())])
    figure, text = draw(name, requested)
    assert "scheme 3, rate 0.4" in text
    assert drawing.svg(figure, prefix=name).startswith("<svg")


def test_the_stack_names_every_kind_and_phase(tmp_path) -> None:
    figure, text = draw("memory", inputs(tmp_path, [result(tmp_path, samples())]))
    assert figure.title == "Containers share 400 MB; one has up to 100 MB swapped out"
    for message in ("a: shared memory", "b: page cache", "first", "second", "a/pg: in its balloon"):
        assert message in text
    assert figure.sources == (drawing.SAMPLES,)


def test_what_was_accounted_for_is_said(tmp_path) -> None:
    finished = result(tmp_path, samples())
    account = MemoryBalance(seconds=5, worst=-0.0123, worst_at=0, budget=1, containers=1, unallocated=0)
    finished = finished.model_copy(update={"phases": [phase.model_copy(update={"memory": account}) for phase in finished.phases]})
    figure, _ = draw("memory", inputs(tmp_path, [finished]))
    assert "within 1.23 % in every second" in figure.caption


def test_compression_and_waiting_are_in_the_titles(tmp_path) -> None:
    requested = inputs(tmp_path, [result(tmp_path, samples())])
    assert draw("swapping", requested)[0].title == "The run's swap holds up to 90 MB, compressed 3.0 times at its largest"
    assert draw("memory_pressure", requested)[0].title == "Tasks of b wait for memory up to 25 % of a second: scheme 3, rate 0.4"


def test_trials_of_least_memory_that_differ_in_one_thing_stand_beside_each_other(tmp_path) -> None:
    points = [({"scheme": 1, "rate": 0.4}, 400), ({"scheme": 3, "rate": 0.4}, 400), ({"scheme": 3, "rate": 0.0}, 800)]
    results = [result(tmp_path, samples(), name=f"000{i}", memory=memory, point=point) for i, (point, memory) in enumerate(points, 1)]
    _, text = draw("memory", inputs(tmp_path, results))
    assert "scheme 1, rate 0.4" in text and "scheme 3, rate 0.4" in text and "rate 0.0" not in text and "rate 0:" not in text


def test_many_containers_are_one_band_each(tmp_path) -> None:
    def rows():
        for row in samples():
            yield row
            if row[2] == "container:b":
                yield from ((row[0], row[1], f"container:{name}", row[3]) for name in "cdef")

    _, text = draw("memory", inputs(tmp_path, [result(tmp_path, rows())]))
    assert '"band": "c"' in text.replace("\\", "") and "page cache: " not in text and "c: shared memory" not in text


def test_other_runs_miss_nothing(tmp_path) -> None:
    finished = result(tmp_path, samples())
    for requested in (inputs(tmp_path, [finished], swap=False, memory=400), inputs(None, [finished])):
        with pytest.raises(FigureUnavailable) as reason:
            draw("memory", requested)
        assert str(reason.value) == ""
    with pytest.raises(FigureUnavailable, match="no finished trial"):
        draw("memory", inputs(tmp_path, [finished.model_copy(update={"phases": []})]))


def test_less_memory_alone_is_reason_enough(tmp_path) -> None:
    finished = result(tmp_path, samples(zram=False))
    requested = inputs(tmp_path, [finished], swap=False)
    assert draw("memory", requested)[0].title
    with pytest.raises(FigureUnavailable, match="no private swap"):
        draw("swapping", requested)
