import pytest

from pgherd.model.deployment import Link
from pgherd.studies.network.study import STUDY


def test_a_link_bound_by_latency_is_told_with_what_it_means(options, results):
    found = STUDY.analyse(options(), results())
    assert found.grade == "A" and "bound by latency" in found.answer and "20 Gbit/s with 8 streams, and 3 Gbit/s with one" in found.answer
    assert found.findings["streams_for_90"].value == 8
    one = found.findings["one_stream"]
    assert one.value == pytest.approx(3) and one.low < 3 < one.high and one.n == 3 and one.published.startswith("4.8 Gbit/s (cloud)")
    assert one.note == "bound by latency" and "bound" not in found.findings["replication_limit"].note
    assert found.findings["replication_limit"].value == pytest.approx(375) and found.findings["replication_limit"].unit == "MB/s"
    assert found.findings["rtt_idle"].value == 0.5 and found.findings["round_trips_per_second"].value == 2000
    assert any("at most (2 streams reach 2 times" in text for text in found.look_at)


def test_a_link_that_one_stream_fills_is_bound_by_bandwidth(options, results):
    found = STUDY.analyse(options(), results(each=0.2, full=0.2))
    assert "bound by bandwidth" in found.answer and found.findings["streams_for_90"].value == 1 and "200 Mbit/s" in found.answer
    assert found.findings["one_stream"].note == "bound by bandwidth"


def test_of_one_stream_alone_nothing_is_said_of_several(options, results):
    asked = options(streams=(1,))
    found = STUDY.analyse(asked, results(asked))
    assert found.answer.endswith("with one stream, and several were not measured; what bounds one stream cannot be told.")
    assert (found.findings["streams_for_90"].value, found.findings["streams_for_90"].note) == (None, "only one stream was measured")


def test_a_tool_that_is_busy_itself_is_said(options, results):
    found = STUDY.analyse(options(), results(cpu=0.99))
    assert any("used 99% of a CPU" in text for text in found.warnings)
    assert found.findings["one_stream"].note == "bound by iperf3's CPU"


@pytest.mark.parametrize(
    ("version", "bound"),
    [("3.18", "latency"), ("3.15", "iperf3's CPU"), ("3.18 on a, 3.9 on b", "iperf3's CPU"), ("", "iperf3's CPU")],
)
def test_eight_streams_have_eight_threads_from_iperf3_3_16_on(options, results, version, bound):
    """Each stream takes 0.3 of a CPU: 2.4 CPUs of eight threads are none too many, of one they would be."""
    asked = options(iperf3_version=version)
    found = STUDY.analyse(asked, results(asked, cpu=lambda streams: 0.3 * max(streams, 1)))
    assert found.findings["one_stream"].note == f"bound by {bound}"


def test_throughput_that_still_grows_asks_for_more_streams(options, results):
    found = STUDY.analyse(options(), results(full=1000))
    assert any("still grew at 8 streams" in text for text in found.warnings)


def test_the_table_has_the_published_figures_beside(options, results):
    rows = STUDY.analyse(options(), results()).tables["network"]
    assert [row["streams"] for row in rows] == ["idle (1 Mbit/s)", 1, 2, 4, 8]
    assert rows[4]["published"].startswith("23 Gbit/s (cloud)") and rows[0]["published"] is None and rows[1]["of_best"] == "15%"
    assert rows[2]["rtt"].value == 2.5 and rows[2]["retransmits"].value == 2


def test_what_only_the_sender_knows_is_missing_in_reverse(options, results):
    found = STUDY.analyse(options(reverse=True), results(options(reverse=True), rtt=False))
    assert found.findings["rtt_loaded"].value is None and "sender only" in found.findings["rtt_loaded"].note
    assert "round_trips_per_second" not in found.findings


def test_namespaces_are_never_taken_for_a_network(options, results):
    asked = options(links=(Link(name="here", kind="namespaces"),))
    found = STUDY.analyse(asked, results(asked))
    assert found.grade == "B" and any("says nothing of a network" in text for text in found.warnings)


def test_several_links_are_told_apart(options, results):
    asked = options(links=(Link(name="db2", host="db2"), Link(name="db3", host="db3")))
    found = STUDY.analyse(asked, results(asked))
    assert {"one_stream.db2", "one_stream.db3"} <= set(found.findings) and {row["link"] for row in found.tables["network"]} == {
        "db2",
        "db3",
    }


@pytest.mark.parametrize(
    ("changes", "grade"),
    [
        ({"tainted": (4,)}, "B"),
        ({"tainted": (0, 4)}, "B"),
        ({"tainted": (2, 4)}, "C"),
        ({"tainted": (0,)}, "B"),
        ({"tainted": (1,)}, "C"),
        ({"failed": (8,)}, "B"),
        ({"failed": (1,)}, "C"),
    ],
)
def test_taints_and_failures_lower_the_grade(options, results, changes, grade):
    assert STUDY.analyse(options(), results(**changes)).grade == grade


def test_nothing_is_still_an_answer(options, results):
    assert "no trial was run" in STUDY.analyse(options(), []).answer
    assert "none of them finished" in STUDY.analyse(options(), results(failed=(0, 1, 2, 4, 8))).answer


def test_why_tainted_trials_make_an_indication_is_said(options, results):
    most, one, idle = (STUDY.analyse(options(), results(tainted=tainted)) for tainted in ((2, 4), (1,), (0, 4)))
    indication = "the whole answer is an indication (grade C)"
    assert f"Only tainted trials for 2, 4 streams over the link db2 (2 of 4 points, half of them or more): {indication}" in most.warnings
    assert f"Only tainted trials for 1 stream over the link db2 (what bounds a link is told by one stream): {indication}" in one.warnings
    assert "Only tainted trials for 4 streams over the link db2: these numbers are an indication" in idle.warnings
    assert "Only tainted trials for the idle round trip over the link db2: this number is an indication" in idle.warnings
