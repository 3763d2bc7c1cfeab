"""Connections to external servers: parameters of libpq from all of their sources, and poolers in between.

The sources are the DSN, the environment, service files and default files. A driver runs as another user with a clean environment.
It receives every parameter explicitly.

A pooler, such as PgBouncer, may refuse or ignore the startup options of a session, and several clients may share one server
session. Then neither options nor SET make the transactions of one client read-only. Only a default of the user, the database or the
server does, because it applies to every session.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgherd.host import processes
from pgherd.host.kernel_files import names_in, text_of
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Command, Node

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq import ConninfoOption


# ---- parameters


SECRET_KEYWORDS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Keywords that cannot be recorded or appear on a command line."""
FILE_KEYWORDS = {"sslrootcert": "root.crt", "sslcrl": "root.crl", "sslcert": "postgresql.crt", "sslkey": "postgresql.key"}
"""Keywords of files → name of their default in ``~/.postgresql``."""
# The address follows from the connection, and needs no choice. The others are set by pgherd, or were replaced by what they refer to.
_REPLACED = (
    *("host", "hostaddr", "port", "target_session_attrs", "load_balance_hosts"),
    *("user", "dbname", "passfile", "service", "servicefile", "options", "fallback_application_name"),
)
_BY_SERVER = {"read-write": "primary", "read-only": "standby"}
"""Values of target_session_attrs that also depend on default_transaction_read_only → those that depend on the server only."""


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
    # The driver runs in another directory. sslrootcert=system is no file.
    files = {keyword: passed[keyword] for keyword in FILE_KEYWORDS if passed.get(keyword, "system") != "system"}
    passed |= {keyword: os.path.abspath(path) for keyword, path in files.items() if os.path.isfile(path)}
    if tls:
        directory = os.path.join(os.path.expanduser("~"), ".postgresql")
        defaults = {keyword: os.path.join(directory, name) for keyword, name in FILE_KEYWORDS.items() if keyword not in passed}
        passed |= {keyword: path for keyword, path in defaults.items() if os.path.isfile(path)}
    return passed


def host_choice(dsn: str) -> dict[str, str]:
    """Return the parameter with which a session that pgherd makes read-only selects the host that ``dsn`` selects without this.

    libpq counts a server as read-only if it is a standby or if default_transaction_read_only is on in the session.
    """
    attribute = _BY_SERVER.get(explicit_parameters(dsn).get("target_session_attrs", ""))
    return {} if attribute is None else {"target_session_attrs": attribute}


def fixed_address(hostaddr: str) -> dict[str, str]:
    """Return the parameter with which other connections lead to the same address, because a name may have several.

    It is empty for a Unix socket, and for a link-local address, from which libpq leaves out the scope.
    """
    return {} if not hostaddr or (hostaddr.startswith("fe80:") and "%" not in hostaddr) else {"hostaddr": hostaddr}


# ---- process of the server


_NAMES = ("postgres", "postmaster")
_ENDS = """SELECT pg_backend_pid(), host(inet_server_addr()), inet_server_port(), host(inet_client_addr()), inet_client_port()"""


def server_pid(node: Node, connection: psycopg.Connection[Any]) -> int:
    """Return the pid, on this host, of the server at the other end of a connection. 0 if there is no proof of it.

    A Unix socket has the pid of the process that listens (unix(7), SO_PEERCRED), in the numbers of this process's pid namespace. Over
    TCP, a backend has the pid that the server reports, in its own namespace, and holds the socket between the addresses that the
    server reports. Reading this of another user's process needs root. Call this only for a connection without a pooler.
    """
    descriptor = os.dup(connection.fileno())
    with socket.socket(fileno=descriptor) as local:
        if local.family == socket.AF_UNIX:
            pid = int(struct.unpack("3i", local.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0])
            return pid if pid > 0 and _is_postgres(node, pid) else 0
    row = connection.execute(_ENDS.encode()).fetchone()
    assert row is not None
    backend, *ends = row
    for name in names_in(node, "/proc"):
        if name.isdigit() and _pid_inside(node, name) == backend and _is_postgres(node, int(name)) and _holds(node, int(name), *ends):
            fields = processes.stat_fields(node, name)  # the backend ends with the connection, its parent stays
            return int(fields[1]) if fields is not None and _is_postgres(node, int(fields[1])) else 0
    return 0


