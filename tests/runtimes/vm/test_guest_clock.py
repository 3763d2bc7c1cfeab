from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.runtimes.vm.guest_clock import GuestClock, Offset, measure

DELAYS = st.floats(0.0, 0.5)


class Simulated:
    """Two clocks, and a way between them that takes as long as it is told to."""

    def __init__(self, ahead: float, ways: list[tuple[float, float, float]]) -> None:
        self.time, self.ahead, self.ways = 1.7e9, ahead, list(ways)

    def host(self) -> float:
        return self.time

    def ask(self) -> tuple[float, float]:
        there, thinking, back = self.ways.pop(0)
        self.time += there
        received = self.time + self.ahead
        self.time += thinking
        sent = self.time + self.ahead
        self.time += back
        return received, sent


def test_offset_and_half_the_way_by_the_formulas_of_rfc_5905():
    """T1 = 0, T2 = 0.6, T3 = 0.7, T4 = 0.3."""
    instants = iter([0.0, 0.3])
    found = measure(lambda: (0.6, 0.7), 1, lambda: next(instants))
    assert found.offset == pytest.approx(0.5) and found.uncertainty == pytest.approx(0.1) and found.at == pytest.approx(0.15)


@given(st.floats(-1e5, 1e5), st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=8))
def test_the_truth_is_within_the_uncertainty_however_the_way_splits(ahead, ways):
    simulated = Simulated(ahead, ways)
    found = measure(simulated.ask, len(ways), simulated.host)
    assert abs(found.offset - ahead) <= found.uncertainty + 1e-6
    assert found.uncertainty <= min(there + back for there, _, back in ways) / 2 + 1e-6, "the shortest way counts"


def test_it_must_be_asked_at_least_once():
    with pytest.raises(ValueError, match="at least once"):
        measure(lambda: (0.0, 0.0), 0)


def clock(*offsets: tuple[float, float]) -> GuestClock:
    made = GuestClock()
    for at, offset in offsets:
        made.add(Offset(at, offset, 0.001))
    return made


def test_between_two_measurements_the_offset_changes_linearly():
    one = clock((100.0, 5.0), (200.0, 5.1))
    assert [one.guest(at) for at in (0.0, 100.0, 150.0, 200.0, 300.0)] == pytest.approx([5.0, 105.0, 155.05, 205.1, 305.1])
    assert one.drift == pytest.approx(0.001) and one.uncertainty == 0.001


def test_drift_within_the_uncertainty_is_none():
    assert clock((100.0, 5.0)).drift is None
    assert clock((100.0, 5.0), (200.0, 5.002)).drift is None
    assert clock((100.0, 5.0), (100.0, 6.0)).drift is None


def test_measurements_are_kept_in_order():
    one = clock((200.0, 2.0), (100.0, 1.0), (150.0, 1.5))
    assert [offset.at for offset in one.measured] == [100.0, 150.0, 200.0]


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(-0.4, 0.4)), min_size=1, max_size=6, unique_by=lambda pair: round(pair[0])),
    st.floats(-1e4, 2e4),
)
def test_there_and_back(offsets, at):
    one = clock(*[(10 * round(when), change) for when, change in offsets])
    assert one.host(one.guest(at)) == pytest.approx(at, abs=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.floats(-0.4, 0.4)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]),
    st.floats(-100, 1100),
    st.floats(0, 50),
)
def test_what_was_later_in_the_guest_is_later_on_the_host(offsets, at, more):
    one = clock(*offsets)
    assert one.host(at) <= one.host(at + more) + 1e-9


@pytest.mark.parametrize("ask", [lambda c: c.guest(1.0), lambda c: c.host(1.0), lambda c: c.uncertainty])
def test_nothing_is_converted_before_it_was_measured(ask):
    with pytest.raises(ValueError, match="has not been measured"):
        ask(GuestClock())
