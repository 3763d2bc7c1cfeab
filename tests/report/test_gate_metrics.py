from __future__ import annotations

import pytest

from pgherd.model.errors import UsageError
from pgherd.report.gate_metrics import GateRun, MetricLimit, compared, default_metric, direction, is_metric, metric_of


@pytest.fixture(scope="module")
def run(run8) -> GateRun:
    return GateRun("a", *run8)


def test_throughput_of_every_clean_trial_by_point(run):
    outcome = {item.point: item for item in compared(run, run, "throughput")}
    clean = [result for result in run.results if result.trial.point == {"databases": 3} and not result.tainted]
    assert outcome["databases 3"].pair.old == pytest.approx([result.phases[0].throughput for result in clean])
    assert len(clean) == 2 and not outcome["databases 3"].tainted
    assert list(outcome)[:3] == ["databases 1", "databases 2", "databases 3"] and list(outcome)[-1] == "databases 10"


def test_a_point_without_a_clean_trial_is_an_indication(run):
    first = [result for result in run.results if result.trial.point == {"databases": 3} and result.tainted]
    (item,) = compared(GateRun("b", run.record, first), run, "throughput")
    assert item.tainted == "only tainted trials in b" and len(item.pair.old) == 1


def test_names_are_metrics_or_not(run):
    assert is_metric(run, run, "p99") and not is_metric(run, run, "efficiency_at_saturation")
    assert default_metric(run.record) == "throughput"
    assert default_metric(run.record.model_copy(update={"study": "isolation"})) == "worst_p99_ratio"
    assert metric_of("database_bytes", run.results).unit == "bytes" and metric_of("p95", run.results).label == "p95 latency"
    assert metric_of("throughput", run.results).unit == "tps"


def test_what_is_counted_depends_on_the_driver(run):
    fio = [_with_driver(result, "fio") for result in run.results]
    assert metric_of("throughput", fio).unit == "IOPS" and metric_of("p95", fio).unit == "ms"
    assert metric_of("throughput", [*run.results[:1], *fio[:1]]).unit == "1/s", "both together are neither"


def _with_driver(result, driver):
    phases = tuple(
        phase.model_copy(update={"loads": {target: load.model_copy(update={"driver": driver}) for target, load in phase.loads.items()}})
        for phase in result.trial.phases
    )
    return result.model_copy(update={"trial": result.trial.model_copy(update={"phases": phases})})


@pytest.mark.parametrize(
    ("name", "unit", "known", "better"),
    [
        ("throughput", "tps", "higher", "higher"),
        ("size_1000", "MB", "", "lower"),
        ("capacity", "databases", "", "higher"),
        ("headroom", "MB", "", "higher"),
        ("sequential_read:disk0", "MB/s", "", "higher"),
        ("efficiency_at_saturation", "ratio", "", "higher"),
        ("streams_1", "Gbit/s", "", "higher"),
        ("walks:2MB", "walks/tx", "", "lower"),
        ("worst_p99_ratio", "ratio", "", "lower"),
        ("p50_ratio{scheme=quota,aggressor=cpu}", "ratio", "", "lower"),
        ("throughput_ratio{scheme=quota,aggressor=cpu}", "ratio", "", "higher"),
        ("ratio:big:throughput", "", "", "higher"),
        ("ratio:big:worst_p99_ratio", "", "", "lower"),
        ("ratio:big:cpu_per_tx", "", "", "lower"),
        ("ratio:big:p95@databases=4", "", "", "lower"),
    ],
)
def test_which_direction_is_better(name, unit, known, better):
    assert direction(MetricLimit(name), unit, known) == better
    other = "lower" if better == "higher" else "higher"
    assert direction(MetricLimit(name, 0.05, other), unit, known) == other


def test_of_what_is_not_known_it_must_be_said():
    with pytest.raises(UsageError, match="--metric 'ratio:big:knee:5%:higher'"):
        direction(MetricLimit("ratio:big:knee"), "")


@pytest.mark.parametrize("name", ["wal_rate_postgres", "io_write_rate:sda", "data_rate_device"])
def test_more_io_is_no_benefit_by_itself(name):
    with pytest.raises(UsageError, match=f"--metric '{name}:5%:higher'"):
        direction(MetricLimit(name), "MB/s")


def test_zero_has_no_ratio(run):
    with pytest.raises(UsageError, match="'wal_per_tx' is not in run a: the servers' statistics could not be read"):
        compared(run, run, "wal_per_tx")
    still = [
        result.model_copy(
            update={"phases": [phase.model_copy(update={"metrics": {"server:c01/pg": {"wal.bytes": 0.0}}}) for phase in result.phases]}
        )
        for result in run.results
    ]
    quiet = GateRun("q", run.record, still)
    with pytest.raises(UsageError, match="cannot compare 'wal_per_tx': q: below 1 bytes, too small to compare"):
        compared(quiet, quiet, "wal_per_tx")