def _is_postgres(node: Node, pid: int) -> bool:
    return text_of(node, f"/proc/{pid}/comm") in _NAMES


def _pid_inside(node: Node, pid: str) -> int:
    """Return a process's pid in its innermost pid namespace (proc(5), NSpid), 0 after its end."""
    line = next((line for line in text_of(node, f"/proc/{pid}/status").splitlines() if line.startswith("NSpid:")), "NSpid: 0")
    return int(line.split()[-1])


def _holds(node: Node, pid: int, server: str, server_port: int, client: str, client_port: int) -> bool:
    """Return whether the process holds the socket between these addresses, in its own network namespace."""
    table = "tcp6" if ":" in server else "tcp"
    ends = [socket_address(server, server_port), socket_address(client, client_port)]
    for line in text_of(node, f"/proc/{pid}/net/{table}").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[1:3] == ends:
            held = node.run(Command(("find", f"/proc/{pid}/fd", "-lname", f"socket:\\[{fields[9]}\\]")))
            return bool(held.out.strip())
    return False


def socket_address(address: str, port: int) -> str:
    """Return an address as in /proc/net/tcp and tcp6: its 32-bit words in the machine's byte order, in hexadecimal (proc(5))."""
    packed = ipaddress.ip_address(address).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


# ---- poolers


_REFUSED_OPTIONS = ("unsupported startup parameter", "doesn't support command-line options")
"""Parts of the messages with which PgBouncer and RDS Proxy refuse startup options. PostgreSQL has no such message."""
# Sources of a setting, in pg_settings, that apply to all sessions of a user.
_PERSISTENT = frozenset(("configuration file", "command line", "environment variable", "global", "database", "user", "database user"))
_STATE = """SELECT pg_catalog.current_setting('transaction_read_only'), source, pg_catalog.pg_backend_pid()
FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'default_transaction_read_only'"""
_SESSIONS = 2
"""Sessions that are tried behind a pooler at the same time."""
_REPEATS = 2
"""Half of the queries of each."""
_ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Pooler:
    """Pooler with its name for messages. With ``shared``, clients were seen to share a server session, or to change theirs."""

    name: str
    shared: bool = False


def refuses_options(error: Exception) -> bool:
    """Return whether a pooler refused a connection because of its options."""
    return any(text in str(error) for text in _REFUSED_OPTIONS)


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
    # Forwards and backwards: a pooler that takes turns would otherwise answer each session with the same process every time.
    order = [*range(_SESSIONS), *reversed(range(_SESSIONS))] * _REPEATS
    with ExitStack() as stack:
        sessions = [stack.enter_context(connect()) for _ in range(_SESSIONS)]
        answers = [(number, _session_state(sessions[number])) for number in order]
    served = {(number, process) for number, (_, _, process) in answers}
    shared = len(served) > _SESSIONS or len({process for _, process in served}) < _SESSIONS
    return Pooler(_pooler_name(connect), shared), reason_not_read_only([state for _, state in answers], pooled=True)


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


def answering_sessions(connect: Callable[[], psycopg.Connection[Any]], number: int) -> tuple[int, str]:
    """Return how many of ``number`` sessions answer a query while all are open, and the error of one that does not ('' if it waits).

    In session mode a client keeps its server session, so that the clients beyond the pool's size wait until others end.
    """
    import psycopg

    error, waiting = "", {}
    with ExitStack() as stack:
        try:
            for _ in range(number):
                session = connect()
                stack.callback(session.close)
                session.pgconn.send_query(b"SELECT 1")
                waiting[session.fileno()] = session
        except psycopg.Error as failure:
            error = " ".join(str(failure).split())
        answered = 0
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while waiting and (ready := poll.poll(1000 * _ANSWER_TIMEOUT_S)):
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                result = waiting.pop(descriptor).pgconn.get_result()
                if result is not None and result.status == psycopg.pq.ExecStatus.TUPLES_OK:
                    answered += 1
                elif result is not None:
                    error = " ".join(result.get_error_message().split())
        return answered, error


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
