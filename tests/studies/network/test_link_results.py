import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.analysis import Finding
from pgherd.studies.network.link_results import (
    CLOUD_GBITS,
    NEAR_PEAK_SHARE,
    PREMISES_GBITS,
    PUBLISHED_STREAMS,
    best_streams,
    find_bottleneck,
    format_speed,
    group_trials,
    link_bottleneck,
    possible_streams,
    published_text,
    replication_bandwidth,
    round_trips,
    streams_text,
)


def test_clean_trials_count_where_there_are_any(options, results):
    groups = group_trials(results(tainted=(4,)), "db2")
    assert list(groups) == [0, 1, 2, 4, 8] and groups[2].clean and not groups[4].clean
    assert (groups[4].tainted, groups[4].tried) == (3, 3) and "only tainted" in groups[4].throughput.note
    assert group_trials(results(), "elsewhere") == {}


def test_the_limit_of_a_link_takes_one_stream(results):
    groups = group_trials(results(), "db2")
    assert link_bottleneck(groups, "").kind == "latency"
    assert link_bottleneck({streams: group for streams, group in groups.items() if streams != 1}, "") is None


def test_throughput_and_round_trips_in_other_words():
    result = replication_bandwidth(Finding(value=8.0, low=7.0, high=9.0, unit="Gbit/s", n=3))
    assert (result.value, result.low, result.high, result.unit) == (1000, 875, 1125, "MB/s")
    trips = round_trips(Finding(value=0.5, low=0.4, high=0.8, unit="ms", n=3))
    assert (trips.value, trips.low, trips.high) == (2000, 1250, 2500)
    assert round_trips(Finding(value=None, unit="ms", n=0)) is None


@pytest.mark.parametrize(("gbits", "text"), [(9.41, "9.41 Gbit/s"), (0.2, "200 Mbit/s")])
def test_speeds_are_told_in_a_unit_that_fits(gbits, text):
    assert format_speed(gbits) == text


def test_e14s_figures_stand_beside_their_numbers_of_streams():
    assert published_text(1).startswith("4.8 Gbit/s (cloud), 21.4 Gbit/s (on premises)") and published_text(3) is None
    assert len(PUBLISHED_STREAMS) == len(CLOUD_GBITS) == len(PREMISES_GBITS) and CLOUD_GBITS[-1] == PREMISES_GBITS[-1] == 23


def test_e14s_two_tables_are_told_apart():
    cloud = find_bottleneck(dict(zip(PUBLISHED_STREAMS, CLOUD_GBITS, strict=True)))
    assert (cloud.kind, cloud.streams_for_90pct, cloud.peak_streams, cloud.peak_throughput) == ("latency", 8, 8, 23)
    premises = find_bottleneck(dict(zip(PUBLISHED_STREAMS, PREMISES_GBITS, strict=True)))
    assert (premises.kind, premises.streams_for_90pct) == ("bandwidth", 1)


@pytest.mark.parametrize("link", [1.5, 2.0, 3.0, 7.0, 16.0])
def test_a_stream_of_one_window_a_round_trip_is_bound_by_latency_whatever_the_link(link):
    """Known truth: n streams make min(n × window ÷ RTT, link)."""
    bottleneck = find_bottleneck({n: min(float(n), link) for n in (1, 2, 4, 8, 16)})
    assert bottleneck.kind == "latency" and bottleneck.peak_throughput == link


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
    bottleneck = find_bottleneck(throughput)
    assert (
        throughput[bottleneck.streams_for_90pct] >= NEAR_PEAK_SHARE * bottleneck.peak_throughput
        and bottleneck.peak_throughput == max(throughput.values()) == throughput[bottleneck.peak_streams]
    )
    assert all(
        throughput[streams] < NEAR_PEAK_SHARE * bottleneck.peak_throughput
        for streams in throughput
        if streams < bottleneck.streams_for_90pct
    )


@given(st.dictionaries(st.integers(1, 64), st.tuples(st.floats(1, 100), st.floats(0, 10)), min_size=1, max_size=6))
def test_the_range_holds_the_answer_of_the_middle(ends):
    low = {streams: value - min(width, value / 2) for streams, (value, width) in ends.items()}
    high = {streams: value + width for streams, (value, width) in ends.items()}
    middle = {streams: value for streams, (value, _) in ends.items()}
    best = max(middle.values())
    enough = min(streams for streams, value in middle.items() if value >= NEAR_PEAK_SHARE * best)
    result = possible_streams(low, high)
    assert not result or min(result) <= enough <= max(result)


def test_streams_that_cannot_be_told_apart_are_all_named(results):
    """Two streams fill the link, and trials scatter by 10 %: the peak is at 6 Gbit/s with any number from 2 on."""
    peak, streams = best_streams(group_trials(results(full=6.0, spread=0.1), "db2"))
    assert streams == [2, 4, 8] and peak.low < 6 < peak.high
    assert streams_text(streams) == "2, 4 or 8 streams (not distinguishable)"
    assert (streams_text([1]), streams_text([4])) == ("one stream", "4 streams")
