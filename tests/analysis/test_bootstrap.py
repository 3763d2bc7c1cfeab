"""Bootstrapped intervals: coverage of known truth, and their edges."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.bootstrap import (
    Spread,
    bootstrap_fit,
    draw_means,
    draw_medians,
    exact_median,
    mean_of_point,
    median_estimate,
    percentiles,
    relative_spreads,
    repeats_for,
)
from pgherd.analysis.scaling_model import HINGE, LINE, USL, fit


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
    drawn = draw_means([[99.0, 100, 101], [198.0, 200, 202], [297.0, 300, 303]], resamples=20_000, seed=1)
    assert drawn is not None
    # The relative variance is 0.01² with 6 degrees of freedom; a t with 6 has variance 6/4.
    expected = math.sqrt(1e-4 / 3 * 6 / 4) * np.array([100, 200, 300])
    assert drawn.std(axis=0) == pytest.approx(expected, rel=0.05)


def test_a_noisy_point_keeps_its_own_spread() -> None:
    quiet = [[100.0 * n, 101.0 * n, 99.0 * n] for n in range(1, 7)]
    spreads = relative_spreads([*quiet, [700.0, 1000.0, 400.0]])
    assert spreads is not None
    assert [spread.degrees for spread in spreads] == [12] * 5 + [6, 2], "its neighbour shares its noise"
    assert spreads[0].variance == pytest.approx(1e-4) and spreads[6].variance == pytest.approx(9 / 49)


def test_groups_do_not_share_their_spread() -> None:
    below, full = [[99.0, 100, 101]] * 3, [[80.0, 100, 120]] * 3
    spreads = relative_spreads(below + full, [0, 0, 0, 1, 1, 1])
    assert spreads is not None
    assert [spread.variance for spread in spreads] == pytest.approx([1e-4] * 3 + [0.04] * 3)
    merged = relative_spreads([[99.0, 101], [99.0, 101], [99.0, 101], [99.0, 101]], [0, 1, 1, 1])
    assert merged is not None and {spread.degrees for spread in merged} == {4}, "a group with too few repeats is merged"


@pytest.mark.parametrize("noisy", [0, 1, 2, 3, 4])
def test_a_mean_is_held_as_often_as_said(noisy: int) -> None:
    """Five points of three repeats with 4 % noise, of which some have 25 %: the 95 % intervals of all of them, over 1,000 runs."""
    rng = np.random.default_rng(7 + noisy)
    deviations, held = [0.25] * noisy + [0.04] * (5 - noisy), np.zeros(5)
    for _ in range(1000):
        repeats = [(100 * (1 + deviation * rng.standard_normal(3))).tolist() for deviation in deviations]
        spreads = relative_spreads(repeats)
        assert spreads is not None
        for i, values in enumerate(repeats):
            found = mean_of_point(values, spreads[i])
            assert found.low is not None and found.high is not None
            held[i] += found.low <= 100 <= found.high
    assert held.min() > 840 and held.mean() > 900, held


def test_repeats_for_a_width_by_hand() -> None:
    # 14 repeats: t of 13 degrees is 2.160, times 0.1667 / sqrt(14) = 0.0962.
    assert repeats_for(Spread(1 / 36, 2), 0.1) == 14
    assert repeats_for(Spread(1 / 36, 2), 0.1, most=13) is None
    assert repeats_for(Spread(0.0, 2), 0.1) == 3
    # With 12 degrees from other points t is 2.179 at once.
    assert repeats_for(Spread(0.01, 12), 0.1) == 5


@pytest.mark.parametrize(
    ("n", "low", "high", "confidence"),
    [
        # As in tables of the sign test at 5 %: the tails beyond these ranks are binomial.
        (6, 1, 6, 0.96875),
        (7, 1, 7, 0.984375),
        (8, 1, 8, 0.9921875),
        (9, 2, 8, 0.9609375),
        (10, 2, 9, 0.978515625),
        (12, 3, 10, 0.96142578125),
        (15, 4, 12, 0.96484375),
        (20, 6, 15, 0.9586105346679688),
    ],
)
def test_ranks_are_those_of_the_sign_test(n: int, low: int, high: int, confidence: float) -> None:
    found = exact_median(range(1, n + 1))
    assert (found.low, found.high) == (low, high)
    assert found.confidence == pytest.approx(confidence, abs=1e-12)


def test_too_few_repeats_have_no_exact_interval_and_say_so() -> None:
    found = exact_median([3.0, 1.0, 2.0])
    assert (found.value, found.low, found.confidence) == (2.0, None, None)
    assert "3 repeats, whose range contains the true median with 75 % confidence" in found.note
    assert exact_median([5.0]).note == "no interval: 1 repeat"
    with pytest.raises(ValueError, match="at least one"):
        exact_median([])


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=30), st.randoms())
def test_the_order_of_repeats_does_not_matter(values: list[float], chance: random.Random) -> None:
    shuffled = list(values)
    chance.shuffle(shuffled)
    assert exact_median(shuffled) == exact_median(values)
    found = exact_median(values)
    if found.low is not None and found.high is not None:
        assert found.low <= found.value <= found.high


def test_pooled_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Six points of three repeats, as a default run has: 95 % intervals from the pooled spread, over 400 runs."""
    rng = np.random.default_rng(20)
    truth = np.array([20.0, 38, 50, 55, 57, 56]) * 1000
    held = 0
    for run in range(400):
        repeats = (truth[:, None] * (1 + 0.03 * rng.standard_normal((6, 3)))).tolist()
        drawn = draw_medians(repeats, resamples=400, seed=run)
        assert drawn is not None
        for i, values in enumerate(repeats):
            found = median_estimate(values, drawn[:, i])
            assert found.low is not None and found.high is not None
            held += found.low <= truth[i] <= found.high
    # Points of one run share their spread, so the standard error of the share is taken with 400 runs, not 2,400 points.
    assert 0.92 <= held / 2400 <= 0.985


def test_draws_centre_on_the_medians_and_are_repeatable() -> None:
    repeats = [[9.9, 10.0, 10.2], [19.8, 20.0, 20.3]]
    drawn = draw_medians(repeats, seed=3)
    assert drawn is not None and drawn.shape == (1000, 2)
    assert np.median(drawn, axis=0) == pytest.approx([10, 20], rel=0.005)
    assert np.array_equal(drawn, draw_medians(repeats, seed=3))
    low, high = percentiles(drawn[:, 0])
    assert low < 10 < high


def test_without_a_spread_there_are_no_draws() -> None:
    assert draw_medians([[10.0], [20.0, 21.0]]) is None
    found = median_estimate([20.0, 21.0], None)
    assert found.low is None and "no interval" in found.note


def test_enough_repeats_take_the_exact_interval() -> None:
    values = [1.0, 2, 3, 4, 5, 6]
    drawn = draw_medians([values, values])
    assert drawn is not None
    assert "exact" in median_estimate(values, drawn[:, 0]).method
