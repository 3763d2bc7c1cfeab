"""Choosing a model: none where the data are too few, linear where there is no knee, piecewise linear for E1."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pgherd.analysis.model_selection import fit_models
from pgherd.analysis.scaling_model import HINGE, USL
from pgherd.model.errors import UsageError

E1 = [1, 4, 8, 16, 24, 32, 40], [64, 256, 512, 1045, 1540, 1957, 2194]


def noisy(curve: np.ndarray, seed: int, repeats: int = 3, noise: float = 0.01) -> list[float]:
    rng = np.random.default_rng(seed)
    return (np.repeat(curve, repeats) * (1 + noise * rng.standard_normal(curve.size * repeats))).tolist()


def test_e1_is_piecewise_linear() -> None:
    models = fit_models(*E1)
    assert models.best is not None
    assert models.best.model is HINGE
    assert models.akaike["piecewise-linear"] > 0.9
    low, high = models.best.intervals["knee"]
    assert low < 29 < high


@pytest.mark.parametrize("seed", range(5))
def test_data_without_a_knee_are_a_line(seed: int) -> None:
    loads = np.array([1.0, 2, 3, 5, 6, 8, 10])
    models = fit_models(np.repeat(loads, 3).tolist(), noisy(100 * loads, seed), resamples=0)
    assert models.best is not None
    assert models.best.model.name == "linear"


@pytest.mark.parametrize("seed", range(5))
def test_a_law_is_recognised(seed: int) -> None:
    loads = np.array([1.0, 2, 4, 8, 16, 32, 64])
    models = fit_models(np.repeat(loads, 3).tolist(), noisy(USL.curve(np.array([100, 0.05, 1e-4]), loads), seed), resamples=0)
    assert models.best is not None
    assert models.best.model.name == "usl"


@pytest.mark.parametrize("seed", range(5))
def test_a_full_host_is_piecewise_linear(seed: int) -> None:
    loads = np.array([1.0, 2, 3, 5, 6, 8, 10, 12])
    models = fit_models(np.repeat(loads, 3).tolist(), noisy(np.minimum(loads, 7.2) * 1000, seed))
    assert models.best is not None
    assert models.best.model.name == "piecewise-linear"
    low, high = models.best.intervals["knee"]
    assert low - 0.1 <= 7.2 <= high + 0.1


def test_two_loads_choose_nothing_and_say_why() -> None:
    models = fit_models([1, 2], [10, 20])
    assert models.best is None
    assert "too few" in models.reason
    assert len(models.warnings) == 2
    assert models.get("usl") is None


def test_a_model_that_passes_through_all_means_is_not_chosen() -> None:
    models = fit_models([1] * 4 + [2] * 4 + [4] * 4, noisy(np.array([10.0, 18, 20]), 1, 4), resamples=0)
    assert models.best is not None
    assert models.best.model.name == "linear"


def test_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        fit_models([], [])


def test_the_same_data_give_the_same_intervals() -> None:
    item, other = fit_models(*E1, seed=3), fit_models(*E1, seed=3)
    assert [fit.intervals for fit in item.fits] == [fit.intervals for fit in other.fits]


def test_it_is_cheap() -> None:
    """The budget is 2 s of CPU for all models with intervals; imports aside, it takes a tenth of that."""
    fit_models(*E1, resamples=0)
    begun = time.process_time()
    fit_models(*E1)
    assert time.process_time() - begun < 2
