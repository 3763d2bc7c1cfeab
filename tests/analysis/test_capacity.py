"""The load up to which efficiency holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.bootstrap import draw_means
from pgherd.analysis.capacity import Retrograde, capacity, linear_region, retrograde
from pgherd.model.errors import UsageError

LOADS = [1.0, 2, 4, 8, 10]


def test_a_full_host_is_crossed_exactly() -> None:
    """Full at 8: throughput is flat from there, so 85 % is crossed at 8/0.85, for any next point."""
    for last in (10.0, 12.0, 20.0):
        found = capacity([1, 2, 4, 8, last], [1, 1, 1, 1, 8 / last], 0.85)
        assert found.value == pytest.approx(8 / 0.85)
        assert (found.below, found.above) == (8, last)


def test_never_below_and_always_below() -> None:
    high = capacity(LOADS, [1, 1, 1, 0.95, 0.9], 0.85)
    assert high.value is None
    assert high.never_below
    low = capacity(LOADS, [0.8, 0.7, 0.6, 0.5, 0.4], 0.85)
    assert low.value is None
    assert not low.never_below


def test_a_dip_by_noise_does_not_end_it() -> None:
    found = capacity(LOADS, [1, 0.84, 0.97, 0.96, 0.7], 0.85)
    assert found.value is not None
    assert 8 < found.value < 10


@given(st.lists(st.floats(0.05, 1.2), min_size=5, max_size=5), st.floats(0.3, 1))
def test_it_lies_between_its_neighbours_and_falls_with_the_demand(efficiencies: list[float], at: float) -> None:
    found, harder = capacity(LOADS, efficiencies, at), capacity(LOADS, efficiencies, min(at * 1.1, 1.0))
    if found.value is not None:
        assert found.below <= found.value <= found.above
    if found.value is not None and harder.value is not None:
        assert harder.value <= found.value + 1e-9


def test_draws_give_the_interval_and_an_open_end() -> None:
    rng = np.random.default_rng(1)
    draws = np.array([1, 1, 1, 1, 0.8]) * (1 + 0.01 * rng.standard_normal((500, 5)))
    found = capacity(LOADS, [1, 1, 1, 1, 0.8], 0.85, draws=draws)
    assert found.low < found.value < found.high
    assert not found.open
    near = np.array([1, 1, 1, 1, 0.84]) * (1 + 0.02 * rng.standard_normal((500, 5)))
    found = capacity(LOADS, [1, 1, 1, 1, 0.84], 0.85, draws=near)
    assert found.open
    assert found.high == 10


def test_e1_is_linear_up_to_80_percent_of_its_cores() -> None:
    found = linear_region([1, 4, 8, 16, 24, 32, 40], [64, 256, 512, 1045, 1540, 1957, 2194])
    assert (found.end, found.next) == (32, 40)
    assert found.slope == pytest.approx(64, abs=0.5)


@given(st.floats(1e-3, 1e6), st.integers(2, 9))
def test_a_hinge_ends_where_it_bends(slope: float, k: int) -> None:
    loads = [float(n) for n in range(1, 13)]
    found = linear_region(loads, [slope * min(n, k) for n in loads])
    assert k <= found.end <= k / 0.95
    assert found.slope == pytest.approx(slope, rel=0.06)


def test_a_line_has_no_end_in_the_data() -> None:
    found = linear_region([1, 2, 4], [10, 20, 40])
    assert found.end == 4
    assert found.next is None


@pytest.mark.parametrize("alone", [0.8, 1.2])
def test_one_that_is_odd_alone_does_not_move_the_region(alone: float) -> None:
    loads = [1.0, 2, 3, 5, 6, 8, 10]
    found = linear_region(loads, [100 * alone, 200, 300, 500, 600, 800, 800])
    assert (found.end, found.slope) == (8, 100)


def test_a_slow_decline_does_not_carry_the_slope_along() -> None:
    """Each load falls a little below the one before; the region must end, not creep on."""
    loads = [1.0, 2, 3, 5, 6, 8, 10]
    found = linear_region(loads, [n * 100 * 0.96**i for i, n in enumerate(loads)])
    assert found.end <= 3


def test_a_load_that_failed_is_in_no_slope() -> None:
    found = linear_region([1, 2, 3, 4, 5, 6], [100, 200, 300, 240, 500, 600])
    assert (found.end, found.next, found.used, found.slope) == (3, 4, (1, 2), 100)


def test_the_reference_does_not_creep_with_the_curve() -> None:
    """Each load loses two points of efficiency: 94 % of the first is the last that is within 95 % of the second and third."""
    found = linear_region(range(1, 8), [n * (100 - 2 * (n - 1)) for n in range(1, 8)])
    assert found.end == 4


@given(st.lists(st.floats(10, 200), min_size=2, max_size=9))
def test_a_region_has_no_gaps_and_its_loads_hold_its_rate(rates: list[float]) -> None:
    loads = [float(n) for n in range(1, len(rates) + 1)]
    found = linear_region(loads, [n * rate for n, rate in zip(loads, rates, strict=True)])
    last = loads.index(found.end)
    assert found.used == tuple(range(1, last + 1)) or (last == 0 and found.used == (0,))
    reference = sum(rates[1 : min(last, 3)] or rates[1:2]) / len(rates[1 : min(last, 3)] or rates[1:2])
    assert all(rates[i] >= 0.95 * min(reference, rates[1]) * (1 - 1e-9) for i in range(3, last + 1))


def test_one_load_is_its_own_region() -> None:
    assert linear_region([4], [100]).slope == 25


@pytest.mark.parametrize("loads", [[], [2, 1], [1, 1]])
def test_loads_must_ascend(loads: list[float]) -> None:
    with pytest.raises(UsageError):
        linear_region(loads, [1.0] * len(loads))


def measured_decline(repeats: list[list[float]], seed: int = 1) -> Retrograde:
    return retrograde(
        range(1, len(repeats) + 1),
        [sum(values) / len(values) for values in repeats],
        draw_means(repeats, seed=seed),
        sum(map(len, repeats)),
    )


def test_retrograde_only_beyond_the_noise() -> None:
    assert measured_decline([[10, 10, 10.1], [20, 20.1, 20.2], [15, 15.1, 14.9]]).falls is True
    assert measured_decline([[10, 10, 10.1], [20, 20.1, 20.2], [20, 20.05, 19.95]]).falls is False
    rising = measured_decline([[10, 10, 10.1], [20, 20.1, 20.2]])
    assert rising.falls is False
    assert (rising.ratio.value, rising.ratio.low) == (1.0, None)  # the best load over itself has no spread
    unknown = measured_decline([[10.0], [20.0], [15.0]])
    assert unknown.falls is None and unknown.ratio.value == 0.75
    assert "too few repeats" in unknown.ratio.note


@pytest.mark.parametrize(("last", "decline"), [(400.0, 1.0), (320.0, 0.8)])
def test_the_choice_of_the_best_load_is_no_decline(last: float, decline: float) -> None:
    """Four equal loads and noise of 10 %: the highest mean is 7 % too high, which is no decline after it."""
    rng = np.random.default_rng(7)
    truth = np.array([200, 400, 400, 400, last])
    found = [measured_decline((truth[:, None] * (1 + 0.1 * rng.standard_normal((5, 3)))).tolist(), seed) for seed in range(300)]
    known = [each.ratio for each in found if each.ratio.low is not None]
    assert np.mean([ratio.low <= decline <= ratio.high + 1e-9 for ratio in known]) >= 0.93
    if decline == 1:
        assert np.mean([each.falls is True for each in found]) <= 0.03


def test_one_that_is_fast_alone_does_not_count_where_few_loads_follow() -> None:
    assert linear_region([1, 2, 3], [130, 200, 300]).end == 3
