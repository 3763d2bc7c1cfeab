"""pg_balloon's rates.c: access rate from samples of pages, miss rate from a count that the background writer publishes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

USUAL = 0.1
"""Seconds between two samples but at peace, where there are as many as LONG between them."""
LONG = 1.0
HORIZON = 5.0
RELAXED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class AccessRate:
    """A rate, and what it is told."""

    def __init__(self, pure: ctypes.CDLL, rate: float = -1) -> None:
        self._see = pure.access_rate_update
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
        meter = AccessRate(pure)
        assert meter.see(touched(rate, USUAL)) == pytest.approx(touched(rate, HORIZON))
        assert meter.rate == pytest.approx(rate)


def test_without_pages_nothing_is_known_or_forgotten(pure):
    meter = AccessRate(pure)
    assert meter.see(-1) == 1 and meter.rate < 0
    meter.see(touched(0.5, USUAL))
    assert meter.see(-1) == pytest.approx(touched(0.5, HORIZON))


def test_what_rises_is_believed_at_once_and_a_pause_by_three_quarters(pure):
    meter = AccessRate(pure, 0.1)
    meter.see(touched(2, USUAL))
    assert meter.rate == pytest.approx(2)
    meter.see(0)
    assert meter.rate == pytest.approx(0.5)
    meter.see(0, LONG)
    assert meter.rate == pytest.approx(2**-6)


def test_a_pool_that_has_just_become_busy_does_not_look_idle(pure):
    """For the last tenth of a second of a long sample each page is touched once a second."""
    share = touched(1, 0.1)
    assert AccessRate(pure, 0.01).see(share, LONG) < 0.5, "spread over all of it, more than half would be idle"
    meter = AccessRate(pure, 0.01)
    assert meter.see(share, LONG, USUAL) > 1 / 1.1, "nothing is, by the law"
    assert meter.rate == pytest.approx(0.1), "but nobody knows whether it is so busy"
    assert meter.see(touched(1, USUAL)) == pytest.approx(touched(1, HORIZON))
    assert meter.rate == pytest.approx(1)


def test_a_pause_in_a_long_sample_is_not_taken_for_less_than_it_may_be(pure):
    """It was busy before and is again; most of the sample lies between."""
    meter = AccessRate(pure, 1.0)
    assert meter.see(touched(1, 0.1), LONG, USUAL) > 1 / 1.1
    assert meter.rate > 0.6
    assert AccessRate(pure, 1.0).see(0, LONG, USUAL) < 0.2, "no touch at all in a second is idleness, whenever"


def test_a_sample_of_the_usual_age_is_none_of_those(pure):
    for seconds in (0.02, USUAL):
        item, other = AccessRate(pure, 1.0), AccessRate(pure, 1.0)
        assert item.see(0.01, seconds, USUAL) == other.see(0.01, seconds)
        assert item.rate == other.rate


shares = st.floats(0, 1)
times = st.floats(1e-3, 100)


@RELAXED
@given(samples=st.lists(st.tuples(st.floats(-1, 1), times, st.floats(0, 100)), max_size=10))
def test_no_sample_makes_it_break_its_bounds(pure, samples):
    meter = AccessRate(pure)
    for share, seconds, recent in samples:
        assert 0 <= meter.see(share, seconds, recent) <= 1
        assert math.isfinite(meter.rate)


@RELAXED
@given(rate=st.floats(0, 10), share=shares, seconds=times, recent=times)
def test_who_does_not_know_when_never_takes_more_to_be_idle(pure, rate, share, seconds, recent):
    evenly, any_time = AccessRate(pure, rate), AccessRate(pure, rate)
    assert any_time.see(share, seconds, recent) >= evenly.see(share, seconds) and any_time.rate >= evenly.rate


CADENCE = 0.2


class MissRate(ctypes.Structure):
    _fields_ = [
        ("started", ctypes.c_bool),
        ("count", ctypes.c_int64),
        ("read_back", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("silent_s", "read_back_s", "filled", "read_back_filled")),
    ]


See = Callable[[MissRate, float, int, int], bool]


@pytest.fixture(scope="session")
def see(pure: ctypes.CDLL) -> See:
    pure.miss_rate_update.restype = ctypes.c_bool
    pure.miss_rate_update.argtypes = [ctypes.POINTER(MissRate), ctypes.c_double, ctypes.c_double, ctypes.c_int64, ctypes.c_int64]
    return lambda meter, dt, count, own: bool(pure.miss_rate_update(meter, dt, CADENCE, count, own))


def fed(see: See, looks: Sequence[tuple[float, int, int]]) -> tuple[MissRate, bool]:
    """A meter after these looks: seconds since the one before, the published count, our own."""
    meter = MissRate()
    known = False
    for dt, count, own in looks:
        known = see(meter, dt, count, own)
    return meter, known


def test_a_few_hundred_misses_are_counted(see):
    """Sixty more each 0.2 s, seen by looks of 0.1 s: 300 per second, where one changed buffer of a sample stands for as many."""
    meter, known = fed(see, [(0.1, 1000 + 60 * (n // 2), 0) for n in range(20)])
    assert known and meter.filled == pytest.approx(300) and meter.read_back_filled == 0


def test_the_first_look_says_nothing(see):
    assert not fed(see, [(0.1, 5000, 7)])[1]


def test_what_is_read_back_is_told_apart(see):
    meter, known = fed(see, [(0.2, 1000 * n, 900 * n) for n in range(5)])
    assert known and (meter.filled, meter.read_back_filled) == (pytest.approx(5000), pytest.approx(4500))


def test_silence_is_not_known(see):
    """No page came in, or the publisher is busy writing: whoever asks has to look elsewhere."""
    looks = [(0.1, 60 * (n // 2), 0) for n in range(10)]
    assert fed(see, [*looks, *[(0.1, 240, 0)] * 3])[1], "the publisher may be a little late"
    meter, known = fed(see, [*looks, *[(0.1, 240, 0)] * 8])
    assert not known and meter.filled == 0


def test_after_a_silence_the_count_is_of_one_period(see):
    """The first page after it wakes the publisher up, who says so at once, and the rest a period later."""
    meter, known = fed(see, [(0.1, 0, 40), *[(0.1, 0, 40)] * 100, (0.1, 120, 50)])
    assert known and (meter.filled, meter.read_back_filled) == (pytest.approx(600), pytest.approx(50))


def test_what_is_read_back_while_the_publisher_is_late_is_no_miss(see):
    """Five seconds of silence, then two in which we read 900 of 1000 pages per second back: all of them come with the late count."""
    looks = [(0.1, 0, 0), *[(0.1, 0, 0)] * 50, *[(0.1, 0, 90 * n) for n in range(1, 20)]]
    meter, known = fed(see, [*looks, (0.1, 2000, 1800)])
    assert known and (meter.filled, meter.read_back_filled) == (pytest.approx(1000), pytest.approx(900))
    meter, known = fed(see, [*looks, (0.1, 1800, 1800)])
    assert known and meter.filled == meter.read_back_filled, "no misses at all"
    assert see(meter, 0.2, 2000, 1800) and meter.filled == pytest.approx(1000), "and the next period is its own again"


def test_looks_that_are_rarer_than_publications(see):
    meter, known = fed(see, [(60, 0, 0), (60, 60_000, 0)])
    assert known and meter.filled == pytest.approx(1000)


def test_statistics_that_were_set_back(see):
    meter, known = fed(see, [(0.2, 1000, 0), (0.2, 1100, 0), (0.2, 3, 0)])
    assert not known
    assert see(meter, 0.2, 103, 0) and meter.filled == pytest.approx(500)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(looks=st.lists(st.tuples(st.floats(0.001, 100), st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=20))
def test_no_count_makes_it_break_its_bounds(see, looks):
    meter = MissRate()
    for dt, count, own in looks:
        see(meter, dt, count, own)
        assert math.isfinite(meter.filled) and meter.filled >= 0
        assert math.isfinite(meter.read_back_filled) and meter.read_back_filled >= 0
