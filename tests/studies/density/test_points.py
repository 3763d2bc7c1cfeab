"""Grouping of trials by number of databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgherd.analysis.intervals import mean_interval
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import group
from pgherd.studies.density.propose import planned
from pgherd.study.findings import as_finding
from pgherd.study.repeats import mean_finding

Build = Callable[..., DensityOptions]


def test_clean_trials_are_used_and_all_are_counted(options: Build, simulate: Any) -> None:
    given = options(points=(1, 4))
    host = simulate(
        given,
        taint=lambda t: "steal" if t.repeat == 0 else None,
        fail=lambda t: "died" if t.key() == "databases=4#2" else None,
    )
    one, four = group(given, host.all(planned(given)))
    assert (one.databases, len(one.used), one.tried, one.tainted, one.failed) == (1, 4, 5, 1, 0)
    assert (four.databases, len(four.used), four.tried, four.tainted, four.failed) == (4, 1, 3, 2, 1)
    assert four.clean
    assert four.note == ""


def test_tainted_trials_are_used_where_none_is_clean(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    (four,) = group(given, simulate(given, taint=lambda t: "steal").all(planned(given)))
    assert len(four.used) == 3
    assert not four.clean
    assert "only tainted" in mean_finding(four, lambda o: o.throughput, "tps", "").note


def test_points_without_numbers_are_left_out(options: Build, simulate: Any) -> None:
    given = options(points=(1, 4))
    points = group(given, simulate(given, fail=lambda t: "died" if t.point["databases"] == 4 else None).all(planned(given)))
    assert [point.databases for point in points] == [1]


def test_what_limited_most_trials(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    results = simulate(given).all(planned(given))
    results[0].phases[0].metrics.clear()
    assert group(given, results)[0].limited_by == "quota"


def test_a_quantity_that_nobody_saw_says_why(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    (four,) = group(given, simulate(given, metrics=False).all(planned(given)))
    found = mean_finding(four, lambda o: o.cpu_per_tx, "ms", "not seen")
    assert (found.value, found.n, found.note) == (None, 0, "not seen")


def test_both_notes_are_kept() -> None:
    found = as_finding(mean_interval([1.0]), "ms", "of the servers", published="2 ms", experiment="E1")
    assert found.note.startswith("of the servers; no interval: 1 repeat")
    assert (found.experiment, found.published) == ("E1", "2 ms")
