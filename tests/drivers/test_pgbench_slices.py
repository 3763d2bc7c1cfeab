"""Counting by turns: on logs of which the truth is known, and on captured ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.drivers.driver import DriverSpan, MeasuredWindow
from pgherd.drivers.pgbench import DRIVER
from pgherd.drivers.pgbench_output import LoggedTransaction, PgbenchReport
from pgherd.drivers.pgbench_slices import count

TURNS = (DriverSpan(10.0, 10.5), DriverSpan(11.5, 12.0), DriverSpan(12.5, 13.0))
WINDOW = MeasuredWindow(10.0, 13.0, 13.0, TURNS, counted=0.4)


def steady(per_turn: int, latency: float = 1.0) -> list[LoggedTransaction]:
    """Return evenly spaced transactions in each slice, all logged."""
    return [LoggedTransaction(turn.first + 0.5 * (i + 1) / per_turn, latency) for turn in TURNS for i in range(per_turn)]


def test_a_steady_load_is_counted_exactly_where_all_is_logged() -> None:
    logged = steady(1000)
    found = count(PgbenchReport(3000, failed=6), logged, WINDOW, 4, "x")
    assert found.transactions == 3000 and found.failed == 6 and len(found.sample) == 3000
    assert found.throughput == pytest.approx(2000, rel=0.002)
    assert found.per_second == [pytest.approx(1000, abs=2)] * 3
    assert found.latency.mean == pytest.approx(2.0, rel=0.002), "Little: 4 clients at 2,000 tps"


def test_of_a_sample_the_share_decides_and_the_report_has_the_number() -> None:
    ramp = [LoggedTransaction(9.0 + i / 1000, 1.0) for i in range(1000)]
    found = count(PgbenchReport(20_000), [*ramp, *steady(1000)][::5], WINDOW, 4, "x")
    assert found.transactions == pytest.approx(15_000, rel=0.005), "three quarters are in the window"
    assert found.throughput == pytest.approx(10_000, rel=0.01)


def test_what_was_under_way_in_a_stop_counts_but_for_its_latency() -> None:
    spanning = [LoggedTransaction(11.5005, 1000.0), LoggedTransaction(12.5005, 500.0)]
    found = count(PgbenchReport(3002), [*steady(1000), *spanning], WINDOW, 4, "x")
    assert found.transactions == 3002 and found.latency.maximum == 1.0
    assert found.latency.sampled == 3000 - 3, "the first of a turn began a millisecond before its end, half of it before the turn"


def test_what_does_not_count_is_in_no_rate() -> None:
    burst = [LoggedTransaction(turn.first + 0.05, 1.0) for turn in TURNS for _ in range(500)]
    assert count(PgbenchReport(4500), [*steady(1000), *burst], WINDOW, 4, "x").throughput == pytest.approx(2000, rel=0.002)


def test_nothing_of_a_late_turn_s_begin_counts() -> None:
    """A slice that starts late still ends on time, so it is short. Transactions in progress end at once."""
    late = replace(WINDOW, turns=(*TURNS, DriverSpan(13.45, 13.5)), end=13.5, stop=13.5, lead=0.05)
    ready = [LoggedTransaction(13.451, 1.0) for _ in range(500)]
    assert count(PgbenchReport(3500), [*steady(1000), *ready], late, 4, "x").throughput == pytest.approx(2000, rel=0.002)


def test_what_is_too_slow_for_turns_is_an_error() -> None:
    with pytest.raises(ValueError, match="a transaction of local/a never ended in the counted time, too long .* --interleave trials"):
        count(PgbenchReport(3000), [LoggedTransaction(9.0, 1.0)], WINDOW, 4, "local/a")
    with pytest.raises(ValueError, match="never ended"):
        count(PgbenchReport(0), [], WINDOW, 4, "x")
    assert count(PgbenchReport(303), steady(101), WINDOW, 8, "x").throughput == pytest.approx(200, rel=0.02)
    with pytest.raises(ValueError, match="takes 44.4 ms, too long for time slices of which 400 ms count"):
        count(PgbenchReport(270), steady(90), WINDOW, 8, "x")


@given(st.lists(st.tuples(st.floats(9, 14), st.floats(0.01, 3000)), min_size=1), st.integers(1000, 10**6))
def test_never_more_than_all(values: list[tuple[float, float]], more: int) -> None:
    report = PgbenchReport(len(values) + more)
    try:
        found = count(report, [LoggedTransaction(at, latency) for at, latency in values], WINDOW, 2, "x")
    except ValueError:
        return
    assert 0 <= found.transactions <= report.transactions * (1 + 1e-12)
    assert sum(found.per_second) <= found.transactions * (1 + 1e-12)
    assert found.latency.maximum is None or found.latency.maximum <= 500.001, "no longer than a turn"


def test_one_turn_is_the_whole_window(capture) -> None:
    """Two ways of counting one captured run agree up to the random error of the sample."""
    run = capture("select-only")
    window = run.window(0.6, 2.8)
    plain = DRIVER.result(run.load, run.files, run.started, window, "x")
    turned = DRIVER.result(run.load, run.files, run.started, replace(window, turns=(DriverSpan(window.start, window.end),), counted=9), "x")
    scatter = 4 * plain.latency.sampled**-0.5
    assert turned.transactions == pytest.approx(plain.transactions, rel=scatter)
    assert turned.throughput == pytest.approx(plain.throughput, rel=scatter)
    assert turned.latency.mean == pytest.approx(plain.latency.mean, rel=2 * scatter)
    assert turned.latency.p50 == pytest.approx(plain.latency.p50, rel=0.01)
