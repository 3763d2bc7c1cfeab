"""A run's directory as it looks while the run is executed, made by hand; no server, no clock but the real one."""

import json
import time

import pytest

from pgherd.export.collection import FRESH, MetricsCollector
from pgherd.metrics import run_metrics
from pgherd.model.deployment import Container, Deployment, Host, Server
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.runner.progress import live_trial
from pgherd.store.live_state import LiveState, remove_live, spool_file, write_live

TARGET = "local/db01/pg/bench"
SERVER = Server(bin="/usr/lib/postgresql/15/bin", version="15")
TRIAL = Trial(
    point={"databases": 1, "arm": "a"},
    repeat=2,
    deployment=Deployment(hosts=(Host(containers=(Container(name="db01", servers=(SERVER,)),)),)),
    phases=(Phase(name="quiet", warmup=1, seconds=10, loads={TARGET: Load(clients=4)}), Phase(name="busy", warmup=1, seconds=10)),
)


def line(at, tps, latency=2.0, failed=0):
    return f"progress: {at:.3f} s, {tps:.1f} tps, lat {latency:.3f} ms stddev 1.000, {failed} failed\n"


class Run:
    """The directory, and what is written into it."""

    def __init__(self, path):
        self.path = path / "run"
        self.output = path / "out"
        (self.path / "trials").mkdir(parents=True)
        hosts = {"local": HostFacts(hostname="db7", kernel="6.1", cores=2, logical_cpus=2, memory=2**34)}
        self.record = RunRecord(run="r1", study="density", options={}, started=1.0, pgherd="1.0", hosts=hosts)

    def live(self, number, phase=None, begun=0.0, left=3):
        trial = live_trial(TRIAL, number, time.time(), str(self.output / f"{number:04d}"))
        state = LiveState(pid=1, written=time.time(), trials_remaining=left, trial=trial, phase=phase, phase_begun=time.time() + begun)
        write_live(self.path, state)

    def spool(self, number, *documents):
        file = spool_file(self.path, number)
        file.parent.mkdir(exist_ok=True)
        with open(file, "a") as out:
            out.writelines(json.dumps(document, separators=(",", ":")) + "\n" for document in documents)

    def tell(self, number, phase, *lines):
        file = self.output / f"{number:04d}" / f"{phase:02d}" / TARGET.replace("/", ".") / "stderr"
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a") as out:
            out.writelines(lines)

    def finish(self, number, *texts, transactions=100.0, broken=False, ahead=0.0):
        """The trial has ended: ``texts`` are its drivers' output by phase, with a clock ``ahead`` by this many seconds."""
        directory = self.path / "trials" / f"{number:04d}"
        phases = []
        for i, text in enumerate(texts):
            raw = f"drivers/{i:02d}/stderr"
            (directory / raw).parent.mkdir(parents=True)
            (directory / raw).write_text(text)
            counted = {"transactions": transactions, "throughput": 10, "first": 0, "last": 10}
            one = TargetResult(target=TARGET, driver="pgbench", raw=["drivers/x/stdout", raw], clock_ahead=ahead, **counted)
            phases.append(PhaseResult(phase=f"p{i}", start=100, end=110, overlap=1, targets=[one]))
        result = TrialResult(id=f"{number:04d}", trial=TRIAL, started=1, ended=2, phases=phases)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "trial.json").write_text("{" if broken else result.model_dump_json())


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def told(collection, name):
    return [(dict(sample.labels), sample.value, sample.t) for sample in collection.samples() if sample.family.sample == name]


def value(collection, name):
    ((_, value, _),) = told(collection, name)
    return value


def test_before_its_first_trial_a_run_tells_what_it_is(run):
    collection = MetricsCollector(run.path, run.record)
    ((labels, one, t),) = told(collection, "pgherd_run_info")
    assert labels["study"] == "density" and labels["host"] == "db7" and (one, t) == (1, None)
    assert value(collection, "pgherd_trials_remaining") == 0 and not told(collection, "pgherd_trial_info")


