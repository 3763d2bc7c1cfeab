from __future__ import annotations

import pytest

from pgherd.model.load import Load
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.runner.progress import DEFAULT_OVERHEAD_S, LiveWriter, RunObserver, TimeEstimate, live_trial, open_live_writer
from pgherd.store import live_state
from pgherd.store.live_state import LiveContainer, LivePhase, read_live


def test_before_any_has_run_the_overhead_is_a_guess():
    left = TimeEstimate()
    left.plan(4, 40.0)
    assert left.trials == 4 and left.finished == 0 and left.overhead == DEFAULT_OVERHEAD_S
    assert left.seconds() == pytest.approx(4 * (10 + DEFAULT_OVERHEAD_S))
    assert left.seconds(running=1) == pytest.approx(3 * (10 + DEFAULT_OVERHEAD_S))


def test_then_it_is_the_mean_of_those_that_ran():
    left = TimeEstimate()
    left.plan(4, 40.0)
    left.finish(took=11.0, planned=10.0)
    left.finish(took=13.0, planned=10.0)
    assert left.trials == 2 and left.finished == 2 and left.overhead == 2.0
    assert left.seconds() == pytest.approx(2 * 12.0)
    assert left.seconds(running=5) == 0.0


def test_of_what_has_no_planned_time_nothing_is_told_until_one_has_run():
    left = TimeEstimate()
    left.plan(3, 0.0)
    assert left.overhead is None and left.seconds() is None and left.seconds(running=3) == 0.0
    left.finish(took=5.0, planned=0.0)
    assert left.seconds() == pytest.approx(10.0)


def test_a_new_plan_takes_the_place_of_the_old_one_and_no_plan_takes_none():
    left = TimeEstimate()
    left.plan(3, 30.0)
    left.plan(1, 8.0)
    assert left.trials == 1
    left.plan(0, 0.0)
    assert left.trials == 1
    left.finish(took=9.0, planned=8.0)
    left.finish(took=9.0, planned=8.0)
    assert left.trials == 0 and left.seconds() == 0.0


def test_one_that_failed_early_makes_none_of_less_than_nothing():
    left = TimeEstimate()
    left.plan(2, 20.0)
    left.finish(took=1.0, planned=10.0)
    assert left.overhead == 0.0


class Heard(RunObserver):
    def __init__(self):
        self.calls = []

    def setup(self, what):
        self.calls.append(("setup", what))

    def planned(self, trials, seconds):
        self.calls.append(("planned", trials, seconds))

    def trial(self, trial, number):
        self.calls.append(("trial", number))

    def phase(self, name, ramp, seconds):
        self.calls.append(("phase", name))

    def finished(self, result):
        self.calls.append(("finished", result.id))

    def note(self, text):
        self.calls.append(("note", text))


def trial(phases=2, until="clock"):
    container = {"name": "c01", "vcpus": 0.5, "cpu_mode": "quota", "memory": 2**30, "runtime": "cgroup"}
    free = {"name": "c02", "vcpus": 2, "cpu_mode": "none"}
    hosts = [{"name": "local", "containers": [container, free]}]
    one = {"warmup": 1, "seconds": 9, "loads": {"local": Load(driver="command")}, "until": until}
    return Trial.model_validate(
        {"point": {"databases": 8}, "deployment": {"hosts": hosts}, "phases": [{**one, "name": f"p{n}"} for n in range(phases)]}
    )


def test_each_hook_is_written_and_passed_on(tmp_path):
    heard = Heard()
    with open_live_writer(tmp_path, heard) as told:
        assert read_live(tmp_path).trial is None
        told.output = lambda number: tmp_path / f"out/{number:04d}"
        told.setup("copying")
        assert read_live(tmp_path).step == "copying"
        told.planned(3, 60.0)
        now = read_live(tmp_path)
        assert now.trials_remaining == 3 and now.seconds_left == pytest.approx(3 * 20.7)
        told.trial(trial(), 7)
        now = read_live(tmp_path)
        assert (now.trial.number, now.trial.output, now.step, now.phase) == (7, str(tmp_path / "out/0007"), None, None)
        assert now.trials_remaining == 2 and now.seconds_left == pytest.approx(2 * 20.7)
        told.setup("starting 8 servers")
        assert read_live(tmp_path).step == "starting 8 servers" and read_live(tmp_path).trial is not None
        told.phase("p0", 1, 9)
        first = read_live(tmp_path)
        assert (first.phase, first.step) == (0, None) and first.phase_begun == pytest.approx(first.written, abs=1)
        told.phase("p1", 1, 9)
        assert read_live(tmp_path).phase == 1 and read_live(tmp_path).phase_begun >= first.phase_begun
        told.note("a word")
        told.finished(TrialResult(id="0007", trial=trial(), started=0, ended=22))
        now = read_live(tmp_path)
        assert now.trial is None and now.phase is None and now.trials_remaining == 2
        assert now.overhead == pytest.approx(2.0) and now.seconds_left == pytest.approx(2 * 22.0)
    assert [call[0] for call in heard.calls] == ["setup", "planned", "trial", "setup", "phase", "phase", "note", "finished"]


def test_however_it_ends_nothing_is_left(tmp_path):
    with pytest.raises(RuntimeError), open_live_writer(tmp_path, RunObserver()):
        assert (tmp_path / live_state.FILE).exists()
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_a_full_disk_fails_nothing(tmp_path):
    heard = Heard()
    told = LiveWriter(tmp_path / "gone", heard)
    told.setup("copying")
    told.end()
    assert heard.calls == [("setup", "copying")]


def test_what_is_told_of_a_trial():
    told = live_trial(trial(phases=1, until="drivers"), 3, 50.0, None)
    assert told.containers == {"c01": LiveContainer(vcpus=0.5, memory=2**30), "c02": LiveContainer()}
    phase = LivePhase(name="p0", warmup=1, seconds=9, until="drivers", loads={"local": "command"}, words="1 × command")
    assert told.phases == (phase,)
    assert (told.number, told.point, told.begun, told.output) == (3, {"databases": 8}, 50.0, None)
