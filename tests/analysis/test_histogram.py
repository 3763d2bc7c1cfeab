import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.histogram import bounds, bucket, histogram, mean, merged, quantile, share_below

VALUES = st.lists(st.integers(0, 10**9), min_size=1, max_size=200)


@given(st.integers(0, 2**50))
def test_a_value_lies_in_its_bucket_which_is_narrow(value: int) -> None:
    low, high = bounds(bucket(value))
    assert low <= value < high
    assert high - low <= max(1, value / 32 + 1)


@given(st.integers(0, 5000))
def test_buckets_follow_each_other_without_gaps(index: int) -> None:
    assert bounds(index)[1] == bounds(index + 1)[0]


@given(VALUES)
def test_quantiles_are_those_of_the_values(values: list[int]) -> None:
    result = quantile(histogram(values), 0.5)
    exact = sorted(values)[(len(values) + 1) // 2 - 1]
    assert result is not None and abs(result - exact) <= exact / 32 + 1
    average = mean(histogram(values))
    assert average == pytest.approx(statistics.fmean(values), rel=1 / 32, abs=1)


@given(VALUES, VALUES)
def test_merging_is_the_histogram_of_both(one: list[int], other: list[int]) -> None:
    assert merged([histogram(one), histogram(other)]) == histogram(one + other)


def test_a_percentile_needs_ten_values_beyond_it() -> None:
    assert quantile(histogram(range(999)), 0.99) is None
    assert quantile(histogram(range(1000)), 0.99) == pytest.approx(990, rel=1 / 32)
    assert quantile({}, 0.5) is None


def test_share_below() -> None:
    counts = histogram([10] * 90 + [5000] * 10)
    assert share_below(counts, 1000) == pytest.approx(0.9)
    assert (share_below(counts, 0), share_below({}, 5)) == (0.0, None)
