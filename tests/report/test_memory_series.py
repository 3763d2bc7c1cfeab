from pathlib import Path

import pytest

from pgherd.metrics.processes import PAGE
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.report import memory_series
from pgherd.report.memory_figures import CACHE, COMPRESSED, IN_SWAP, PRIVATE, REST, SHARED, SWAPPED_IN, TAKEN, rates, read, thinned
from pgherd.store.samples import write_samples

MB, GB, BEGAN = 2.0**20, 2**30, 1_000_000.0


def samples(containers=("a", "b"), *, zram=True):
    """Ten seconds of two containers in 400 MB; what b has grows at the cost of a, whose pages go to swap and come back."""
    for i in range(-2, 11):
        t = BEGAN + i
        given = {"a": 250 - 10 * i, "b": 100 + 10 * i}
        yield t, "cgroup_memory", "budget", {"memory.usage": sum(given[name] for name in containers) * MB}
        yield t, "cgroup_memory", "budget", {"memory.limit": 400 * MB}
        for name in containers:
            usage = given[name]
            yield t, "cgroup_memory", f"container:{name}", {"memory.usage": usage * MB}
            parts = {"memory.anon": 20 * MB, "memory.file": (usage - 30) * MB, "memory.shmem": 60 * MB}
            swap = {"memory.swap": max(10 * i, 0) * MB * (name == "a"), "memory.refault_anon": 256.0 * (i + 2), "memory.refault_file": 0.0}
            yield t, "cgroup_memory", f"container:{name}", parts | swap
            yield t, "pressure", f"container:{name}", {"psi.memory.some": 0.25 * (i + 2)}
        yield t, "vmstat", "host", {"vm.pswpin": 512.0 * (i + 2), "vm.pswpout": 1024.0 * (i + 2)}
        if zram:
            yield t, "zram", "zram:zram1", {"zram.original": 90 * MB, "zram.used": 30 * MB}
            yield t, "swap", "swap:ours", {"swap.used": 95 * MB}
        yield t, "balloon", "server:a/pg", {"balloon.bytes": 16 * MB}


def result(directory: Path, rows, name="0001", memory=400, point=None) -> TrialResult:
    """A finished trial of two phases with these samples in a run's directory."""
    (directory / "trials" / name).mkdir(parents=True)
    write_samples(directory / "trials" / name, rows)
    host = Host(memory=int(memory * MB), containers=(Container(name="a", runtime="cgroup"), Container(name="b", runtime="cgroup")))
    phases = (Phase(name="first", ramp=2, seconds=5), Phase(name="second", ramp=0, seconds=5))
    trial = Trial(point=point or {"scheme": 3, "rate": 0.4}, deployment=Deployment(hosts=(host,)), phases=phases)
    done = [PhaseResult(phase=one.name, start=BEGAN + 5 * i, end=BEGAN + 5 * i + 5, overlap=1, targets=[]) for i, one in enumerate(phases)]
    return TrialResult(id=name, trial=trial, started=BEGAN - 5, ended=BEGAN + 12, phases=done)


def test_everything_of_a_trial(tmp_path) -> None:
    series = read(tmp_path, result(tmp_path, samples()))
    assert series is not None
    assert series.borders == [("first", 0, 5), ("second", 5, 10)] and series.budget == 400 * MB
    for i, (t, free) in enumerate(series.unallocated):
        whole = sum(one[i][1] for parts in series.parts.values() for one in parts.values())
        assert t == i - 2 and whole + free == pytest.approx(400 * MB), "every second adds up to the budget"
    first = {kind: one[2][1] / MB for kind, one in series.parts["a"].items()}
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
    plain = [one for one in samples() if one[2] != "budget"]
    done = result(tmp_path, plain)
    assert read(tmp_path, done) is None
    assert read(tmp_path, done.model_copy(update={"phases": []})) is None
    assert read(tmp_path / "elsewhere", done) is None


def test_a_rate_is_over_whole_seconds_and_never_negative() -> None:
    counter = [(0.0, 0.0), (1.0, 10.0), (1.01, 11.0), (2.0, 20.0), (3.0, 5.0), (4.0, 6.0)]
    assert rates(counter) == [(1, 10), (2, 10), (4, 1)], "what a border read beside the ticks makes no interval"
    assert rates([]) == [] and rates([(0.0, 1.0)]) == []


def test_thinning_keeps_the_mean() -> None:
    series = [(float(i), float(i)) for i in range(100)]
    thin = thinned(series, 10)
    assert len(thin) == 10 and sum(value for _, value in thin) / 10 == pytest.approx(49.5)
    assert thinned(series, 100) is series


def test_parts_never_come_to_more_than_the_whole() -> None:
    memory = {"usage": {"a": [(0.0, 100.0)]}, "anon": {"a": [(0.0, 50.0)]}, "file": {"a": [(0.0, 70.0)]}, "shmem": {"a": [(0.0, 40.0)]}}
    parts = memory_series._parts("a", memory)
    assert sum(one[0][1] for one in parts.values()) == pytest.approx(100)
    assert parts[REST][0][1] == pytest.approx(0)
