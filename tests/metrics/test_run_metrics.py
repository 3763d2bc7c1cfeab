import pytest

from pgherd.metrics import run_metrics
from pgherd.metrics.run_metrics import DriverTotals, MetricLabels, RunTotals
from pgherd.model.analysis import OPEN_END, Analysis, Check, Finding
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.device_io import DeviceIo, DeviceView
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Load, Script
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial


def facts(name):
    return HostFacts(hostname=name, kernel="6.1", cores=4, logical_cpus=4, memory=2**34)


def record(**hosts):
    return RunRecord(run="r1", study="density", options={}, started=1.0, pgherd="1.0", hosts=hosts or {"local": facts("db7")})


def target(name="local/db01/pg/bench", transactions=100.0):
    latency = Latency(mean=2.0, p50=1.0, p99=None)
    return TargetResult(target=name, driver="pgbench", transactions=transactions, throughput=10.0, latency=latency, first=0, last=10)


def result(number, *targets, error=None, tainted=False):
    verdict = Check(name="steal", kind="noise", result="fail" if tainted else "pass", observed="", expected="")
    phases = [] if error else [PhaseResult(phase="steady", start=100.0, end=110.0, overlap=1, targets=list(targets))]
    trial = Trial(point={}, deployment=Deployment(hosts=(Host(),)), phases=())
    return TrialResult(id=f"{number:04d}", trial=trial, started=90, ended=111, phases=phases, checks=[verdict], error=error)


def told(samples):
    return {(item.family.sample, tuple(sorted((k, v) for k, v in item.labels.items() if v))): item.value for item in samples}


def test_this_host_goes_by_its_own_name():
    assert run_metrics.common_labels(record()) == {"run": "r1", "host": "db7"}
    assert run_metrics.target_common_labels(record(), "local/db01/pg/bench")["host"] == "db7"
    assert run_metrics.target_common_labels(record(), "data")["host"] == "db7"
    two = record(a=facts("a.example"), b=facts("b.example"))
    assert run_metrics.target_common_labels(two, "b/db01/pg/bench")["host"] == "b.example"
    assert run_metrics.target_common_labels(two, "b")["host"] == "b.example", "a command runs on a host as a whole"
    assert run_metrics.common_labels(two)["host"] == "", "of all of them"
    same = record(a=facts("vm"), b=facts("vm"))
    assert [run_metrics.host_name(same, host) for host in ("a", "b")] == ["a", "b"]
    (first, second) = run_metrics.run_info(two)
    assert (first.labels["host"], second.labels["host"], first.labels["study"]) == ("a.example", "b.example", "density")


def test_every_label_stands_in_its_family():
    totals = RunTotals(record())
    totals.add(result(1, target()))
    samples = [*run_metrics.run_info(record()), *totals.samples(), *run_metrics.result_samples(record(), result(1, target()), None)]
    progress = DriverTotals({**run_metrics.common_labels(record()), **run_metrics.target_labels("data")})
    progress.add_line(1.0, 5.0, 1.0, 0, 2.0, 0)
    for sample in [*samples, *progress.samples()]:
        assert set(sample.labels) == {"run", "host", *sample.family.labels}, sample


def test_totals_add_up_and_count_each_kind_of_trial():
    totals = RunTotals(record())
    for item in (result(1, target()), result(2, target(transactions=50), tainted=True), result(3, error="died")):
        totals.add(item)
    outcome = told(totals.samples(5.0))
    base = (("host", "db7"), ("run", "r1"))
    trials = {
        kind: outcome["pgherd_trials_finished_total", tuple(sorted((*base, ("result", kind))))] for kind in ("clean", "tainted", "failed")
    }
    assert trials == {"clean": 1, "tainted": 1, "failed": 1}
    assert [value for (name, _), value in outcome.items() if name == "pgherd_run_transactions_total"] == [150]
    verdicts = {dict(labels)["result"]: value for (name, labels), value in outcome.items() if name == "pgherd_checks_total"}
    assert verdicts == {"pass": 2, "fail": 1}


