import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.clock_offset import between, bounds

WAY = st.floats(0, 10)


@given(st.floats(-1e6, 1e6), WAY, WAY, WAY)
def test_the_true_lead_lies_within_the_bounds_whatever_the_ways_took(lead, there, pause, back):
    request = 1000.0
    came = request + there + lead
    low, high = bounds(request, came, came + pause, request + there + pause + back)
    assert low - 1e-6 <= lead <= high + 1e-6
    assert high - low == pytest.approx(there + back, abs=1e-6)


def test_the_middle_is_ntps_offset():
    """RFC 5905, section 8: theta = ((T2 - T1) + (T3 - T4)) / 2."""
    t1, t2, t3, t4 = 10.0, 110.02, 110.03, 10.07
    low, high = bounds(t1, t2, t3, t4)
    assert (low + high) / 2 == pytest.approx(((t2 - t1) + (t3 - t4)) / 2)


def test_between_two_measurements_it_changes_evenly_and_beyond_them_not():
    measured = [(10.0, 1.0), (20.0, 3.0), (40.0, -1.0)]
    assert [between(measured, at) for at in (0, 10, 15, 20, 30, 40, 99)] == [1, 1, 2, 3, 1, -1, -1]
    with pytest.raises(ValueError, match="no measurement of the clock"):
        between([], 0)
