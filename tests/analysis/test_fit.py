"""What all models share: checks of the observations, AICc, warnings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.fit import aicc, fit, observations
from pgherd.analysis.linear import LINE
from pgherd.analysis.saturating import HINGE
from pgherd.analysis.usl import USL
from pgherd.model.errors import UsageError


def test_aicc_by_hand() -> None:
    # n = 7, three parameters and the variance: 7 ln(0.07/7) + 8 + 2·4·5/2
    assert aicc(0.07, 7, 3) == pytest.approx(7 * math.log(0.01) + 8 + 20)


def test_aicc_needs_two_more_observations_than_parameters_and_variance() -> None:
    assert aicc(1.0, 5, 3) is None
    assert aicc(1.0, 6, 3) is not None


@given(st.floats(1e-6, 1e6), st.integers(8, 100))
def test_more_parameters_cost_more(rss: float, n: int) -> None:
    costs = [aicc(rss, n, p) for p in (1, 2, 3)]
    assert costs == sorted(costs)


def test_observations_are_sorted_together() -> None:
    x, y = observations([3, 1, 2], [30, 10, 20])
    assert x.tolist() == [1, 2, 3]
    assert y.tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("loads", "throughputs", "said"),
    [
        ([1, 2], [1], "2 loads but 1 throughputs"),
        ([0, 1], [1, 2], "a load of 0"),
        ([1, 2], [1, -5], "a throughput of -5"),
        ([1, 2], [1, math.nan], "a throughput of nan"),
        ([1, math.inf], [1, 2], "a load of inf"),
    ],
)
def test_unusable_observations_are_refused(loads: list[float], throughputs: list[float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(LINE, loads, throughputs)


def test_too_few_loads_for_the_model_are_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match="3 parameters, but there are 2 distinct loads"):
        fit(USL, [1, 1, 2], [1, 1.1, 2])


def test_undefined_aicc_is_said() -> None:
    found = fit(HINGE, [1, 2, 4], [1, 2, 3])
    assert found.aicc is None
    assert any("AICc is undefined" in text for text in found.warnings)


def test_passing_through_all_means_is_said() -> None:
    found = fit(USL, [1, 1, 2, 2, 4, 4], [10, 10.1, 19, 19.2, 30, 31])
    assert any("as many parameters as there are distinct loads" in text for text in found.warnings)


def test_relative_weights_let_every_load_count_alike() -> None:
    # One load is 10 % off: under relative weights it pulls the slope as much at 1 as at 100.
    low = fit(LINE, [1, 100], [11, 1000]).parameters["a"]
    high = fit(LINE, [1, 100], [10, 1100]).parameters["a"]
    assert low == pytest.approx(high)
    assert fit(LINE, [1, 100], [11, 1000], "equal").parameters["a"] == pytest.approx(10, abs=0.01)