def test_results_are_in_base_units_and_leave_out_what_is_not_known():
    outcome = told(run_metrics.result_samples(record(), result(4, target()), 111.0))
    latencies = {dict(labels)["statistic"]: v for (name, labels), v in outcome.items() if name == "pgherd_result_latency_seconds"}
    assert latencies == {"mean": 0.002, "p50": 0.001}
    assert [v for (name, _), v in outcome.items() if name == "pgherd_result_window_seconds"] == [10]


def test_transactions_beyond_an_objective_are_counted():
    late = target().model_copy(update={"values": {"logged_tx": 900.0, "late_p99_10ms_tx": 12.0, "late_p95_2.5ms_tx": 40.0, "p99_ms": 11.0}})
    outcome = told(run_metrics.result_samples(record(), result(4, late), 111.0))
    counts = {dict(labels)["objective"]: value for (name, labels), value in outcome.items() if name == "pgherd_result_late_transactions"}
    assert counts == {"p99_10ms": 12, "p95_2.5ms": 40}
    assert [value for (name, _), value in outcome.items() if name == "pgherd_result_logged_transactions"] == [900]
    plain = told(run_metrics.result_samples(record(), result(4, target()), 111.0))
    assert not [name for name, _ in plain if "late_transactions" in name or "logged" in name]


def test_objectives_and_what_keeps_them():
    objectives = [{"percentile": 99, "limit_ms": 10}, {"percentile": 95, "limit_ms": 2.5}]
    search = record().model_copy(update={"options": {"objectives": objectives}})
    limits = told(run_metrics.objective_limits(search))
    assert {dict(labels)["objective"]: value for (_, labels), value in limits.items()} == {"p99_10ms": 0.01, "p95_2.5ms": 0.0025}
    assert {name for name, _ in limits} == {"pgherd_objective_limit_seconds"}
    assert not list(run_metrics.capacity_samples(search, 5.0)), "not known while it runs"
    found = Finding(value=12, unit="databases", low=11, high=13)

    def capacity(finding, options=search.options):
        analysis = Analysis(answer="", grade="A", findings={"capacity": finding})
        samples = list(run_metrics.capacity_samples(search.model_copy(update={"analysis": analysis, "options": options}), 5.0))
        assert all(set(sample.labels) == {"run", "host", *sample.family.labels} and sample.t == 5.0 for sample in samples)
        return {(sample.labels["unit"], sample.labels["statistic"]): sample.value for sample in samples}

    assert capacity(found) == {("databases", "value"): 12, ("databases", "low"): 11, ("databases", "high"): 13}
    assert capacity(found.model_copy(update={"note": OPEN_END})).keys() == {("databases", "value"), ("databases", "low")}
    assert capacity(found.model_copy(update={"value": None, "low": None, "high": None})) == {}
    assert capacity(found, {}) == {}, "of a search only"


def test_phases_of_one_name_are_told_apart():
    phase = result(1, target()).phases[0]
    twice = result(1).model_copy(update={"phases": [phase, phase]})
    labels = [
        tuple(sorted(result_sample.labels.items()))
        for result_sample in run_metrics.result_samples(record(), twice, None)
        if result_sample.family is run_metrics.RESULT_WINDOW
    ]
    assert len(set(labels)) == len(labels) == 2


def test_progress_counts_rate_times_time_and_goes_on_over_drivers():
    progress = DriverTotals({"run": "r1"})
    assert list(progress.samples()) == []
    progress.begin()
    progress.add_line(10.0, 100.0, 2.0, 0, None, 0)
    progress.add_line(11.5, 200.0, 4.0, 1, None, 0)
    progress.begin()  # another phase's
    progress.add_line(60.0, 10.0, 3.0, 0, None, 0)
    result = {sample.family.sample: (sample.value, sample.t) for sample in progress.samples()}
    assert result["pgherd_driver_transactions_total"] == (pytest.approx(100 + 300 + 10), 60.0)
    assert result["pgherd_driver_failed_transactions_total"] == (1, 60.0)
    assert result["pgherd_driver_latency_seconds"] == (0.003, 60.0)
    assert "pgherd_driver_lag_seconds" not in result


