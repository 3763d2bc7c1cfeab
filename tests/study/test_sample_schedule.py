from pgherd.model.deployment import Deployment, Host
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.study.sample_schedule import propose

PLAN = tuple(Trial(point={"n": n}, deployment=Deployment(hosts=(Host(),)), phases=(), probe="database-size") for n in range(4))


def _results(*seconds):
    return [TrialResult(id=f"{n:04d}", trial=PLAN[n], started=100, ended=100 + took) for n, took in enumerate(seconds)]


def test_without_a_budget_all_that_remain_are_one_batch():
    assert propose(PLAN, [], None, "done").trials == PLAN
    assert propose(PLAN, _results(9, 9), None, "done").trials == PLAN[2:]
    assert propose(PLAN, _results(1, 1, 1, 1), None, "done").stop == "done"


def test_the_longest_trial_so_far_must_fit_into_the_rest():
    assert propose(PLAN, [], 1.0, "done").trials == PLAN[:1], "the first always runs"
    assert propose(PLAN, _results(3), 6.0, "done").trials == PLAN[1:2]
    assert propose(PLAN, _results(3, 1), 6.0, "done").stop == "the budget of 6 s is used up; 2 of 4 planned trials were run"
    assert propose(PLAN, _results(3, 1), 7.0, "done").trials == PLAN[2:3]
    assert propose(PLAN, _results(9, 9, 9, 9), 6.0, "done").stop == "done"
