import pytest

from pgherd.model.analysis import Finding
from pgherd.studies.network.link_results import (
    CLOUD_GBITS,
    PREMISES_GBITS,
    PUBLISHED_STREAMS,
    best_streams,
    format_speed,
    group_trials,
    link_bottleneck,
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
    found = replication_bandwidth(Finding(value=8.0, low=7.0, high=9.0, unit="Gbit/s", n=3))
    assert (found.value, found.low, found.high, found.unit) == (1000, 875, 1125, "MB/s")
    trips = round_trips(Finding(value=0.5, low=0.4, high=0.8, unit="ms", n=3))
    assert (trips.value, trips.low, trips.high) == (2000, 1250, 2500)
    assert round_trips(Finding(value=None, unit="ms", n=0)) is None


@pytest.mark.parametrize(("gbits", "text"), [(9.41, "9.41 Gbit/s"), (0.2, "200 Mbit/s")])
def test_speeds_are_told_in_a_unit_that_fits(gbits, text):
    assert format_speed(gbits) == text


def test_e14s_figures_stand_beside_their_numbers_of_streams():
    assert published_text(1).startswith("4.8 Gbit/s (cloud), 21.4 Gbit/s (on premises)") and published_text(3) is None
    assert len(PUBLISHED_STREAMS) == len(CLOUD_GBITS) == len(PREMISES_GBITS) and CLOUD_GBITS[-1] == PREMISES_GBITS[-1] == 23


def test_streams_that_cannot_be_told_apart_are_all_named(results):
    """Two streams fill the link, and trials scatter by 10 %: the peak is at 6 Gbit/s with any number from 2 on."""
    peak, streams = best_streams(group_trials(results(full=6.0, spread=0.1), "db2"))
    assert streams == [2, 4, 8] and peak.low < 6 < peak.high
    assert streams_text(streams) == "2, 4 or 8 streams (not distinguishable)"
    assert (streams_text([1]), streams_text([4])) == ("one stream", "4 streams")
