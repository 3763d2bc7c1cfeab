"""Somebody else's server, by DSN: it is loaded, looked at, and left exactly as it was."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import psycopg
import psycopg.sql
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import external_server, installations
from pgherd.postgres.external_server import ExternalServer
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.relation_files import Relations
from reports import CONNECTIONS, DATABASE_NAMES, POOLERS, Connection, DatabaseName, Pooler

NODE = LocalNode()
ONE_DAY = datetime.timedelta(days=1)
PASSWORD = "correct:horse\\battery staple"
SETTINGS = {"autovacuum": "off", "fsync": "off", "max_connections": "30", "shared_buffers": "32MB", "work_mem": "5MB"}


@dataclass
class Theirs:
    """The server of somebody else, who is a superuser on it; ``loader`` is whom they let in with a password."""

    instance: Instance

    @property
    def host(self) -> str:
        return self.instance.socket_dir

    def dsn(self, user: str = "loader", database: str = "app", password: str | None = None) -> str:
        words = f"host={self.host} user={user} dbname={database}"
        return words if password is None else f"{words} password='{password.replace(chr(92), chr(92) * 2)}'"

    def sql(self, statement: str, database: str = "app") -> list[tuple[object, ...]]:
        with psycopg.connect(self.instance.conninfo(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def state(self) -> dict[str, object]:
        """Everything that must not change: settings, databases, relations and their contents, files, and that nothing was written."""
        return {
            "settings": self.sql("SELECT name, setting, source FROM pg_settings WHERE name <> 'application_name' ORDER BY name"),
            "databases": self.sql("SELECT oid, datname FROM pg_database ORDER BY oid"),
            "roles": self.sql("SELECT oid, rolname, rolconfig FROM pg_roles ORDER BY oid"),
            "relations": self.sql("SELECT oid, relname, relfilenode, relpages FROM pg_class ORDER BY oid"),
            "rows": self.sql("SELECT count(*), sum(abalance) FROM pgbench_accounts"),
            "transaction ids given": self.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"),
            "started": self.sql("SELECT pg_postmaster_start_time()::text, pg_conf_load_time()::text"),
            "files": sorted(str(file) for name in ("base", "global") for file in Path(self.instance.data_dir, name).rglob("*")),
            "configuration": Path(self.instance.data_dir, "postgresql.conf").read_text(),
        }


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    root = Path(tempfile.mkdtemp(prefix="theirs-", dir="/tmp"))
    root.chmod(0o755)
    account = server_account()
    try:
        usable = installations.reachable_copy(NODE, installations.choose(NODE), account, str(root))
    except CapabilityError as error:
        shutil.rmtree(root)
        pytest.skip(str(error))
    one = Instance(NODE, usable, str(root / "data"), str(root / "s"), account=account, name="theirs")
    try:
        initdb(NODE, usable, one.data_dir, account=account)
        hba = "local all postgres trust\nlocal all free trust\nlocal all all scram-sha-256\n"
        (Path(one.data_dir) / "pg_hba.conf").write_text(hba)
        one.write_settings(SETTINGS)
        one.start()
        one.wait_ready()
        found = Theirs(one)
        found.sql(f"CREATE ROLE loader LOGIN PASSWORD '{PASSWORD}'", "postgres")
        found.sql("CREATE ROLE free LOGIN", "postgres")
        for name in ("app", "empty", "closed"):
            found.sql(f"CREATE DATABASE {name} OWNER loader", "postgres")
        found.sql("ALTER DATABASE closed SET default_transaction_read_only = on", "postgres")
        for name in ("app", "closed"):
            argv = [usable.tool("pgbench"), "-i", "-q", "-s", "1", "-h", found.host, "-U", "postgres", name]
            made = NODE.run(Command(argv, user=account, env={"PGOPTIONS": "-c default_transaction_read_only=off -c role=loader"}))
            assert made.code == 0, made.err
        found.sql("CHECKPOINT")
        yield found
    finally:
        one.disconnect(["app"])
        one.stop("immediate", 10)
        shutil.rmtree(root)


def everything_below(*roots: Path) -> Iterator[tuple[Path, bytes]]:
    for root in roots:
        for file in root.rglob("*"):
            if file.is_file() and not file.is_symlink():
                with contextlib.suppress(OSError):
                    yield file, file.read_bytes()


def test_a_run_changes_nothing_and_tells_no_password(pgherd, theirs):
    before = theirs.state()
    asked = theirs.dsn(password=PASSWORD)
    # A session adds what it did to the statistics once a second at most, so more than one is watched.
    ended = pgherd.density("--databases", "1", "--clients", "2", "--duration", "5s", "--dsn", asked, "--json")
    assert ended.code in (0, 1), ended
    assert theirs.state() == before
    pgherd.judged_fairly()
    trial = pgherd.trials()[0]
    (phase,) = trial["phases"]
    (target,) = phase["targets"]
    assert target["throughput"] > 10 and target["failed"] == 0
    (container,) = trial["trial"]["deployment"]["hosts"][0]["containers"]
    assert container["runtime"] == "external" and container["servers"][0]["dsn"] == f"user=loader dbname=app host={theirs.host}"
    assert container["servers"][0]["databases"][0]["scale"] == 1
    assert phase["metrics"]["server:db001/pg" if "server:db001/pg" in phase["metrics"] else "server:db01/pg"]["db.xact_commit"] > 0
    assert not any(entity.startswith("container:") for entity in phase["metrics"]), "its CPU is not seen, and ours is not taken for it"
    verdicts = {verdict["name"]: verdict["result"] for verdict in trial["checks"]}
    assert verdicts["cpu-bound"] == verdicts["background-cpu"] == "unknown"
    assert verdicts["steal"] in ("unknown", "fail"), "not seen at the server; what is taken from the driver's host is, on a shared machine"
    record = pgherd.record()
    assert record["settings"]["work_mem"] == "5MB" and record["settings"]["autovacuum"] == "off"
    assert any("only read" in sentence for sentence in record["defaults_chosen"])
    assert "***" in " ".join(record["command"])
    secret = PASSWORD[:13].encode()
    for file, content in everything_below(pgherd.runs, pgherd.root / "state", pgherd.root / "cache"):
        assert secret not in content and b"battery" not in content, file
    assert "horse" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("words", "table", "column"),
    [
        pytest.param(("compare", "--variant", "simple:protocol=simple", "--max-blocks", "1"), "comparison", "baseline", id="compare"),
        pytest.param(("scaling", "--clients", "1,2", "--repeats", "1"), "scaling", "throughput", id="scaling"),
        pytest.param(
            ("io-profile", "--workload", "select-only", "--repeats", "2", "--time-budget", "30s"),
            "io_profile",
            "throughput",
            id="io-profile",
        ),
    ],
)
def test_it_is_compared_and_scaled_and_changes_in_nothing(pgherd, theirs, monkeypatch, words, table, column):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    before = theirs.state()
    limits = ("--duration", "1s", "--warmup", "0s", "--time-budget", "3s")
    ended = pgherd(words[0], *limits, *words[1:], "--dsn", theirs.dsn(), "--no-report", "--json")
    assert ended.code in (0, 1), ended
    assert theirs.state() == before
    trials = pgherd.trials()
    assert len(trials) >= 2 and not [trial["error"] for trial in trials if trial["error"]]
    assert json.loads(ended.out)["tables"][table][0][column]["value"] > 0


def test_a_load_may_write_where_that_is_allowed(pgherd, theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    before = theirs.state()
    (count,) = theirs.sql("SELECT count(*) FROM pgbench_history")[0]
    refused = pgherd.density("--databases", "1", "--dsn", theirs.dsn(), "--workload", "tpcb-like")
    assert refused.code == 2 and "is read only by default" in refused.message and "--allow-writes" in refused.message
    assert theirs.state() == before
    ended = pgherd.density(
        "--databases", "1", "--clients", "2", "--dsn", theirs.dsn(), "--workload", "tpcb-like", "--allow-writes", "--bound-by", "io"
    )
    assert ended.code in (0, 1), ended
    assert theirs.sql("SELECT count(*) FROM pgbench_history")[0][0] > count
    after = theirs.state()
    for same in ("settings", "databases", "roles", "started", "configuration"):
        assert after[same] == before[same], same
    assert [row[:2] for row in after["relations"]] == [row[:2] for row in before["relations"]], "only rows are written"


def test_a_password_of_the_environment_is_enough_and_a_killed_run_is_resumed_with_it(pgherd, theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    process = pgherd.start_density("--databases", "1", "--repeats", "2", "--dsn", theirs.dsn(), "--duration", "2s", "--time-budget", "40s")
    pgherd.wait_until(lambda: pgherd.in_trial(2))
    process.kill()
    pgherd.end(process)
    monkeypatch.delenv("PGPASSWORD")
    without = pgherd("resume", str(pgherd.run), "--no-report")
    assert without.code == 2 and "no connection" in without.message and "PGPASSWORD" in without.message, without
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert pgherd("resume", str(pgherd.run), "--no-report").code in (0, 1)
    assert len(pgherd.trials()) >= 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dsn", "host=/nonexistent dbname=app"), "no connection: .*/nonexistent.*check the DSN"),
        (("--dsn", "postgresql://loader:s3cret@127.0.0.1:1/app"), "no connection: .*[Cc]onnection refused"),
        (("--dsn", "not a dsn"), "this is not a DSN"),
        (("--dsn", "{dsn}"), "no connection: .*password.*set PGPASSWORD"),
        (("--dsn", "{free} dbname=nosuch"), 'no connection: .*database "nosuch" does not exist'),
        (("--dsn", "{empty}"), "has no pgbench_accounts, pgbench_branches.*pgbench -i -s 10 "),
        (("--dsn", "{free}"), "pgbench's tables cannot be read: permission denied"),
        (("--dsn", "{closed}", "--workload", "tpcb-like", "--allow-writes"), "accepts no writes: default_transaction_read_only is on"),
        (("--dsn", "{owner}", "--scale", "7"), "--scale is 7, but pgbench's tables .* have scale 1"),
        (("--dsn", "{owner}", "--set", "work_mem=1MB"), "--set does not go with --dsn"),
        (("--dsn", "{owner}", "--wal-volume", "/tmp"), "--wal-volume does not go with --dsn"),
        (("--dsn", "{owner}", "--runtime", "process"), "--runtime does not go with --dsn"),
        (("--dsn", "{owner}", "--memory", "1GB"), "--memory does not go with --dsn"),
        (("--dsn", "{owner}", "--start-state", "fresh"), "--start-state fresh does not go with --dsn"),
        (("--dsn", "{owner}", "--client-placement", "inside"), "--client-placement inside does not go with --dsn"),
        (("--dsn", "{owner}", "--databases", "1,2"), "density compares numbers of databases, and creates none on an external server"),
    ],
)
def test_what_cannot_be_is_one_message(pgherd, theirs, words, message):
    known = {
        "dsn": theirs.dsn(),
        "free": theirs.dsn("free"),
        "empty": theirs.dsn("postgres", "empty"),
        "closed": theirs.dsn("postgres", "closed"),
        "owner": theirs.dsn("postgres"),
    }
    points = () if "--databases" in words else ("--databases", "1")
    ended = pgherd("density", "--no-report", *points, *(word.format(**known) for word in words))
    assert ended.code == 2, ended
    assert re.search(message, ended.message), ended
    assert "s3cret" not in ended.err
    assert not pgherd.runs.exists() or not os.listdir(pgherd.runs)


def test_our_sessions_cannot_write(theirs, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    one = ExternalServer(NODE, external_server.normalize_dsn(theirs.dsn()), name="a/pg", passfile=str(tmp_path / "passfile"))
    try:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            one.sql("CREATE TABLE mine ()")
        assert PASSWORD.split(":")[0] not in one.conninfo() and (tmp_path / "passfile").stat().st_mode & 0o777 == 0o600
        monkeypatch.delenv("PGPASSWORD")
        one.disconnect()
        assert one.answers, "by the password file alone"
        at = one.address()
        assert (at.host, at.user, at.database) == (theirs.host, "loader", "app")
        assert at.environment["PGOPTIONS"] == f"{external_server.CLIENT_CHECK} {external_server.READ_ONLY}"
        assert at.environment["PGPASSFILE"] == str(tmp_path / "passfile")
        assert one.address(writes=True).environment["PGOPTIONS"] == external_server.CLIENT_CHECK
        assert PASSWORD not in json.dumps(dict(at.environment))
        assert one.differing()["work_mem"] == "5MB"
    finally:
        one.disconnect()


def test_functions_that_another_role_planted_do_not_run(theirs, tmp_path):
    """PostgreSQL prefers them to its functions, because their arguments fit better. The tables of pgbench may be views that call them."""
    planted = ("pg_has_role(name, text, text)", "pg_relation_size(oid)", "pg_relation_filepath(oid)", "planted()")
    for function in planted:
        theirs.sql(f"CREATE FUNCTION public.{function} RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''planted''; END'")
    theirs.sql("CREATE SCHEMA planted; CREATE VIEW planted.pgbench_branches AS SELECT public.planted()")
    one = ExternalServer(NODE, external_server.normalize_dsn(theirs.dsn("postgres")), name="a/pg", passfile=str(tmp_path / "passfile"))
    try:
        assert external_server.read_database_info(theirs.dsn("postgres")).scale == 1
        assert Relations(one.sql).all
        assert one.sql("SHOW search_path") == [("pg_catalog",)], "of pgherd's sessions"
        assert "search_path" not in one.address().environment["PGOPTIONS"], "not of the load's"
        views = external_server.normalize_dsn(f"{theirs.dsn('postgres')} options='-c search_path=planted,public'")
        assert external_server.read_database_info(views).missing == ("pgbench_branches",)
    finally:
        one.disconnect()
        theirs.sql("DROP SCHEMA planted CASCADE")
        for function in planted:
            theirs.sql(f"DROP FUNCTION public.{function}")


def test_options_of_the_user_stay(theirs, tmp_path):
    asked = external_server.normalize_dsn(f"{theirs.dsn('postgres')} options='-c statement_timeout=7s'")
    one = ExternalServer(NODE, asked, name="a/pg", passfile=str(tmp_path / "passfile"), query_timeout=60)
    assert one.sql("SHOW statement_timeout") == [("7s",)] and one.sql("SHOW transaction_read_only") == [("on",)]
    assert one.address(writes=True).environment["PGOPTIONS"].endswith("statement_timeout=60000ms -c statement_timeout=7s")
    assert not (tmp_path / "passfile").exists(), "no password, no file"
    one.disconnect()


@pytest.fixture
def oddly_named(theirs: Theirs, request) -> Iterator[DatabaseName]:
    """A copy of the loader's database with the name of the row."""
    row: DatabaseName = request.param
    name = psycopg.sql.Identifier(row.name).as_string()
    theirs.sql(f"CREATE DATABASE {name} OWNER loader TEMPLATE app", "postgres")
    yield row
    theirs.sql(f"DROP DATABASE {name} WITH (FORCE)", "postgres")


