"""How often pages are touched, by samples: those of a busy time, of a pause, and those that are so old that they mix both."""

from __future__ import annotations

import ctypes
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

USUAL = 0.1
"""Seconds between two samples but at peace, where there are as many as LONG between them."""
LONG = 1.0
HORIZON = 5.0
RELAXED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Meter:
    """A rate, and what it is told."""

    def __init__(self, pure: ctypes.CDLL, rate: float = -1) -> None:
        self._see = pure.touches_see
        self._see.restype = ctypes.c_double
        self._see.argtypes = [ctypes.POINTER(ctypes.c_double), *[ctypes.c_double] * 4]
        self._rate = ctypes.c_double(rate)

    @property
    def rate(self) -> float:
        return self._rate.value

    def see(self, share: float, seconds: float = USUAL, recent: float = 0) -> float:
        return float(self._see(self._rate, share, seconds, recent, HORIZON))


def touched(rate: float, seconds: float) -> float:
    """The share of pages that are touched at least once."""
    return 1 - math.exp(-rate * seconds)


def test_the_rate_of_independent_touches_is_found(pure):
    for rate in (0.01, 0.5, 4.0):
        meter = Meter(pure)
        assert meter.see(touched(rate, USUAL)) == pytest.approx(touched(rate, HORIZON))
        assert meter.rate == pytest.approx(rate)


def test_without_pages_nothing_is_known_or_forgotten(pure):
    meter = Meter(pure)
    assert meter.see(-1) == 1 and meter.rate < 0
    meter.see(touched(0.5, USUAL))
    assert meter.see(-1) == pytest.approx(touched(0.5, HORIZON))


def test_what_rises_is_believed_at_once_and_a_pause_by_three_quarters(pure):
    meter = Meter(pure, 0.1)
    meter.see(touched(2, USUAL))
    assert meter.rate == pytest.approx(2)
    meter.see(0)
    assert meter.rate == pytest.approx(0.5)
    meter.see(0, LONG)
    assert meter.rate == pytest.approx(2**-6)


def test_a_pool_that_has_just_become_busy_does_not_look_idle(pure):
    """For the last tenth of a second of a long sample each page is touched once a second."""
    share = touched(1, 0.1)
    assert Meter(pure, 0.01).see(share, LONG) < 0.5, "spread over all of it, more than half would be idle"
    meter = Meter(pure, 0.01)
    assert meter.see(share, LONG, USUAL) > 1 / 1.1, "nothing is, by the law"
    assert meter.rate == pytest.approx(0.1), "but nobody knows whether it is so busy"
    assert meter.see(touched(1, USUAL)) == pytest.approx(touched(1, HORIZON))
    assert meter.rate == pytest.approx(1)


def test_a_pause_in_a_long_sample_is_not_taken_for_less_than_it_may_be(pure):
    """It was busy before and is again; most of the sample lies between."""
    meter = Meter(pure, 1.0)
    assert meter.see(touched(1, 0.1), LONG, USUAL) > 1 / 1.1
    assert meter.rate > 0.6
    assert Meter(pure, 1.0).see(0, LONG, USUAL) < 0.2, "no touch at all in a second is idleness, whenever"


def test_a_sample_of_the_usual_age_is_none_of_those(pure):
    for seconds in (0.02, USUAL):
        one, other = Meter(pure, 1.0), Meter(pure, 1.0)
        assert one.see(0.01, seconds, USUAL) == other.see(0.01, seconds)
        assert one.rate == other.rate


shares = st.floats(0, 1)
times = st.floats(1e-3, 100)


@RELAXED
@given(samples=st.lists(st.tuples(st.floats(-1, 1), times, st.floats(0, 100)), max_size=10))
def test_no_sample_makes_it_break_its_bounds(pure, samples):
    meter = Meter(pure)
    for share, seconds, recent in samples:
        assert 0 <= meter.see(share, seconds, recent) <= 1
        assert math.isfinite(meter.rate)


@RELAXED
@given(rate=st.floats(0, 10), share=shares, seconds=times, recent=times)
def test_who_does_not_know_when_never_takes_more_to_be_idle(pure, rate, share, seconds, recent):
    evenly, any_time = Meter(pure, rate), Meter(pure, rate)
    assert any_time.see(share, seconds, recent) >= evenly.see(share, seconds) and any_time.rate >= evenly.rate
