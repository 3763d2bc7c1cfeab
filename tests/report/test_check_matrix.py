from __future__ import annotations

from pgherd.model.finding import Verdict
from pgherd.report import check_matrix


def verdict(check, result, kind="noise", **more):
    return Verdict(check=check, kind=kind, result=result, observed=f"{check} was seen", wanted="less", **more)


def trials(run8, *lists):
    first = run8[1][0]
    return [first.model_copy(update={"id": f"{i:04d}", "verdicts": list(found)}) for i, found in enumerate(lists)]


def test_intent_comes_first_and_the_worst_of_several_verdicts_shows(run8):
    results = trials(
        run8,
        [verdict("steal", "pass"), verdict("cached", "pass", "intent"), verdict("steal", "fail"), verdict("steal", "unknown")],
        [verdict("steal", "pass")],
    )
    matrix = check_matrix.matrix(results)
    assert matrix.checks == ("cached", "steal") and matrix.intents == 1
    (_, first), (_, second) = matrix.rows
    assert [cell.result for cell in first] == ["pass", "fail"] and first[1].symbol == "✗"
    assert "fail: steal was seen, wanted less" in first[1].words and "unknown" in first[1].words
    assert [cell.result for cell in second] == ["", "pass"] and second[0].words == "not checked"


def test_exceptions_say_errors_first_and_group_trials_that_failed_alike(run8):
    results = trials(
        run8,
        [verdict("steal", "fail", why="the hypervisor took it")],
        [verdict("steal", "fail", why="the hypervisor took it"), verdict("vacuums", "unknown", severity="warn")],
        [verdict("steal", "pass")],
    )
    lines = check_matrix.exceptions([*results, run8[1][-1]])
    assert lines[0].startswith("Trial 0025 did not finish")
    assert lines[1] == "steal failed in trials 0000, 0001: steal was seen in trial 0000; wanted: less (the hypervisor took it)."
    assert lines[2] == "vacuums could not be seen in trial 0001 (a warning only): vacuums was seen; wanted: less."
    assert len(lines) == 3


def test_what_failed_in_every_trial_does_not_list_them(run8):
    lines = check_matrix.exceptions(trials(run8, *[[verdict("steal", "fail")]] * 12))
    assert lines == ["steal failed in all 12 trials: steal was seen in trial 0000; wanted: less."]


def test_no_trial_no_exception():
    assert check_matrix.exceptions([]) == [] and check_matrix.matrix([]).rows == ()