@pytest.mark.parametrize("oddly_named", DATABASE_NAMES, ids=lambda row: row.report, indirect=True)
def test_a_database_may_have_any_name(pgherd, theirs, oddly_named: DatabaseName, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    dsn = make_conninfo(host=theirs.host, user="loader", dbname=oddly_named.name)
    if oddly_named.url:
        dsn = f"postgresql://loader@/{quote(oddly_named.name, safe='')}?host={quote(theirs.host, safe='')}"
    ended = pgherd.density("--databases", "1", "--clients", "2", "--duration", "2s", "--dsn", dsn, "--json")
    assert ended.code in (0, 1), ended
    (trial,) = pgherd.trials()
    (container,) = trial["trial"]["deployment"]["hosts"][0]["containers"]
    assert trial["error"] is None and trial["phases"][0]["targets"][0]["throughput"] > 10, trial
    assert conninfo_to_dict(container["servers"][0]["dsn"])["dbname"] == oddly_named.name
    ((committed,),) = theirs.sql(f"SELECT xact_commit FROM pg_stat_database WHERE datname = {quoted(oddly_named.name)}")
    assert committed > trial["phases"][0]["targets"][0]["transactions"]
    shown = pgherd("show", "last")
    assert shown.code == 0 and "1 database" in shown.out, shown


def quoted(text: str) -> str:
    return psycopg.sql.Literal(text).as_string()


def test_a_statement_that_takes_too_long_is_cancelled(pgherd, theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    ended = run_script(pgherd, theirs.dsn(), "SELECT pg_sleep(600);\n", "--read-only", "--query-timeout", "100ms")
    assert "statement timeout" in ended.out + ended.err + json.dumps([trial["error"] for trial in pgherd.trials()]), ended


def test_what_may_be_secret_is_not_told(theirs, tmp_path, monkeypatch):
    one = ExternalServer(NODE, external_server.normalize_dsn(theirs.dsn("postgres")), name="a/pg", passfile=str(tmp_path / "passfile"))
    rows = [(name, "x", "", "configuration file", "x") for name in ("primary_conninfo", "archive_command", "app.api_key", "work_mem")]
    monkeypatch.setattr(ExternalServer, "sql", lambda self, statement, parameters=(): rows)
    told = one.differing()
    assert told == {"primary_conninfo": "(not shown)", "archive_command": "(not shown)", "app.api_key": "(not shown)", "work_mem": "x"}


@pytest.fixture
def limited(theirs):
    """Sets a connection limit of a role or database until the end of the test."""
    objects = []

    def limit(name: str, number: int) -> None:
        objects.append(name)
        theirs.sql(f"ALTER {name} CONNECTION LIMIT {number}", "postgres")

    yield limit
    for name in objects:
        theirs.sql(f"ALTER {name} CONNECTION LIMIT -1", "postgres")


def test_limits_of_the_role_and_the_database_are_seen(pgherd, theirs, limited, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    limited("ROLE loader", 6)
    activity = external_server.read_database_info(theirs.dsn()).activity
    assert (activity.free, activity.limit) == (6, "the CONNECTION LIMIT of role loader")
    limited("DATABASE app", 4)
    activity = external_server.read_database_info(theirs.dsn()).activity
    assert (activity.free, activity.limit) == (4, "the CONNECTION LIMIT of database app")
    superuser = external_server.read_database_info(theirs.dsn("postgres")).activity
    assert superuser.limit == "max_connections" and superuser.free > 6, "no such limit holds for a superuser"
    ended = pgherd("density", "--dsn", theirs.dsn(), "--databases", "1", "--clients", "3", "--dry-run")
    assert ended.code == 2 and "but the server has 4 free; lower --clients, or raise the CONNECTION LIMIT of database app" in ended.message


def test_databases_of_one_server_share_its_connections(pgherd, theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    words = ("--dsn", theirs.dsn(), "--dsn", theirs.dsn(database="closed"), "--dry-run")
    ended = pgherd("density", *words, "--clients", "13")
    assert ended.code == 2, ended
    assert "server server1, server server2: 26 clients and pgherd need 30 connections to their server" in ended.message, ended
    assert "but max_connections leaves 2" in ended.message, ended
    assert pgherd("density", *words, "--clients", "2").code == 0


def test_settings_that_a_server_hides_are_named(pgherd, theirs):
    theirs.sql("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'", "postgres")
    for user, hidden in (("postgres", False), ("free", True)):
        source = theirs.dsn(user, "ascii")
        ended = pgherd("density", "--databases", "1", "--dry-run", "--settings-from", source)
        text = " ".join((ended.out + ended.err).split())
        assert ended.code == 0 and "work_mem 5MB" in text, ended
        assert ("run GRANT pg_read_all_settings TO free there" in text) == hidden, ended


def test_an_unsupported_version_is_refused(theirs, monkeypatch):
    monkeypatch.setattr(external_server, "SUPPORTED", range(40, 42))
    with pytest.raises(UsageError, match="is PostgreSQL 1.*, which is not supported; pgherd works with 40 to 41"):
        external_server.read_database_info(external_server.normalize_dsn(theirs.dsn("postgres")))


@pytest.fixture
def standby(theirs) -> Iterator[Instance]:
    """A standby that waits for the WAL of a primary that does not exist."""
    root = Path(tempfile.mkdtemp(prefix="standby-", dir="/tmp"))
    root.chmod(0o755)
    account, usable = theirs.instance.account, theirs.instance.installation
    one = Instance(NODE, usable, str(root / "data"), str(root / "s"), account=account, name="standby")
    try:
        initdb(NODE, usable, one.data_dir, account=account)
        NODE.write(f"{one.data_dir}/standby.signal", b"", user=account)
        one.write_settings({"fsync": "off", "shared_buffers": "16MB"})
        one.start()
        one.wait_ready()
        yield one
    finally:
        one.disconnect()
        one.stop("immediate", 10)
        shutil.rmtree(root)


@pytest.mark.parametrize(("attribute", "chosen"), [("read-write", 0), ("primary", 0), ("read-only", 1), ("standby", 1)])
def test_the_host_is_chosen_as_without_read_only_sessions(theirs, standby, monkeypatch, attribute, chosen):
    hosts = (theirs.host, standby.socket_dir)
    monkeypatch.setenv("PGTARGETSESSIONATTRS", attribute)
    for order in (hosts, hosts[::-1]):
        one = attached(f"host={','.join(order)} user=postgres dbname=postgres", theirs)
        assert one.address().host == hosts[chosen] and "target_session_attrs" not in one.address().conninfo
        one.require_read_only(theirs.instance.installation.bin)
        assert one.sql("SELECT pg_is_in_recovery()") == [(bool(chosen),)], "pgherd's next connections lead to it, too"
        one.disconnect()
    alone = f"host={hosts[1 - chosen]} user=postgres dbname=postgres target_session_attrs={attribute}"
    with pytest.raises(UsageError, match="no connection"):
        attached(alone, theirs)


UPDATES = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 1;\n"


POOLED = [pytest.param((row.mode, row.ignored), row, id=row.report) for row in POOLERS]


@pytest.fixture
def pooled(theirs, request):
    """PgBouncer in front of the server, in a mode, which ignores startup parameters; the port is that of its socket and of TCP."""
    given = getattr(request, "param", ("transaction", "options"))
    mode, ignored, tls, size = (*given, *("allow", 20)[len(given) - 2 :])
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("pgbouncer is missing")
    root = Path(tempfile.mkdtemp(prefix="pooler-", dir="/tmp"))
    root.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    certificate, key = self_signed()
    (root / "users").write_text(f'"loader" "{PASSWORD}"\n')
    (root / "server.key").write_bytes(key)
    (root / "server.crt").write_bytes(certificate)
    settings = {
        "unix_socket_dir": root,
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "auth_type": "scram-sha-256",
        "auth_file": root / "users",
        "pool_mode": mode,
        "default_pool_size": size,
        "client_tls_sslmode": tls,
        "client_tls_ca_file": root / "server.crt",
        "client_tls_key_file": root / "server.key",
        "client_tls_cert_file": root / "server.crt",
        **({"ignore_startup_parameters": ignored} if ignored else {}),
    }
    lines = [
        "[databases]",
        f"* = host={theirs.host} port={theirs.instance.port}",
        "[pgbouncer]",
        *(f"{n} = {v}" for n, v in settings.items()),
    ]
    (root / "pooler.ini").write_text("\n".join(lines) + "\n")
    account = theirs.instance.account
    user = []
    if account is not None:
        subprocess.run(["chown", "-R", f"{account}:", root], check=True)
        user = ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups"]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen([*user, program, root / "pooler.ini"], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while not (root / f".s.PGSQL.{port}").exists():
            assert process.poll() is None and time.monotonic() < deadline, (root / "log").read_text()
            time.sleep(0.02)
        yield SimpleNamespace(
            host=str(root), port=port, dsn=f"host={root} port={port} user=loader dbname=app", certificate=certificate, key=key
        )
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(root)


def self_signed() -> tuple[bytes, bytes]:
    """Certificate of 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    one = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - ONE_DAY, now + ONE_DAY)
    one = one.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return one.sign(key, hashes.SHA256()).public_bytes(pem), private


@pytest.fixture
def reader(theirs):
    """The loader may only read by default, as its owner has set it."""
    theirs.sql("ALTER ROLE loader IN DATABASE app SET default_transaction_read_only = on")
    yield
    theirs.sql("ALTER ROLE loader IN DATABASE app RESET default_transaction_read_only")


def run_script(pgherd, dsn, text, *words):
    file = pgherd.root / "own.sql"
    file.write_text(text)
    short = ("--clients", "1,2", "--repeats", "1", "--duration", "1s", "--warmup", "0s", "--time-budget", "3s", "--no-report", "--json")
    return pgherd("scaling", "--dsn", dsn, "--script", str(file), *(words or ("--read-only",)), *short)


@pytest.mark.parametrize(("pooled", "row"), POOLED, indirect=["pooled"])
def test_a_pooler_that_does_not_keep_sessions_read_only_is_refused(pgherd, theirs, pooled, row: Pooler, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    before = theirs.state()
    ended = run_script(pgherd, pooled.dsn, UPDATES)
    assert ended.code == 2, ended
    assert "is behind PgBouncer" in ended.message and row.right in ended.message, ended
    assert "name the server itself" in ended.message and "ALTER ROLE" in ended.message
    assert "only read:" not in ended.out + ended.err and not pgherd.runs.exists()
    for words in (("compression", "--data", "none"), ("advise",)):
        ended = pgherd(*words, "--dsn", pooled.dsn)
        assert ended.code == 2 and "is behind PgBouncer" in ended.message, ended
    assert theirs.state() == before, "no row was changed"


@pytest.mark.parametrize(("pooled", "row"), POOLED, indirect=["pooled"])
def test_a_default_of_the_user_holds_behind_a_pooler(pgherd, theirs, pooled, row: Pooler, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    before = theirs.state()
    ended = run_script(pgherd, pooled.dsn, "SELECT count(*) FROM pgbench_branches;\n", "--read-only", "--protocol", "simple")
    assert ended.code in (0, 1), ended
    trials = pgherd.trials()
    assert trials and not [trial["error"] for trial in trials if trial["error"]]
    assert any("only read" in sentence and "PgBouncer" in sentence for sentence in pgherd.record()["defaults_chosen"])
    (phase,) = trials[0]["phases"]
    assert any(name.startswith("db.") for metrics in phase["metrics"].values() for name in metrics), "its statistics were sampled"
    ended = run_script(pgherd, pooled.dsn, UPDATES, "--read-only", "--protocol", "simple")
    assert "read-only transaction" in ended.out + ended.err + json.dumps([trial["error"] for trial in pgherd.trials()]), ended
    assert theirs.state() == before, "no row was changed"


@pytest.mark.parametrize("pooled", [("transaction", "")], indirect=True)
def test_nothing_stays_in_the_sessions_that_a_pooler_shares(pgherd, theirs, pooled, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    ended = run_script(pgherd, pooled.dsn, "SELECT 1;\n", "--read-only")
    assert ended.code == 2 and "--protocol prepared does not go with" in ended.message and "PgBouncer" in ended.message, ended
    ended = run_script(pgherd, pooled.dsn, "SET work_mem = '1MB';\n", "--read-only", "--protocol", "extended")
    assert ended.code == 2 and "own.sql:1: 'SET' leaves state in the sessions that PgBouncer" in ended.message, ended
    ended = run_script(pgherd, pooled.dsn, "SELECT 1;\n", "--read-only", "--protocol", "extended")
    assert ended.code in (0, 1) and not [trial["error"] for trial in pgherd.trials() if trial["error"]], ended
    pgherd.judged_fairly()
    with psycopg.connect(pooled.dsn, autocommit=True) as session:
        assert session.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
        assert session.execute("SELECT count(*) FROM pg_class WHERE relpersistence = 't'").fetchone() == (0,)


def test_a_load_may_write_through_a_pooler_where_that_is_allowed(pgherd, theirs, pooled, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    ((before,),) = theirs.sql("SELECT abalance FROM pgbench_accounts WHERE aid = 1")
    ended = run_script(pgherd, pooled.dsn, UPDATES, "--allow-writes", "--protocol", "simple")
    assert ended.code in (0, 1), ended
    ((after,),) = theirs.sql("SELECT abalance FROM pgbench_accounts WHERE aid = 1")
    assert after > before


def test_a_script_that_is_said_to_write_nothing_cannot_write(pgherd, theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    before = theirs.state()
    ended = run_script(pgherd, theirs.dsn(), UPDATES)
    assert "only read" in " ".join(pgherd.record()["defaults_chosen"])
    assert "read-only transaction" in ended.out + ended.err + json.dumps([trial["error"] for trial in pgherd.trials()]), ended
    assert theirs.state() == before, "no row was changed"


def test_a_script_that_turns_read_only_off_is_refused(pgherd, theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    before = theirs.state()
    ended = run_script(pgherd, theirs.dsn(), f"BEGIN READ WRITE;\n{UPDATES}END;\n")
    assert ended.code == 2 and "own.sql:1: 'READ WRITE' can make transactions writable" in ended.message, ended
    assert theirs.state() == before


@pytest.mark.parametrize("pooled", [("session", "options"), ("transaction", "")], indirect=True)
def test_options_of_the_user_are_not_lost_in_a_pooler(pooled, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    for dsn in (f"{pooled.dsn} options='-c statement_timeout=7s'", pooled.dsn):
        with pytest.raises(UsageError, match="behind PgBouncer.*, where options of a session .* are not reliable"):
            external_server.read_database_info(external_server.normalize_dsn(dsn))
        monkeypatch.setenv("PGOPTIONS", "-c lock_timeout=7s")


def test_no_driver_starts_where_only_pgherds_sessions_are_read_only(theirs, tmp_path, monkeypatch):
    """As if a pooler came in between after the run was prepared, or told one client from another."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    one = attached(theirs.dsn(), theirs)
    one.require_read_only(theirs.instance.installation.bin)
    monkeypatch.setattr(external_server, "READ_ONLY", "-c default_transaction_read_only=off")
    with pytest.raises(UsageError, match="transaction_read_only is off in the sessions of pgbench"):
        one.require_read_only(theirs.instance.installation.bin)


def test_a_load_that_reads_gets_no_address_where_sessions_may_write(theirs, pooled, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with pytest.raises(UsageError, match="is behind PgBouncer"):
        attached(pooled.dsn, theirs)
    one = attached(pooled.dsn, theirs, allow_writes=True)
    with pytest.raises(UsageError, match="is behind PgBouncer"):
        one.address()
    assert "PGOPTIONS" not in one.address(writes=True).environment and "options=''" in one.conninfo()


def test_a_direct_dsn_samples_the_server_behind_a_pooler(pgherd, theirs, pooled, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    one = attached(pooled.dsn, theirs, direct=external_server.normalize_dsn(theirs.dsn()))
    assert one.pooler is not None and one.address().port == pooled.port, "the load still goes through the pooler"
    assert theirs.host in one.conninfo() and str(pooled.port) not in one.conninfo() and one.sql("SELECT 1") == [(1,)]
    one.disconnect()
    with pytest.raises(UsageError, match="leads to another database or server than"):
        attached(pooled.dsn, theirs, direct=external_server.normalize_dsn(theirs.dsn("free", "postgres")))
    servers = pgherd.root / "servers.yaml"
    servers.write_text(json.dumps({"servers": [{"name": "pooled", "dsn": pooled.dsn, "direct": theirs.dsn()}]}))
    words = ("--clients", "1,2", "--repeats", "1", "--duration", "1s", "--warmup", "0s", "--time-budget", "3s", "--no-report")
    ended = pgherd("scaling", "--servers", str(servers), "--protocol", "simple", *words)
    assert ended.code in (0, 1), ended
    (phase,) = pgherd.trials()[0]["phases"]
    assert any(name.startswith("db.") for metrics in phase["metrics"].values() for name in metrics), "its statistics were sampled"


def compare_pooled(pgherd, theirs, pooled, clients: str):
    short = ("--repeats", "1", "--duration", "1s", "--warmup", "0s", "--time-budget", "3s", "--protocol", "simple", "--no-report", "--json")
    variants = ("--variant", "direct:", "--variant", f"pooled:dsn={pooled.dsn}")
    return pgherd("scaling", "--dsn", theirs.dsn(), *variants, "--clients", clients, *short)


@pytest.mark.parametrize("pooled", [("transaction", "", "allow", 3)], indirect=True)
def test_what_a_pooler_costs_is_shown_with_many_clients_on_few_connections(pgherd, theirs, pooled, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    theirs.sql("SELECT pg_stat_reset()")
    ended = compare_pooled(pgherd, theirs, pooled, "2,12")
    assert ended.code in (0, 1), ended
    trials = pgherd.trials()
    assert {(trial["trial"]["point"]["variant"], trial["trial"]["point"]["clients"]) for trial in trials} == {
        (variant, clients) for variant in ("direct", "pooled") for clients in (2, 12)
    }
    assert not [trial["error"] for trial in trials if trial["error"]]
    for trial in trials:
        if trial["trial"]["point"] == {"variant": "pooled", "clients": 12}:
            (metrics,) = [found for entity, found in trial["phases"][0]["metrics"].items() if entity.startswith("server:")]
            assert sum(metrics[f"waits.{name}"] for name in ("cpu", "lock", "lwlock", "io", "ipc", "client")) <= 3, "its pool's size"
    rows = json.loads(ended.out)["tables"]["scaling"]
    assert {row["variant"] for row in rows} == {"direct", "pooled"} and all(row["throughput"]["value"] > 0 for row in rows)


@pytest.mark.parametrize("pooled", [("transaction", "", "allow", 1)], indirect=True)
def test_a_pooler_is_named_if_it_fails_first(pgherd, theirs, pooled, reader, monkeypatch):
    """One connection for eight clients and transactions of 30 ms: about 30 tps are possible, on idle CPUs."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    words = ("--read-only", "--protocol", "simple", "--slo", "p50=100ms", "--min-repeats", "1", "--time-budget", "45s", "--clients", "8")
    limits = ("max_background_cpu=1", "max_steal=1", "min_overlap=0.5")
    calm = tuple(word for limit in limits for word in ("--threshold", limit))
    file = pgherd.root / "sleep.sql"
    file.write_text("SELECT pg_sleep(0.03);\n")
    window = ("--duration", "4s", "--warmup", "1s")
    ended = pgherd("scaling", "--dsn", pooled.dsn, "--script", str(file), *words, *calm, *window, "--json", "--no-report")
    assert ended.code in (0, 1), ended
    answer = json.loads(ended.out)["answer"]
    assert "pooler fails first" in answer, answer


@pytest.mark.parametrize("pooled", [("session", "", "allow", 5)], indirect=True)
def test_clients_that_would_wait_for_the_end_of_others_are_refused(pgherd, theirs, pooled, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    ended = compare_pooled(pgherd, theirs, pooled, "2,4")
    assert ended.code == 2 and "variant 'pooled'" in ended.message, ended
    assert "4 clients and pgherd need 6 sessions, but behind PgBouncer 5 answer" in ended.message, ended
    ended = compare_pooled(pgherd, theirs, pooled, "2,3")
    assert ended.code in (0, 1) and not [trial["error"] for trial in pgherd.trials() if trial["error"]], ended


def attached(dsn: str, theirs: Theirs, **words) -> ExternalServer:
    """The server as a run attaches it: its driver runs as another user, if pgherd is root."""
    asked, account = external_server.normalize_dsn(dsn), theirs.instance.account
    passfile = Path(theirs.instance.data_dir).parent / f"passfile-{secrets.token_hex(4)}"
    return ExternalServer(NODE, asked, name="a/pg", passfile=str(passfile), account=account, **words)


@pytest.mark.parametrize("row", CONNECTIONS, ids=lambda row: row.report)
def test_all_parameters_reach_the_driver(theirs, pooled, reader, monkeypatch, tmp_path, row: Connection):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    (tmp_path / "services").write_text(f"[theirs]\nhost={pooled.host}\nport={pooled.port}\nkeepalives_idle=7\n")
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").write_bytes(pooled.certificate)
    tmp_path.chmod(0o700)
    dsn = f"{row.text.format(port=pooled.port)} user=loader dbname=app"
    one = attached(dsn, theirs)
    one.require_read_only(theirs.instance.installation.bin)
    assert one.address().port == pooled.port
    assert not [word for word in row.right if word not in one.address().conninfo]
    if "verify" in row.text:
        (tmp_path / ".postgresql" / "root.crt").unlink()
        with pytest.raises(UsageError, match="root certificate file"):
            attached(dsn, theirs)


@pytest.mark.parametrize("pooled", [("session", "options")], indirect=True)
def test_a_name_with_several_addresses_leads_to_one_of_them(theirs, pooled, reader, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    one = attached(f"host=localhost port={pooled.port} user=loader dbname=app", theirs)
    assert one.address().host == "localhost", "certificates and tickets are for a name"
    for conninfo in (one.conninfo(), one.address().conninfo):
        assert conninfo_to_dict(conninfo)["hostaddr"] == "127.0.0.1"
    one.require_read_only(theirs.instance.installation.bin)
    assert one.sql("SELECT 1") == [(1,)]
    one.disconnect()


@pytest.mark.parametrize("pooled", [("session", "options", "verify-ca")], indirect=True)
def test_a_certificate_of_this_user_reaches_the_driver(theirs, pooled, reader, monkeypatch, tmp_path):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".postgresql").mkdir(mode=0o700)
    for name, content in (("root.crt", pooled.certificate), ("postgresql.crt", pooled.certificate), ("postgresql.key", pooled.key)):
        (tmp_path / ".postgresql" / name).write_bytes(content)
        (tmp_path / ".postgresql" / name).chmod(0o600)
    one = attached(f"host=127.0.0.1 port={pooled.port} user=loader dbname=app sslmode=verify-ca", theirs)
    one.require_read_only(theirs.instance.installation.bin)
    assert one.sql("SELECT 1") == [(1,)], "so does pgherd, which reads the same files"
    one.disconnect()
    assert re.search(r"sslkey=\S+", one.address().conninfo)


def test_a_parameter_that_pgbench_does_not_know_is_named(theirs, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    one = attached(theirs.dsn(), theirs)
    one._parameters["future_parameter"] = "1"
    monkeypatch.setattr("psycopg.conninfo.make_conninfo", lambda _, **words: " ".join(f"{name}={value}" for name, value in words.items()))
    with pytest.raises(TrialError, match='pgbench cannot use the connection parameters of .*"future_parameter"'):
        one.require_read_only(theirs.instance.installation.bin)