def test_the_present_trial_and_phase(run):
    run.live(7, phase=0, begun=-3)
    collection = MetricsCollector(run.path, run.record)
    ((trial, _, _),) = told(collection, "pgherd_trial_info")
    assert trial == {
        "run": "r1", "host": "db7", "trial": "0007", "study": "density", "point": "arm=a,databases=1", "repeat": "2", "reason": "planned",
    }  # fmt: skip
    ((phase, _, _),) = told(collection, "pgherd_phase_info")
    assert (phase["phase"], phase["number"], phase["part"]) == ("quiet", "1", "measured")
    assert phase["load"] == "1 × pgbench select-only, 4 clients"
    assert [(labels["name"], n) for labels, n, _ in told(collection, "pgherd_trial_parameter")] == [("databases", 1)]
    assert value(collection, "pgherd_trials_remaining") == 4
    assert value(collection, "pgherd_trial_planned_seconds") == 22
    run.live(7, phase=1, begun=0)
    assert told(collection, "pgherd_phase_info")[0][0]["part"] == "warmup"
    run.live(7, phase=1, begun=-30)
    assert not told(collection, "pgherd_phase_info"), "its measured period is over"


def test_samples_are_told_with_their_instants_while_they_are_fresh(run):
    now = time.time()
    run.live(1)
    run.spool(
        1,
        {"sources": [["cgroup_cpu", "container:db01", "file", "/x", "v1 usage"], ["vmstat", "host", "file", "/v", ""]], "first": 0},
        {"t": now - 2, "i": 0, "raw": "2000000000"},
        {"t": now - FRESH - 5, "i": 1, "raw": "pswpin 3"},
    )
    collection = MetricsCollector(run.path, run.record)
    labels = {"run": "r1", "host": "db7", "container": "db01"}
    assert told(collection, "pgherd_container_cpu_usage_seconds_total") == [(labels, 2.0, now - 2)]
    assert not told(collection, "pgherd_host_vm_pswpin_total")
    run.spool(1, {"t": now - 1, "i": 0, "raw": "1000000000"}, {"t": now, "i": 1, "raw": None, "error": "gone"})
    assert told(collection, "pgherd_container_cpu_usage_seconds_total") == [(labels, 2.0, now - 1)], "torn: its level stays"
    assert [(labels["sampler"], n) for labels, n, _ in told(collection, "pgherd_sampler_failures_total")] == [("vmstat", 1)]


def test_what_other_hosts_show_is_told_with_their_names(run):
    now = time.time()
    facts = HostFacts(hostname="same", kernel="6.1", cores=2, logical_cpus=2, memory=2**34)
    record = run.record.model_copy(update={"hosts": {"a": facts, "b": facts}})
    collection = MetricsCollector(run.path, record)
    for number, place in ((1, "b"), (2, "a")):
        hosts = (Host(name=place, containers=(Container(name="db01", servers=(SERVER,)),)),)
        trial = live_trial(TRIAL.model_copy(update={"deployment": Deployment(hosts=hosts)}), number, now, None)
        write_live(run.path, LiveState(pid=1, written=now, trial=trial))
        run.spool(
            number,
            {
                "sources": [["cgroup_cpu", "container:db01", "read on", place, ""], ["cpu", f"host:{place}", "read on", place, ""]],
                "first": 0,
            },
            {"t": now - 2, "i": 0, "values": {"cpu.usage": 2.0}},
            {"t": now - 2, "i": 1, "values": {"cpu.user": 7.0}},
        )
        ((labels, used, at),) = told(collection, "pgherd_container_cpu_usage_seconds_total")
        assert (labels["host"], labels["container"], used, at) == (place, "db01", 2.0, now - 2)
        ((labels, used, _),) = told(collection, "pgherd_host_cpu_seconds_total")
        assert (labels["host"], labels["mode"], used) == (place, "user", 7.0)


def test_what_was_told_on_another_clock_is_not_told_again(run):
    """Of a driver on another host, whose clock is a thousand seconds ahead, some lines come while it runs and all of them at the end."""
    collection = MetricsCollector(run.path, run.record)
    run.live(1, phase=0, begun=-3)
    now = time.time()
    run.tell(1, 0, *(line(now - 3 + n, 100) for n in range(2)))
    assert told(collection, "pgherd_driver_transactions_total")[0][1] == pytest.approx(200)
    run.finish(1, "".join(line(1000 + now - 3 + n, 100) for n in range(4)), ahead=1000.0)
    remove_live(run.path)
    ((_, done, at),) = told(collection, "pgherd_driver_transactions_total")
    assert done == pytest.approx(400) and at == pytest.approx(now, abs=0.01)
    run.finish(2, "".join(line(1000 + now - 1 + n, 100) for n in range(2)), ahead=1000.0)
    ((_, done, at),) = told(collection, "pgherd_driver_transactions_total")
    assert done == pytest.approx(600) and at == pytest.approx(now, abs=0.01), "of this one nothing was seen before its end"


