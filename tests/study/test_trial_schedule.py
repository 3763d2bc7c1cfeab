import pytest

from pgherd.model.analysis import Check
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.database_options import DatabaseOptions, target
from pgherd.study.trial_schedule import MAX_TAINTED_RERUNS, SchedulePlan, propose, propose_once, throughput, worst_case

SECONDS, RAMP = 9.0, 1.0


def _options(**changes):
    known = {
        "host_cores": 2,
        "host_memory": 2**30,
        "vcpus": 1,
        "pg_bin": "/pg/bin",
        "pg_version": "17.1",
        "duration": SECONDS,
        "warmup": RAMP,
    }
    return DatabaseOptions(**known | changes)


def _design(options, points=(1, 2), refine=None, state="warm"):
    deployment = options.deploy(["a"])

    def build(point, repeat, reason):
        phase = Phase(warmup=RAMP, seconds=SECONDS, loads={target("a"): options.load(1)})
        return Trial(point=point, repeat=repeat, reason=reason, deployment=deployment, state=state, phases=(phase,))

    blocks = [tuple(build({"n": n}, repeat, "planned") for n in points) for repeat in range(options.repeats)]
    more = {} if refine is None else {"refine": lambda done: refine(build, done)}
    return SchedulePlan(blocks, [{"n": n} for n in points], build, lambda point: options.repeats, **more)


def _phase(seconds, tps):
    found = TargetResult(target=target("a"), driver="pgbench", transactions=tps * seconds, throughput=tps, first=0.0, last=seconds)
    return PhaseResult(phase="steady", start=0.0, end=seconds, overlap=1.0, targets=[found])


def _result(trial, number, *, tainted=(), extra=0.0, tps=100.0, kind="noise"):
    verdicts = [Check(name=check, kind=kind, result="fail", observed="", expected="") for check in tainted]
    phases = [_phase(SECONDS, tps)]
    ended = trial.seconds() + extra
    return TrialResult(id=f"{number:04d}", trial=trial, started=0.0, ended=ended, phases=phases, checks=verdicts)


def _play(options, design, how=lambda trial, number: {}, *, one_by_one=False):
    """Run a whole study; ``how`` gives each trial's fate."""
    results = []
    while True:
        proposal = propose(options, design, results)
        if proposal.stop is not None:
            return results, proposal
        assert proposal.max_trials is None or len(results) + len(proposal.trials) <= proposal.max_trials
        for trial in proposal.trials[: 1 if one_by_one else None]:
            results.append(_result(trial, len(results), **how(trial, len(results))))


def test_what_surely_fits_is_one_batch():
    options = _options(time_budget=1000)
    assert len(propose(options, _design(options), []).trials) == 6


def test_servers_that_restart_are_decided_block_by_block():
    options = _options(time_budget=1000)
    assert len(propose(options, _design(options, state="restarted"), []).trials) == 2


def test_without_a_budget_only_the_plan_and_reruns_are_run():
    options = _options()
    results, proposal = _play(options, _design(options))
    assert len(results) == 6 and proposal.stop == "all planned trials are done"
    assert worst_case(options, _design(options)) == 6 + options.max_reruns


def test_a_budget_too_small_runs_the_first_block_and_says_so():
    options = _options(time_budget=15)
    results, proposal = _play(options, _design(options))
    assert len(results) == 2 and "2 of 6 planned trials" in proposal.stop


def test_a_tainted_trial_is_run_again_under_a_key_of_its_own():
    options = _options()
    results, _ = _play(options, _design(options), lambda trial, number: {"tainted": ["steal"]} if trial.key() == "n=2#1" else {})
    (rerun,) = [result.trial for result in results if result.trial.reason != "planned"]
    assert (rerun.key(), rerun.reason) == ("n=2#3", "rerun of tainted n=2#1: failed steal")


def test_hopeless_points_are_left():
    options = _options(max_reruns=50)
    results, _ = _play(options, _design(options), lambda trial, number: {"tainted": ["steal"]} if trial.point["n"] == 2 else {})
    assert sum(result.trial.reason.startswith("rerun") for result in results) == MAX_TAINTED_RERUNS


def test_an_intent_that_always_fails_is_not_run_again():
    options = _options()
    results, _ = _play(options, _design(options), lambda trial, number: {"tainted": ["cached"], "kind": "validity"})
    assert len(results) == 6


def test_what_is_left_of_the_budget_goes_to_the_least_certain_point():
    options = _options(time_budget=150)

    def how(trial, number):
        return {"tps": 100.0 + (10.0 * (number % 3) if trial.point["n"] == 2 else 0.0)}

    results, proposal = _play(options, _design(options), how)
    further = [result.trial for result in results if result.trial.reason.startswith("adaptive")]
    assert further and {trial.point["n"] for trial in further} == {2}
    assert sum(result.ended - result.started for result in results) <= 150
    assert len(results) == len({result.trial.key() for result in results})
    assert proposal.stop