def test_devices_of_several_hosts_are_told_apart():
    devices = [
        DeviceView(number="a/8:0", name="a/sda", roles={"wal": ["db01/pg"], "data": ["db01/pg"]}),
        DeviceView(number="b/8:0", name="b/sda"),
    ]
    phase = PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[], io=DeviceIo(devices=devices))
    both = result(1).model_copy(update={"phases": [phase, phase]})
    outcome = [
        result_sample.labels for result_sample in run_metrics.result_samples(record(a=facts("a.example"), b=facts("b.example")), both, None)
    ]
    assert [(item["host"], item["device"], item["number"], item["roles"]) for item in outcome] == [
        ("a.example", "sda", "8:0", "data, wal"),
        ("b.example", "sda", "8:0", ""),
    ]


def test_loads_in_words():
    pgbench = Load(clients=8, scripts=(Script(source="builtin:select-only"),))
    fio = Load(driver="fio", options={"rw": "randread"})
    assert run_metrics.load_text([pgbench, pgbench]) == "2 × pgbench select-only, 8 clients"
    assert run_metrics.load_text([pgbench.model_copy(update={"rate": 50, "clients": 1})]) == "1 × pgbench select-only, 1 client, 50/s"
    assert run_metrics.load_text([fio]) == "1 × fio rw=randread"
    assert run_metrics.load_text([]) == "idle"


def test_points_in_words():
    assert run_metrics.point_text({"vcpus": 0.5, "databases": 4, "arm": "a"}) == "arm=a,databases=4,vcpus=0.5"


def test_containers_are_on_the_host_on_which_they_were_deployed():
    metric_labels = MetricLabels(record(a=facts("a.example"), b=facts("b.example")))
    metric_labels.set_deployment(Deployment(hosts=(Host(name="a"), Host(name="b", containers=(Container(name="db01"),)))))
    for entity, metric in (("server:db01/pg", "db.deadlocks"), ("disk:b/sda", "reads"), ("host:b", "forks")):
        _, labels = metric_labels.series(entity, metric)
        assert labels["host"] == "b.example", entity
    assert metric_labels.series("moon", "forks") is None


def test_what_drivers_count_by_emulation_never_stands_beside_what_was_measured():
    """Of two guests one was emulated: a query for the plain name sees the other only."""
    outcome = result(1, target(), target("local/db02/pg/bench", 7.0))
    marked = outcome.phases[0].model_copy(update={"metrics": {"guest:db02": {"emulated": 1.0}, "guest:db01": {"emulated": 0.0}}})
    outcome = outcome.model_copy(update={"phases": [marked]})
    totals = RunTotals(record())
    totals.add(outcome)
    samples = [*totals.samples(), *run_metrics.result_samples(record(), outcome, None)]
    by_family = {}
    for item in samples:
        by_family.setdefault(item.family.sample, set()).add(item.labels.get("container"))
    for name in ("run_transactions_total", "result_transactions", "result_latency_seconds", "result_window_seconds"):
        assert by_family[f"pgherd_{name}"] == {"db01"} and by_family[f"pgherd_emulated_{name}"] == {"db02"}, name
    progress = DriverTotals({"run": "r1"}, emulated=True)
    progress.add_line(1.0, 5.0, 1.0, 0, 2.0, 0)
    assert all(sample.family.name.startswith("pgherd_emulated_driver_") for sample in progress.samples())
    assert set(run_metrics.EMULATED.values()) <= set(run_metrics.FAMILIES)
