"""Points and curve: basis, interpolation, capacity, shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.analysis.intervals import mean_interval
from pgherd.studies.density.curve import DensityCurve, density_curve, density_points
from pgherd.studies.density.findings import capacity_finding, shape_findings
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.findings import as_finding
from pgherd.study.repeats import mean_finding

Build = Callable[..., DensityOptions]


def measured_curve(options: DensityOptions, host: Any) -> DensityCurve:
    return density_curve(options, density_points(options, host.all(planned(options))))


@pytest.mark.parametrize(("alone", "basis"), [(1.0, "single"), (0.97, "single"), (0.9, "slope"), (1.1, "single")])
def test_the_perfect_that_does_not_flatter(options: Build, simulate: Any, alone: float, basis: str) -> None:
    assert measured_curve(options(), simulate(options(), alone=alone, noise=0)).basis == basis


def test_efficiency_is_read_between_points_along_the_throughput(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 2, 6, 12))  # full at 8, which was not measured: throughput there is between those of 6 and 12
    result, note = measured_curve(study_options, simulate(study_options, noise=0)).efficiency_at(1.0, "single")
    assert result is not None
    assert result.value == pytest.approx((6 + (8 - 6) * (8 - 6) / (12 - 6)) / 8)
    assert "interpolated at 8 databases" in note


def test_a_fraction_outside_the_points_is_not_read(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 2, 3))
    result, note = measured_curve(study_options, simulate(study_options)).efficiency_at(1.0, "single")
    assert result is None
    assert "no point at or around 100 %" in note


def test_held_names_its_neighbours_and_method(options: Build, simulate: Any) -> None:
    result = capacity_finding(measured_curve(options(), simulate(options())), "single")
    assert "between the measured 8 and 10" in result.note
    assert "vs. the single database" in result.method
    assert result.unit == "databases"


@pytest.mark.parametrize("points", [(1, 8, 10), (1, 2, 4, 8, 10), (1, 2, 3, 5, 6, 8, 10)])
@pytest.mark.parametrize("alone", [0.7, 0.8, 0.9])
def test_one_that_is_slow_alone_does_not_pull_the_crossing_down(
    options: Build, simulate: Any, points: tuple[int, ...], alone: float
) -> None:
    study_options = options(databases=points)
    assert capacity_finding(measured_curve(study_options, simulate(study_options, alone=alone, noise=0)), "slope").value == pytest.approx(
        8 / 0.85
    )


def test_n_counts_trials(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 2, 6, 12))
    result = measured_curve(study_options, simulate(study_options))
    assert result.slope.n == 6  # three each of 2 and 6 databases
    assert capacity_finding(result, "single").n == 14
    read, _ = result.efficiency_at(1.0, "single")
    assert read is not None
    assert read.n == 3


def test_a_slope_of_one_point_is_no_measure_of_it(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 12))
    own = measured_curve(study_options, simulate(study_options)).efficiency(0, "slope")
    assert (own.value, own.low) == (1.0, None)


def test_an_open_upper_end_is_said(options: Build, simulate: Any) -> None:
    """10 databases get 80 % here: with noise the crossing is below 10 in one run and above it in another."""
    study_options = options(databases=(1, 2, 4, 8, 10), efficiency=0.8)
    below = capacity_finding(measured_curve(study_options, simulate(study_options, noise=0.02, seed=1)), "single")
    assert below.low < below.value < below.high == 10
    assert "upper bound not reached by the largest number measured (10)" in below.note
    beyond = capacity_finding(measured_curve(study_options, simulate(study_options, noise=0.02, seed=0)), "single")
    assert beyond.value is None
    assert "capacity at least 9 databases (from 9." in beyond.note


def test_saturation_is_not_claimed_while_it_rises(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 2, 3, 5))
    result = shape_findings(measured_curve(study_options, simulate(study_options)))
    assert result["saturation_point"].value is None
    assert "still rises" in result["saturation_point"].note
    assert "still rising" in result["peak_throughput"].note
    assert result["retrograde_ratio"].value == 1
    assert result["retrograde_ratio"].low is None


def test_a_fall_beyond_the_peak(options: Build, simulate: Any) -> None:
    class Falling(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) * (1 if n <= 8 else 0.8)

    result = shape_findings(measured_curve(options(), Falling(options())))
    beyond = result["retrograde_ratio"]
    assert beyond.value == pytest.approx(0.8, abs=0.03)
    assert beyond.high < 1
    assert "% below that at" in beyond.note


def test_a_single_point_has_a_curve(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    only = measured_curve(study_options, simulate(study_options))
    assert only.single is None
    assert only.basis == "slope"
    assert capacity_finding(only, "slope").value is None
    assert "only one number" in capacity_finding(only, "slope").note
    result = shape_findings(only)
    for name in ("linear_range_end", "saturation_point"):
        assert result[name].value is None
        assert "only one number" in result[name].note


def test_clean_trials_are_used_and_all_are_counted(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 4))
    host = simulate(
        study_options,
        taint=lambda t: "steal" if t.repeat == 0 else None,
        fail=lambda t: "died" if t.key() == "databases=4#2" else None,
    )
    item, four = density_points(study_options, host.all(planned(study_options)))
    assert (item.databases, len(item.used), item.tried, item.tainted, item.failed) == (1, 4, 5, 1, 0)
    assert (four.databases, len(four.used), four.tried, four.tainted, four.failed) == (4, 1, 3, 2, 1)
    assert four.clean
    assert four.note == ""


def test_tainted_trials_are_used_where_none_is_clean(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    (four,) = density_points(study_options, simulate(study_options, taint=lambda t: "steal").all(planned(study_options)))
    assert len(four.used) == 3
    assert not four.clean
    assert "only tainted" in mean_finding(four, lambda observation: observation.throughput, "tps", "").note


def test_points_without_numbers_are_left_out(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1, 4))
    points = density_points(
        study_options, simulate(study_options, fail=lambda t: "died" if t.point["databases"] == 4 else None).all(planned(study_options))
    )
    assert [point.databases for point in points] == [1]


def test_what_limited_most_trials(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    results = simulate(study_options).all(planned(study_options))
    results[0].phases[0].metrics.clear()
    assert density_points(study_options, results)[0].bottleneck == "cpu-quota"


def test_a_quantity_that_nobody_saw_says_why(options: Build, simulate: Any) -> None:
    study_options = options(databases=(4,))
    (four,) = density_points(study_options, simulate(study_options, metrics=False).all(planned(study_options)))
    result = mean_finding(four, lambda observation: observation.cpu_per_tx, "ms", "not seen")
    assert (result.value, result.n, result.note) == (None, 0, "not seen")


def test_both_notes_are_kept() -> None:
    finding = as_finding(mean_interval([1.0]), "ms", "of the servers", published="2 ms", experiment="E1")
    assert finding.note.startswith("of the servers; no interval: 1 repeat")
    assert (finding.experiment, finding.published) == ("E1", "2 ms")
