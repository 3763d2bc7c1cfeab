"""The best of loads: coverage of its value, of the set of candidates, and what chance adds to a maximum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.best_load import best_load, contradictions
from pgherd.analysis.bootstrap import draw_medians

PLATEAU = [100.0, 200, 400, 400, 400, 400]
PEAK = [100.0, 200, 300, 400, 330, 280]


def studies(truth: list[float], variation: float, count: int = 300):
    """Yield medians and draws of studies with three repeats of each load."""
    rng = np.random.default_rng(5)
    for seed in range(count):
        repeats = np.array(truth)[:, None] * (1 + variation * rng.standard_normal((len(truth), 3)))
        yield np.median(repeats, axis=1).tolist(), draw_medians(repeats.tolist(), seed=seed, resamples=500)


@pytest.mark.parametrize(("truth", "variation"), [(PLATEAU, 0.03), (PLATEAU, 0.1), (PEAK, 0.03), (PEAK, 0.1)])
def test_the_best_value_is_covered_and_hardly_too_high(truth: list[float], variation: float) -> None:
    found = [(max(medians), best_load(medians, draws, 18)) for medians, draws in studies(truth, variation)]
    covered = np.mean([best.value.low <= 400 <= best.value.high for _, best in found])
    right = np.mean([any(truth[i] == 400 for i in best.candidates) for _, best in found])
    bias = np.mean([best.value.value for _, best in found]) / 400 - 1
    naive = np.mean([highest for highest, _ in found]) / 400 - 1
    assert covered >= 0.92 and right >= 0.95
    assert abs(bias) <= max(0.6 * naive, 0.015)


def test_a_clear_peak_has_no_other_candidate() -> None:
    alone = [best_load(medians, draws, 18).candidates == (3,) for medians, draws in studies(PEAK, 0.02, 50)]
    assert np.mean(alone) >= 0.9


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=6))
def test_the_best_is_a_candidate_and_lies_in_its_interval(values: list[float]) -> None:
    draws = np.array(values) * (1 + 0.05 * np.random.default_rng(1).standard_normal((200, len(values))))
    best = best_load(values, draws, 3 * len(values))
    assert best.index in best.candidates and values[best.index] == max(values)
    assert best.value.low <= best.value.value <= best.value.high


def test_without_a_spread_there_are_no_candidates() -> None:
    best = best_load([1.0, 3.0, 2.0], None, 3)
    assert (best.index, best.candidates, best.value.value, best.value.low) == (1, (), 3.0, None)
    with pytest.raises(ValueError, match="no loads"):
        best_load([], None, 0)


def test_a_load_below_both_neighbours_contradicts_them() -> None:
    assert contradictions([13.2, 40.7, 31.2, 43.3]) == (2,)
    assert contradictions([10, 20, 19, 18, 30]) == ()
    assert contradictions([10, 5]) == ()


def test_draws_with_heavy_tails_do_not_lower_the_best_below_all_loads() -> None:
    """Student's t with one degree of freedom has no mean."""
    values = [100.0, 110.0, 60.0]
    draws = np.array(values) + 30 * np.random.default_rng(3).standard_cauchy((4000, 3))
    found = best_load(values, draws, 6).value
    assert 60 <= found.value <= 110 and found.low is not None and found.low <= found.value
