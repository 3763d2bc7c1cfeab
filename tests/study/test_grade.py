"""Grades of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.result import TrialResult
from pgherd.studies.density.curve import DensityPoint, density_points
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.grade import (
    fallback_warnings,
    grade,
    grade_of,
    majority_clean,
    qualify_answer,
    rerun_hints,
    shortened_list,
    trial_warnings,
    worst,
)

Build = Callable[..., DensityOptions]
Curve = tuple[list[DensityPoint], list[TrialResult]]


@pytest.fixture
def measured(options: Build, simulate: Any) -> Callable[..., Curve]:
    def run(**host: Any) -> Curve:
        given = options(databases=(1, 4, 8))
        results = simulate(given, **host).all(planned(given))
        return density_points(given, results), results

    return run


def at(databases: int) -> Callable[..., str | None]:
    return lambda trial: "steal" if trial.point["databases"] == databases else None


def test_all_clean_and_complete_is_a(measured: Callable[..., Curve]) -> None:
    points, results = measured()
    assert grade(points, results, complete=True, wanted=3) == "A"
    assert grade(points, results, complete=False, wanted=3) == "B", "a point that was asked for is missing"


def test_a_number_without_an_interval_is_no_a(options: Build, simulate: Any) -> None:
    for repeats, least, given in ((1, 3, "B"), (2, 3, "B"), (3, 3, "A"), (1, 2, "B"), (2, 2, "A")):
        asked = options(databases=(1, 4, 8), repeats=repeats)
        results = simulate(asked).all(planned(asked))
        assert grade(density_points(asked, results), results, complete=True, wanted=repeats, least=least) == given, (repeats, least)


def test_noise_in_some_is_b(measured: Callable[..., Curve]) -> None:
    points, results = measured(taint=at(8))
    assert grade(points, results, complete=True, wanted=3) == "B"
    points, results = measured(taint=lambda t: "steal" if t.repeat == 0 else None)
    assert grade(points, results, complete=True, wanted=3) == "B", "taints left too few repeats for an interval"
    points, results = measured(taint=lambda t: "steal" if t.key() == "databases=4#0" else None)
    assert grade(points, results, complete=True, wanted=2) == "A", "two were wanted, and two clean ones are there"


def test_tainted_throughout_or_where_it_matters_is_c(measured: Callable[..., Curve]) -> None:
    points, results = measured(taint=lambda t: "steal")
    assert grade(points, results, complete=True, wanted=3) == "C"
    assert grade([], [], complete=False, wanted=3) == "C"
    points, results = measured(taint=lambda t: "steal" if t.point["databases"] != 4 else None)
    assert grade(points, results, complete=True, wanted=3) == "C", "one of several is no curve"
    points, results = measured(taint=at(1))
    assert grade(points, results, complete=True, wanted=3) == "B"
    assert grade(points, results, complete=True, wanted=3, essential=points[:1]) == "C"


@pytest.mark.parametrize(
    ("clean", "points", "given"), [(4, 7, "A"), (3, 7, "C"), (2, 4, "C"), (3, 4, "A"), (2, 3, "A"), (1, 1, "A"), (0, 0, "C")]
)
def test_stand_ins_for_half_of_the_points_or_more_are_an_indication(clean: int, points: int, given: str) -> None:
    every = [place < clean for place in range(points)]
    assert majority_clean(every) == (given != "C")
    assert grade_of(every, (), [], whole=True) == given
    assert qualify_answer("It holds 9.", "C") == "Indication only: It holds 9." and qualify_answer("It holds 9.", "B") == "It holds 9."


def test_why_it_is_an_indication_is_said() -> None:
    assert fallback_warnings([True, True], "2") == []
    assert fallback_warnings([True, True, False], "8 databases") == ["Only tainted trials for 8 databases: these numbers are an indication"]
    assert fallback_warnings([True, False, True, False], "2, 8 databases") == [
        "Only tainted trials for 2, 8 databases (2 of 4 points, half of them or more): the whole answer is an indication (grade C)"
    ]
    assert fallback_warnings([False, True, True], "1 database", "all else rests on it") == [
        "Only tainted trials for 1 database (all else rests on it): the whole answer is an indication (grade C)"
    ]
    assert fallback_warnings([False]) == ["Only tainted trials: the whole answer is an indication (grade C)"]
    assert shortened_list([str(n) for n in range(8)]) == "0, 1, 2, 3, 4, 5 and 2 more" and shortened_list(["a", "b"]) == "a, b"


def test_what_other_work_tainted_is_to_be_measured_again(measured: Callable[..., Curve]) -> None:
    _, results = measured(taint=at(8))
    (said,) = rerun_hints("B", results, ["pgherd", "density", "--like", "my file"])
    assert said == ("Rerun on an idle machine: background load tainted 3 of 9 trials (steal): pgherd density --like 'my file'")
    assert rerun_hints("C", results[-1:] and [r for r in results if r.tainted][:1], [])[0].endswith(
        "tainted the only trial (steal); use the same command"
    )
    assert rerun_hints("A", results, []) == [], "what it rests on is clean"
    (on,) = rerun_hints("B", results, ["pgherd", "resume", "a run"], goes_on=True)
    assert on.startswith("Resume this run on an idle machine: background load tainted 3 of 9 trials (steal)")
    assert on.endswith("; it reruns them within its time budget: pgherd resume 'a run'")
    _, own = measured(taint=lambda t: "cached" if t.point["databases"] == 8 else None)
    assert any(result.tainted for result in own) and rerun_hints("B", own, []) == [], "a quiet machine would not change that"


def test_what_clean_reruns_made_up_for_is_not_to_be_measured_again(options: Build, simulate: Any) -> None:
    def noisy(*keys: str, **more: Any) -> list[TrialResult]:
        given = options(**more)
        return simulate(given, taint=lambda t: "steal" if t.key() in keys else None).until_stop()[0]

    once = noisy("databases=6#1")
    assert any(result.tainted for result in once) and rerun_hints("B", once, []) == [], "a clean rerun stands in its place"
    (said,) = rerun_hints("B", noisy("databases=6#1", max_reruns=0), [])
    assert "tainted 1 of 21 trials (steal)" in said
    left = noisy("databases=6#1", *(f"databases=8#{repeat}" for repeat in range(9)))
    (said,) = rerun_hints("B", left, [])
    count = sum(result.trial.point["databases"] == 8 for result in left)
    assert f"tainted {count} of {len(left)} trials without a clean rerun (steal)" in said


def test_a_check_that_could_not_be_made_did_not_pass(measured: Callable[..., Curve]) -> None:
    points, results = measured()
    unseen = [v.model_copy(update={"result": "unknown"}) if v.name == "steal" else v for v in results[0].checks]
    results[0] = results[0].model_copy(update={"checks": unseen})
    assert grade(points, results, complete=True, wanted=3) == "B"
    assert trial_warnings(results) == ["Could not be checked here, and so did not pass: steal"]


def test_the_worst_of_several() -> None:
    assert worst(["A", "B", "A"]) == "B"
    assert worst(["A", "C", "B"]) == "C"
    assert worst([]) == "C"


def test_what_is_said_of_trials(measured: Callable[..., Curve]) -> None:
    _, results = measured(taint=at(8), fail=lambda t: "it died" if t.key() == "databases=4#1" else None)
    said = trial_warnings(results)
    assert "Trial databases=4#1 did not finish: it died" in said
    assert any(text.startswith("3 of 9 trials are tainted, by steal (3)") for text in said)
    warned = [v.model_copy(update={"result": "fail", "severity": "warn"}) for v in results[0].checks[-1:]]
    assert "Warnings that do not taint a trial: overlap (1)" in trial_warnings([results[0].model_copy(update={"checks": warned})])
