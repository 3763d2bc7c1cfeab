"""The curve: which perfect counts, reading between points, databases held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.density.curve import Curve, curve, held_finding, shape_findings
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import group
from pgherd.studies.density.propose import planned

Build = Callable[..., DensityOptions]


def line(options: DensityOptions, host: Any) -> Curve:
    return curve(options, group(options, host.all(planned(options))))


@pytest.mark.parametrize(("alone", "basis"), [(1.0, "one"), (0.97, "one"), (0.9, "slope"), (1.1, "one")])
def test_the_perfect_that_does_not_flatter(options: Build, simulate: Any, alone: float, basis: str) -> None:
    assert line(options(), simulate(options(), alone=alone, noise=0)).basis == basis


def test_efficiency_is_read_between_points_along_the_throughput(options: Build, simulate: Any) -> None:
    given = options(points=(1, 2, 6, 12))  # full at 8, which was not measured: throughput there lies between 6 and 12
    found, note = line(given, simulate(given, noise=0)).efficiency_at(1.0, "one")
    assert found is not None
    assert found.value == pytest.approx((6 + (8 - 6) * (8 - 6) / (12 - 6)) / 8)
    assert "interpolated at 8 databases" in note


def test_a_fraction_outside_the_points_is_not_read(options: Build, simulate: Any) -> None:
    given = options(points=(1, 2, 3))
    found, note = line(given, simulate(given)).efficiency_at(1.0, "one")
    assert found is None
    assert "no point at or around 100 %" in note


def test_held_names_its_neighbours_and_method(options: Build, simulate: Any) -> None:
    found = held_finding(line(options(), simulate(options())), "one")
    assert "between the measured 8 and 10" in found.note
    assert "one-database value" in found.method
    assert found.unit == "databases"


@pytest.mark.parametrize("points", [(1, 8, 10), (1, 2, 4, 8, 10), (1, 2, 3, 5, 6, 8, 10)])
@pytest.mark.parametrize("alone", [0.7, 0.8, 0.9])
def test_one_that_is_slow_alone_does_not_pull_the_crossing_down(
    options: Build, simulate: Any, points: tuple[int, ...], alone: float
) -> None:
    given = options(points=points)
    assert held_finding(line(given, simulate(given, alone=alone, noise=0)), "slope").value == pytest.approx(8 / 0.85)


def test_n_counts_trials(options: Build, simulate: Any) -> None:
    given = options(points=(1, 2, 6, 12))
    found = line(given, simulate(given))
    assert found.slope.n == 6  # three each of 2 and 6 databases
    assert held_finding(found, "one").n == 14
    read, _ = found.efficiency_at(1.0, "one")
    assert read is not None
    assert read.n == 3


def test_a_slope_of_one_point_is_no_measure_of_it(options: Build, simulate: Any) -> None:
    given = options(points=(1, 12))
    own = line(given, simulate(given)).efficiency(0, "slope")
    assert (own.value, own.low) == (1.0, None)


def test_an_open_upper_end_is_said(options: Build, simulate: Any) -> None:
    """10 databases get 80 % here: with noise the crossing lies below 10 in one run and beyond it in another."""
    given = options(points=(1, 2, 4, 8, 10), at=0.8)
    below = held_finding(line(given, simulate(given, noise=0.02, seed=1)), "one")
    assert below.low < below.value < below.high == 10
    assert "upper end lies beyond the largest number measured (10)" in below.note
    beyond = held_finding(line(given, simulate(given, noise=0.02, seed=0)), "one")
    assert beyond.value is None
    assert "at least 9 databases are held (from 9." in beyond.note


def test_saturation_is_not_claimed_while_it_rises(options: Build, simulate: Any) -> None:
    given = options(points=(1, 2, 3, 5))
    found = shape_findings(line(given, simulate(given)))
    assert found["saturation"].value is None
    assert "still rises" in found["saturation"].note
    assert "still rising" in found["peak_throughput"].note
    assert found["throughput_beyond_peak"].value == 1
    assert found["throughput_beyond_peak"].low is None


def test_a_fall_beyond_the_peak(options: Build, simulate: Any) -> None:
    class Falling(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) * (1 if n <= 8 else 0.8)

    found = shape_findings(line(options(), Falling(options())))
    beyond = found["throughput_beyond_peak"]
    assert beyond.value == pytest.approx(0.8, abs=0.03)
    assert beyond.high < 1
    assert "% below that at" in beyond.note


def test_one_point_alone_has_a_curve(options: Build, simulate: Any) -> None:
    given = options(points=(4,))
    only = line(given, simulate(given))
    assert only.one is None
    assert only.basis == "slope"
    assert held_finding(only, "slope").value is None
    assert "only one number" in held_finding(only, "slope").note
    found = shape_findings(only)
    for name in ("end_of_linear", "saturation"):
        assert found[name].value is None
        assert "only one number" in found[name].note
