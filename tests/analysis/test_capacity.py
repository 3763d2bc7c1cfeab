"""The load up to which efficiency holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.capacity import capacity

LOADS = [1.0, 2, 4, 8, 10]


def test_a_full_host_is_crossed_exactly() -> None:
    """Full at 8: throughput is flat from there, so 85 % is crossed at 8/0.85, wherever the next point lies."""
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
