import http.client
import socket
import threading
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgherd.export import server as metrics_server
from pgherd.export.server import ListenAddress, MetricsServer, grouped, listen_address
from pgherd.metrics.openmetrics import Sample, named
from pgherd.metrics.run_metrics import RUN, TRIALS
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunRecord

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
