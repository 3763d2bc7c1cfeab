import re

import pytest

from pgherd.model.deployment import Link
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.network.study import STUDY


def test_a_link_bound_by_latency_is_told_with_what_it_means(options, results):
    analysis = STUDY.analyse(options(), results())
    assert (
        analysis.grade == "A"
        and "limited by latency" in analysis.answer
        and "20 Gbit/s (19.6–20.3) with 8 streams, and 3 Gbit/s with one" in analysis.answer
    )
    assert analysis.findings["streams_for_90pct"].value == 8
    single_stream_throughput = analysis.findings["single_stream_throughput"]
    assert (
        single_stream_throughput.value == pytest.approx(3)
        and single_stream_throughput.low < 3 < single_stream_throughput.high
        and single_stream_throughput.n == 3
        and single_stream_throughput.published.startswith("4.8 Gbit/s (cloud)")
    )
    assert single_stream_throughput.note == "limited by latency" and "limited" not in analysis.findings["single_stream_mb_per_s"].note
    assert (
        analysis.findings["single_stream_mb_per_s"].value == pytest.approx(375, rel=0.02)
        and analysis.findings["single_stream_mb_per_s"].unit == "MB/s"
    )
    assert analysis.findings["rtt_idle"].value == 0.5 and analysis.findings["round_trips_per_second"].value == 2000
    assert any("MB/s (2 streams reach 2 times" in text for text in analysis.next_steps)


def test_a_link_that_one_stream_fills_is_bound_by_bandwidth(options, results):
    analysis = STUDY.analyse(options(), results(each=0.2, full=0.2))
    assert (
        "limited by bandwidth" in analysis.answer and analysis.findings["streams_for_90pct"].value == 1 and "200 Mbit/s" in analysis.answer
    )
    assert analysis.findings["single_stream_throughput"].note == "limited by bandwidth"


def test_of_one_stream_alone_nothing_is_said_of_several(options, results):
    study_options = options(streams=(1,))
    analysis = STUDY.analyse(study_options, results(study_options))
    assert analysis.answer.endswith("with one stream (several were not measured); the bottleneck of one stream is unknown.")
    assert (analysis.findings["streams_for_90pct"].value, analysis.findings["streams_for_90pct"].note) == (
        None,
        "only one stream was measured",
    )


def test_a_tool_that_is_busy_itself_is_said(options, results):
    analysis = STUDY.analyse(options(), results(cpu=0.99))
    assert any("used 99% of a CPU" in text for text in analysis.warnings)
    assert analysis.findings["single_stream_throughput"].note == "limited by iperf3's CPU"


@pytest.mark.parametrize(
    ("version", "bound"),
    [("3.18", "latency"), ("3.15", "iperf3's CPU"), ("3.18 on a, 3.9 on b", "iperf3's CPU"), ("", "iperf3's CPU")],
)
def test_eight_streams_have_eight_threads_from_iperf3_3_16_on(options, results, version, bound):
    """Each stream takes 0.3 of a CPU: 2.4 CPUs of eight threads are none too many, of one they would be."""
    study_options = options(iperf3_version=version)
    analysis = STUDY.analyse(study_options, results(study_options, cpu=lambda streams: 0.3 * max(streams, 1)))
    assert analysis.findings["single_stream_throughput"].note == f"limited by {bound}"


def test_throughput_that_still_grows_asks_for_more_streams(options, results):
    analysis = STUDY.analyse(options(), results(full=1000))
    assert any("still grew at 8 streams" in text for text in analysis.warnings)


def test_the_table_has_the_published_figures_beside(options, results):
    rows = STUDY.analyse(options(), results()).tables["network"]
    assert [row["streams"] for row in rows] == ["idle (1 Mbit/s)", 1, 2, 4, 8]
    assert rows[4]["published"].startswith("23 Gbit/s (cloud)") and rows[0]["published"] is None and rows[1]["relative_to_peak"] == "15%"
    assert rows[2]["rtt"].value == 2.5 and rows[2]["retransmits"].value == 2


def test_what_only_the_sender_knows_is_missing_in_reverse(options, results):
    analysis = STUDY.analyse(options(reverse=True), results(options(reverse=True), rtt=False))
    assert analysis.findings["rtt_loaded"].value is None and "sender only" in analysis.findings["rtt_loaded"].note
    assert "round_trips_per_second" not in analysis.findings


