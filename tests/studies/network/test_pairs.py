import pytest

from pgherd.model.deployment import Link
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.studies.network.study import STUDY

HOSTS = ("a", "b", "c")
LINKS = tuple(Link(name=far, kind="hosts", near=near, host=f"10.0.0.{far}") for near in HOSTS for far in HOSTS if near != far)


def measured(options, full, each=3.0, lost=()):
    """All planned trials: pair → what it carries, Gbit/s; a stream makes ``each``. Those of pairs in ``lost`` failed."""
    found = []
    for number, trial in enumerate(STUDY.propose(options, []).trials, start=1):
        link, streams = trial.point["link"], trial.point["streams"]
        if link in lost:
            found.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, error="host c is lost"))
            continue
        speed = 1e6 if streams == 0 else 1e9 * min(streams * each, full[link]) * (1 + 0.01 * (trial.repeat - 1))
        values = {"bits_per_second": speed, "rtt_ms": 0.1 if streams == 0 else full[link] / 10, "retransmits_per_second": float(streams)}
        target = TargetResult(target=link, driver="iperf3", transactions=1, throughput=speed / 8, first=0, last=1, values=values)
        phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[target])
        found.append(TrialResult(id=f"{number:04d}", trial=trial, started=0, ended=1, phases=[phase]))
    return found


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
    found = STUDY.analyse(between, measured(between, FULL))
    slow, fast = found.findings["pair_slowest"], found.findings["pair_fastest"]
    assert slow.value == pytest.approx(5.0) and slow.note.startswith("c → a; with 2 streams") and slow.low < 5 < slow.high
    assert fast.value == pytest.approx(9.4) and fast.note.startswith("b → a; with 4 streams")
    assert found.findings["pair_imbalance"].value == pytest.approx(1 - 5 / 9.4)
    assert found.findings["replication_limit"].value == pytest.approx(375) and found.findings["replication_limit"].unit == "MB/s"
    assert found.findings["rtt_idle"].value == pytest.approx(0.1) and found.findings["rtt_loaded"].value == pytest.approx(0.94)
    assert found.findings["retransmits"].value == 4 and found.findings["round_trips_per_second"].value == pytest.approx(10_000)
    assert found.answer.startswith(
        "6 pairs of 3 hosts, each alone, carry 5 Gbit/s (c → a) to 9.4 Gbit/s (b → a); one stream carries 3 Gbit/s, and"
    )
    assert "is bound by latency in 6 of them" in found.answer and found.answer.endswith(
        "host c has the slowest links, 84% of the hosts' mean (no interval shows it)."
    )
    assert found.grade == "A" and any("375 MB/s at most" in text for text in found.look_at)


def test_the_matrix_has_a_row_for_each_sender(between):
    tables = STUDY.analyse(between, measured(between, FULL)).tables
    matrix = {row["from"]: row for row in tables["matrix"]}
    assert list(matrix["a"]) == ["from", "to a", "to b", "to c"] and matrix["a"]["to a"] is None
    assert matrix["c"]["to a"].value == pytest.approx(5.0) and matrix["a"]["to c"].value == pytest.approx(6.0)
    pairs = {(row["from"], row["to"]): row for row in tables["pairs"]}
    assert pairs["a", "b"]["one_stream"].value == pytest.approx(3) and pairs["a", "b"]["bound"] == "latency"
    assert (pairs["c", "a"]["streams"], pairs["c", "a"]["trials"], pairs["c", "a"]["retransmits"].value) == (2, 12, 2)
    hosts = {row["host"]: row for row in tables["hosts"]}
    assert hosts["a"]["sends"].value == pytest.approx(7.5) and hosts["a"]["receives"].value == pytest.approx(7.2)
    assert hosts["c"]["relative"].value == pytest.approx(5.9 / 7) and "no interval" in hosts["c"]["sends"].note
    assert list(tables)[-1] == "network" and {row["link"] for row in tables["network"]} == set(FULL)


def test_pairs_of_a_lost_host_are_said_to_be_missing(between):
    lost = ("a/c", "b/c", "c/a", "c/b")
    found = STUDY.analyse(between, measured(between, FULL, lost=lost))
    assert found.grade == "C" and "Nothing is said of a/c, b/c, c/a, c/b: no trial of one stream" in " ".join(found.warnings)
    assert found.findings["pair_slowest"].note.startswith("a → b") and found.tables["matrix"][2]["to a"] is None
    assert found.tables["hosts"][2]["sends"].value is None and "2 pairs of 3 hosts" in found.answer


def test_no_host_is_called_slow_unless_all_pairs_were_measured(between):
    found = STUDY.analyse(between, measured(between, FULL, lost=("a/b",)))
    slowest = found.findings["host_slowest"]
    assert slowest.value is None and slowest.note == "not measured: a → b" and "slowest links" not in found.answer


def test_nothing_at_all_is_said_so(between):
    assert "none of them finished" in STUDY.analyse(between, measured(between, FULL, lost=tuple(FULL))).answer
