"""What travels between hosts."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.cluster import interfaces as module
from pgherd.cluster.interfaces import HostLost, RoundTrip, named, on_host, this_host


def test_a_lost_host_is_told_and_survives_the_way():
    error = pickle.loads(pickle.dumps(HostLost("db3", "its agent has ended")))
    assert (error.host, error.why, str(error)) == ("db3", "its agent has ended", "host db3 is lost: its agent has ended")
    assert error.exit_code == 1


def test_a_file_is_named_with_its_host():
    """What is told of a full disk names the file alone."""
    for path, message in (("/x", "/x on host a"), (None, "a file on host a")):
        error = named(OSError(28, "No space left on device", path), "a")
        assert isinstance(error, OSError) and (error.errno, error.filename) == (28, message)


def test_code_knows_the_host_that_it_runs_on():
    with pytest.raises(LookupError):
        this_host()
    with on_host("db1"):
        assert this_host() == "db1"
        with on_host("db2"):
            assert this_host() == "db2"
        assert this_host() == "db1"


ways = st.floats(min_value=1e-6, max_value=0.5)


@given(st.floats(-100, 100), st.lists(st.tuples(ways, ways, st.floats(0, 60)), min_size=1, max_size=20))
def test_the_true_offset_lies_within_the_uncertainty_whatever_the_ways_take(true, trips):
    created = [RoundTrip(sent=1000 + at, took=remote + back, there=1000 + at + remote + true) for remote, back, at in trips]
    offset = module.combine(created)
    assert abs(offset.seconds - true) <= offset.uncertainty + 1e-9
    assert offset.uncertainty <= min(trip.took for trip in created) / 2 + 1e-9, "more trips never make it worse"
    assert offset.n == len(created) and offset.round_trip == min(trip.took for trip in created)


def test_a_known_answer():
    offset = module.combine([RoundTrip(10.0, 0.004, 10.503), RoundTrip(11.0, 0.010, 11.501)])
    # The first allows 0.499 to 0.503, the second 0.491 to 0.501.
    assert offset.seconds == pytest.approx(0.500) and offset.uncertainty == pytest.approx(0.001) and offset.at == 11.0


def test_where_the_clock_was_set_meanwhile_the_shortest_trip_counts():
    offset = module.combine([RoundTrip(10.0, 0.002, 10.001), RoundTrip(11.0, 0.1, 16.05)])
    assert offset.seconds == pytest.approx(0.0) and offset.uncertainty == pytest.approx(0.001)
    with pytest.raises(ValueError, match="no round trip"):
        module.combine([])


def test_the_clock_of_a_process_can_be_wrong_for_tests():
    program = (
        "from pgherd.cluster import interfaces; import time; true = time.time(); print(interfaces.skew_for_tests(), time.time() - true)"
    )
    environment = {**os.environ, module.SKEW: "-2.5"}
    tokens = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True).stdout.split()
    assert float(tokens[0]) == -2.5 and float(tokens[1]) == pytest.approx(-2.5, abs=0.5)
    assert module.skew_for_tests() == 0.0
