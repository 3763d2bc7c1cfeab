"""Drift, worst window and spread of a long run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.stability import jain, min_max, rounds_of, steadiness, steady_window

HOURS = [i / 60 for i in range(240)]


def test_a_known_drift_is_found() -> None:
    found = steadiness(HOURS, [1000 * (1 - 0.02 * h) for h in HOURS])
    assert found.drift.value == pytest.approx(-0.02 / 0.96, rel=1e-2)
    assert found.worst_at == 239


def test_the_interval_covers_and_says_when_it_cannot() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = steadiness(HOURS, (1000 * (1 + 0.02 * rng.standard_normal(240))).tolist())
        covered += found.drift.low <= 0 <= found.drift.high
    assert covered >= 88
    short = steadiness(HOURS[:4], [10, 11, 9, 10])
    assert short.drift.low is None
    assert "no interval" in short.drift.note


def series_of(windows: int, rho: float, seed: int) -> list[float]:
    """Windows without drift that scatter by 2 % in an autoregressive series."""
    steps = np.random.default_rng(seed).standard_normal(windows).tolist()
    values = list(itertools.accumulate(steps, lambda before, step: rho * before + (1 - rho**2) ** 0.5 * step))
    return [1000 * (1 + 0.02 * value) for value in values]


@pytest.mark.parametrize(("windows", "rho"), [(5, 0.8), (10, 0.0), (10, 0.8), (30, 0.0), (30, 0.5), (30, 0.8), (60, 0.8), (240, 0.8)])
def test_a_drift_interval_covers_in_short_series_that_resemble_themselves(windows: int, rho: float) -> None:
    studies = 300
    found = [steadiness(HOURS[:windows], series_of(windows, rho, seed)).drift for seed in range(studies)]
    if windows < 20:
        assert all(drift.low is None and "windows do not show" in drift.note for drift in found)
    else:
        covered = sum(drift.low <= 0 <= drift.high for drift in found)
        assert covered / studies >= 0.915, "95 % less three standard errors"


def test_a_certain_line_has_an_interval_without_width() -> None:
    found = steadiness(HOURS[:20], [1000 - i for i in range(20)]).drift
    assert found.high - found.low == pytest.approx(0, abs=1e-9)


def test_resembling_neighbours_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    steps = rng.standard_normal(240)
    smooth = np.convolve(steps, np.ones(12) / 12, mode="same") * np.sqrt(12)
    plain, slow = (steadiness(HOURS, (1000 + 20 * x).tolist()) for x in (steps, smooth))
    assert slow.autocorrelation > 0.8 > 0.3 > plain.autocorrelation
    assert slow.drift.high - slow.drift.low > 2 * (plain.drift.high - plain.drift.low)


def test_the_worst_window() -> None:
    series = [100.0] * 20
    series[7] = 60
    found = steadiness(HOURS[:20], series)
    assert (found.worst_at, found.worst) == (7, 0.6)


@pytest.mark.parametrize(("hours", "series"), [([0.0], [1.0]), ([0.0, 1], [1.0]), ([0.0, 1], [0.0, 0])])
def test_too_little_is_refused(hours: list[float], series: list[float]) -> None:
    with pytest.raises(ValueError):
        steadiness(hours, series)


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
    assert rounds_of([1, 3, 2, 4, 5, 5, 6, 8, 9, 9]) == [2, 3, 5, 7, 9]
    assert rounds_of([1, 3, 2, 4, 5, 5, 6, 8, 9, 9, 9]) == [2, 3, 5, 7, 9]
    assert rounds_of([1, 2, 3, 4]) == []


def test_the_end_of_a_series_counts():
    """The last four of nine seconds are slow. Five rounds of one second each would leave them out."""
    assert not steady_window(rounds_of([1000] * 5 + [300] * 4)).steady


@given(st.lists(st.floats(1, 1e9), min_size=5, max_size=5), st.floats(0.001, 1000))
def test_the_unit_does_not_matter(rounds, factor):
    found, scaled = steady_window(rounds), steady_window([value * factor for value in rounds])
    assert scaled.range == pytest.approx(found.range) and scaled.excursion == pytest.approx(found.excursion, abs=1e-9)


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
