"""Pages that come into the pool per second, from a count that the background writer publishes five times a second while there are any."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CADENCE = 0.2


class Meter(ctypes.Structure):
    _fields_ = [
        ("started", ctypes.c_bool),
        ("count", ctypes.c_int64),
        ("own", ctypes.c_int64),
        *((name, ctypes.c_double) for name in ("waited", "reading", "filled", "own_filled")),
    ]


See = Callable[[Meter, float, int, int], bool]


@pytest.fixture(scope="session")
def see(pure: ctypes.CDLL) -> See:
    pure.misses_see.restype = ctypes.c_bool
    pure.misses_see.argtypes = [ctypes.POINTER(Meter), ctypes.c_double, ctypes.c_double, ctypes.c_int64, ctypes.c_int64]
    return lambda meter, dt, count, own: bool(pure.misses_see(meter, dt, CADENCE, count, own))


def fed(see: See, looks: Sequence[tuple[float, int, int]]) -> tuple[Meter, bool]:
    """A meter after these looks: seconds since the one before, the published count, our own."""
    meter = Meter()
    known = False
    for dt, count, own in looks:
        known = see(meter, dt, count, own)
    return meter, known


def test_a_few_hundred_misses_are_counted(see):
    """Sixty more each 0.2 s, seen by looks of 0.1 s: 300 per second, where one changed buffer of a sample stands for as many."""
    meter, known = fed(see, [(0.1, 1000 + 60 * (n // 2), 0) for n in range(20)])
    assert known and meter.filled == pytest.approx(300) and meter.own_filled == 0


def test_the_first_look_says_nothing(see):
    assert not fed(see, [(0.1, 5000, 7)])[1]


def test_what_is_read_back_is_told_apart(see):
    meter, known = fed(see, [(0.2, 1000 * n, 900 * n) for n in range(5)])
    assert known and (meter.filled, meter.own_filled) == (pytest.approx(5000), pytest.approx(4500))


def test_silence_is_not_known(see):
    """No page came in, or the publisher is busy writing: whoever asks has to look elsewhere."""
    looks = [(0.1, 60 * (n // 2), 0) for n in range(10)]
    assert fed(see, [*looks, *[(0.1, 240, 0)] * 3])[1], "the publisher may be a little late"
    meter, known = fed(see, [*looks, *[(0.1, 240, 0)] * 8])
    assert not known and meter.filled == 0


def test_after_a_silence_the_count_is_of_one_period(see):
    """The first page after it wakes the publisher up, who says so at once, and the rest a period later."""
    meter, known = fed(see, [(0.1, 0, 40), *[(0.1, 0, 40)] * 100, (0.1, 120, 50)])
    assert known and (meter.filled, meter.own_filled) == (pytest.approx(600), pytest.approx(50))


def test_what_is_read_back_while_the_publisher_is_late_is_no_miss(see):
    """Five seconds of silence, then two in which we read 900 of 1000 pages per second back: all of them come with the late count."""
    looks = [(0.1, 0, 0), *[(0.1, 0, 0)] * 50, *[(0.1, 0, 90 * n) for n in range(1, 20)]]
    meter, known = fed(see, [*looks, (0.1, 2000, 1800)])
    assert known and (meter.filled, meter.own_filled) == (pytest.approx(1000), pytest.approx(900))
    meter, known = fed(see, [*looks, (0.1, 1800, 1800)])
    assert known and meter.filled == meter.own_filled, "no misses at all"
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
    meter = Meter()
    for dt, count, own in looks:
        see(meter, dt, count, own)
        assert math.isfinite(meter.filled) and meter.filled >= 0
        assert math.isfinite(meter.own_filled) and meter.own_filled >= 0
