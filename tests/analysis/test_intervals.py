"""Intervals of few repeats."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as t_distribution

from pgherd.analysis.intervals import mean_interval, median_interval, ratio_of_means, share_interval, student

values = st.lists(st.floats(1, 1e6), min_size=3, max_size=20)


def test_student_quantiles_as_in_any_table() -> None:
    assert student(0.95, 2) == pytest.approx(4.303, abs=5e-4)
    assert student(0.95, 9) == pytest.approx(2.262, abs=5e-4)
    assert student(0.90, 9) == pytest.approx(1.833, abs=5e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 13, 40])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_student(degrees: int, confidence: float) -> None:
    assert student(confidence, degrees) == pytest.approx(t_distribution.ppf(0.5 + confidence / 2, degrees), rel=1e-9)


def test_mean_by_hand() -> None:
    found = mean_interval([10, 12, 14])
    assert found.value == 12
    assert found.high == pytest.approx(12 + 4.30265 * 2 / math.sqrt(3), abs=1e-3)
    assert found.confidence == 0.95


@pytest.mark.parametrize("few", [[5.0], [5.0, 6.0]])
def test_fewer_than_three_repeats_have_no_interval_and_say_so(few: list[float]) -> None:
    for found in (mean_interval(few), median_interval(few), ratio_of_means(few, [1, 2, 3])):
        assert found.low is None
        assert found.high is None
        assert found.confidence is None
        assert "no interval" in found.note


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (50, 18, 33), (100, 40, 61), (10_000, 4902, 5099)],
)
def test_ranks_of_the_median_are_those_of_the_tables(n: int, low: int, high: int) -> None:
    """Ranks at 95 % as in any table of the sign test, such as Conover's A3."""
    found = median_interval([float(value) for value in range(n, 0, -1)])
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize("n", [6, 7, 9, 12, 25])
def test_the_median_of_a_skewed_distribution_is_covered(n: int) -> None:
    rng = random.Random(f"median {n}")
    found = [median_interval([rng.expovariate(1) for _ in range(n)]) for _ in range(2000)]
    covered = sum(one.low <= math.log(2) <= one.high for one in found) / len(found)
    assert covered > 0.94


def test_nothing_has_no_mean() -> None:
    for call in (mean_interval, median_interval):
        with pytest.raises(ValueError):
            call([])
    with pytest.raises(ValueError):
        ratio_of_means([], [1])
    with pytest.raises(ValueError):
        ratio_of_means([0, 0], [1, 1])


@given(values)
def test_the_value_lies_in_its_interval(repeats: list[float]) -> None:
    mean = mean_interval(repeats)
    assert mean.low is not None or "range from" in mean.note
    median = median_interval(repeats)
    assert (median.low is None) == (len(repeats) < 6)
    for found in (*(one for one in (mean, median) if one.low is not None), ratio_of_means(repeats, repeats)):
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value * (1 + 1e-9)
        assert found.value <= found.high * (1 + 1e-9)


@given(values, values, st.floats(1e-3, 1e3))
def test_a_ratio_does_not_depend_on_the_unit(top: list[float], bottom: list[float], factor: float) -> None:
    one = ratio_of_means(top, bottom)
    other = ratio_of_means([x * factor for x in top], [x * factor for x in bottom])
    assert other.value == pytest.approx(one.value, rel=1e-9)
    assert other.low == pytest.approx(one.low, rel=1e-6)


def test_the_inverse_ratio_has_the_inverse_interval() -> None:
    one, other = ratio_of_means([9, 10, 11], [4, 5, 5.5]), ratio_of_means([4, 5, 5.5], [9, 10, 11])
    assert one.low is not None
    assert other.high == pytest.approx(1 / one.low)


def test_ratio_agrees_with_fieller() -> None:
    """Fieller's interval, worked out for equal numbers of repeats and small relative errors."""
    top, bottom = np.array([100.0, 101, 99, 100.5, 99.5]), np.array([50.0, 50.4, 49.6, 50.2, 49.8])
    found = ratio_of_means(top.tolist(), bottom.tolist())
    a, b, va, vb = top.mean(), bottom.mean(), top.var(ddof=1) / 5, bottom.var(ddof=1) / 5
    t = student(0.95, 8)
    g = t * t * vb / b**2
    centre, half = (a / b) / (1 - g), t / (b * (1 - g)) * math.sqrt(va * (1 - g) + (a / b) ** 2 * vb)
    assert found.low == pytest.approx(centre - half, rel=1e-4)
    assert found.high == pytest.approx(centre + half, rel=1e-4)


def test_coverage_of_the_ratio() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        found = ratio_of_means((90 * (1 + 0.03 * rng.standard_normal(3))).tolist(), (100 * (1 + 0.03 * rng.standard_normal(5))).tolist())
        covered += found.low <= 0.9 <= found.high
    assert covered >= 365  # nominal 380; below 365 by chance: less than 0.1 %


def test_scaling_scales_both_ends() -> None:
    found = mean_interval([10, 12, 14]).scaled(10)
    assert found.value == 120
    assert found.low == pytest.approx(mean_interval([100, 120, 140]).low)


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=8))
def test_an_interval_of_what_cannot_be_negative_never_is(values: list[float]) -> None:
    found = mean_interval(values)
    if found.low is None:
        assert found.note == f"no interval: the {len(values)} repeats range from {min(values):.3g} to {max(values):.3g}"
    else:
        assert found.low >= -1e-9 * max(values)


def test_retransmits_have_a_range_and_values_that_change_sign_an_interval() -> None:
    assert mean_interval([0.0, 0.0, 812.0]).note == "no interval: the 3 repeats range from 0 to 812"
    assert mean_interval([0.0, 0.0, 0.0]).high == 0
    assert mean_interval([-1.0, 0.0, 1.0]).low < 0
    assert mean_interval([0.0, 0.1, 0.9], signed=True).low < 0


@pytest.mark.parametrize(
    "hits, n, low, high",
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (9, 10, 0.5550, 0.9975), (6, 6, 0.5407, 1.0), (5, 10, 0.1871, 0.8129)],
)
def test_share_interval_known_answers(hits, n, low, high):
    """Clopper and Pearson's tables at 95 %."""
    found = share_interval(hits, n)
    assert found.value == hits / n and found.n == n
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_share_interval_needs_a_trial():
    with pytest.raises(ValueError, match="at least one"):
        share_interval(0, 0)