def test_with_a_new_trial_its_own_spool_is_read(run):
    now = time.time()
    source = {"sources": [["cgroup_cpu", "container:db01", "file", "/x", "v1 usage"]], "first": 0}
    run.live(1)
    run.spool(1, source, {"t": now - 2, "i": 0, "raw": "9000000000"})
    collection = MetricsCollector(run.path, run.record)
    assert value(collection, "pgherd_container_cpu_usage_seconds_total") == 9
    run.live(2)
    assert not told(collection, "pgherd_container_cpu_usage_seconds_total")
    run.spool(2, source, {"t": now - 1, "i": 0, "raw": "1000000000"})
    assert value(collection, "pgherd_container_cpu_usage_seconds_total") == 1


def test_what_drivers_told_adds_up_whenever_one_looks(run):
    """Seen in part while the trial ran, the rest read from what was kept; a second trial is not looked at before its end."""
    now = time.time()
    run.live(1, phase=0)
    run.tell(1, 0, line(now - 3, 100))
    collection = MetricsCollector(run.path, run.record)
    assert value(collection, "pgherd_driver_transactions_total") == pytest.approx(100)
    run.tell(1, 0, line(now - 2, 200, failed=1), line(now - 1, 300)[:20])
    assert value(collection, "pgherd_driver_transactions_total") == pytest.approx(300), "half a line is not one"
    kept = line(now - 3, 100) + line(now - 2, 200, failed=1) + line(now - 1, 300)
    run.finish(1, kept, line(now - 0.5, 50))
    run.finish(2, line(now, 7), transactions=20)
    run.live(3)
    assert value(collection, "pgherd_driver_transactions_total") == pytest.approx(100 + 200 + 300 + 50 + 7)
    assert value(collection, "pgherd_driver_failed_transactions_total") == 1
    assert value(collection, "pgherd_run_transactions_total") == 220
    assert {labels["result"]: n for labels, n, _ in told(collection, "pgherd_trials_finished_total")} == {
        "clean": 2,
        "tainted": 0,
        "failed": 0,
    }
    assert {labels["trial"] for labels, _, _ in told(collection, "pgherd_result_transactions")} == {"0002"}, "the last one's results"


def test_a_run_that_is_resumed_begins_with_what_its_trials_came_to(run):
    run.finish(1, "", transactions=80)
    run.finish(2, broken=True)
    collection = MetricsCollector(run.path, run.record)
    assert value(collection, "pgherd_run_transactions_total") == 80


def test_what_a_driver_told_long_ago_is_not_told(run):
    run.live(1, phase=0)
    run.tell(1, 0, line(time.time() - FRESH - 10, 100))
    assert not told(MetricsCollector(run.path, run.record), "pgherd_driver_transactions_total")


def test_after_its_end_a_run_still_tells_its_totals(run):
    run.live(1, phase=0)
    collection = MetricsCollector(run.path, run.record)
    collection.samples()
    run.finish(1, "")
    remove_live(run.path)
    assert value(collection, "pgherd_run_transactions_total") == 100
    assert value(collection, "pgherd_trials_remaining") == 0 and not told(collection, "pgherd_trial_info")


def test_only_known_families_are_told(run):
    from pgherd.metrics.openmetrics import families

    run.live(1, phase=0)
    run.finish(1, "")
    known = {family.name for family in (*families(), *run_metrics.FAMILIES)}
    assert {sample.family.name for sample in MetricsCollector(run.path, run.record).samples()} <= known


def test_an_emulated_guests_drivers_are_told_under_another_name_from_their_first_line(run):
    run.live(1, phase=0)
    source = ["guest_machine", "guest:db01", "file", "/proc/1/cmdline", ""]
    run.spool(1, {"sources": [source], "first": 0}, {"t": time.time(), "i": 0, "raw": "qemu\0-accel\0tcg,thread=multi\0"})
    run.tell(1, 0, line(time.time(), 100))
    collection = MetricsCollector(run.path, run.record)
    names = {sample.family.sample for sample in collection.samples()}
    assert "pgherd_emulated_driver_transactions_total" in names and "pgherd_guest_emulated" in names
    assert not any(name.startswith("pgherd_driver_transactions") for name in names)
