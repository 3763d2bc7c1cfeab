"""External servers: DSNs and requirements of a load. tests/it/test_external.py uses a real server."""

from types import SimpleNamespace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgherd.model.errors import UsageError
from pgherd.model.text import HIDDEN
from pgherd.node.local import LocalNode
from pgherd.node.secrets import redact_dsn
from pgherd.postgres import external_server
from pgherd.postgres.external_server import TABLES, ExternalDatabaseInfo


def info(**changes):
    return ExternalDatabaseInfo(**{"dsn": "host=h", "version": "17.2", "major": 17, "database": "app", "bytes": 1, "scale": 5} | changes)


def test_a_load_that_can_run():
    external_server.require_reachable(info(), builtin=True, writes=True, scale=None)
    external_server.require_reachable(info(), builtin=True, writes=False, scale=5)
    external_server.require_reachable(info(scale=None, missing=TABLES), builtin=False, writes=True, scale=None)
    external_server.require_reachable(info(missing=("pgbench_history",)), builtin=True, writes=False, scale=None)
    external_server.require_reachable(info(read_only="it is a standby"), builtin=True, writes=False, scale=None)


@pytest.mark.parametrize(
    ("changes", "requested", "message"),
    [
        ({"read_only": "it is a standby"}, {"writes": True}, "accepts no writes: it is a standby; use --workload select-only"),
        ({"missing": TABLES, "scale": None}, {"scale": 3}, "has no pgbench_accounts, pgbench_branches, .*pgbench -i -s 3 host=h"),
        ({"missing": ("pgbench_history",)}, {"writes": True}, "has no pgbench_history"),
        ({}, {"scale": 6}, "--scale is 6, but pgbench's tables at --dsn host=h have scale 5"),
    ],
)
def test_a_load_that_cannot_run_is_refused_with_what_to_do(changes, requested, message):
    with pytest.raises(UsageError, match=message):
        external_server.require_reachable(info(**changes), **{"builtin": True, "writes": False, "scale": None} | requested)


class Refusing:
    """Connection without a pooler whose server refuses statements that contain ``refused``."""

    info = SimpleNamespace(server_version=170002, parameter_status=lambda _: "17.2 (Debian)", dbname="app")

    def __init__(self, refused, error):
        self.refused, self.error, self.executed = refused, error, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def cursor(self, **_):
        return self

    def execute(self, statement, parameters=None):
        self.executed.append(statement.decode())
        if self.refused in statement.decode():
            raise self.error
        return SimpleNamespace(fetchone=lambda: (1,), fetchall=lambda: [{"one": 1}])


@pytest.fixture
def refusing(monkeypatch):
    def make(refused, error):
        connection = Refusing(refused, error)
        monkeypatch.setattr(external_server, "_connect", lambda dsn, **_: external_server._Session(connection, None, ""))
        return connection

    return make


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (psycopg.errors.InsufficientPrivilege("permission denied"), "permission denied; connect as .* member of pg_monitor$"),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), "DSN host=h: .* statement timeout$"),
        (psycopg.errors.ObjectNotInPrerequisiteState("26 columns\nHINT:  Run ALTER"), "26 columns HINT: Run ALTER$"),
        (psycopg.errors.SerializationFailure("conflict with recovery"), "conflict with recovery$"),
    ],
)
def test_an_error_of_the_server_is_one_message(refusing, error, message):
    refusing("status()", error)
    with pytest.raises(UsageError, match=message):
        external_server.ask("host=h", ["SELECT 1", "SELECT * FROM status()"], option="DSN")


def test_an_error_of_the_server_while_it_is_examined_is_one_message(refusing):
    refusing("pg_database_size", psycopg.errors.QueryCanceled("canceling statement due to statement timeout"))
    with pytest.raises(UsageError, match="--dsn host=h: canceling statement due to statement timeout$"):
        external_server.read_database_info("host=h")


def test_statements_find_postgresqls_objects_only(refusing):
    connection = refusing("nothing", None)
    assert external_server.ask("host=h", ["SELECT 1"])[1] == [[{"one": 1}]]
    assert connection.executed == ["SHOW server_version", "SET search_path=pg_catalog", "SELECT 1"]