def test_namespaces_are_never_taken_for_a_network(options, results):
    study_options = options(links=(Link(name="here", kind="namespaces"),))
    analysis = STUDY.analyse(study_options, results(study_options))
    assert analysis.grade == "B" and any("does not describe a network" in text for text in analysis.warnings)


def test_several_links_are_told_apart(options, results):
    study_options = options(links=(Link(name="db2", host="db2"), Link(name="db3", host="db3")))
    analysis = STUDY.analyse(study_options, results(study_options))
    assert {"single_stream_throughput.db2", "single_stream_throughput.db3"} <= set(analysis.findings) and {
        row["link"] for row in analysis.tables["network"]
    } == {
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
    assert " trials finished" in STUDY.analyse(options(), results(failed=(0, 1, 2, 4, 8))).answer


def test_why_tainted_trials_make_an_indication_is_said(options, results):
    maximum, item, idle = (STUDY.analyse(options(), results(tainted=tainted)) for tainted in ((2, 4), (1,), (0, 4)))
    indication = "the whole answer is an indication (grade C)"
    assert f"Only tainted trials for 2, 4 streams over the link db2 (2 of 4 points, half of them or more): {indication}" in maximum.warnings
    assert f"Only tainted trials for 1 stream over the link db2 (one stream shows the bottleneck of a link): {indication}" in item.warnings
    assert "Only tainted trials for 4 streams over the link db2: these numbers are an indication" in idle.warnings
    assert "Only tainted trials for the idle round trip over the link db2: this number is an indication" in idle.warnings


HOSTS = ("a", "b", "c")
LINKS = tuple(Link(name=far, kind="hosts", near=near, host=f"10.0.0.{far}") for near in HOSTS for far in HOSTS if near != far)


def measured(options, full, each=3.0, lost=()):
    """All planned trials: pair → what it carries, Gbit/s; a stream makes ``each``. Those of pairs in ``lost`` failed."""
    collected = []
    for number, trial in enumerate(STUDY.propose(options, []).trials, start=1):
        link, streams = trial.point["link"], trial.point["streams"]
        if link in lost:
            collected.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, error="host c is lost"))
            continue
        speed = 1e6 if streams == 0 else 1e9 * min(streams * each, full[link]) * (1 + 0.01 * (trial.repeat - 1))
        values = {"bits_per_second": speed, "rtt_ms": 0.1 if streams == 0 else full[link] / 10, "retransmits_per_second": float(streams)}
        target = TargetResult(target=link, driver="iperf3", transactions=1, throughput=speed / 8, first=0, last=1, values=values)
        phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[target])
        collected.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, phases=[phase]))
    return collected


@pytest.fixture
def between(options):
    return options(links=LINKS, streams=(1, 2, 4))


FULL = {"a/b": 9.0, "a/c": 6.0, "b/a": 9.4, "b/c": 6.2, "c/a": 5.0, "c/b": 6.4}


def test_every_pair_is_measured_alone_by_its_two_hosts(between):
    trials = STUDY.propose(between, []).trials
    assert len(trials) == 6 * 4 * 3 and between.hosts == HOSTS
    for trial in trials:
        near, far = trial.point["link"].split("/")
        assert [host.name for host in trial.deployment.hosts] == [near, far]
        assert [link.target for link in trial.deployment.links] == list(trial.phases[0].loads) == [trial.point["link"]]


def test_the_ends_of_the_range_are_named_with_their_pairs(between):
    analysis = STUDY.analyse(between, measured(between, FULL))
    slow, fast = analysis.findings["slowest_pair"], analysis.findings["fastest_pair"]
    assert slow.value == pytest.approx(5.0, rel=0.01) and slow.note.startswith("c → a") and slow.low < 5 < slow.high
    assert fast.value == pytest.approx(9.4, rel=0.01) and fast.note.startswith("b → a") and fast.low < 9.4 < fast.high
    assert "corrected for the choice" in slow.method
    assert analysis.findings["pair_imbalance"].value == pytest.approx(1 - 5 / 9.4, rel=0.02)
    assert (
        analysis.findings["single_stream_mb_per_s"].value == pytest.approx(375, rel=0.02)
        and analysis.findings["single_stream_mb_per_s"].unit == "MB/s"
    )
    assert analysis.findings["rtt_idle"].value == pytest.approx(0.1) and analysis.findings["rtt_loaded"].value == pytest.approx(0.94)
    assert analysis.findings["retransmits"].value == 4 and analysis.findings["round_trips_per_second"].value == pytest.approx(10_000)
    assert re.match(
        r"6 pairs of 3 hosts, each alone, carry (5|4\.9\d) Gbit/s \(4\.9\d*–5\.\d+, c → a\) to 9\.\d+ Gbit/s \(9\.\d+–9\.\d+, b → a\); "
        "one stream carries 3 Gbit/s, and",
        analysis.answer,
    )
    assert "is limited by latency in 6 of them" in analysis.answer and analysis.answer.endswith(
        "host c has the slowest links (table 'hosts')."
    )
    assert analysis.grade == "A" and any("over one stream, at most 37" in text for text in analysis.next_steps)


