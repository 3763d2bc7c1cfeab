"""The Universal Scalability Law against the CRAN package usl and against known truth."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.analysis.fit import fit
from pgherd.analysis.usl import USL

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
    assert "lies beyond the largest load measured (40) and is not claimed" in text


parameters = st.tuples(
    st.floats(1e-3, 1e7),
    st.one_of(st.just(0.0), st.floats(1e-3, 0.5)),
    st.one_of(st.just(0.0), st.floats(1e-5, 1e-2)),
)


@given(parameters, st.sampled_from(["relative", "equal"]))
@settings(max_examples=60, deadline=None)
def test_recovers_noiseless_parameters(truth: tuple[float, float, float], weights: str) -> None:
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
