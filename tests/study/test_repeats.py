"""Repeats of one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgherd.analysis.intervals import mean_interval
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.findings import as_finding
from pgherd.study.repeats import mean_finding, repeats

Build = Callable[..., DensityOptions]


def test_clean_trials_are_used_and_all_are_counted(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    host = simulate(given, taint=lambda t: "steal" if t.repeat == 0 else None, fail=lambda t: "died" if t.repeat == 2 else None)
    found = repeats(given, host.all(planned(given)))
    assert found is not None
    assert (len(found.used), found.tried, found.tainted, found.failed) == (1, 3, 2, 1)
    assert found.clean and found.note == ""
    assert found.throughputs == [found.mean]
    assert found.limited_by == "quota"


def test_tainted_ones_are_used_where_none_is_clean(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    found = repeats(given, simulate(given, taint=lambda t: "steal").all(planned(given)))
    assert found is not None
    assert not found.clean
    assert "only tainted" in mean_finding(found, lambda o: o.throughput, "tps", "").note


def test_a_mean_or_the_reason_why_there_is_none(options: Build, simulate: Any) -> None:
    given = options(points=(8,))
    found = repeats(given, simulate(given).all(planned(given)))
    assert found is not None
    assert mean_finding(found, lambda o: o.p99, "ms", "too few").note == "too few"
    assert mean_finding(found, lambda o: o.throughput, "tps", "") == as_finding(mean_interval(found.throughputs), "tps")


def test_nothing_finished_is_no_point(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    assert repeats(given, simulate(given, fail=lambda t: "died").all(planned(given))) is None
    assert repeats(given, []) is None