def test_a_password_file_is_as_libpq_reads_it(tmp_path):
    external_server._write_passfile(LocalNode(), str(tmp_path / "passfile"), "a:b\\c", None)
    assert (tmp_path / "passfile").read_text() == "*:*:*:*:a\\:b\\\\c\n"
    assert (tmp_path / "passfile").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("dsn", "environment", "read_only", "options"),
    [
        ("host=h", "", True, external_server.READ_ONLY),
        ("host=h", "", False, ""),
        ("host=h options='-c a.b=1'", "-c jit=off", True, f"-c a.b=1 {external_server.READ_ONLY}"),
        ("host=h", "-c jit=off", True, f"-c jit=off {external_server.READ_ONLY}"),
    ],
)
def test_ours_come_after_the_users_options(monkeypatch, dsn, environment, read_only, options):
    monkeypatch.setenv("PGOPTIONS", environment)
    assert external_server._options(dsn, read_only=read_only) == options


@pytest.mark.parametrize(
    ("options", "attribute"), [(external_server.READ_ONLY, "primary"), (f"-c jit=off {external_server.READ_ONLY}", "primary"), ("", None)]
)
def test_only_sessions_that_pgherd_makes_read_only_choose_their_host_otherwise(monkeypatch, options, attribute):
    given = {}
    monkeypatch.setattr("psycopg.connect", lambda dsn, **parameters: given.update(parameters))
    external_server._open("host=a,b target_session_attrs=read-write", options=options)
    assert given["options"] == options and given.get("target_session_attrs") == attribute


PASSWORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=8, max_size=20).filter(lambda text: "***" not in text)


@pytest.mark.parametrize(
    "given_",
    [
        "postgresql://me:s3cret@db.example:5433/app?sslmode=require",
        "postgres://me:s3cret@db.example:5433/app?sslmode=require",
        "postgresql://db.example:5433/app?user=me&password=s3cret&sslmode=require",
        "host=db.example port=5433 user=me password=s3cret dbname=app sslmode=require",
        "host=db.example port=5433 user=me password = 's3cret' dbname=app sslmode=require",
    ],
)
def test_the_password_stays_here_and_the_rest_is_one_form(given_):
    plain = external_server.normalize_dsn(given_)
    assert conninfo_to_dict(plain) == {"host": "db.example", "port": "5433", "user": "me", "dbname": "app", "sslmode": "require"}
    assert external_server.password_of(plain) == "s3cret"
    assert "s3cret" not in redact_dsn(given_) and "db.example" in redact_dsn(given_) and HIDDEN in redact_dsn(given_)


def test_without_a_password_there_is_none():
    assert external_server.password_of(external_server.normalize_dsn("host=nobody.example user=me")) is None
    hidden = external_server.normalize_dsn("postgresql://other:***@nobody.example/app")
    assert external_server.password_of(hidden) is None, "the replacement in a record is not a password"
    assert redact_dsn("host=nobody.example user=me") == "host=nobody.example user=me"


@pytest.mark.parametrize(
    "given_", ["not a dsn", "host", "postgresql://me:s3cret@h/x?nonsense=1", "hots=x password=s3cret", "password='s3cret"]
)
def test_what_is_no_dsn_is_refused_without_telling_a_password(given_):
    with pytest.raises(UsageError, match="this is not a DSN") as caught:
        external_server.normalize_dsn(given_)
    assert "s3cret" not in str(caught.value)


def test_other_secrets_are_not_taken():
    with pytest.raises(UsageError, match="sslpassword cannot be given in a DSN"):
        external_server.normalize_dsn("host=h sslpassword=s3cret")


@given(PASSWORDS)
def test_a_password_in_a_keyword_dsn_is_found_whatever_it_is(password):
    word = make_conninfo("", host="h.example", password=password)
    assert external_server.password_of(external_server.normalize_dsn(word)) == password
    shown = redact_dsn(f"b:server={word}")
    assert conninfo_to_dict(shown.removeprefix("b:server="))["password"] == HIDDEN


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--dsn=postgresql://u:p@h/d", "--dsn=postgresql://u:***@h/d"),
        ('b:server="host=h password=p dbname=d",vcpus=2', 'b:server="host=h password=*** dbname=d",vcpus=2'),
        ("b:server=postgresql://u:p%40x@h:5432/d,vcpus=2", "b:server=postgresql://u:***@h:5432/d,vcpus=2"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("password_encryption=md5", "password_encryption=md5"),
    ],
)
def test_words_of_a_command_line(word, shown):
    assert redact_dsn(word) == shown
