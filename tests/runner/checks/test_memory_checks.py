from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import MemoryBalance, OomKill, PhaseResult
from pgherd.model.trial import Trial
from pgherd.runner.checks.memory_checks import ACCOUNTED, NO_OOM_KILL, judge, words

MB = 2**20


def trial(runtime="cgroup"):
    containers = (Container(name="a", runtime=runtime),)
    return Trial(point={"x": 1}, deployment=Deployment(hosts=(Host(containers=containers),)), phases=(Phase(),))


def phase(worst):
    account = None
    if worst is not None:
        account = MemoryBalance(seconds=9, worst=worst, worst_at=5.0, budget=100 * MB, containers=80 * MB, unallocated=20 * MB)
    return PhaseResult(phase="p", start=0, end=10, overlap=1, targets=[], memory=account)


def verdicts(*args):
    return {verdict.name: verdict for verdict in judge(*args, Thresholds())}


def test_the_worst_second_of_all_phases_decides():
    found = verdicts(trial(), [phase(0.001), phase(-0.015), phase(None)], ())
    assert found[ACCOUNTED].result == "pass"
    assert "1.50% too much in the worst of 9 seconds: containers 80 MB + unallocated 20 MB of 100 MB" in found[ACCOUNTED].observed
    failed = verdicts(trial(), [phase(0.001), phase(0.03)], ())[ACCOUNTED]
    assert (failed.result, failed.severity) == ("fail", "warn")
    assert "3.00% missing" in failed.observed and failed.reason


def test_the_threshold_can_be_changed():
    (verdict, _) = judge(trial(), [phase(0.03)], (), Thresholds(max_unaccounted_memory=0.05))
    assert verdict.result == "pass" and "5.0%" in verdict.expected


def test_nothing_is_said_where_nothing_counts():
    assert verdicts(trial("process"), [phase(None)], ()) == {}
    assert set(verdicts(trial(), [phase(None)], ())) == {NO_OOM_KILL}
    assert verdicts(trial("vm"), [phase(0.03)], ())[ACCOUNTED].result == "fail", "guests run in control groups"
    assert verdicts(trial(), [], ()) == {}, "it ended for another reason"


def test_an_oom_kill_fails_and_says_who():
    kills = (OomKill(container="a", processes=2, time=3.0, names=("postgres (12)",), limit="run"),)
    found = verdicts(trial(), [], kills)[NO_OOM_KILL]
    assert (found.result, found.severity) == ("fail", "taint")
    assert found.observed == "a: postgres (12) and 1 more killed, at the limit of all containers together"
    assert verdicts(trial(), [phase(0.0)], ())[NO_OOM_KILL].result == "pass"


def test_words_of_a_kill_that_the_log_does_not_tell_of():
    assert words(OomKill(container="a", processes=1, time=3.0)) == "a: 1 process killed"
    assert words(OomKill(container="a", processes=2, time=3.0, limit="container")) == "a: 2 processes killed, at the container's limit"
