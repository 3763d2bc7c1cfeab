"""Bootstrapped intervals: coverage of known truth, and their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgherd.analysis.bootstrap import bootstrap_fit, draw_means, percentiles
from pgherd.analysis.fit import fit
from pgherd.analysis.linear import LINE
from pgherd.analysis.saturating import HINGE
from pgherd.analysis.usl import USL


def test_percentiles_keep_infinite_ends() -> None:
    assert percentiles(np.array([1.0, 2, math.inf, math.inf]), 0.5) == (1.0, math.inf)


@pytest.mark.parametrize(("model", "truth", "name"), [(HINGE, [100, 5, 7.0], "k"), (LINE, [100], "a")])
def test_intervals_cover_the_truth(model: object, truth: list[float], name: str) -> None:
    """Nominal 95 %; of 60 simulated data sets at least 50 must be covered (by chance fewer: below 0.1 %)."""
    loads = np.repeat([1.0, 2, 3, 5, 6, 8, 10, 12], 3)
    clean = model.curve(np.array(truth), loads)
    covered = 0
    for seed in range(60):
        y = clean * (1 + 0.02 * np.random.default_rng(seed).standard_normal(loads.size))
        found = bootstrap_fit(fit(model, loads.tolist(), y.tolist()), loads.tolist(), y.tolist(), seed=seed)
        low, high = found.intervals[name]
        covered += low <= truth[model.parameters.index(name)] <= high
    assert covered >= 50


def test_an_unbounded_peak_has_an_infinite_end() -> None:
    loads, throughputs = [1, 4, 8, 16, 24, 32, 40], [64, 256, 512, 1045, 1540, 1957, 2194]
    found = bootstrap_fit(fit(USL, loads, throughputs), loads, throughputs)
    assert found.intervals["peak"][1] == math.inf


def test_as_many_parameters_as_observations_give_no_interval() -> None:
    plain = fit(HINGE, [1, 2, 4], [1, 2, 3])
    assert bootstrap_fit(plain, [1, 2, 4], [1, 2, 3]) is plain


def test_means_without_spread_cannot_be_drawn() -> None:
    assert draw_means([[100], [200], [300]]) is None
    assert draw_means([[100, 101], [200, 201], [300]]) is None


def test_drawn_means_spread_as_student_says() -> None:
    drawn = draw_means([[99.0, 100, 101], [200.0, 204, 196], [300.0, 306, 294]], resamples=20_000, seed=1)
    assert drawn is not None
    # Pooled relative variance (0.01² + 0.02² + 0.02²)/3 with 6 degrees of freedom; a t with 6 has variance 6/4.
    expected = math.sqrt(3e-4 / 3 * 6 / 4) * np.array([100, 200, 300])
    assert drawn.std(axis=0) == pytest.approx(expected, rel=0.05)


def test_five_repeats_speak_for_themselves() -> None:
    quiet, noisy = [100.0, 100.01, 99.99, 100, 100], [100.0, 120, 80]
    drawn = draw_means([quiet, noisy, noisy], resamples=500, seed=2)
    assert drawn is not None
    assert drawn[:, 0].std() < 0.1 < 1 < drawn[:, 1].std()
