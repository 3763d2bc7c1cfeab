"""The ratio of two runs that nothing pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgherd.analysis.intervals import Estimate, ratio_of_means
from pgherd.analysis.two_sample import (
    Pair,
    change_of_estimates,
    change_over_all,
    changes,
    further_repeats,
    further_repeats_over_all,
    joint,
    judge,
    limit_of,
)

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

positive = st.lists(st.floats(0.5, 2e5), min_size=1, max_size=8).map(tuple)
pairs = st.builds(Pair, old=positive, new=positive)


def scaled(pair: Pair, factor: float) -> Pair:
    return Pair(tuple(v * factor for v in pair.old), tuple(v * factor for v in pair.new))


# ---- intervals


def test_one_pair_alone_has_the_interval_of_its_ratio_of_means() -> None:
    pair = Pair((100, 110, 93, 101), (80, 90, 86))
    (result,), known = changes([pair]), ratio_of_means(pair.new, pair.old)
    assert result.value == pytest.approx(known.value)
    assert result.low == pytest.approx(known.low) and result.high == pytest.approx(known.high)


def test_the_interval_is_welchs_for_small_relative_errors() -> None:
    rng = np.random.default_rng(3)
    old, new = 1e4 + rng.normal(0, 3, 4), 1e4 + rng.normal(0, 9, 6)
    (result,) = changes([Pair(tuple(old), tuple(new))])
    known = stats.ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
    assert (result.low - 1) * 1e4 == pytest.approx(known.low, abs=0.05)
    assert (result.high - 1) * 1e4 == pytest.approx(known.high, abs=0.05)


def test_a_pair_that_looks_too_steady_gets_the_pooled_spread() -> None:
    noisy = [Pair((100, 104, 96), (101, 97, 104)) for _ in range(6)]
    steady = Pair((100.0, 100.01, 99.99), (96.0, 96.01, 95.99))
    alone, among = changes([steady])[0], changes([steady, *noisy])[0]
    assert alone.high < 0.97
    assert among.high > 1
    assert changes([noisy[0], steady])[0].high >= changes([noisy[0]])[0].high


@pytest.mark.parametrize("few", [(5.0,), (5.0, 6.0)])
def test_fewer_than_three_repeats_have_no_interval_and_say_so(few: tuple[float, ...]) -> None:
    for pair in (Pair(few, (1, 2, 3)), Pair((1, 2, 3), few)):
        (result,) = changes([pair])
        assert result.low is None and "at least 3" in result.note


def test_a_size_needs_one_value_only() -> None:
    (result,) = changes([Pair((1000.0,), (1010.0,), exact=True)])
    assert (result.value, result.low, result.high) == pytest.approx((1.01, 1.01, 1.01))
    assert change_over_all([Pair((10.0,), (11.0,), exact=True)] * 2).low == pytest.approx(1.1)


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0,), (math.nan,), (math.inf,), ()])
def test_what_has_no_ratio_is_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="above zero|both sides"):
        Pair((1.0,), values)


@given(st.lists(pairs, min_size=1, max_size=5), st.floats(1e-3, 1e3))
def test_units_do_not_matter_and_the_value_lies_in_its_interval(some: list[Pair], factor: float) -> None:
    for change, other in zip(changes(some), changes([scaled(pair, factor) for pair in some]), strict=True):
        assert change.value == pytest.approx(other.value)
        assert (change.low is None) == (other.low is None)
        if change.low is not None:
            assert change.low <= change.value * (1 + 1e-12) and change.value <= change.high * (1 + 1e-12)
            assert change.low == pytest.approx(other.low, rel=1e-6)


@given(st.lists(pairs, min_size=1, max_size=5))
def test_turning_the_runs_round_turns_the_ratio_round(some: list[Pair]) -> None:
    turned = [Pair(pair.new, pair.old) for pair in some]
    for change, other in zip(changes(some), changes(turned), strict=True):
        assert change.value == pytest.approx(1 / other.value)
        if change.low is not None:
            assert change.low == pytest.approx(1 / other.high, rel=1e-9)
    over, back = change_over_all(some), change_over_all(turned)
    assert (over is None) == (back is None)
    assert over is None or (over.value == pytest.approx(1 / back.value) and over.low == pytest.approx(1 / back.high))


def test_all_points_together_see_what_no_point_can() -> None:
    rng = np.random.default_rng(5)
    some = [Pair(tuple(rng.normal(100, 1.5, 3)), tuple(rng.normal(92, 1.5, 3))) for _ in range(8)]
    confidence = joint(9)
    assert all(judge(change, 0.05, "higher") != "regression" for change in changes(some, confidence))
    assert judge(change_over_all(some, confidence), 0.05, "higher") == "regression"


def test_points_without_a_spread_do_not_count_over_all() -> None:
    complete = [Pair((100, 101, 99), (90, 91, 89)), Pair((100, 102, 98), (90, 93, 89))]
    result = change_over_all([*complete, Pair((100.0,), (1.0,))])
    assert result.value == pytest.approx(change_over_all(complete).value)
    assert "1 of 3 points have too few repeats" in result.note
    assert change_over_all(complete[:1]) is None


# ---- estimates without their data


def test_two_estimates_add_their_errors_as_squares() -> None:
    old = Estimate(100, 100 / math.exp(0.03), 100 * math.exp(0.03), 0.95, 50, "")
    new = Estimate(90, 90 / math.exp(0.04), 90 * math.exp(0.04), 0.95, 50, "")
    result = change_of_estimates(old, new)
    assert (result.value, result.low, result.high) == pytest.approx((0.9, 0.9 * math.exp(-0.05), 0.9 * math.exp(0.05)))
    wider = change_of_estimates(old, new, 0.99)
    assert wider.low < result.low < result.high < wider.high


def test_estimates_without_an_end_bound_nothing() -> None:
    estimate = Estimate(10, 9, 11, 0.95, 5, "")
    assert change_of_estimates(Estimate(10, None, None, None, 2, ""), estimate).low is None
    open_above = change_of_estimates(estimate, Estimate(10, 9, math.inf, 0.95, 5, ""))
    assert open_above.low > 0.8 and open_above.high > 1e100
    assert change_of_estimates(estimate, Estimate(10, -1, 12, 0.95, 5, "")).low == 0
    with pytest.raises(ValueError, match="above zero, not -1"):
        change_of_estimates(estimate, Estimate(-1, -2, 0.5, 0.95, 5, ""))


def test_the_interval_of_two_estimates_holds_the_truth_as_often_as_stated() -> None:
    rng = np.random.default_rng(8)
    held = 0
    for _ in range(1000):
        sides = []
        for truth in (50.0, 40.0):
            values = rng.normal(truth, truth * 0.03, 6)
            half = stats.t.ppf(0.975, 5) * values.std(ddof=1) / math.sqrt(6)
            sides.append(Estimate(float(values.mean()), float(values.mean() - half), float(values.mean() + half), 0.95, 6, ""))
        result = change_of_estimates(*sides)
        held += result.low <= 0.8 <= result.high
    assert stats.binomtest(held, 1000).proportion_ci(0.99).high >= 0.95


# ---- verdicts


@pytest.mark.parametrize(
    ("interval", "better", "verdict"),
    [
        ((0.80, 0.90), "higher", "regression"),
        ((0.90, 0.96), "higher", "inconclusive"),
        ((0.94, 1.10), "higher", "inconclusive"),
        ((0.96, 1.04), "higher", "pass"),
        ((1.01, 1.04), "higher", "improvement"),
        ((1.06, 1.20), "lower", "regression"),
        ((1.04, 1.20), "lower", "inconclusive"),
        ((0.98, 1.04), "lower", "pass"),
        ((0.90, 0.99), "lower", "improvement"),
        ((0.95, 0.95), "higher", "pass"),
        ((1.05, 1.05), "lower", "pass"),
        ((None, None), "higher", "inconclusive"),
    ],
)
def test_the_whole_interval_decides(interval, better, verdict) -> None:
    low, high = interval
    value = 0.9 if low is None else (low + high) / 2
    assert judge(Estimate(value, low, high, 0.95, 3, ""), 0.05, better) == verdict


def test_the_joint_confidence_is_bonferronis() -> None:
    assert joint(1) == pytest.approx(0.95) and joint(10) == pytest.approx(0.995) and joint(0) == pytest.approx(0.95)


# ---- further repeats


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_so_many_further_repeats_of_the_same_spread_settle_it(better) -> None:
    rng = np.random.default_rng(11)
    limit = limit_of(0.05, better)
    base = rng.normal(100, 2, 3)
    pair = Pair(tuple(base), tuple(base * limit * (0.985 if better == "higher" else 1.015) + rng.normal(0, 0.1, 3)))
    assert judge(changes([pair])[0], 0.05, better) == "inconclusive"
    extra = further_repeats(pair, [pair], limit)
    assert extra is not None and 3 < extra < 100
    # The same spread in larger samples: many copies of the repeats, shrunk to the sample variance that they had.
    grown = [np.resize(np.asarray(values), len(values) + extra) for values in (pair.old, pair.new)]
    sides = [
        tuple(v.mean() + (v - v.mean()) * np.std(own, ddof=1) / v.std(ddof=1)) for v, own in zip(grown, (pair.old, pair.new), strict=True)
    ]
    sides = [tuple(np.asarray(v) * np.mean(own) / np.mean(v)) for v, own in zip(sides, (pair.old, pair.new), strict=True)]
    assert judge(changes([Pair(*sides)])[0], 0.05, better) == "regression"
    over = further_repeats_over_all([pair, pair], limit)
    assert over is not None and over <= extra


def test_nothing_is_promised_where_no_number_of_repeats_would_do() -> None:
    pair = Pair((100, 101, 99), (95.0, 96.0, 94.0))
    assert further_repeats(pair, [pair], 0.95) is None
    assert further_repeats(Pair((1.0,), (0.95,), exact=True), [], 0.95) is None
    assert further_repeats_over_all([pair], 0.95) is None


def test_too_few_repeats_ask_for_three_first() -> None:
    pair = Pair((100.0,), (80.0, 81.0))
    assert further_repeats(pair, [pair], 0.95) == 2
    two = Pair((100.0, 101.0), (60.0, 61.0))
    assert further_repeats(two, [two], 0.95) == 1


# ---- false alarms


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.exp(rng.normal(0, 0.02, shape))


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Student's t with two degrees of freedom: no variance at all."""
    return np.exp(0.01 * rng.standard_t(2, shape))


