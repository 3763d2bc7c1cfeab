"""Parameters of libpq from every source, and pretended poolers. tests/it/test_external.py has a real pgbench and PgBouncer."""

import itertools
from types import SimpleNamespace

import psycopg
import pytest

from pgherd.model.errors import UsageError
from pgherd.postgres import external_connections
from pgherd.postgres.external_connections import driver_parameters, explicit_parameters, reason_not_read_only, refuses_options

# ---- parameters


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    import os

    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_dsn_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGOPTIONS", "-c jit=off")
    monkeypatch.setenv("PGAPPNAME", "mine")
    found = explicit_parameters("host=/h sslmode=disable keepalives=0")
    assert found["sslmode"] == "disable" and found["keepalives"] == "0"
    assert found["options"] == "-c jit=off" and found["application_name"] == "mine"


def test_defaults_are_left_out():
    assert driver_parameters(explicit_parameters("host=/h user=u dbname=d"), tls=False) == {}


@pytest.mark.parametrize("named", ["dsn", "environment"])
def test_a_service_is_resolved(monkeypatch, tmp_path, named):
    (tmp_path / "services").write_text("[theirs]\nhost=/nonexistent\nkeepalives_idle=7\noptions=-c jit=off\nsslmode=allow\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    if named == "environment":
        monkeypatch.setenv("PGSERVICE", "theirs")
    found = explicit_parameters("service=theirs user=u" if named == "dsn" else "user=u")
    assert found["options"] == "-c jit=off", "pgherd's options come after these, not instead of them"
    assert driver_parameters(found, tls=False) == {"keepalives_idle": "7", "sslmode": "allow"}


def test_a_service_that_is_not_there_is_left_to_the_connection(tmp_path, monkeypatch):
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "none"))
    assert explicit_parameters("service=none user=u")["user"] == "u"


def test_no_secret_and_no_address_is_passed_on():
    given = {"password": "x", "host": "h", "port": "1", "passfile": "p", "service": "s", "tcp_user_timeout": "5"}
    given |= {"target_session_attrs": "read-write", "load_balance_hosts": "random"}
    assert driver_parameters(given, tls=True) == {"tcp_user_timeout": "5"}
    for secret in set(external_connections.SECRET_KEYWORDS) - {"password"}:
        with pytest.raises(UsageError, match=f"^{secret} cannot be passed on to pgbench"):
            driver_parameters({**given, secret: "x"}, tls=True)


def test_files_are_found_from_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").write_text("")
    given = {"sslrootcert": "ca.pem", "sslcert": "/etc/none.crt", "sslkey": "none.key"}
    assert driver_parameters(given, tls=False) == given | {"sslrootcert": f"{tmp_path}/ca.pem"}


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("FATAL:  unsupported startup parameter: options", True),
        ("FATAL:  Feature not supported: RDS Proxy currently doesn't support command-line options.", True),
        ('FATAL:  password authentication failed for user "a"', False),
    ],
)
def test_a_pooler_that_refuses_options_is_recognised(message, refused):
    assert refuses_options(psycopg.OperationalError(message)) is refused


def test_default_files_are_this_users(bare):
    (bare / ".postgresql").mkdir()
    root = bare / ".postgresql" / "root.crt"
    root.write_text("x")
    assert driver_parameters({}, tls=True) == {"sslrootcert": str(root)}
    assert driver_parameters({}, tls=False) == {}, "nothing is encrypted"
    assert driver_parameters({"sslrootcert": "system"}, tls=True) == {"sslrootcert": "system"}


