import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis import overcommitment
from pgherd.analysis.overcommitment import ONE_BLOCK, TWO_BLOCKS, Period

MB = 2**20
positive = st.floats(0.01, 1e6, allow_nan=False)


def test_headroom_and_safe_overcommitment_of_e7():
    """E7: 2 × 4096 MB configured − (1376 + 1152) MB = 5664 MB to spare, up to 69 %."""
    configured, sets = 2 * 4096 * MB, [1376 * MB, 1152 * MB]
    assert configured - sum(sets) == 5664 * MB
    assert overcommitment.max_safe_overcommit(configured, sets) == pytest.approx(0.69, abs=0.005)


def test_working_sets_beyond_the_configured_memory_leave_no_safe_overcommitment():
    assert overcommitment.max_safe_overcommit(100, [80, 70]) == 0


def test_rate_of_e5s_host():
    """8 GB configured and 55 % overcommitted leaves 3.6 GB; and back."""
    remaining = overcommitment.available_memory(8192 * MB, 0.55)
    assert remaining == pytest.approx(3686.4 * MB, rel=1e-6)
    assert overcommitment.overcommit_of(8192 * MB, remaining) == pytest.approx(0.55)


@given(st.integers(1, 2**45), st.floats(0, 0.99))
def test_available_memory_and_its_rate_agree(configured, rate):
    remaining = overcommitment.available_memory(configured, rate)
    assert 0 <= remaining <= configured
    assert overcommitment.overcommit_of(configured, remaining) == pytest.approx(rate, abs=1 / configured)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, math.nan])
def test_a_rate_outside_zero_to_one_is_none(rate):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        overcommitment.available_memory(100, rate)


@pytest.mark.parametrize("call", [lambda: overcommitment.available_memory(0, 0.1), lambda: overcommitment.overcommit_of(0, 1)])
def test_nothing_configured_has_no_rate(call):
    with pytest.raises(ValueError, match="above zero"):
        call()


def test_correction_adds_the_quiet_databases_once_more():
    periods = [[Period(30, 100), Period(2, 20)], [Period(2, 30), Period(30, 90)]]
    assert overcommitment.vcpu_corrected(periods) == pytest.approx(((120 + 20) + (120 + 30)) / 2)


def test_without_a_quiet_database_nothing_is_added():
    periods = [[Period(30, 100), Period(30, 80)], [Period(2, 10), Period(2, 12)]]
    assert overcommitment.vcpu_corrected(periods) == pytest.approx((180 + 22) / 2)


def test_an_idle_database_adds_nothing():
    assert overcommitment.vcpu_corrected([[Period(5, 50), Period(0, 0)]]) == 50


def test_a_correction_needs_a_period():
    with pytest.raises(ValueError, match="at least one period"):
        overcommitment.vcpu_corrected([])


@given(st.lists(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1e5)), min_size=1, max_size=5), min_size=1, max_size=6))
def test_correction_is_never_below_the_raw_number_nor_above_twice_it(rows):
    periods = [[Period(clients, throughput) for clients, throughput in row] for row in rows]
    raw = statistics.fmean(sum(item.throughput for item in row) for row in periods)
    result = overcommitment.vcpu_corrected(periods)
    assert raw - 1e-6 <= result <= 2 * raw + 1e-6


def test_variation_by_hand():
    """2, 4, 4, 4, 5, 5, 7, 9: mean 5, sample standard deviation √(32/7)."""
    assert overcommitment.coefficient_of_variation([2, 4, 4, 4, 5, 5, 7, 9]) == pytest.approx(math.sqrt(32 / 7) / 5)


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0]])
def test_variation_of_too_little_is_none(values):
    assert overcommitment.coefficient_of_variation(values) is None


@given(st.lists(positive, min_size=2, max_size=20), st.floats(0.1, 100))
def test_variation_does_not_depend_on_the_unit(values, factor):
    item, other = (
        overcommitment.coefficient_of_variation(values),
        overcommitment.coefficient_of_variation([value * factor for value in values]),
    )
    assert item == pytest.approx(other, rel=1e-6, abs=1e-9)


def test_productivity_of_e4s_table():
    """E4, scheme 1, 25 %: 45,303.41 NOTPM on 297.66 % of a core are 15,219.85 per fully used core."""
    assert overcommitment.throughput_per_core(45303.41, 2.9766) == pytest.approx(15219.85, rel=1e-4)
    assert overcommitment.throughput_per_core(100, 0) is None


def test_one_block_has_a_ratio_and_no_interval():
    result = overcommitment.block_ratio([120.0], [100.0])
    assert result is not None
    assert (result.value, result.low, result.high, result.note) == (pytest.approx(1.2), None, None, ONE_BLOCK)
    assert overcommitment.block_mean([3.0]).note == ONE_BLOCK
    assert overcommitment.block_mean([3.0, 4.0]).note == TWO_BLOCKS


def test_three_blocks_have_an_interval_around_their_ratio():
    result = overcommitment.block_ratio([121.0, 118.0, 120.0], [100.0, 100.0, 100.0])
    assert result is not None and result.low is not None and result.high is not None
    assert result.low < 1.197 < result.high
    assert result.n == 3


def test_pairs_are_by_block_so_that_drift_between_blocks_cancels():
    drift = [1.0, 2.0, 5.0]
    result = overcommitment.block_ratio([1.5 * x for x in drift], drift)
    assert result is not None
    assert result.value == pytest.approx(1.5)
    assert result.low == pytest.approx(1.5)


@pytest.mark.parametrize(("values", "baseline"), [([None], [1.0]), ([1.0], [None]), ([0.0], [1.0]), ([], [])])
def test_no_pair_is_no_ratio(values, baseline):
    assert overcommitment.block_ratio(values, baseline) is None


def test_ratio_of_ratios_is_what_one_keeps_over_what_the_other_keeps():
    result = overcommitment.ratio_of_ratios([60.0], [100.0], [20.0], [80.0])
    assert result is not None
    assert result.value == pytest.approx(0.6 / 0.25)
    assert overcommitment.ratio_of_ratios([60.0], [0.0], [20.0], [80.0]) is None
