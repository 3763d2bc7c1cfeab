import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.streams import NEAR_PEAK_SHARE, find_bottleneck, possible_streams
from pgherd.studies.network.link_results import CLOUD_GBITS, PREMISES_GBITS, PUBLISHED_STREAMS


def test_e14s_two_tables_are_told_apart():
    cloud = find_bottleneck(dict(zip(PUBLISHED_STREAMS, CLOUD_GBITS, strict=True)))
    assert (cloud.kind, cloud.streams_for_90pct, cloud.peak_streams, cloud.peak_throughput) == ("latency", 8, 8, 23)
    premises = find_bottleneck(dict(zip(PUBLISHED_STREAMS, PREMISES_GBITS, strict=True)))
    assert (premises.kind, premises.streams_for_90pct) == ("bandwidth", 1)


@pytest.mark.parametrize("link", [1.5, 2.0, 3.0, 7.0, 16.0])
def test_a_stream_of_one_window_a_round_trip_is_bound_by_latency_whatever_the_link(link):
    """Known truth: n streams make min(n × window ÷ RTT, link)."""
    found = find_bottleneck({n: min(float(n), link) for n in (1, 2, 4, 8, 16)})
    assert found.kind == "latency" and found.peak_throughput == link


def test_a_full_thread_is_not_taken_for_the_link():
    assert find_bottleneck({1: 5.0, 2: 5.1}, {1: 0.97}).kind == "cpu"
    assert find_bottleneck({1: 5.0, 2: 5.1}, {1: 0.5, 2: 0.6}).kind == "bandwidth"


def test_growth_that_is_neither_is_not_named():
    assert find_bottleneck({1: 1.0, 2: 1.2, 4: 1.5, 8: 1.9}).kind == "unknown"
    assert find_bottleneck({1: 1.0}).kind == "unknown"


@pytest.mark.parametrize("throughput", [{2: 1.0}, {1: 0.0}])
def test_without_one_stream_nothing_is_said(throughput):
    with pytest.raises(ValueError, match="one stream"):
        find_bottleneck(throughput)


@given(st.dictionaries(st.integers(2, 64), st.floats(0.1, 100), max_size=6), st.floats(0.1, 100))
def test_enough_streams_make_nearly_the_best(further, alone):
    throughput = {1: alone} | further
    found = find_bottleneck(throughput)
    assert (
        throughput[found.streams_for_90pct] >= NEAR_PEAK_SHARE * found.peak_throughput
        and found.peak_throughput == max(throughput.values()) == throughput[found.peak_streams]
    )
    assert all(throughput[streams] < NEAR_PEAK_SHARE * found.peak_throughput for streams in throughput if streams < found.streams_for_90pct)


@given(st.dictionaries(st.integers(1, 64), st.tuples(st.floats(1, 100), st.floats(0, 10)), min_size=1, max_size=6))
def test_the_range_holds_the_answer_of_the_middle(ends):
    low = {streams: value - min(width, value / 2) for streams, (value, width) in ends.items()}
    high = {streams: value + width for streams, (value, width) in ends.items()}
    middle = {streams: value for streams, (value, _) in ends.items()}
    best = max(middle.values())
    enough = min(streams for streams, value in middle.items() if value >= NEAR_PEAK_SHARE * best)
    found = possible_streams(low, high)
    assert not found or min(found) <= enough <= max(found)
