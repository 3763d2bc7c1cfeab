"""Where a curve is least certain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.studies.scaling.certainty import doubts, medians, next_clients
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.propose import planned

Build = Callable[..., ScalingOptions]


def test_a_hinge_is_least_certain_where_it_bends() -> None:
    """Straight to 6 clients and flat from there: known at 1, 2, 4, 8, 10, 16, it can differ between 4 and 8 only."""
    found = dict(doubts([(n, min(n, 6.0)) for n in (1, 2, 4, 8, 10, 16)]))
    assert max(found, key=found.__getitem__) == 6
    # The lines through (2, 2), (4, 4) and through (8, 6), (10, 6) meet at (6, 6), one above the chord's 5.
    assert found[6] == pytest.approx(1 / 6)
    assert found[3] == found[9] == pytest.approx(0)


def test_a_peak_may_hide_before_the_last_point() -> None:
    """Nothing bounds the last gap from the right: between 4 and 12 clients, alike high, the curve may go on rising at first."""
    assert doubts([(2, 2.0), (4, 4.0), (12, 4.0)])[-1] == (8, pytest.approx(1.0))
    assert doubts([(2, 2.0), (4, 4.0), (8, 4.0), (12, 4.0)])[-1] == (9, pytest.approx(0.0))


@given(st.floats(0.01, 0.5), st.floats(0.0, 0.01), st.lists(st.integers(1, 60), min_size=3, max_size=8, unique=True))
def test_a_concave_curve_lies_within_what_is_said(sigma: float, kappa: float, clients: list[int]) -> None:
    def law(n: float) -> float:
        return n / (1 + sigma * (n - 1) + kappa * n * (n - 1))

    ordered = sorted(clients)
    curve = [(n, law(n)) for n in ordered]
    peak = max(x for _, x in curve)
    for n, doubt in doubts(curve)[:-1]:
        below = max(a for a in ordered if a < n)
        above = min(b for b in ordered if b > n)
        if not all(law(m + 1) - law(m) <= law(m) - law(m - 1) + 1e-12 for m in range(1, above + 8)):
            return  # the law turns convex past its peak
        chord = law(below) + (law(above) - law(below)) * (n - below) / (above - below)
        assert (law(n) - chord) / peak <= doubt + 1e-9


def test_too_few_points_have_no_doubts() -> None:
    assert doubts([]) == doubts([(1, 10.0)]) == []
    assert doubts([(1, 10.0), (2, 20.0), (3, 30.0)]) == [], "there is no whole number between neighbours"


def test_medians_are_of_clean_trials(options: Build, server: Any) -> None:
    planned_trials = planned(options(clients=(1, 4)))
    host = server(options(clients=(1, 4)), noise=0, taint=lambda t: "steal" if t.repeat == 0 or t.point["clients"] == 4 else None)
    assert medians(host.all(planned_trials), "") == [(1, pytest.approx(10_000)), (4, pytest.approx(28_000))]
    assert medians([], "") == []
    failed = server(options(clients=(1, 4)), fail=lambda t: "died").all(planned_trials)
    assert medians(failed, "") == []
    assert next_clients(options(), failed) is None


def test_nothing_is_added_to_a_curve_that_is_known(options: Build, server: Any, shape: Any) -> None:
    given = options(clients=(1, 2, 3, 4, 5, 6, 7, 8))
    flat = shape(knee=4, slope=0.0, peak=100)
    assert next_clients(given, server(given, {"": flat}, noise=0).all(planned(given))) is None