@pytest.mark.parametrize(
    ("attribute", "choice"),
    [("read-write", "primary"), ("read-only", "standby"), ("primary", None), ("prefer-standby", None), ("any", None)],
)
@pytest.mark.parametrize("source", ["dsn", "environment", "service"])
def test_a_host_is_chosen_as_if_the_session_were_not_made_read_only(monkeypatch, tmp_path, source, attribute, choice):
    (tmp_path / "services").write_text(f"[theirs]\nhost=/nonexistent\ntarget_session_attrs={attribute}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    if source == "environment":
        monkeypatch.setenv("PGTARGETSESSIONATTRS", attribute)
    dsn = {"dsn": f"host=a,b target_session_attrs={attribute}", "environment": "host=a,b", "service": "service=theirs"}[source]
    assert external_connections.host_choice(dsn) == ({} if choice is None else {"target_session_attrs": choice})


@pytest.mark.parametrize(
    ("hostaddr", "fixed"), [("", False), ("10.0.0.7", True), ("2001:db8::7", True), ("fe80::7%eth0", True), ("fe80::7", False)]
)
def test_an_address_is_fixed_where_it_alone_leads_to_the_server(hostaddr, fixed):
    assert external_connections.fixed_address(hostaddr) == ({"hostaddr": hostaddr} if fixed else {})


# ---- poolers


class Session:
    """Session that answers with the state of a server process, or of several in turn."""

    def __init__(self, state, announced=None, console=None):
        self.states = itertools.repeat(state) if isinstance(state, tuple) else state
        self.info = SimpleNamespace(backend_pid=state[2] if announced is None else announced)
        self.pgconn = SimpleNamespace(exec_=lambda _: SimpleNamespace(ntuples=len(console or ()), get_value=lambda *_: console[0]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def execute(self, _):
        return SimpleNamespace(fetchone=lambda: next(self.states))


def behind(*states, console):
    """Connect to sessions with these states, one after the other, or to the console."""
    left = list(states)

    def connect(*, dbname=None):
        if dbname is None:
            return Session(left.pop(0), announced=-5)
        if isinstance(console, Exception):
            raise console
        return Session(("", "", 0), console=console)

    return connect


def test_a_pooler_announces_a_process_of_its_own():
    assert external_connections.is_pooled(Session(("on", "client", 7), announced=-99))
    assert not external_connections.is_pooled(Session(("on", "client", 7)))


@pytest.mark.parametrize("source", ["user", "database", "database user", "configuration file", "command line", "global"])
def test_a_default_of_the_server_holds_behind_a_pooler(source):
    assert reason_not_read_only([("on", source, 1)], pooled=True) == ""


@pytest.mark.parametrize("source", ["client", "session", "default"])
def test_what_one_session_was_told_does_not(source):
    assert reason_not_read_only([("on", "user", 1), ("on", source, 2)], pooled=True).endswith("is not the default of their user")
    assert reason_not_read_only([("on", source, 1)], pooled=False) == ""


@pytest.mark.parametrize("pooled", [True, False])
def test_one_session_that_may_write_is_enough(pooled):
    assert reason_not_read_only([("on", "user", 1), ("off", "user", 2)], pooled=pooled) == "transaction_read_only is off in its sessions"


def test_sessions_that_share_a_process_are_seen():
    found, reason = external_connections.examine_pooler(behind(("on", "user", 7), ("on", "user", 7), console=[b"PgBouncer 1.18.0"]))
    assert (found.name, found.shared, reason) == ("PgBouncer 1.18.0", True, "")
    found, reason = external_connections.examine_pooler(behind(("off", "default", 7), ("off", "default", 8), console=[b"PgBouncer 1.18.0"]))
    assert not found.shared and "is off" in reason


def in_turn(*processes):
    """States of these processes, one after the other, without end."""
    return itertools.cycle([("on", "user", process) for process in processes])


@pytest.mark.parametrize(
    "states",
    [
        pytest.param((in_turn(7, 9), in_turn(8)), id="the process of one changes"),
        pytest.param((in_turn(7, 7, 7, 9), in_turn(8)), id="the process of one changes late"),
        pytest.param((in_turn(7), in_turn(8, 7)), id="they meet later"),
        pytest.param((in_turn(7, 8), in_turn(8, 7)), id="they exchange their processes"),
        pytest.param((turns := in_turn(7, 8), turns), id="processes take turns"),
    ],
)
def test_a_session_whose_process_changes_is_shared(states):
    assert external_connections.examine_pooler(behind(*states, console=[b"PgBouncer 1.18.0"]))[0].shared


@pytest.mark.parametrize(
    ("console", "name"),
    [
        (psycopg.OperationalError("FATAL:  not allowed"), "PgBouncer"),
        (psycopg.OperationalError('FATAL:  database "pgbouncer" does not exist'), "a connection pooler"),
        ([], "a connection pooler"),
    ],
)
def test_a_pooler_that_does_not_tell_its_name(console, name):
    assert external_connections.examine_pooler(behind(("on", "user", 7), ("on", "user", 8), console=console))[0].name == name
