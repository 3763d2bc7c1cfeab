import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.cluster.interfaces import HostClockOffset
from pgherd.distributed.clock_alignment import Clocks, together
from pgherd.model.errors import TrialError
from pgherd.runner.execute.measurement_window import CommonWindow


def offset(seconds, at=0.0, uncertainty=0.001):
    return HostClockOffset(seconds=seconds, uncertainty=uncertainty, at=at, round_trip=2 * uncertainty, n=16)


def test_a_drift_between_two_readings_is_taken_for_even():
    clocks = Clocks()
    clocks.add({"a": offset(5.0, at=100.0)})
    clocks.add({"a": offset(5.2, at=200.0)})
    assert [clocks.offset("a", at) for at in (50.0, 100.0, 150.0, 200.0, 300.0)] == pytest.approx([5.0, 5.0, 5.1, 5.2, 5.2])
    assert clocks.to_host("a", 150.0) == pytest.approx(155.1)
    assert clocks.drift("a") == pytest.approx(0.2 - 0.002) and clocks.uncertainty("a") == 0.001
    assert clocks.uncertainty("b") is None
    with pytest.raises(KeyError):
        clocks.offset("b", 0.0)


def test_a_clock_that_was_set_and_set_back_meanwhile_is_seen_by_the_beats():
    clocks = Clocks()
    clocks.add({"a": offset(5.0, at=100.0), "b": offset(0.0, at=100.0)})
    clocks.add({"a": offset(5.0, at=110.0), "b": offset(0.0, at=110.0)})
    clocks.beats = {"a": [offset(5.01, uncertainty=0.02), offset(7.0, uncertainty=0.02)], "b": [offset(0.01, uncertainty=0.02)]}
    assert clocks.drift("a") == pytest.approx(2.0 - 0.021) and clocks.drift("b") == 0.0 == clocks.drift("c")
    assert clocks.uncertainty("a") == 0.001 and clocks.offset("a", 105.0) == 5.0, "no instant is counted by them"


@given(st.floats(-1e4, 1e4), st.floats(-0.01, 0.01), st.floats(1000, 2000))
def test_there_and_back_again(seconds, drift, at):
    clocks = Clocks()
    clocks.add({"a": offset(seconds, at=1000.0)})
    clocks.add({"a": offset(seconds + drift, at=2000.0)})
    # The way back looks the drift up where the offset at the host's own reading says: wrong by the drift over the offset at most.
    assert clocks.to_driver("a", clocks.to_host("a", at)) == pytest.approx(at, abs=1e-4)


def span(earliest, first, last, planned=10.0):
    return CommonWindow(earliest, first, last, planned)


def test_the_window_is_common_to_all_hosts_on_one_clock():
    clocks = Clocks()
    clocks.add({"a": offset(100.0), "b": offset(-50.0, uncertainty=0.002)})
    spans = {"a": [span(1100.0, 1101.0, 1111.0)], "b": [span(950.03, 951.02, 960.9)]}
    (result,) = together(spans, {"a": [0], "b": [0]}, clocks)
    assert (result.start, result.end) == pytest.approx((1001.02, 1010.9))
    assert result.skew == pytest.approx(0.03 + 0.004), "and what is not known of the clocks"
    assert result.overlap == pytest.approx((9.88 - 0.004) / 10)
    assert result.began == pytest.approx({"a": 1000.0, "b": 1000.03})


def test_a_host_without_load_has_no_start():
    clocks = Clocks()
    clocks.add({"a": offset(0.0), "b": offset(0.0)})
    spans = {"a": [span(0.0, 1.0, 11.0)], "b": [span(1.0, 1.0, 11.0)]}
    (result,) = together(spans, {"a": [0], "b": []}, clocks)
    assert result.skew is None and set(result.began) == {"a"}


def test_one_host_has_no_uncertainty():
    clocks = Clocks()
    clocks.add({"a": offset(7.0, uncertainty=0.5)})
    (result,) = together({"a": [span(7.0, 8.0, 18.0)]}, {"a": [0]}, clocks)
    assert result.overlap == 1.0 and result.skew is None


def test_hosts_that_never_ran_together_are_named():
    clocks = Clocks()
    clocks.add({"a": offset(0.0), "b": offset(0.0)})
    with pytest.raises(TrialError, match="phase 1: b began after a had ended"):
        together({"a": [span(0, 1, 11)], "b": [span(20, 21, 31)]}, {"a": [0], "b": [0]}, clocks)


def test_hosts_that_end_when_they_are_done_have_all_of_it_for_a_window():
    clocks = Clocks()
    clocks.add({"a": offset(0.0, uncertainty=0.0), "b": offset(100.0, uncertainty=0.0)})
    spans = {"a": [span(0, 0, 4, planned=4)], "b": [span(100.1, 100.1, 110.1, planned=10)]}
    (result,) = together(spans, {"a": [0], "b": [0]}, clocks, open_ended=True)
    assert (result.start, result.end) == pytest.approx((0.0, 10.1))
    assert result.overlap == pytest.approx(3.9 / 10.1) and result.skew == pytest.approx(0.1)
