"""Connection poolers, such as PgBouncer, between pgherd and an external server.

A pooler may refuse or ignore the startup options of a session, and several clients may share one server session. Then
neither options nor SET make the transactions of one client read-only. Only a default of the user, the database or the
server does, because it applies to every session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

REFUSED_OPTIONS = "unsupported startup parameter"
"""Part of PgBouncer's message that refuses startup options. PostgreSQL has no such message."""
# Sources of a setting, in pg_settings, that apply to all sessions of a user.
_PERSISTENT = frozenset(("configuration file", "command line", "environment variable", "global", "database", "user", "database user"))
_STATE = """SELECT current_setting('transaction_read_only'), source, pg_backend_pid()
FROM pg_settings WHERE name = 'default_transaction_read_only'"""
_SESSIONS = 2
"""Sessions that are tried behind a pooler at the same time."""


@dataclass(frozen=True)
class Pooler:
    """Pooler with its name for messages. With ``shared``, clients were seen to share a server session."""

    name: str
    shared: bool = False


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Return whether the process that the connection announced is not the one that answers."""
    return bool(connection.info.backend_pid != _state(connection)[2])


def examine(connect: Callable[..., psycopg.Connection[Any]]) -> tuple[Pooler, str]:
    """Examine several sessions behind a pooler.

    Args:
        connect: function that connects, and takes the keyword ``dbname`` for another database.

    Returns:
        The pooler, and the reason why its sessions may write: '' if they cannot.

    Raises:
        psycopg.Error: a connection fails.
    """
    with ExitStack() as stack:
        sessions = [stack.enter_context(connect()) for _ in range(_SESSIONS)]
        states = [_state(session) for session in (*sessions, *sessions)]
    processes = [process for _, _, process in states[:_SESSIONS]]
    return Pooler(_name(connect), shared=len(set(processes)) < _SESSIONS), reason_not_read_only(states, pooled=True)


def reason_not_read_only(states: Sequence[tuple[Any, ...]], *, pooled: bool) -> str:
    """Return the reason why sessions may write, '' if they cannot.

    ``states`` are (transaction_read_only, source of default_transaction_read_only, …) of sessions. Behind a pooler the
    source must be persistent.
    """
    if any(state[0] != "on" for state in states):
        return "transaction_read_only is off in its sessions"
    if pooled and any(state[1] not in _PERSISTENT for state in states):
        return "default_transaction_read_only is on in its sessions, but is not the default of their user"
    return ""


def read_only_reason(connection: psycopg.Connection[Any]) -> str:
    """Return the reason why a session without a pooler may write, '' if it cannot."""
    return reason_not_read_only([_state(connection)], pooled=False)


def _state(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    row = connection.execute(_STATE.encode()).fetchone()
    assert row is not None
    return tuple(row)


def _name(connect: Callable[..., psycopg.Connection[Any]]) -> str:
    """Return the pooler's name. PgBouncer tells its version in its console, which refuses users without this right."""
    import psycopg

    try:
        with connect(dbname="pgbouncer") as console:
            result = console.pgconn.exec_(b"SHOW VERSION")  # the console only knows the simple protocol
            version = result.get_value(0, 0) if result.ntuples else None
    except psycopg.Error as error:
        return "PgBouncer" if "not allowed" in str(error) else "a connection pooler"
    return version.decode() if version else "a connection pooler"
