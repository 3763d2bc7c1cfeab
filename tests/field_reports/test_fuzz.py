"""Texts of others, changed at random: no traceback, and no silently wrong number.

A default run takes seconds. ``fuzz.py`` in this directory repeats the tests for a stated time.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from changes import changed, read_changed
from fuzz import READERS, TESTS
from pgherd.analysis.demand import Demand
from pgherd.cli import main
from pgherd.cli.fit import read_table
from pgherd.drivers import fio, iperf3, pgbench_output
from pgherd.drivers.driver import MeasuredWindow
from pgherd.drivers.pgbench import PgbenchDriver
from pgherd.metrics import prometheus
from pgherd.model.errors import PgherdError, TrialError, UsageError
from pgherd.model.load import Load
from pgherd.model.prometheus import CONTAINER_CPU, NODE_CPU, NODE_READS, PrometheusSource
from pgherd.model.result import TargetResult
from pgherd.postgres import configuration, external_server
from pgherd.postgres.external_connections import SECRET_KEYWORDS
from pgherd.prepare.fleet import read_servers
from pgherd.prepare.prometheus_demand import PrometheusRequest, read_prometheus
from pgherd.store.open_run import open_run

FIXTURES = Path(__file__).parents[1] / "fixtures"
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example writes its file anew


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_has_its_tests(reader: str) -> None:
    for node in READERS[reader]:
        file, name = node.split("::")
        assert re.search(rf"^@given(.*\n)+?def {name}\(", (TESTS / file).read_text(), re.MULTILINE), node


# ---- tables


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[tuple[float, float]]]:
    """A table as a person or a spreadsheet writes it, and its pairs."""
    pairs = draw(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 10**8)), min_size=1, max_size=6))
    written = [",.", ",.,", ",,", ",,.", ";,", ";,.", ";.", ";.,", "\t,", "\t,.", "\t.", "\t.,", " .", " ,", " .,"]
    separator, mark, *grouping = draw(st.sampled_from(written))
    group = "".join(grouping)

    def number(thousandths: int) -> str:
        text = f"{thousandths // 1000:,}".replace(",", group)
        text += f"{mark}{thousandths % 1000:03d}" if thousandths % 1000 else ""
        return f'"{text}"' if separator in text else text

    lines = [separator.join((str(load), number(rate))) for load, rate in pairs]
    lines = [separator.join(("clients", "tps")), *lines] if draw(st.booleans()) else lines
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines), [(float(load), rate / 1000) for load, rate in pairs]


@shared
@given(tables())
def test_a_written_table_is_read_as_meant_or_refused(tmp_path: Path, table: tuple[str, list[tuple[float, float]]]) -> None:
    text, pairs = table
    (tmp_path / "table").write_text(text)
    try:
        found = read_table(tmp_path / "table")
    except UsageError:
        both = "," in text and re.search(r"^\d+ ", text, re.MULTILINE)  # commas separate columns, too
        assert both or re.search(r"(?<!\d)[1-9]\d{0,2}[.,]\d{3}(?!\d)", text), "only what has two meanings is a reason"
        return
    scale = found.throughputs[0] / pairs[0][1]
    # '12;1,050' alone may be 1.05 or 1050. All numbers of a column are then read alike, and the mark is printed.
    assert found.loads == [load for load, _ in pairs]
    assert found.throughputs == pytest.approx([scale * rate for _, rate in pairs])
    rows = text.replace('"', "").splitlines()[-len(pairs) :]
    alike = all(re.search(r"(?<!\d)[1-9]\d{0,2}[.,]\d{3}$", row) for row in rows)
    assert scale == pytest.approx(1) or (alike and scale in (pytest.approx(1000), pytest.approx(0.001)))


@shared
@given(st.text(alphabet="0123456789.,;\t '\"-#eE\nabtps", max_size=120))
def test_any_table_is_read_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "table").write_text(text)
    try:
        found = read_table(tmp_path / "table")
    except UsageError:
        return
    assert found.loads and all(value > 0 for value in (*found.loads, *found.throughputs))


# ---- load generators


def impossible(found: TargetResult) -> list[float]:
    """The numbers of a result that no load can have."""
    numbers = [found.throughput, *found.per_second, *found.values.values(), *(value for one in found.series.values() for value in one)]
    return [number for number in numbers if not 0 <= number < math.inf]


@pytest.mark.parametrize("case", ["15-select-only", "18-rate", "18-tpcb-threads", "15-retries"])
@given(data=st.data())
def test_a_torn_report_of_pgbench_has_the_same_numbers_or_is_refused(case: str, data: st.DataObject) -> None:
    files = {file.name: file.read_text() for file in (FIXTURES / "pgbench" / case).iterdir()}
    whole = pgbench_output.read_report(files)
    lines = files["stdout"].splitlines(keepends=True)
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    stdout = "".join(line for line, keep in zip(lines, kept, strict=True) if keep)
    stdout = stdout[: data.draw(st.integers(len(stdout) // 2, len(stdout)))]
    texts = files | {"stdout": stdout, "stderr": files["stderr"][: data.draw(st.integers(0, len(files["stderr"])))]}
    window = MeasuredWindow(1e9, 1e9 + 5, 1e9 + 6)
    try:
        report = pgbench_output.read_report(texts)
        PgbenchDriver().result(Load(clients=2, threads=1), texts, 1e9, window, "t")
    except ValueError:
        return
    assert report.transactions in (whole.transactions, 0) and report.failed in (whole.failed, 0)


@given(st.data())
def test_an_odd_report_of_fio_is_read_or_refused(data: st.DataObject) -> None:
    directory = FIXTURES / "fio" / data.draw(st.sampled_from(["psync-randwrite", "mix-70-30", "libaio-randread"]))
    files = {file.name: file.read_text() for file in directory.iterdir()}
    text = files[fio.REPORT]
    report = json.loads(text[text.index("{\n") :])

    def read(document: Any) -> TargetResult:
        texts = files | {fio.REPORT: json.dumps(document, indent=1)}
        return fio.DRIVER.result(Load(driver="fio"), texts, 1e9, MeasuredWindow(1e9, 1e9 + 2, 1e9 + 3), "t")

    found = read_changed(read, report, data)
    assert found is None or not impossible(found)


@given(st.data())
def test_an_odd_report_of_iperf3_is_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["interrupted", "reverse", "trickle", "two-streams"]))
    report = json.loads((FIXTURES / f"iperf3/3.12-{name}.json").read_text())
    first = report["start"]["timestamp"]["timesecs"]

    def read(document: Any) -> TargetResult:
        window = MeasuredWindow(first, first + 1, first + 2)
        return iperf3.DRIVER.result(Load(driver="iperf3"), {"stdout": json.dumps(document), "stderr": ""}, first, window, "t")

    found = read_changed(read, report, data)
    assert found is None or not impossible(found)


# ---- Prometheus


class _Answering(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(self.server.answers.pop(0) if self.server.answers else b"")  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def answering() -> Iterator[socketserver.TCPServer]:
    """A server that answers each connection with the next of its ``answers``, whatever was asked."""
    with socketserver.TCPServer(("127.0.0.1", 0), _Answering) as server:
        server.answers = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def observed(server: socketserver.TCPServer, *answers: bytes) -> list[Any] | None:
    """What is read from these answers, or None if they are refused with a reason."""
    server.answers = list(answers)  # type: ignore[attr-defined]
    source = PrometheusSource(url=f"http://127.0.0.1:{server.server_address[1]}", values="db1", container_id="x")
    try:
        readings, views = prometheus.observe(source, "c1", "c1/pg", [(time.time() - 60, time.time())])
    except TrialError as error:
        assert str(error)
        return None
    assert len(views) == 1
    return readings


def http(text: str) -> bytes:
    body = text.encode(errors="surrogatepass")
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def matrix(*series: tuple[str, dict[str, str]]) -> dict[str, Any]:
    values = [[1000 + 15 * step, str(step)] for step in range(5)]
    found = [{"metric": {"__name__": name, "instance": "db1", **labels}, "values": values} for name, labels in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": found}}


CLOCK = {"status": "success", "data": {"resultType": "scalar", "result": [1060.0, "1060"]}}
ANSWERS = [
    CLOCK,
    matrix((NODE_CPU, {"cpu": "0", "mode": "idle"}), (NODE_CPU, {"cpu": "1", "mode": "idle"}), (NODE_READS, {"device": "sda"})),
    matrix((CONTAINER_CPU, {"cpu": "total"}), ("container_spec_cpu_quota", {}), ("container_spec_memory_limit_bytes", {})),
]


@given(st.data())
def test_an_odd_answer_of_prometheus_is_read_or_refused(answering: socketserver.TCPServer, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 2))
    answers = list(ANSWERS)
    assert observed(answering, *(http(json.dumps(answer)) for answer in answers))
    answers[number] = changed(ANSWERS[number], data)
    for at, _, entity, values in observed(answering, *(http(json.dumps(answer)) for answer in answers)) or ():
        assert entity and math.isfinite(at) and all(map(math.isfinite, values.values()))


HALVES = [[-43200, "1.5"], [0, "2"]]
CONTAINERS = [{"pod": pod, "namespace": "n", "container": "postgres", "job": "j", "device": "/dev/sda"} for pod in ("a", "b")]
DEMAND = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": one, "values": HALVES} for one in CONTAINERS]}}


@given(st.data())
def test_an_odd_demand_of_prometheus_is_read_or_refused(answering: socketserver.TCPServer, data: st.DataObject) -> None:
    """The clock, then a day of each of four resources."""
    answers: list[Any] = [CLOCK, *[DEMAND] * 4]
    number = data.draw(st.integers(0, 4))
    request = PrometheusRequest(f"http://127.0.0.1:{answering.server_address[1]}", days=1, slots=2)

    def read(answer: Any) -> Demand:
        these = [*answers[:number], answer, *answers[number + 1 :]]
        answering.answers = [http(json.dumps(one)) for one in these]  # type: ignore[attr-defined]
        return read_prometheus(request, 95, ("memory_mb", "read_iops", "write_iops"))

    found = read_changed(read, answers[number], data, UsageError)
    if found is None:
        return
    assert found.names and all(math.isfinite(value) and value >= 0 for value in (*found.low.flat, *found.high.flat))


@given(st.binary(max_size=60) | st.text(max_size=60).map(http) | st.integers(1, 150).map(lambda n: http(json.dumps(CLOCK))[:n]))
@example(http("[" * 100_000))
@example(b"SSH-2.0-OpenSSH_9.2\r\n")
def test_what_answers_may_be_no_prometheus(answering: socketserver.TCPServer, answer: bytes) -> None:
    observed(answering, answer, answer, answer)


# ---- lists of servers

LISTED = {
    "servers": [
        {"name": "a", "dsn": "host=db1 user=u password=s3cret dbname=d", "labels": {"host": "r1"}, "capacity": 4, "price": 1.5},
        {"name": "b", "service": "shop", "direct": "postgresql://u:s3cret@db2/d", "container": "/system.slice/pg"},
    ]
}
YAML_PARTS = [
    "servers:",
    "- ",
    "  ",
    "\n",
    "name: ",
    "dsn: ",
    "host=a",
    "&x ",
    "*x",
    "{",
    "}",
    "[",
    "]",
    "!!",
    "? ",
    "<<: ",
    "2026-13-01",
    '"',
    "|",
]
YAML = st.lists(st.sampled_from(YAML_PARTS) | st.text(max_size=3), max_size=20).map("".join)


@shared
@given(data=st.data())
def test_an_odd_list_of_servers_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "servers.yaml").write_text(yaml.dump(LISTED))
    assert len(read_servers(tmp_path / "servers.yaml")) == len(LISTED["servers"])
    text = yaml.dump(changed(LISTED, data)) if data.draw(st.booleans()) else data.draw(YAML)
    (tmp_path / "servers.yaml").write_text(text, errors="surrogatepass")
    try:
        servers = read_servers(tmp_path / "servers.yaml")
    except UsageError as error:
        assert "s3cret" not in str(error)
        return
    assert servers and all(server.name and server.dsn for server in servers) and "s3cret" not in repr(servers)
    assert all(value is None or math.isfinite(value) for server in servers for value in (server.capacity, server.price))


# ---- DSNs, settings, run directories

DSN_PARTS = ["host=", "postgresql://", "user=", "a", "'", "\\", "=", "@", "/", ":", "?", "&", "%4", "%41", "ä", "password=", "dbname="]
DSN = st.lists(st.sampled_from([*DSN_PARTS, " "]) | st.text(max_size=3), max_size=12).map("".join)
CONFIGURATION_PARTS = ["work_mem", "=", "'", "''", "\\", "#", "1MB", "include", "-", ".", "x.y"]
CONFIGURATION = st.lists(st.sampled_from([*CONFIGURATION_PARTS, "\n", " ", "\t", "\r"]) | st.text(max_size=3), max_size=15).map("".join)


@given(DSN)
def test_any_text_is_a_dsn_or_refused(text: str) -> None:
    try:
        plain = external_server.normalize_dsn(text)
    except UsageError:
        with contextlib.suppress(psycopg.Error):
            assert set(conninfo_to_dict(text)) & set(SECRET_KEYWORDS), "libpq takes it"
        return
    assert "password" not in conninfo_to_dict(plain)
    assert external_server.normalize_dsn(plain) == plain


@given(CONFIGURATION)
def test_any_text_is_a_configuration_or_refused(text: str) -> None:
    lines = ["jit = off", *text.split("\n")]
    while True:
        try:
            found = configuration.entries("\n".join(lines))
            break
        except UsageError as error:
            named = re.search(r"line (\d+):", str(error))
            assert named and int(named[1]) > 1 and lines[int(named[1]) - 1]
            lines[int(named[1]) - 1] = ""
    assert found[0] == ("jit", "off")
    written = {name: value for name, value in found if "\0" not in value}
    assert dict(configuration.entries(configuration.write(written))) == written


SHOWN = [
    "show RUN",
    "show RUN --json",
    "show RUN 1",
    "show RUN 1 --json",
    "show RUN 1 --repro-script",
    "gate RUN DIR/20260131-120000-density-0002",
    "gate DIR/20260131-120000-density-0002 RUN --json",
    "list --runs-dir DIR",
    "export RUN --output -",
    "place DIR/demand.csv --host-run RUN",
    "place DIR/demand.csv --host-run RUN --slo p95=5ms",
    "place DIR/rates.csv --host-run RUN --demand-run RUN",
]
"""Commands that read a run."""


@pytest.fixture
def run_with_inputs(run_on_disk: Path) -> Path:
    """A run, a copy of it to compare, and inputs of a plan beside them."""
    copied = shutil.copytree(run_on_disk, run_on_disk.with_name("20260131-120000-density-0002"))
    (copied / "run.json").write_text((copied / "run.json").read_text().replace(run_on_disk.name, copied.name))
    (run_on_disk.parent / "demand.csv").write_text("database,time,cpu_cores\na,0,1\na,1,0.2\n")
    (run_on_disk.parent / "rates.csv").write_text("database,time,tps\na,0,1000\na,1,\n")
    return run_on_disk


@shared
@given(data=st.data())
def test_an_odd_run_directory_is_opened_or_refused(run_with_inputs: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    file = data.draw(st.sampled_from([run_with_inputs / "run.json", run_with_inputs / "trials/0001/trial.json"]))
    before = file.read_bytes()
    document = changed(json.loads(before), data)
    words = data.draw(st.sampled_from(SHOWN)).replace("RUN", str(run_with_inputs)).replace("DIR", str(run_with_inputs.parent)).split()
    file.write_text(json.dumps(document))
    try:
        run = open_run(run_with_inputs, run_with_inputs.parent)
        assert run.name == run_with_inputs.name and repr(run) and run.trials().fetchall()
        for name in run.tables:
            run.table(name)
    except PgherdError:
        pass
    finally:
        code = main.run(words)
        file.write_bytes(before)
    assert code in (0, 1, 2, 3) and "internal error" not in capsys.readouterr().err
