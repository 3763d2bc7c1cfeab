"""Connections to external servers: parameters of libpq from all of their sources, and poolers in between.

The sources are the DSN, the environment, service files and default files. A driver runs as another user with a clean environment.
It receives every parameter explicitly.

A pooler, such as PgBouncer, may refuse or ignore the startup options of a session, and several clients may share one server
session. Then neither options nor SET make the transactions of one client read-only. Only a default of the user, the database or the
server does, because it applies to every session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq import ConninfoOption


# ---- parameters


SECRET_KEYWORDS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Keywords that cannot be recorded or appear on a command line."""
FILE_KEYWORDS = {"sslrootcert": "root.crt", "sslcrl": "root.crl", "sslcert": "postgresql.crt", "sslkey": "postgresql.key"}
"""Keywords of files → name of their default in ``~/.postgresql``."""
# The address follows from the connection. The others are set by pgherd, or were replaced by what they refer to.
_REPLACED = ("host", "hostaddr", "port", "user", "dbname", "passfile", "service", "servicefile", "options", "fallback_application_name")


def explicit_parameters(dsn: str) -> dict[str, str]:
    """Return the parameters of a connection to ``dsn`` that differ from libpq's defaults, from any source.

    A password is included only if the DSN, the environment or the service contains it, and not if a password file does.
    """
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    known = _set_values(pq.Conninfo.get_defaults())
    if "service" in given:
        # Only a connection resolves it. It also has values that libpq fills in, as does any other connection.
        filled = _of_connection("host=/nonexistent")
        known |= {keyword: value for keyword, value in _of_connection(dsn).items() if filled.get(keyword) != value}
    return known | given


def _of_connection(conninfo: str) -> dict[str, str]:
    """Return the parameters of a connection, which is closed before it is established. Without its service, return none."""
    from psycopg import OperationalError, pq

    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        return _set_values(connection.info)
    except OperationalError:
        return {}
    finally:
        connection.finish()


def _set_values(options: Sequence[ConninfoOption]) -> dict[str, str]:
    """Return the values that differ from the ones compiled in."""
    return {option.keyword.decode(): option.val.decode() for option in options if option.val is not None and option.val != option.compiled}


def driver_parameters(parameters: dict[str, str], *, tls: bool) -> dict[str, str]:
    """Return the parameters for a driver besides its address, password and options.

    With ``tls``, the default files of this user are included, because the driver's user has other ones.

    Raises:
        UsageError: a service file contains a secret other than the password.
    """
    secrets = sorted(set(parameters) & set(SECRET_KEYWORDS) - {"password"})
    if secrets:
        raise UsageError(
            f"{', '.join(secrets)} cannot be passed on to pgbench; remove it from the service file, and use a password or a key"
        )
    passed = {name: value for name, value in parameters.items() if name not in (*_REPLACED, "password")}
    if tls:
        directory = os.path.join(os.path.expanduser("~"), ".postgresql")
        defaults = {keyword: os.path.join(directory, name) for keyword, name in FILE_KEYWORDS.items() if keyword not in passed}
        passed |= {keyword: path for keyword, path in defaults.items() if os.path.isfile(path)}
    return passed


# ---- poolers


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
    return bool(connection.info.backend_pid != _session_state(connection)[2])


def examine_pooler(connect: Callable[..., psycopg.Connection[Any]]) -> tuple[Pooler, str]:
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
        states = [_session_state(session) for session in (*sessions, *sessions)]
    processes = [process for _, _, process in states[:_SESSIONS]]
    return Pooler(_pooler_name(connect), shared=len(set(processes)) < _SESSIONS), reason_not_read_only(states, pooled=True)


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
    return reason_not_read_only([_session_state(connection)], pooled=False)


def _session_state(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    row = connection.execute(_STATE.encode()).fetchone()
    assert row is not None
    return tuple(row)


def _pooler_name(connect: Callable[..., psycopg.Connection[Any]]) -> str:
    """Return the pooler's name. PgBouncer tells its version in its console, which refuses users without this right."""
    import psycopg

    try:
        with connect(dbname="pgbouncer") as console:
            result = console.pgconn.exec_(b"SHOW VERSION")  # the console only knows the simple protocol
            version = result.get_value(0, 0) if result.ntuples else None
    except psycopg.Error as error:
        return "PgBouncer" if "not allowed" in str(error) else "a connection pooler"
    return version.decode() if version else "a connection pooler"
