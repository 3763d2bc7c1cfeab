import json

import pytest
from pydantic import ValidationError

from pgherd.studies.exec.options import ExtractedValue, propose
from pgherd.studies.exec.study import STUDY


def test_the_load_carries_the_command_and_all_about_it(options):
    values = ({"name": "rate", "pattern": r"(\d+)", "unit": "MB/s"},)
    load = options(env={"A": "1"}, cwd="/src", as_root=True, extract=values).load()
    assert load.driver == "command" and json.loads(load.options["argv"]) == ["make", "-j2"]
    assert {name: value for name, value in load.options.items() if name != "argv"} == {
        "env:A": "***",
        "cwd": "/src",
        "privileged": "1",
        "value:rate": r"(\d+)",
    }
    assert options().load().options == {"argv": '["make", "-j2"]'}


def test_every_host_is_in_the_deployment(options):
    assert [host.name for host in options(hosts=("a", "b")).deployment().hosts] == ["a", "b"]


@pytest.mark.parametrize("pattern", ["(", "(a)(b)", "[z-a]"])
def test_a_pattern_has_to_be_one(pattern):
    with pytest.raises(ValidationError):
        ExtractedValue(name="v", pattern=pattern)


def test_a_group_that_does_not_capture_is_none():
    assert ExtractedValue(name="v", pattern=r"(?:a|b)=(\d+)").pattern == r"(?:a|b)=(\d+)"


def test_no_command_is_refused(options):
    with pytest.raises(ValidationError):
        options(command=())


def test_one_that_ends_by_itself_ends_its_phase(options):
    proposal = propose(options(timeout=30.0), [])
    assert [trial.key() for trial in proposal.trials] == [f"hosts=1#{repeat}" for repeat in range(5)]
    (phase,) = proposal.trials[0].phases
    assert phase.until == "drivers" and phase.seconds == 30 and phase.warmup == 0 and set(phase.loads) == {"local"}
    assert proposal.trials[0].open_ended and proposal.trials[0].seconds() == 0
    assert proposal.trials[0].validity_checks == ("exit-code",)


def test_one_that_runs_on_is_ended_by_the_clock(options):
    trial = propose(options(duration=10.0, warmup=2.0), []).trials[0]
    assert trial.phases[0].until == "clock" and trial.seconds() == 12 and not trial.open_ended


def test_values_have_to_be_found(options):
    trial = propose(options(extract=({"name": "rate", "pattern": "x"},)), []).trials[0]
    assert trial.validity_checks == ("exit-code", "values-extracted")


def test_every_host_does_it_in_the_same_phase(options):
    trial = propose(options(hosts=("a", "b")), []).trials[0]
    assert set(trial.phases[0].loads) == {"a", "b"} and trial.point == {"hosts": 2}


def test_it_stops_when_all_are_done(options, results):
    study_options = options()
    assert "all planned trials are done" in propose(study_options, results(study_options)).stop


def test_what_failed_is_run_again(options, results):
    study_options = options()
    again = propose(study_options, results(study_options, tainted=(1,))).trials
    assert len(again) == 1 and "rerun of tainted hosts=1#1" in again[0].reason


def test_a_budget_is_spent_by_what_trials_really_take(options, results):
    study_options = options(time_budget=30.0, repeats=8)
    finished = results(options())[:1]
    assert len(propose(study_options, []).trials) == 1, "before one has run nobody knows how long they take"
    assert len(propose(study_options, finished).trials) == 1
    few = results(options(), duration=14.0)[:2]
    assert "the budget of 30 s is used up" in propose(study_options, few).stop


def test_what_is_left_of_a_budget_makes_a_duration_surer_but_no_window(options, results):
    sure, unsure = results(options(), spread=0.0001), results(options(), spread=0.1)
    study_options = options(time_budget=200.0)
    assert "done" in propose(study_options, sure).stop
    assert "adaptive" in propose(study_options, unsure).trials[0].reason
    window = options(duration=4.0, time_budget=200.0)
    assert "done" in propose(window, results(window)).stop


def test_it_is_a_study():
    assert STUDY.name == "exec"
