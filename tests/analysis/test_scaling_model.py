"""Common parts of all models: checks of the observations, AICc, warnings."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.analysis.scaling_model import HINGE, LINE, USL, aicc, fit, observations
from pgherd.model.errors import UsageError


def test_aicc_by_hand() -> None:
    # n = 7, three parameters and the variance: 7 ln(0.07/7) + 8 + 2·4·5/2
    assert aicc(0.07, 7, 3) == pytest.approx(7 * math.log(0.01) + 8 + 20)


def test_aicc_needs_two_more_observations_than_parameters_and_variance() -> None:
    assert aicc(1.0, 5, 3) is None
    assert aicc(1.0, 6, 3) is not None


@given(st.floats(1e-6, 1e6), st.integers(8, 100))
def test_more_parameters_cost_more(rss: float, n: int) -> None:
    costs = [aicc(rss, n, p) for p in (1, 2, 3)]
    assert costs == sorted(costs)


def test_observations_are_sorted_together() -> None:
    x, y = observations([3, 1, 2], [30, 10, 20])
    assert x.tolist() == [1, 2, 3]
    assert y.tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("loads", "throughputs", "said"),
    [
        ([1, 2], [1], "2 loads but 1 throughputs"),
        ([0, 1], [1, 2], "a load of 0"),
        ([1, 2], [1, -5], "a throughput of -5"),
        ([1, 2], [1, math.nan], "a throughput of nan"),
        ([1, math.inf], [1, 2], "a load of inf"),
    ],
)
def test_unusable_observations_are_refused(loads: list[float], throughputs: list[float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(LINE, loads, throughputs)


def test_too_few_loads_for_the_model_are_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match="3 parameters, but the number of distinct loads is 2"):
        fit(USL, [1, 1, 2], [1, 1.1, 2])


def test_undefined_aicc_is_said() -> None:
    for model in (LINE, HINGE):
        found = fit(model, [1, 2, 4], [1, 2, 3])
        assert found.aicc is None
        assert any(f"the number of parameters of the {model.title} model + 3: AICc is undefined" in text for text in found.warnings)


def test_passing_through_all_means_is_said() -> None:
    found = fit(USL, [1, 1, 2, 2, 4, 4], [10, 10.1, 19, 19.2, 30, 31])
    assert any("as many parameters as there are distinct loads" in text for text in found.warnings)


def test_relative_weights_let_every_load_count_alike() -> None:
    # One load is 10 % off: under relative weights it pulls the slope as much at 1 as at 100.
    low = fit(LINE, [1, 100], [11, 1000]).parameters["a"]
    high = fit(LINE, [1, 100], [10, 1100]).parameters["a"]
    assert low == pytest.approx(high)
    assert fit(LINE, [1, 100], [11, 1000], "equal").parameters["a"] == pytest.approx(10, abs=0.01)


E1 = [1, 4, 8, 16, 24, 32, 40], [64, 256, 512, 1045, 1540, 1957, 2194]


def test_a_peak_below_the_smallest_load_is_not_in_the_data() -> None:
    loads = [16.0, 24, 32, 48, 64]
    found = fit(USL, loads, [1000 * n / (1 + 0.1 * (n - 1) + 0.01 * n * (n - 1)) for n in loads])
    assert found.peak == pytest.approx(90**0.5, rel=1e-3)
    assert not found.peak_in_data
    assert any("is below the smallest load measured (16) and is not reported" in text for text in found.warnings)


@pytest.mark.parametrize("weights", ["equal", "relative"])
def test_e1_has_its_knee_near_29_and_fits_better_than_the_law(weights: str) -> None:
    hinge, law = fit(HINGE, *E1, weights), fit(USL, *E1, weights)
    assert hinge.knee == pytest.approx(28.8, abs=0.6)
    assert hinge.relative_error < law.relative_error / 3.5
    assert hinge.peak is None


@given(st.floats(1e-3, 1e6), st.floats(-1, 0.9), st.floats(2, 30), st.sampled_from(["relative", "equal"]))
@settings(max_examples=80, deadline=None)
def test_hinge_recovers_noiseless_parameters(a: float, ratio: float, k: float, weights: str) -> None:
    loads = [1, 2, 4, 8, 16, 32, 40]
    throughputs = HINGE.curve(np.array([a, a * ratio, k]), np.array(loads, dtype=float))
    if throughputs.min() <= 0.02 * throughputs.max():
        return  # falls to nothing within the data: no throughput to measure
    found = fit(HINGE, loads, throughputs.tolist(), weights)
    assert found.parameters["a"] == pytest.approx(a, rel=1e-6)
    assert found.predict(loads) == pytest.approx(throughputs.tolist(), rel=1e-6)
    if k < 16 and ratio < 0.89:  # with three loads beyond it, the knee is identifiable
        assert found.knee == pytest.approx(k, rel=1e-4)
        assert found.parameters["b"] == pytest.approx(a * ratio, rel=1e-4, abs=1e-6 * a)


@given(st.integers(0, 2**32), st.sampled_from(["relative", "equal"]), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_no_knee_on_a_fine_grid_fits_better(seed: int, weights: str, repeats: int) -> None:
    rng = np.random.default_rng(seed)
    loads = np.repeat([1.0, 2, 3, 5, 6, 8, 10], repeats)
    y = np.minimum(loads, rng.uniform(2, 12)) * np.exp(rng.normal(0, 0.1, loads.size))
    scale = y if weights == "relative" else np.full_like(y, y.mean())
    found = fit(HINGE, loads.tolist(), y.tolist(), weights)
    assert found.parameters["b"] <= found.parameters["a"]
    for k in np.linspace(1, 10, 181)[:-1]:
        design = np.column_stack([np.minimum(loads, k), np.maximum(loads - k, 0)]) / scale[:, None]
        (a, b), *_ = np.linalg.lstsq(design, y / scale, rcond=None)
        if b <= a:
            assert found.rss <= np.sum((y / scale - design @ [a, b]) ** 2) * (1 + 1e-9) + 1e-12


def test_a_straight_line_has_no_knee() -> None:
    found = fit(HINGE, [1, 2, 4, 8], [5, 10, 20, 40])
    assert found.knee is None
    assert any("no knee" in text for text in found.warnings)


def test_a_curve_that_bends_upwards_is_not_given_a_knee() -> None:
    found = fit(HINGE, [1, 2, 4, 8, 10], [5, 10, 20, 60, 90])
    assert found.parameters["b"] == found.parameters["a"]


def test_one_load_beyond_the_knee_is_said() -> None:
    found = fit(HINGE, [1, 2, 4, 8, 10], [5, 10, 20, 40, 41])
    assert any("between 8 and 10" in text for text in found.warnings)


def test_retrograde_has_its_peak_at_the_knee() -> None:
    found = fit(HINGE, [1, 2, 4, 8, 10, 12], [5, 10, 20, 40, 36, 32])
    assert found.peak == pytest.approx(8)
    assert found.peak_in_data


FIXTURES = Path(__file__).parents[1] / "fixtures" / "analysis"


def table(name: str, x: str, y: str) -> tuple[list[float], list[float]]:
    with open(FIXTURES / name) as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    return [float(row[x]) for row in rows], [float(row[y]) for row in rows]


def test_specsdm91_as_cran_usl_says() -> None:
    """Expected values: usl 2.x, tests/usl-nlxb.Rout.save and residuals.Rout.save."""
    loads, throughputs = table("specsdm91.csv", "load", "throughput")
    found = fit(USL, loads, throughputs, "equal")
    assert found.parameters["sigma"] == pytest.approx(0.0277285, abs=5e-8)
    assert found.parameters["kappa"] == pytest.approx(0.0001044, abs=5e-8)
    assert found.parameters["lambda"] == pytest.approx(89.9952330, abs=1e-4)
    assert found.standard_errors["sigma"] == pytest.approx(0.0091217, abs=5e-8)
    assert found.standard_errors["kappa"] == pytest.approx(0.0000199, abs=5e-8)
    assert found.standard_errors["lambda"] == pytest.approx(14.2134894, abs=1e-3)
    residuals = [x - y for x, y in zip(throughputs, found.predict(loads), strict=True)]
    assert residuals == pytest.approx([-25.10, -81.66, 111.09, 3.05, -49.99, -46.60, 56.00], abs=0.006)
    assert found.peak == pytest.approx(96.5, abs=0.1)
    assert found.peak_in_data


@pytest.mark.parametrize("weights", ["equal", "relative"])
def test_e1_has_sigma_at_its_bound_and_no_peak_to_claim(weights: str) -> None:
    found = fit(USL, *table("e1.csv", "databases", "measured"), weights)
    assert found.parameters["sigma"] == 0
    assert 0.9e-4 <= found.parameters["kappa"] <= 1.6e-4
    assert found.correlations["sigma", "kappa"] == pytest.approx(-0.965, abs=0.01)
    assert not found.peak_in_data
    text = " ".join(found.warnings)
    assert "sigma is at its bound" in text
    assert "not separately identifiable" in text
    assert "is beyond the largest load measured (40) and is not reported" in text


parameters = st.tuples(
    st.floats(1e-3, 1e7),
    st.one_of(st.just(0.0), st.floats(1e-3, 0.5)),
    st.one_of(st.just(0.0), st.floats(1e-5, 1e-2)),
)


@given(parameters, st.sampled_from(["relative", "equal"]))
@settings(max_examples=60, deadline=None)
def test_usl_recovers_noiseless_parameters(truth: tuple[float, float, float], weights: str) -> None:
    loads = [1, 2, 4, 8, 16, 32, 64]
    throughputs = USL.curve(np.array(truth), np.array(loads, dtype=float)).tolist()
    found = fit(USL, loads, throughputs, weights)
    assert found.parameters["lambda"] == pytest.approx(truth[0], rel=1e-5)
    assert found.parameters["sigma"] == pytest.approx(truth[1], abs=1e-6)
    assert found.parameters["kappa"] == pytest.approx(truth[2], abs=1e-7)
    assert found.relative_error < 1e-6


@given(st.floats(1e-6, 1e6), st.integers(0, 2**32), st.sampled_from(["relative", "equal"]))
@settings(max_examples=40, deadline=None)
def test_throughput_in_other_units_changes_lambda_only(factor: float, seed: int, weights: str) -> None:
    loads = np.array([1.0, 3, 7, 15, 31, 50])
    rng = np.random.default_rng(seed)
    y = USL.curve(np.array([100, 0.03, 2e-3]), loads) * (1 + 0.05 * rng.standard_normal(6))
    one, other = (fit(USL, loads.tolist(), (y * f).tolist(), weights) for f in (1.0, factor))
    assert other.parameters["lambda"] == pytest.approx(one.parameters["lambda"] * factor, rel=1e-4)
    assert other.parameters["sigma"] == pytest.approx(one.parameters["sigma"], abs=1e-5)
    assert other.parameters["kappa"] == pytest.approx(one.parameters["kappa"], abs=1e-6)


@given(st.integers(0, 2**32), st.sampled_from(["relative", "equal"]))
@settings(max_examples=40, deadline=None)
def test_no_feasible_neighbour_fits_better(seed: int, weights: str) -> None:
    """The bounded minimum against random feasible points around it."""
    rng = np.random.default_rng(seed)
    loads = np.array([1.0, 2, 3, 5, 8, 10, 12])
    y = loads * np.exp(rng.normal(0, 0.15, 7)) / (1 + rng.uniform(0, 0.3) * (loads - 1))
    found = fit(USL, loads.tolist(), y.tolist(), weights)
    scale = y if weights == "relative" else np.full_like(y, y.mean())
    assert min(found.vector) >= 0
    for _ in range(200):
        other = np.maximum(found.vector * (1 + 0.2 * rng.standard_normal(3)) + [0, 0.02, 0.002] * rng.standard_normal(3), 0)
        assert found.rss <= np.sum(((y - USL.curve(other, loads)) / scale) ** 2) * (1 + 1e-7)


def test_derivatives_are_those_of_the_curve() -> None:
    loads, at = np.array([1.0, 5, 20]), np.array([50.0, 0.05, 1e-3])
    for i, step in enumerate((1e-4, 1e-7, 1e-8)):
        shift = np.eye(3)[i] * step
        numeric = (USL.curve(at + shift, loads) - USL.curve(at - shift, loads)) / (2 * step)
        assert USL.jacobian(at, loads)[:, i] == pytest.approx(numeric, rel=1e-4)
