"""Repeats of one point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.analysis.intervals import mean_interval
from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.findings import as_finding
from pgherd.study.repeats import (
    NO_CONTAINER_CPU,
    Repeats,
    cpu_cells,
    join_continuations,
    mean_finding,
    mean_over_points,
    named_parts,
    repeats,
)

Build = Callable[..., DensityOptions]


def test_clean_trials_are_used_and_all_are_counted(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    host = simulate(study_options, taint=lambda t: "steal" if t.repeat == 0 else None, fail=lambda t: "died" if t.repeat == 2 else None)
    result = repeats(study_options, host.all(planned(study_options)))
    assert result is not None
    assert (len(result.used), result.tried, result.tainted, result.failed) == (1, 3, 2, 1)
    assert result.clean and result.note == ""
    assert result.throughputs == [result.mean]
    assert result.bottleneck == "cpu-quota"


def test_tainted_ones_are_used_where_none_is_clean(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    result = repeats(study_options, simulate(study_options, taint=lambda t: "steal").all(planned(study_options)))
    assert result is not None
    assert not result.clean
    assert "only tainted" in mean_finding(result, lambda observation: observation.throughput, "tps", "").note


def test_a_mean_or_the_reason_why_there_is_none(options: Build, simulate: Any) -> None:
    study_options = options(databases=(8,))
    result = repeats(study_options, simulate(study_options).all(planned(study_options)))
    assert result is not None
    assert mean_finding(result, lambda observation: observation.p99, "ms", "too few").note == "too few"
    assert mean_finding(result, lambda o: o.throughput, "tps", "") == as_finding(mean_interval(result.throughputs), "tps")


def test_points_are_no_repeats_of_each_other() -> None:
    found = mean_over_points([[1.0, 2.0, 3.0], [], [4.0]])
    assert (found.value, found.low, found.n, found.note) == (3.0, None, 4, "no interval: the points differ by design")
    assert mean_over_points([[], [1.0, 2.0, 3.0]]) == mean_interval([1.0, 2.0, 3.0])


def test_nothing_finished_is_no_point(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    assert repeats(study_options, simulate(study_options, fail=lambda t: "died").all(planned(study_options))) is None
    assert repeats(study_options, []) is None


Build = Callable[..., DensityOptions]


def checks(result: TrialResult) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {v.name: (v.result, v.failed_phases) for v in result.checks}


def test_what_does_not_go_on_stays_as_it_is(options: Build, simulate: Any) -> None:
    study_options = options()
    results = simulate(study_options).all(planned(study_options)[:5])
    assert join_continuations(results) == results
    assert join_continuations([]) == []


def test_the_phases_of_those_that_go_on_are_one_trials(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=1500)
    results = simulate(study_options).all(planned(study_options))
    (complete,) = join_continuations(results)
    assert [phase.phase for phase in complete.phases] == [f"w{i:04d}" for i in range(25)]
    assert [phase.name for phase in complete.trial.phases] == [phase.phase for phase in complete.phases]
    assert (complete.started, complete.ended) == (results[0].started, results[-1].ended)
    assert not complete.tainted


def test_a_failed_check_names_all_phases_in_which_it_failed(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=1500)
    results = simulate(study_options, taint=lambda trial: "steal" if trial.repeat == 1 else None).all(planned(study_options))
    some = [v.model_copy(update={"result": "fail", "failed_phases": ("w0021",)}) if v.name == "steal" else v for v in results[2].checks]
    (complete,) = join_continuations([*results[:2], results[2].model_copy(update={"checks": some})])
    assert checks(complete)["steal"] == ("fail", (*(f"w{i:04d}" for i in range(10, 20)), "w0021"))
    assert checks(complete)["overlap"] == ("pass", ())
    assert complete.tainted


def test_what_could_not_be_seen_once_is_not_passed(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=1200)
    first, second = simulate(study_options).all(planned(study_options))
    unseen = [v.model_copy(update={"result": "unknown"}) if v.name == "steal" else v for v in first.checks]
    (complete,) = join_continuations([first.model_copy(update={"checks": unseen}), second])
    assert checks(complete)["steal"] == ("unknown", ())


def test_what_taints_is_not_hidden_by_what_was_only_said_before(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=1200)
    results = simulate(study_options, taint=lambda trial: "steal").all(planned(study_options))
    warned = [v.model_copy(update={"severity": "warn"}) for v in results[0].checks]
    (complete,) = join_continuations([results[0].model_copy(update={"checks": warned}), results[1]])
    assert complete.tainted and join_continuations(results)[0].tainted


def test_one_that_failed_stands_by_itself(options: Build, simulate: Any) -> None:
    study_options = options(soak_seconds=3000)
    trials = planned(study_options)
    results = simulate(study_options, fail=lambda trial: "died" if trial.repeat in (0, 2) else None).all(trials)
    assert [(join_continuation.error, len(join_continuation.phases)) for join_continuation in join_continuations(results)] == [
        ("died", 0),
        (None, 30),
        ("died", 0),
    ]


Build = Callable[..., DensityOptions]


def point(given: DensityOptions, host: Any) -> Repeats:
    result = repeats(given, host.all(planned(given)))
    assert result is not None
    return result


def test_parts_in_cores_with_named_ones_after_the_platform(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    result = point(study_options, simulate(study_options, overhead=0.4))
    assert named_parts([result]) == ["vm"]
    cells = cpu_cells(result, ["vm", "nfs"])
    assert list(cells) == [
        "databases_cpu",
        "clients_cpu",
        "pgherd_cpu",
        "platform_cpu",
        "platform_cpu.vm",
        "platform_cpu.nfs",
        "iowait",
        "idle",
        "steal",
    ]
    assert cells["platform_cpu"].value == pytest.approx(0.4)
    assert cells["platform_cpu.vm"].value == pytest.approx(0.2)
    assert cells["platform_cpu.nfs"].note == "CPU of this part was not measured"
    assert cells["databases_cpu"].value + cells["clients_cpu"].value == pytest.approx(1, abs=0.01)


def test_what_was_not_seen_says_so(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    cells = cpu_cells(point(study_options, simulate(study_options, metrics=False)), [])
    assert all(cell.value is None for cell in cells.values())
    assert cells["databases_cpu"].note == cells["platform_cpu"].note == NO_CONTAINER_CPU
    assert cells["idle"].note == "not reported by the host"
    assert cells["pgherd_cpu"].note == "not measured for these processes"