def test_streams_that_contradict_their_neighbours_are_named(options):
    given = options(links=LINKS[:2], streams=(1, 2, 4))
    results = measured(given, {"a/b": 9.0, "a/c": 9.0})
    for result in results:
        (phase,) = result.phases
        if (result.trial.point["link"], result.trial.point["streams"]) == ("a/b", 2):
            phase.targets[:] = [t.model_copy(update={"values": t.values | {"bits_per_second": 2.5e9}}) for t in phase.targets]
    (found,) = [text for text in STUDY.analyse(given, results).warnings if "contradicts both" in text]
    assert found.startswith("a/b, 2 streams: far less throughput")


def test_without_repeats_no_pair_is_named(options):
    given = options(links=LINKS, streams=(1, 2, 4), repeats=1)
    analysis = STUDY.analyse(given, measured(given, FULL))
    assert "each alone, carry 4.95 Gbit/s to 9.31 Gbit/s; one stream" in analysis.answer
    assert analysis.grade == "B", "no finding has an interval"


def test_the_matrix_has_a_row_for_each_sender(between):
    tables = STUDY.analyse(between, measured(between, FULL)).tables
    matrix = {row["from"]: row for row in tables["matrix"]}
    assert list(matrix["a"]) == ["from", "to a", "to b", "to c"] and matrix["a"]["to a"] is None
    assert matrix["c"]["to a"].value == pytest.approx(5.0, rel=0.01) and matrix["a"]["to c"].value == pytest.approx(6.0, rel=0.01)
    pairs = {(row["from"], row["to"]): row for row in tables["pairs"]}
    assert pairs["a", "b"]["single_stream_throughput"].value == pytest.approx(3) and pairs["a", "b"]["bottleneck"] == "latency"
    assert (pairs["c", "a"]["streams"], pairs["c", "a"]["trials"], pairs["c", "a"]["retransmits"].value) == (2, 12, 2)
    hosts = {row["host"]: row for row in tables["hosts"]}
    assert hosts["a"]["send_throughput"].value == pytest.approx(7.5, rel=0.01) and hosts["a"]["receive_throughput"].value == pytest.approx(
        7.2, rel=0.01
    )
    assert hosts["c"]["relative_to_mean"].value == pytest.approx(5.9 / 7, rel=0.01) and "no interval" in hosts["c"]["send_throughput"].note
    assert list(tables)[-1] == "network" and {row["link"] for row in tables["network"]} == set(FULL)


def test_pairs_of_a_lost_host_are_said_to_be_missing(between):
    lost = ("a/c", "b/c", "c/a", "c/b")
    analysis = STUDY.analyse(between, measured(between, FULL, lost=lost))
    assert analysis.grade == "C" and "No result for a/c, b/c, c/a, c/b: no trial with one stream" in " ".join(analysis.warnings)
    assert analysis.findings["slowest_pair"].note.startswith("a → b") and analysis.tables["matrix"][2]["to a"] is None
    assert analysis.tables["hosts"][2]["send_throughput"].value is None and "2 pairs of 3 hosts" in analysis.answer


def test_no_host_is_called_slow_unless_all_pairs_were_measured(between):
    analysis = STUDY.analyse(between, measured(between, FULL, lost=("a/b",)))
    slowest = analysis.findings["slowest_host"]
    assert slowest.value is None and slowest.note == "not measured: a → b" and "slowest links" not in analysis.answer


def test_nothing_at_all_is_said_so(between):
    assert " trials finished" in STUDY.analyse(between, measured(between, FULL, lost=tuple(FULL))).answer