@pytest.mark.parametrize(("repeats", "points"), [(1, (1,)), (2, (1, 2))])
def test_a_number_of_repeats_that_the_user_gave_is_kept(repeats, points):
    options = _options(repeats=repeats, fixed_repeats=True, time_budget=600.0)
    design = _design(options, points=points)
    results, proposal = _play(options, design, lambda trial, number: {"tps": 100.0 + 20 * (number % 3)})
    assert len(results) == repeats * len(points) and proposal.stop == "all planned trials are done"
    assert worst_case(options, design) == repeats * len(points) + options.max_reruns
    # A tainted trial is replaced all the same.
    results, _ = _play(options, design, lambda trial, number: {"tainted": ("steal",)} if number == 0 else {})
    assert [result.trial.reason.startswith("rerun") for result in results] == [False] * repeats * len(points) + [True]


def test_a_study_may_want_points_of_its_own_before_further_repeats():
    options = _options(time_budget=100)

    def refine(build, done):
        return [] if any(result.trial.point["n"] == 7 for result in done) else [build({"n": 7}, 0, "adaptive point")]

    results, _ = _play(options, _design(options, refine=refine))
    assert results[6].trial.key() == "n=7#0"
    assert all(result.trial.reason != "adaptive point" for result in results[7:])


def test_an_added_point_that_is_tainted_is_run_again_too():
    options = _options(time_budget=200)

    def refine(build, done):
        return [] if any(result.trial.point["n"] == 7 for result in done) else [build({"n": 7}, 0, "adaptive point")]

    results, _ = _play(
        options, _design(options, refine=refine), lambda trial, number: {"tainted": ["steal"]} if trial.key() == "n=7#0" else {}
    )
    assert "rerun of tainted n=7#0: failed steal" in [result.trial.reason for result in results]


@pytest.mark.parametrize("budget", [None, 60, 120, 300])
def test_interrupted_anywhere_it_goes_on_as_it_would_have(budget):
    options = _options(time_budget=budget)

    def how(trial, number):
        return {"tainted": ["steal"] if number in (1, 4) else [], "tps": 100.0 + trial.repeat, "extra": 0.3}

    whole, _ = _play(options, _design(options), how)
    pieces, _ = _play(options, _design(options), how, one_by_one=True)
    assert [result.trial.key() for result in whole] == [result.trial.key() for result in pieces]


def test_throughput_is_weighted_by_time():
    options = _options()
    trial = _design(options).planned[0]
    phases = [_phase(1.0, 100.0), _phase(3.0, 200.0)]
    assert throughput(TrialResult(id="1", trial=trial, started=0, ended=4, phases=phases)) == 175.0
    assert throughput(TrialResult(id="1", trial=trial, started=0, ended=4)) == 0.0


PLAN = tuple(Trial(point={"n": n}, deployment=Deployment(hosts=(Host(),)), phases=(), probe="database-size") for n in range(4))


def _results(*seconds):
    return [TrialResult(id=f"{n:04d}", trial=PLAN[n], started=100, ended=100 + took) for n, took in enumerate(seconds)]


def test_without_a_budget_all_that_remain_are_one_batch():
    assert propose_once(PLAN, [], None, "done").trials == PLAN
    assert propose_once(PLAN, _results(9, 9), None, "done").trials == PLAN[2:]
    assert propose_once(PLAN, _results(1, 1, 1, 1), None, "done").stop == "done"


def test_a_larger_scale_is_expected_to_take_longer():
    """Scale 50 is expected to take 50 s if scale 10 took 10 s."""
    small, large = (PLAN[0].model_copy(update={"point": {"scale": scale}}) for scale in (10, 50))
    (result,) = _results(10)
    finished = result.model_copy(update={"trial": small})
    assert propose_once((small, large), [finished], 60.0, "done").trials == (large,)
    least = finished.model_copy(update={"trial": PLAN[0].model_copy(update={"point": {"scale": 1}})})
    assert propose_once((small, large), [least, finished], 71.0, "done").trials, "scale 1 took its time for other things"
    stopped = propose_once((small, large), [finished], 59.0, "done")
    assert not stopped.trials and "the budget of 59 s is used up; 1 of 2 planned trials were run" in str(stopped.stop)


def test_the_longest_trial_so_far_must_fit_into_the_rest():
    assert propose_once(PLAN, [], 1.0, "done").trials == PLAN[:1], "the first always runs"
    assert propose_once(PLAN, _results(3), 6.0, "done").trials == PLAN[1:2]
    assert propose_once(PLAN, _results(3, 1), 6.0, "done").stop == "the budget of 6 s is used up; 2 of 4 planned trials were run"
    assert propose_once(PLAN, _results(3, 1), 7.0, "done").trials == PLAN[2:3]
    assert propose_once(PLAN, _results(9, 9, 9, 9), 6.0, "done").stop == "done"
