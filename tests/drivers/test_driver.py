import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.drivers.driver import CumulativeCurve, driver_named, drivers, on_clock, read_rates, tells
from pgherd.model.errors import UsageError

# ---- counts over time


numbers = st.floats(0, 1e6, allow_nan=False)
curves = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20).map(lambda points: CumulativeCurve(sorted(points)))


def test_is_linear_between_points_and_flat_outside() -> None:
    curve = CumulativeCurve([(10, 0), (11, 100), (13, 500)])
    assert [curve.value_at(t) for t in (9, 10, 10.5, 11, 12, 13, 20)] == [0, 0, 50, 100, 300, 500, 500]
    assert curve.between(10.5, 12) == 250
    assert curve.per_second(10.5, 12.9) == [150, 200]


def test_a_point_that_is_not_later_replaces_the_one_before_and_counts_never_fall() -> None:
    curve = CumulativeCurve([(10, 0), (11, 100), (11, 90), (10.5, 120), (12, 80)])
    assert curve.times == [10, 11, 12]
    assert curve.counts == [0, 120, 120]


def test_whole_seconds_survive_the_rounding_of_clock_readings() -> None:
    curve = CumulativeCurve([(1795303191.9, 0), (1795303195.9, 400)])
    assert curve.per_second(1795303192.1, 1795303192.1 + 3) == pytest.approx([100, 100, 100])


def test_needs_a_point() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        CumulativeCurve([])


@given(curves, numbers, numbers)
def test_never_falls(curve: CumulativeCurve, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert curve.value_at(low) <= curve.value_at(high)
    assert curve.counts[0] <= curve.value_at(low) <= curve.counts[-1]


@given(st.lists(st.tuples(st.integers(0, 1000), numbers), min_size=1, max_size=20), st.floats(-10, 1100), st.floats(0.001, 100))
def test_a_window_has_what_numpy_interpolates(points: list[tuple[int, float]], start: float, length: float) -> None:
    curve = CumulativeCurve(sorted(points))
    first, last = np.interp([start, start + length], curve.times, curve.counts)
    assert curve.between(start, start + length) == pytest.approx(last - first, abs=1e-6)


@given(curves, numbers, st.integers(1, 30))
def test_the_seconds_of_a_window_add_up_to_it(curve: CumulativeCurve, start: float, seconds: int) -> None:
    series = curve.per_second(start, start + seconds)
    assert len(series) == seconds
    assert sum(series) == pytest.approx(curve.between(start, start + seconds), abs=1e-6)


# ---- all drivers


# ---- drivers by name


def test_finds_every_driver_by_its_own_name() -> None:
    assert "pgbench" in drivers()
    assert all(name == found.name for name, found in drivers().items())


def test_an_unknown_driver_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no driver 'idle'; known: .*pgbench"):
        driver_named("idle")


# ---- progress while a driver runs


LINE = "progress: {} s, {} tps, lat 0.8 ms stddev 0.1, 0 failed\n"
PROGRESS = LINE.format(1700000001.5, 1234.5) + LINE.format(1700000002.5, 99.0)


def test_pgbench_tells_every_second():
    assert tells("pgbench")
    assert read_rates("pgbench", PROGRESS) == [(1700000001.5, 1234.5), (1700000002.5, 99.0)]


def test_the_others_tell_nothing_before_their_end():
    for name in ("fio", "iperf3", "command", "unheard-of"):
        assert not tells(name) and read_rates(name, PROGRESS) == [] and on_clock(name, PROGRESS, 1.0) == ""


def test_what_is_told_can_be_put_on_another_clock():
    moved = on_clock("pgbench", f"pgbench (18.6)\n{PROGRESS}", 100.25)
    assert moved == LINE.format("1699999901.250", 1234.5) + LINE.format("1699999902.250", 99.0)
