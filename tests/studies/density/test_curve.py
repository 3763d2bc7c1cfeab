"""Points and curve: basis, interpolation, capacity, shape."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pgherd.analysis.intervals import mean_interval
from pgherd.studies.density.curve import DensityCurve, density_curve, density_points
from pgherd.studies.density.findings import capacity_finding, cpu_efficiency, density_rows, shape_findings
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned
from pgherd.study.findings import as_finding
from pgherd.study.repeats import mean_finding

Build = Callable[..., DensityOptions]


def measured_curve(options: DensityOptions, host: Any) -> DensityCurve:
    return density_curve(options, density_points(options, host.all(planned(options))))


@pytest.mark.parametrize(
    ("points", "reference"),
    [((1, 2, 5, 8, 10), 5), ((1, 2, 3, 6, 8), 6), ((1, 8, 10), 1), ((2, 8, 10), 2), ((8, 10), 8), ((1,), 1), ((1, 7, 12), 1)],
)
def test_the_reference_is_the_largest_number_with_idle_cpus(options: Build, simulate: Any, points: tuple[int, ...], reference: int) -> None:
    given = options(databases=points)
    curve = measured_curve(given, simulate(given))
    assert curve.reference_text == f"{reference} database{'s' if reference > 1 else ''}"
    assert curve.reference.value == pytest.approx(15_000, rel=0.02)


def test_the_answer_is_by_cpu_where_it_was_measured(options: Build, simulate: Any) -> None:
    assert measured_curve(options(), simulate(options())).basis == "cpu"
    assert measured_curve(options(), simulate(options(), metrics=False)).basis == "reference"
    assert measured_curve(options(rate=100), simulate(options(rate=100))).basis == "reference"
    assert measured_curve(options(cpu_mode="none"), simulate(options(cpu_mode="none"))).basis == "reference"


def test_efficiency_is_the_product_of_its_factors(options: Build, simulate: Any) -> None:
    curve = measured_curve(options(), simulate(options(), noise=0.1))
    received = curve.efficiencies("cpu")
    for index in range(len(curve.points)):
        cost = cpu_efficiency(curve, index).value
        product = received[index] / received[curve.reference_index] * cost
        assert curve.efficiencies("reference")[index] == pytest.approx(product, rel=0.05)  # of means, not the mean of products


def test_efficiency_is_read_between_points_along_the_throughput(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 6, 12))  # full at 8, which was not measured: throughput there is between those of 6 and 12
    found, note = measured_curve(given, simulate(given, noise=0)).efficiency_at(1.0, "reference")
    assert found is not None
    assert found.value == pytest.approx((6 + (8 - 6) * (8 - 6) / (12 - 6)) / 8)
    assert "interpolated at 8 databases" in note


def test_a_fraction_outside_the_points_is_not_read(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 3))
    found, note = measured_curve(given, simulate(given)).efficiency_at(1.0, "single")
    assert found is None
    assert "no point at or around 100 %" in note


def test_held_names_its_neighbours_and_method(options: Build, simulate: Any) -> None:
    found = capacity_finding(measured_curve(options(), simulate(options())), "single")
    assert "between the measured 8 and 10" in found.note
    assert "throughput ÷ (N × single database)" in found.method
    assert found.unit == "databases"


@pytest.mark.parametrize("points", [(1, 2, 8, 10), (1, 2, 4, 8, 10), (1, 2, 3, 5, 6, 8, 10)])
@pytest.mark.parametrize("alone", [0.7, 0.8, 0.9])
def test_one_that_is_slow_alone_does_not_pull_the_crossing_down(
    options: Build, simulate: Any, points: tuple[int, ...], alone: float
) -> None:
    given = options(databases=points)
    assert capacity_finding(measured_curve(given, simulate(given, alone=alone, noise=0)), "reference").value == pytest.approx(8 / 0.85)


def with_cpu_shares(options: DensityOptions, host: Any, shares: dict[int, float], spread: float = 0.0) -> DensityCurve:
    """Curve of databases that receive these shares of their CPU, and ``spread`` less and more in the first and third repeat."""
    results = host.all(planned(options))
    for result in results:
        share = shares[result.trial.point["databases"]] + spread * (result.trial.repeat - 1)
        for entity, metrics in result.phases[0].metrics.items():
            if entity.startswith("container:"):
                metrics["cpu.usage"] = share * options.vcpus
    return density_curve(options, density_points(options, results))


def test_clients_that_leave_one_idle_do_not_pull_the_crossing_down(options: Build, simulate: Any) -> None:
    """The crossing is between 10 and 11 databases. Averaged with 1 and 2, it would be lower."""
    shares = dict(zip((1, 2, 5, 8, 9, 10, 11, 12), (0.60, 0.70, 0.97, 0.97, 0.95, 0.88, 0.82, 0.77), strict=True))
    given = options(databases=tuple(shares))
    curve = with_cpu_shares(given, simulate(given), shares)
    found = capacity_finding(curve, "cpu")
    assert curve.basis == "cpu" and found.value == pytest.approx(10.48, abs=0.01) and found.low == pytest.approx(found.value)
    few = options(databases=(1, 2, 5, 8))
    open_end = capacity_finding(with_cpu_shares(few, simulate(few), shares), "cpu")
    assert open_end.value is None and "never fell below 85 % from 5 databases on" in open_end.note


def test_a_reference_below_the_target_is_beyond_the_crossing(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 4, 6))
    found = capacity_finding(with_cpu_shares(given, simulate(given), {1: 0.97, 2: 0.97, 4: 0.80, 6: 0.70}), "cpu")
    assert found.value is not None and 2 < found.value < 4


def test_the_interval_includes_draws_whose_reference_is_below_the_target(options: Build, simulate: Any) -> None:
    """The reference, 5 databases, is just above the target. In the draws that have it below, the crossing is between 2 and 5."""
    shares = {1: 0.99, 2: 0.98, 5: 0.86, 8: 0.80, 10: 0.70}
    given = options(databases=tuple(shares))
    found = capacity_finding(with_cpu_shares(given, simulate(given), shares, spread=0.03), "cpu")
    assert found.value is not None and found.low is not None and 5 < found.value < 6 and 3 < found.low < 5


def test_n_counts_trials(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 6, 12))
    found = measured_curve(given, simulate(given))
    assert found.reference.n == 3
    assert capacity_finding(found, "single").n == 12
    read, _ = found.efficiency_at(1.0, "single")
    assert read is not None
    assert read.n == 3


def test_the_reference_is_1_by_definition(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 12))
    own = measured_curve(given, simulate(given)).efficiency(0, "reference")
    assert (own.value, own.low) == (1.0, None)


def test_an_open_upper_end_is_said(options: Build, simulate: Any) -> None:
    """10 databases get 80 % here: with noise the crossing is below 10 in one run and above it in another."""
    given = options(databases=(1, 2, 4, 8, 10), efficiency=0.8)
    below = capacity_finding(measured_curve(given, simulate(given, noise=0.02, seed=1)), "single")
    assert below.low < below.value < below.high == 10
    assert "upper bound not reached by the largest number measured (10)" in below.note
    beyond = capacity_finding(measured_curve(given, simulate(given, noise=0.02, seed=0)), "single")
    assert beyond.value is None
    assert "capacity at least 9 databases (from 9." in beyond.note


def test_saturation_is_not_claimed_while_it_rises(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 3, 5))
    found = shape_findings(measured_curve(given, simulate(given)))
    assert found["saturation_point"].value is None
    assert "still rises" in found["saturation_point"].note
    assert "still rising" in found["peak_throughput"].note
    assert found["retrograde_ratio"].value == 1
    assert found["retrograde_ratio"].low is None


def test_a_fall_beyond_the_peak(options: Build, simulate: Any) -> None:
    class Falling(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) * (1 if n <= 8 else 0.8)

    found = shape_findings(measured_curve(options(), Falling(options())))
    beyond = found["retrograde_ratio"]
    assert beyond.value == pytest.approx(0.8, abs=0.03)
    assert beyond.high < 1
    assert "% below that at" in beyond.note
    assert measured_curve(options(), Falling(options())).levels is None  # 10 databases are slow in each trial


def test_the_peak_is_no_single_number_where_several_are_equal(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 4, 8, 9, 10, 12))
    found = shape_findings(measured_curve(given, simulate(given, noise=0.06)))
    peak = found["peak_throughput"]
    assert peak.low < 120_000 < peak.high
    assert "9, 10 or 12 databases, which cannot be told apart" in peak.note


def with_seconds(options: DensityOptions, host: Any, shape: Callable[[int], list[float]]) -> DensityCurve:
    """Curve of trials whose seconds are these multiples of their mean, by the number of databases."""
    results = host.all(planned(options))
    for result in results:
        (phase,) = result.phases
        factors = shape(result.trial.point["databases"])
        for index, target in enumerate(phase.targets):
            phase.targets[index] = target.model_copy(update={"per_second": [target.throughput * factor for factor in factors]})
    return density_curve(options, density_points(options, results))


def test_seconds_that_contradict_the_repeats_widen_the_interval(options: Build, simulate: Any) -> None:
    """Means agree to 0.1 %, but each trial at 10 databases spent 5 seconds at 120 % and 4 at 75 %."""
    given = options()
    curve = with_seconds(given, simulate(given, noise=0.001), lambda n: [1.2] * 5 + [0.75] * 4 if n == 10 else [1.0] * 9)
    half = [(mean.high - mean.value) / mean.value for mean in map(curve.throughput, range(len(curve.points)))]
    costs = [(cost.high - cost.value) / cost.value for cost in curve.estimates(lambda o: o.cpu_per_tx) if cost is not None]
    assert half[-1] > 0.1 and costs[-1] > 0.1
    assert max(half[:-1]) < 0.01 and max(costs[:-1]) < 0.01
    ratio = curve.relative_costs[-1]
    assert ratio is not None and ratio.high - ratio.low > 0.2


def test_two_levels_leave_no_interval_in_headline_or_table(options: Build, simulate: Any) -> None:
    """Trials of a full host are 25 % above or below. 80 % of the cores are between 5 and 8 databases, so that value has none either."""

    class Modes(simulate):
        def truth(self, n: int) -> float:
            fast = random.Random(f"{self.seed} {n} {self.clock}").random() < 0.5
            return super().truth(n) * ((1.25 if fast else 0.75) if n >= 8 else 1.0)

    given = options(databases=(1, 2, 5, 8, 9, 10, 11, 12))
    curve = measured_curve(given, Modes(given))
    for index, row in enumerate(density_rows(curve)):
        for name in ("throughput", "throughput_per_core", "cpu_per_tx", "cpu_efficiency", "efficiency"):
            cell = row[name]
            expected = row["databases"] < 8 and "by definition" not in cell.method
            assert (cell.low is not None) is expected, name
            assert expected or cell.note.count("no interval: "), name
        assert row["cpu_share"].low is not None
        assert (curve.relative_costs[index].low is None) == (row["cpu_efficiency"].low is None)
    shape = shape_findings(curve)
    between, note = curve.efficiency_at(0.8, "reference")
    for found in (shape["peak_throughput"], shape["retrograde_ratio"], between):
        assert found.low is None and "on two levels" in found.note
    assert note.startswith("interpolated at 6.4")
    by_cpu, _ = curve.efficiency_at(0.8, "cpu")
    assert by_cpu.low is not None


def test_a_single_point_has_a_curve(options: Build, simulate: Any) -> None:
    given = options(databases=(4,))
    only = measured_curve(given, simulate(given))
    assert only.single is None
    assert capacity_finding(only, only.basis).value is None
    assert "only one number" in capacity_finding(only, only.basis).note
    found = shape_findings(only)
    for name in ("linear_range_end", "saturation_point"):
        assert found[name].value is None
        assert "only one number" in found[name].note


def test_clean_trials_are_used_and_all_are_counted(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 4))
    host = simulate(
        given,
        taint=lambda t: "steal" if t.repeat == 0 else None,
        fail=lambda t: "died" if t.key() == "databases=4#2" else None,
    )
    one, four = density_points(given, host.all(planned(given)))
    assert (one.databases, len(one.used), one.tried, one.tainted, one.failed) == (1, 2, 3, 1, 0)
    assert (four.databases, len(four.used), four.tried, four.tainted, four.failed) == (4, 1, 3, 2, 1)
    assert four.clean
    assert four.note == ""


def test_tainted_trials_are_used_where_none_is_clean(options: Build, simulate: Any) -> None:
    given = options(databases=(4,))
    (four,) = density_points(given, simulate(given, taint=lambda t: "steal").all(planned(given)))
    assert len(four.used) == 3
    assert not four.clean
    assert "only tainted" in mean_finding(four, lambda o: o.throughput, "tps", "").note


def test_points_without_numbers_are_left_out(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 4))
    points = density_points(given, simulate(given, fail=lambda t: "died" if t.point["databases"] == 4 else None).all(planned(given)))
    assert [point.databases for point in points] == [1]


def test_what_limited_most_trials(options: Build, simulate: Any) -> None:
    given = options(databases=(4,))
    results = simulate(given).all(planned(given))
    results[0].phases[0].metrics.clear()
    assert density_points(given, results)[0].bottleneck == "cpu-quota"


def test_a_quantity_that_nobody_saw_says_why(options: Build, simulate: Any) -> None:
    given = options(databases=(4,))
    (four,) = density_points(given, simulate(given, metrics=False).all(planned(given)))
    found = mean_finding(four, lambda o: o.cpu_per_tx, "ms", "not seen")
    assert (found.value, found.n, found.note) == (None, 0, "not seen")


def test_both_notes_are_kept() -> None:
    found = as_finding(mean_interval([1.0]), "ms", "of the servers", published="2 ms", experiment="E1")
    assert found.note.startswith("of the servers; no interval: 1 repeat")
    assert (found.experiment, found.published) == ("E1", "2 ms")
