"""Trials that go on from each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.repeats import join_continuations

Build = Callable[..., DensityOptions]


def checks(result: TrialResult) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {v.check: (v.result, v.failed_in) for v in result.verdicts}


def test_what_does_not_go_on_stays_as_it_is(options: Build, simulate: Any) -> None:
    given = options()
    results = simulate(given).all(planned(given)[:5])
    assert join_continuations(results) == results
    assert join_continuations([]) == []


def test_the_phases_of_those_that_go_on_are_one_trials(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=1500)
    results = simulate(given).all(planned(given))
    (whole,) = join_continuations(results)
    assert [phase.phase for phase in whole.phases] == [f"w{i:04d}" for i in range(25)]
    assert [phase.name for phase in whole.trial.phases] == [phase.phase for phase in whole.phases]
    assert (whole.started, whole.ended) == (results[0].started, results[-1].ended)
    assert not whole.tainted


def test_a_failed_check_names_all_phases_in_which_it_failed(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=1500)
    results = simulate(given, taint=lambda trial: "steal" if trial.repeat == 1 else None).all(planned(given))
    some = [v.model_copy(update={"result": "fail", "failed_in": ("w0021",)}) if v.check == "steal" else v for v in results[2].verdicts]
    (whole,) = join_continuations([*results[:2], results[2].model_copy(update={"verdicts": some})])
    assert checks(whole)["steal"] == ("fail", (*(f"w{i:04d}" for i in range(10, 20)), "w0021"))
    assert checks(whole)["overlap"] == ("pass", ())
    assert whole.tainted


def test_what_could_not_be_seen_once_is_not_passed(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=1200)
    first, second = simulate(given).all(planned(given))
    unseen = [v.model_copy(update={"result": "unknown"}) if v.check == "steal" else v for v in first.verdicts]
    (whole,) = join_continuations([first.model_copy(update={"verdicts": unseen}), second])
    assert checks(whole)["steal"] == ("unknown", ())


def test_what_taints_is_not_hidden_by_what_was_only_said_before(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=1200)
    results = simulate(given, taint=lambda trial: "steal").all(planned(given))
    said = [v.model_copy(update={"severity": "warn"}) for v in results[0].verdicts]
    (whole,) = join_continuations([results[0].model_copy(update={"verdicts": said}), results[1]])
    assert whole.tainted and join_continuations(results)[0].tainted


def test_one_that_failed_stands_by_itself(options: Build, simulate: Any) -> None:
    given = options(soak_seconds=3000)
    trials = planned(given)
    results = simulate(given, fail=lambda trial: "died" if trial.repeat in (0, 2) else None).all(trials)
    assert [(one.error, len(one.phases)) for one in join_continuations(results)] == [("died", 0), (None, 30), ("died", 0)]
