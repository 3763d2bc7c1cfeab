"""The hinge against brute force, known truth and E1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.analysis.fit import fit
from pgherd.analysis.saturating import HINGE
from pgherd.analysis.usl import USL

E1 = [1, 4, 8, 16, 24, 32, 40], [64, 256, 512, 1045, 1540, 1957, 2194]


@pytest.mark.parametrize("weights", ["equal", "relative"])
def test_e1_has_its_knee_near_29_and_fits_better_than_the_law(weights: str) -> None:
    hinge, law = fit(HINGE, *E1, weights), fit(USL, *E1, weights)
    assert hinge.knee == pytest.approx(28.8, abs=0.6)
    assert hinge.relative_error < law.relative_error / 3.5
    assert hinge.peak is None


@given(st.floats(1e-3, 1e6), st.floats(-1, 0.9), st.floats(2, 30), st.sampled_from(["relative", "equal"]))
@settings(max_examples=80, deadline=None)
def test_recovers_noiseless_parameters(a: float, ratio: float, k: float, weights: str) -> None:
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
