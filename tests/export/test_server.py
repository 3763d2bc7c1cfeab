"""The server, and what it collects from a run's directory as it looks while the run is executed, made by hand."""

import http.client
import json
import socket
import threading
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgherd.export import server as metrics_server
from pgherd.export.server import FRESH, ListenAddress, MetricsCollector, MetricsServer, grouped, listen_address
from pgherd.metrics import run_metrics
from pgherd.metrics.openmetrics import Sample, named
from pgherd.metrics.run_metrics import RUN, TRIALS
from pgherd.model.deployment import Container, Deployment, Host, Server
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.runner.progress import live_trial
from pgherd.store.live_state import LiveState, remove_live, spool_file, write_live

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
HOSTILE = 'a"b\\c\nd'
SAMPLES = [
    Sample(RUN, {"run": "r1", "host": "h", "study": HOSTILE, "pgherd": "1", "postgres": "15", "kernel": "6", "cores": "2"}, 1.0),
    Sample(TRIALS, {"run": "r1", "host": "h", "result": "clean"}, 3),
    Sample(named("host", "cpu.user")[0], {"run": "r1", "host": "h", "mode": "user"}, 1.5, 1000.123),
    Sample(named("host", "cpu.user")[0], {"run": "r1", "host": "h", "mode": "idle"}, 2.5, 1000.123),
    Sample(named("disk:a", "in_flight")[0], {"run": "r1", "host": "h", "device": "a"}, 4, 1000.5),
]


class Fixed:
    """Collection with constant samples that counts its calls."""

    def __init__(self):
        self.times = 0

    def samples(self):
        self.times += 1
        return list(SAMPLES)


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setattr(metrics_server, "_POLL_SECONDS", 0.01)
    servers = []

    def start(token=None, address="127.0.0.1", collection=None):
        server = MetricsServer(ListenAddress(address, 0, token))
        servers.append(server)
        server._collection = collection or Fixed()
        return server

    yield start
    for server in servers:
        server.close()


def get(server, path="/metrics", method="GET", **headers):
    address, port = server.url.removeprefix("http://").removesuffix("/metrics").rsplit(":", 1)
    connection = http.client.HTTPConnection(address.strip("[]"), int(port), timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def flat(families):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): (sample.value, None if sample.timestamp is None else float(sample.timestamp))
        for family in families
        for sample in family.samples
        if not sample.name.startswith("pgherd_exporter")
    }


WANTED = {(one.family.sample, tuple(sorted(one.labels.items()))): (one.value, one.t) for one in SAMPLES}


@pytest.mark.parametrize("accept", [OPENMETRICS, "", "text/plain;version=0.0.4", "*/*"])
def test_another_parser_reads_openmetrics(serve, accept):
    status, headers, text = get(serve(), Accept=accept)
    assert status == 200 and headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = list(text_string_to_metric_families(text))
    assert flat(families) == WANTED
    assert {family.name: (family.type, family.unit) for family in families if "exporter" not in family.name} == {
        "pgherd_run": ("info", ""),
        "pgherd_trials_finished": ("counter", ""),
        "pgherd_host_cpu_seconds": ("counter", "seconds"),
        "pgherd_disk_in_flight": ("gauge", ""),
    }


def test_within_half_a_second_nothing_is_collected_again(serve):
    collection = Fixed()
    server = serve(collection=collection)
    for _ in range(5):
        assert get(server)[0] == 200
    assert collection.times == 1
    server._collected -= metrics_server.MIN_INTERVAL
    get(server)
    assert collection.times == 2


def test_what_scrapes_cost_is_told(serve):
    server = serve()
    get(server)
    server._collected -= metrics_server.MIN_INTERVAL
    found = {family.name: family.samples[0].value for family in text_string_to_metric_families(get(server, Accept=OPENMETRICS)[2])}
    assert 0 < found["pgherd_exporter_cpu_seconds"] < 5


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1:9187", "[2001:db8::1]:80"])
def test_on_loopback_only_loopback_names_are_answered(serve, host):
    status, _, text = get(serve(), Host=host)
    assert status == 403 and "pgherd" not in text


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:9187", "127.0.0.2", "[::1]:9187"])
def test_every_loopback_name_is(serve, host):
    assert get(serve(), Host=host)[0] == 200


def test_who_has_no_token_gets_nothing(serve):
    server = serve(token="correct horse battery")
    for shown in (None, "Bearer wrong", "Basic correct horse battery", "correct horse battery", "Bearer \xff"):
        status, headers, text = get(server, **({} if shown is None else {"Authorization": shown}))
        assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and "pgherd" not in text
    status, _, text = get(server, Authorization="Bearer correct horse battery", Host="db7.example")
    assert status == 200 and "pgherd_run_info" in text


@pytest.mark.parametrize(("path", "method", "status"), [("/", "GET", 404), ("/metrics/../x", "GET", 404), ("/metrics", "POST", 405)])
def test_nothing_else_is_answered(serve, path, method, status):
    assert get(serve(), path, method)[0] == status


