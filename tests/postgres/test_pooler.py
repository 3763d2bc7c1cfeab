"""Connection poolers, pretended. tests/it/test_external.py has PgBouncer."""

from types import SimpleNamespace

import psycopg
import pytest

from pgherd.postgres import pooler
from pgherd.postgres.pooler import reason_not_read_only


class Session:
    """Session that answers with the state of a server process."""

    def __init__(self, state, announced=None, console=None):
        self.state = state
        self.info = SimpleNamespace(backend_pid=state[2] if announced is None else announced)
        self.pgconn = SimpleNamespace(exec_=lambda _: SimpleNamespace(ntuples=len(console or ()), get_value=lambda *_: console[0]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def execute(self, _):
        return SimpleNamespace(fetchone=lambda: self.state)


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
    assert pooler.is_pooled(Session(("on", "client", 7), announced=-99))
    assert not pooler.is_pooled(Session(("on", "client", 7)))


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
    found, reason = pooler.examine(behind(("on", "user", 7), ("on", "user", 7), console=[b"PgBouncer 1.18.0"]))
    assert (found.name, found.shared, reason) == ("PgBouncer 1.18.0", True, "")
    found, reason = pooler.examine(behind(("off", "default", 7), ("off", "default", 8), console=[b"PgBouncer 1.18.0"]))
    assert not found.shared and "is off" in reason


@pytest.mark.parametrize(
    ("console", "name"),
    [
        (psycopg.OperationalError("FATAL:  not allowed"), "PgBouncer"),
        (psycopg.OperationalError('FATAL:  database "pgbouncer" does not exist'), "a connection pooler"),
        ([], "a connection pooler"),
    ],
)
def test_a_pooler_that_does_not_tell_its_name(console, name):
    assert pooler.examine(behind(("on", "user", 7), ("on", "user", 8), console=console))[0].name == name
