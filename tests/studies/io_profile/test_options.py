import pytest
from pydantic import ValidationError

from pgherd.model.analysis import Check
from pgherd.studies.io_profile.options import IoProfileOptions, IoProfileRequest
from pgherd.studies.io_profile.study import STUDY

BAD = Check(name="steal", kind="noise", result="fail", observed="9 %", expected="2 %")


def test_several_variants_are_compared(build):
    assert build().single and not build("0.5", "0.9").single
    assert build("0.5", "0.9").of("0.5 (A/A)")["settings"] == {"checkpoint_completion_target": "0.5"}


def test_options_survive_a_record(build):
    options = build("0.5", "0.9", checkpoint_timeout=30.0)
    assert IoProfileOptions.model_validate(options.model_dump(mode="json")) == options


def test_a_variant_is_required():
    with pytest.raises(ValidationError):
        IoProfileOptions(variants=(), baseline="x")


def test_everything_has_a_default():
    request = IoProfileRequest()
    assert request.workload == "tpcb-like" and request.compare_setting is None and request.memory_ratio is None and not request.trace_io


@pytest.mark.parametrize(
    "bad", [{"min_repeats": 3}, {"memory_ratio": 1.0}, {"checkpoints": 0}, {"equivalence_margin": "high"}, {"nonsense": 1}]
)
def test_invalid_options_are_rejected(bad):
    with pytest.raises(ValidationError):
        IoProfileRequest.model_validate(bad)


def test_one_server_is_watched_as_often_as_asked(build, run):
    options = build(repeats=4)
    results = run(options)
    assert [result.trial.repeat for result in results] == [0, 1, 2, 3]
    assert {tuple(result.trial.point.items()) for result in results} == {(("server", "db01"),)}
    assert STUDY.propose(options, results).stop == "4 trials were run"
    assert [trial.repeat for trial in STUDY.propose(options, results[:2]).trials] == [2, 3], "resume goes on where it was"


def test_tainted_trials_are_run_again_within_the_budget(build, run, simulated):
    def first_is_tainted(trial, number):
        return simulated(trial, number).model_copy(update={"checks": [BAD] if number == 0 else []})

    results = run(build(repeats=2), first_is_tainted)
    assert [result.trial.reason for result in results] == ["planned", "planned", "rerun of trial 0001"]
    poor = build(repeats=2).model_copy(update={"time_budget": 100.0})
    assert len(run(poor, first_is_tainted)) == 2
    hopeless = run(build(repeats=2, max_reruns=3), lambda t, n: simulated(t, n).model_copy(update={"checks": [BAD]}))
    assert len(hopeless) == 5


@pytest.mark.parametrize(("budget", "trials"), [(1.0, 1), (140.0, 2), (209.0, 2), (210.0, 3), (9000.0, 3)])
def test_a_budget_of_the_user_is_for_all_trials(build, run, budget, trials):
    """Each takes 70 s. The first one always runs."""
    options = build(fixed_budget=True).model_copy(update={"time_budget": budget})
    results = run(options)
    assert [result.trial.repeat for result in results] == list(range(trials))
    ended = "3 trials were run" if trials == 3 else f"the budget of {budget:g} s is used up; {trials} of 3 planned trials were run"
    assert STUDY.propose(options, results).stop == ended
    assert len(run(build().model_copy(update={"time_budget": budget}))) == 3, "pgherd's limits reruns only"


def test_variants_are_compared_in_blocks(build, run):
    results = run(build("0.5", "0.9"))
    sides = [result.trial.point["variant"] for result in results]
    assert set(sides) == {"0.5", "0.5 (A/A)", "0.9"} and len(sides) % 3 == 0