def bursts(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """One trial in ten is slowed down by 5 to 30 %, as by other work on the machine."""
    slowed = np.where(rng.random(shape) < 0.1, 1 - rng.uniform(0.05, 0.3, shape), 1.0)
    return slowed * np.exp(rng.normal(0, 0.01, shape))


def two_levels(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Half of the trials are 5 % faster, as by the placement of pages or processes, with little other noise."""
    return 1 + 0.05 * (rng.random(shape) < 0.5) + rng.normal(0, 1e-4, shape)


@pytest.mark.parametrize("noise", [normal, heavy, bursts, two_levels])
@pytest.mark.parametrize("points", [1, 3])
def test_two_equal_runs_of_three_repeats_alarm_in_at_most_5_per_cent(noise: Noise, points: int) -> None:
    """Nothing is allowed here (0 %), which is the hardest case; an alarm at any point or over all counts once."""
    studies = 1000
    rng = np.random.default_rng(17 + points)
    old, new = noise(rng, (studies, points, 3)), noise(rng, (studies, points, 3))
    confidence = joint(points + (points > 1))
    alarms = 0
    for row in range(studies):
        some = [Pair(tuple(a), tuple(b)) for a, b in zip(old[row].tolist(), new[row].tolist(), strict=True)]
        result = [*changes(some, confidence), change_over_all(some, confidence)]
        alarms += any(change is not None and judge(change, 0.0, "higher") == "regression" for change in result)
    upper = stats.binomtest(alarms, studies).proportion_ci(0.98).high
    assert upper <= 0.05, f"{alarms} of {studies}"


def test_a_true_loss_beyond_the_allowed_is_found() -> None:
    rng = np.random.default_rng(23)
    result = 0
    for _ in range(200):
        pair = Pair(tuple(rng.normal(100, 1, 5)), tuple(rng.normal(90, 1, 5)))
        result += judge(changes([pair])[0], 0.05, "higher") == "regression"
    assert result >= 190
