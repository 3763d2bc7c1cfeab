"""Jain's index and smallest over largest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.fairness import jain, min_max

shares = st.lists(st.floats(0, 1e150), min_size=1, max_size=40)


def test_known_answers() -> None:
    assert jain([5, 5, 5]) == 1
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    # Jain, Chiu and Hawe 1984: 10 of 100 users get all, the index is 0.1
    assert jain([1] * 10 + [0] * 90) == pytest.approx(0.1)
    assert min_max([2, 4, 8]) == 0.25


@given(shares)
def test_bounds(values: list[float]) -> None:
    index, ratio = jain(values), min_max(values)
    if max(values) == 0:
        assert index is None
        assert ratio is None
    else:
        assert 1 / len(values) * (1 - 1e-9) <= index <= 1 + 1e-9
        assert 0 <= ratio <= 1


def test_nothing_shared() -> None:
    assert jain([]) is None
    assert min_max([]) is None
