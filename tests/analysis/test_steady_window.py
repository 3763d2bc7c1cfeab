"""The rule of SNIA's test specification on windows whose answer is known by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.steady_window import rounds_of, steady_window


@pytest.mark.parametrize(
    ("rounds", "within", "rise", "steady"),
    [
        ([100, 100, 100, 100, 100], 0.0, 0.0, True),
        ([90, 110, 90, 110, 100], 0.2, 0.08, True),  # slope: (−2·−10 −1·10 +1·10 +2·0)/10 = 2 a round, 8 over the window
        ([95, 97.5, 100, 102.5, 105], 0.1, 0.1, True),  # both at their bounds or below: 10 % is within
        ([94, 97, 100, 103, 106], 0.12, 0.12, False),  # a line that rises by 12 %
        ([100, 100, 125, 100, 100], 25 / 105, 0.0, False),  # one round far off
        ([106, 103, 100, 97, 94], 0.12, -0.12, False),
    ],
)
def test_known_windows(rounds, within, rise, steady):
    found = steady_window(rounds)
    assert found.range == pytest.approx(within) and found.excursion == pytest.approx(rise)
    assert found.steady is steady


def test_nothing_is_said_of_too_little():
    assert steady_window([1]) is None and steady_window([]) is None and steady_window([0, 0, 0]) is None


def test_rounds_are_parts_alike_in_length():
    assert rounds_of([1, 3, 2, 4, 5, 5, 6, 8, 9, 9, 100]) == [2, 3, 5, 7, 9]
    assert rounds_of([1, 2, 3, 4]) == []


@given(st.lists(st.floats(1, 1e9), min_size=5, max_size=5), st.floats(0.001, 1000))
def test_the_unit_does_not_matter(rounds, factor):
    found, scaled = steady_window(rounds), steady_window([value * factor for value in rounds])
    assert scaled.range == pytest.approx(found.range) and scaled.excursion == pytest.approx(found.excursion, abs=1e-9)