def test_parameters_change_nothing(serve):
    assert "pgherd_run_info" in get(serve(), "/metrics?name[]=none")[2]


def test_a_client_that_says_nothing_holds_nobody_up(serve):
    server = serve()
    port = int(server.url.rsplit(":", 1)[1].removesuffix("/metrics"))
    with socket.create_connection(("127.0.0.1", port)):
        assert get(server)[0] == 200


def test_one_that_goes_away_or_never_speaks_is_not_told_to_the_terminal(serve, monkeypatch, capfd):
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.05)
    server = serve()
    port = int(server.url.rsplit(":", 1)[1].removesuffix("/metrics"))
    for said in (b"", b"GET /metr", b"\xff\x00\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(said)
            client.settimeout(10)
            while client.recv(4096):
                pass
    assert get(server)[0] == 200
    assert capfd.readouterr().err == ""


def test_idle_connections_of_others_cost_only_so_many_threads(serve, monkeypatch):
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 3)
    server, before = serve(), threading.active_count()
    port = int(server.url.rsplit(":", 1)[1].removesuffix("/metrics"))
    idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(20)]
    try:
        assert [client.recv(1) for client in idle[3:]] == [b""] * 17, "the others are closed"
        assert threading.active_count() <= before + 3
    finally:
        for client in idle:
            client.close()
    deadline = time.monotonic() + 20
    while True:  # the places become free again
        try:
            assert get(server)[0] == 200
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_fails_is_told_to_whoever_asks(serve, capfd):
    class Failing(Fixed):
        def samples(self):
            raise ValueError("no disk")

    for headers in ({}, {"Accept": OPENMETRICS}):
        status, _, text = get(serve(collection=Failing()), **headers)
        assert status == 500 and text == "cannot write the metrics: ValueError: no disk\n"
    assert capfd.readouterr().err == ""


def test_before_a_run_is_shown_there_is_nothing_and_it_is_well_formed(serve):
    server = serve()
    server._collection = None
    assert get(server, Accept=OPENMETRICS)[2] == "# EOF\n"


def test_ipv6(serve):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 on loopback: {error}")
    assert get(serve(address="::1"))[0] == 200


def test_a_run_is_served_after_show(serve, tmp_path):
    hosts = {"local": HostFacts(hostname="db7", kernel="6.1", cores=2, logical_cpus=2, memory=2**34)}
    server = serve()
    record = RunRecord(run="r1", study="density", options={}, started=1.0, pgherd="1.0", hosts=hosts)
    server.show(tmp_path, record)
    text = get(server)[2]
    assert 'pgherd_run_info{cores="2",host="db7"' in text
    assert "pgherd_exporter_cpu_seconds_total{" in text


def test_a_port_that_is_taken_is_one_message(serve):
    port = int(serve().url.rsplit(":", 1)[1].removesuffix("/metrics"))
    with pytest.raises(UsageError, match=f"port {port}: Address already in use; choose another"):
        MetricsServer(ListenAddress("127.0.0.1", port))
    with pytest.raises(UsageError, match="192.0.2.1"):
        MetricsServer(ListenAddress("192.0.2.1", 0, "x" * 20))


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [("9187", "127.0.0.1", 9187), ("localhost:0", "localhost", 0), ("[::1]:9187", "::1", 9187), (":80", "127.0.0.1", 80)],
)
def test_endpoints(text, address, port):
    assert listen_address(text, None) == ListenAddress(address, port)


@pytest.mark.parametrize("text", ["", "x", "127.0.0.1", "1:65536", "-1", "²", "0.0.0.0:9187", "db7:9187", "[::]:9187"])
def test_no_endpoints(text):
    with pytest.raises(UsageError, match="--metrics-listen"):
        listen_address(text, None)


def test_elsewhere_a_token_is_needed(tmp_path):
    file = tmp_path / "token"
    for bad, why in (("", "0 characters"), ("short\n", "5 characters")):
        file.write_text(bad)
        with pytest.raises(UsageError, match=why):
            listen_address("0.0.0.0:9187", file)
    with pytest.raises(UsageError, match="No such file"):
        listen_address("0.0.0.0:9187", tmp_path / "none")
    file.write_text("a long enough token\nand more\n")
    assert listen_address("0.0.0.0:9187", file) == ListenAddress("0.0.0.0", 9187, "a long enough token")


def test_one_family_is_told_in_one_piece():
    found = grouped([SAMPLES[2], SAMPLES[4], SAMPLES[3]])
    assert [(family.name, len(samples)) for family, samples in found] == [("pgherd_disk_in_flight", 1), ("pgherd_host_cpu_seconds", 2)]


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


def test_a_search_tells_its_objective(run):
    record = run.record.model_copy(update={"options": {"objectives": [{"percentile": 99, "limit_ms": 10}]}})
    ((labels, limit, _),) = told(MetricsCollector(run.path, record), "pgherd_objective_limit_seconds")
    assert labels["objective"] == "p99_10ms" and limit == 0.01
    assert not told(MetricsCollector(run.path, run.record), "pgherd_objective_limit_seconds")


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
