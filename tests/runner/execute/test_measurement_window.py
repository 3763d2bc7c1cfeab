"""What phases came to, from what their drivers wrote; tests/runner/execute/test_phases.py drives them."""

import gzip
import json

import pytest

from pgherd.drivers.driver import DriverSpan
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.result import TargetResult
from pgherd.runner.execute import measurement_window as driven_module
from pgherd.runner.execute.measurement_window import DrivenPhases, MeasuredPhase, _parse, memory_account


class Watching:
    """Looks at nothing."""

    def onto(self, results, readings):
        return results


class Ended:
    """A driver that has run; its output says from when to when."""

    started, ended = 9.0, 14.0
    load = Load()

    class process:
        cpu_seconds = 2.5

    def __init__(self, target, words):
        self.target, self.words = target, words

    def files(self):
        return {"stdout": self.words.encode(), "log.1": b"0 1 2\n"}

    def span(self, files, stop):
        if not files["stdout"]:
            raise ValueError("it said nothing")
        return DriverSpan(*map(float, files["stdout"].split()))

    def result(self, files, window):
        return TargetResult(target=self.target, driver="told", transactions=1, throughput=1, first=window.start, last=window.end)


@pytest.fixture
def driven(tmp_path):
    """Two targets in one phase whose measured period was from 10 to 13."""
    (tmp_path / "spool.jsonl").write_text(json.dumps({"sources": [], "first": 0}) + "\n")

    def make(*text):
        running = [Ended(f"x/db{number}/pg/bench", item) for number, item in enumerate(text)]
        return DrivenPhases(tmp_path, [MeasuredPhase(Phase.model_construct(name="p"), 10.0, 13.0, running)], Watching(), [], 0.0)

    return make


def test_the_window_is_where_all_ran(driven, tmp_path):
    item = driven("9.5 13.2", "10.5 12.9")
    (common,) = item.spans()
    assert (common.earliest, common.first, common.last, common.planned) == (9.5, 10.5, 12.9, 3.0)
    (result,) = item.results()
    assert (result.start, result.end, result.skew) == (10.5, 12.9, 1.0)
    assert result.overlap == pytest.approx(0.8)
    first = result.targets[0]
    assert (first.client_cpu_seconds, first.client_cpu) == (2.5, 0.5)
    assert first.raw == ["drivers/00-p/x.db0.pg.bench/log.1.gz", "drivers/00-p/x.db0.pg.bench/stdout"]
    assert gzip.decompress((tmp_path / first.raw[0]).read_bytes()) == b"0 1 2\n"
    assert not (tmp_path / "spool.jsonl").exists()


def test_another_window_may_be_given(driven):
    (result,) = driven("9.5 13.2", "10.5 12.9").results([(11.0, 12.0)])
    assert (result.start, result.end) == (11.0, 12.0) and result.overlap == pytest.approx(1 / 3)


def test_one_target_alone_has_no_skew(driven):
    (result,) = driven("9.5 13.2").results()
    assert result.skew is None and (result.start, result.end) == (10.0, 13.0)


def test_targets_that_never_ran_together(driven):
    with pytest.raises(TrialError, match="never ran together"):
        driven("9.5 11", "12 13").results()


def test_output_that_says_nothing(driven):
    with pytest.raises(TrialError, match="it said nothing"):
        driven("").spans()


def test_a_phase_looks_at_the_readings_around_it_alone(tmp_path, monkeypatch):
    """Of a soak of hours each phase would else go through all of them."""
    lines = [{"sources": [["cpu", "host", "file", "/proc/stat", ""]], "first": 0}]
    lines += [{"t": float(t), "i": 0, "raw": f"cpu {t} 0 0 0 0 0 0 0\n"} for t in range(7200)]
    (tmp_path / "spool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    borders = ((600.0, 660.0), (6600.0, 6660.0))
    played = [
        MeasuredPhase(Phase.model_construct(name=f"p{start:.0f}"), start, end, [Ended("x/a/pg/bench", f"{start} {end}")])
        for start, end in borders
    ]
    observed = []
    monkeypatch.setattr(driven_module.aggregate, "aggregate", lambda readings, start, end: observed.append(len(readings)) or {})
    DrivenPhases(tmp_path, played, Watching(), [], 0.0).results()
    assert observed == [301, 301]


def test_what_has_ended_by_the_last_tick_is_no_failure(tmp_path):
    entities = ("driver:a/disk0", "platform:iperf3", "host")
    (tmp_path / "samples").mkdir()
    lines = [{"sources": [["processes", entity, "file", "/proc/1/stat", ""] for entity in entities], "first": 0}]
    lines += [{"t": 1.0, "i": number, "raw": None, "error": "gone"} for number in range(len(entities))]
    (tmp_path / "spool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _parse(tmp_path, [])
    assert (tmp_path / "samples/not-read.txt").read_text() == "host (/proc/1/stat): 1 times: gone\n"


MB = 2.0**20


def readings(gap=0.0):
    for t in range(5):
        yield t, "cgroup_memory", "run-cgroup", {"memory.usage": 80 * MB}
        yield t + 0.001, "cgroup_memory", "run-cgroup", {"memory.limit": 100 * MB}
        yield t + 0.002, "cgroup_memory", "container:a", {"memory.usage": 50 * MB}
        yield t + 0.002, "cgroup_memory", "container:a", {"memory.swap": 7 * MB}
        yield t + 0.003, "cgroup_memory", "container:b", {"memory.usage": (30 - gap * (t == 2)) * MB}
        yield t + 0.004, "memory", "host", {"memory.usage": 5.0}


def test_every_second_of_the_window_is_looked_at():
    result = memory_account(readings(gap=4), 1, 3)
    assert result is not None
    assert (result.seconds, result.worst, result.worst_at) == (3, pytest.approx(0.04), 2)
    assert (result.budget, result.containers, result.unallocated) == (100 * MB, 76 * MB, 20 * MB)
    outside = memory_account(readings(gap=4), 3, 4)
    assert outside is not None and outside.worst == 0


def test_without_a_budget_there_is_no_account():
    assert memory_account([reading for reading in readings() if reading[2] != "run-cgroup"], 0, 5) is None
    assert memory_account([item for item in readings() if "memory.limit" not in item[3]], 0, 5) is None, "no limit"
    assert memory_account([], 0, 5) is None
