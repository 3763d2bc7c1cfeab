import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.compression import Stratum, ratio


def test_a_census_is_exact_and_weighted_by_size():
    found = ratio([Stratum("a", 300, 1, [100], [50]), Stratum("b", 100, 1, [100], [100])])
    assert found.value == pytest.approx(1 / (0.75 * 0.5 + 0.25 * 1.0))
    assert found.low == found.high == found.value and "every segment was read" in found.note


def test_long_segments_count_for_more():
    assert ratio([Stratum("a", 10, 2, [900, 100], [90, 100])]).value == pytest.approx(1000 / 190)


def test_few_segments_have_no_interval_and_name_the_part():
    found = ratio([Stratum("big", 1000, 50, [10, 10, 10], [5, 6, 5])])
    assert found.low is None and "fewer than 4 segments of big" in found.note


def test_the_interval_covers_the_whole_as_often_as_it_says():
    """A known population of segments, sampled again and again: 95 % intervals hold its ratio in about 95 of 100."""
    rng = random.Random(7)
    population = [1000 * rng.uniform(0.2, 0.9) for _ in range(2000)]
    truth = 1000 * len(population) / sum(population)
    held = 0
    for seed in range(200):
        sample = random.Random(seed).sample(population, 30)
        found = ratio([Stratum("a", 2_000_000, 2000, [1000.0] * 30, sample)], seed=seed)
        held += found.low <= truth <= found.high
    assert 178 <= held <= 198, held  # 0.95 · 200 ± 4 standard errors, less what 30 segments cost a percentile interval


def test_nothing_is_no_ratio():
    with pytest.raises(ValueError, match="at least one segment"):
        ratio([])


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 1)), min_size=1, max_size=30), st.integers(0, 100))
def test_any_segments_give_a_ratio_within_their_extremes(pairs, beyond):
    raw, compressed = [size for size, _ in pairs], [size * share for size, share in pairs]
    found = ratio([Stratum("a", sum(raw), len(raw) + beyond, raw, compressed)])
    shares = [share for _, share in pairs]
    assert 1 / max(shares) <= found.value * (1 + 1e-9) and found.value <= 1 / min(shares) * (1 + 1e-9)
    assert found.low is None or (found.low <= found.value <= found.high and math.isfinite(found.high))
