"""External servers, named by a DSN: benchmarked or read, never changed.

pgherd creates no database there, writes no setting, and triggers no restart or checkpoint. Its connections start with
default_transaction_read_only=on, and so do the connections of drivers whose load does not write.

This is tried, not assumed: a connection must report transaction_read_only. Behind a connection pooler the option is left
out, and reading requires that it is the user's default (see ``pooler``). A load that does not write starts only after
pgbench itself has reported the same.

The DSN's user may authenticate by a password in the DSN, PGPASSWORD, a password file or a service file. ``ExternalServer``
connects once to resolve this. Drivers run with a clean environment and as another user, so they receive all parameters
explicitly. A password, a certificate and a key are put into files that only they can read.

A password in a DSN stays in this process, stored under the DSN without it. Records contain only the DSN without it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pgherd.model.errors import TrialError, UsageError
from pgherd.model.text import HIDDEN
from pgherd.node.protocol import Command, Node
from pgherd.node.secrets import is_secret_name, keep, kept, redact_dsn
from pgherd.postgres import external_connections
from pgherd.postgres.external_connections import SECRET_KEYWORDS, Pooler
from pgherd.postgres.installations import SUPPORTED
from pgherd.postgres.provider import ProviderFacts, read_facts
from pgherd.postgres.settings import DIFFERING, differing

if TYPE_CHECKING:
    import psycopg

READ_ONLY = "-c default_transaction_read_only=on"
"""Value of PGOPTIONS that makes a session read-only."""
CLIENT_CHECK = "-c client_connection_check_interval=1s"
"""Value of PGOPTIONS with which a session notices during a statement that its client is gone. Otherwise a statement of a killed
client runs to its end."""
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
"""Tables of pgbench's built-in scripts. A read-only script uses the first, and reads its scale from the second."""
_READ_TABLES = TABLES[:2]
_CONNECT_TIMEOUT_S = 10
_SESSION = {"application_name": "pgherd", "client_encoding": "utf8"}
"""Parameters of pgherd's sessions. Without an encoding, psycopg returns bytes from a database of encoding SQL_ASCII."""
_SEARCH_PATH = "search_path=pg_catalog"
"""Setting of pgherd's sessions. PostgreSQL prefers functions and operators of other schemas if their arguments fit better. They would run
with the rights of the DSN's user."""
# Settings whose values may contain secrets, besides those with such a name.
_SECRET_SETTING = re.compile(r"conninfo|_command$")
_DRIVER_TIMEOUT_S = 60.0

READ_ONLY_PROBE = "SELECT 1 / (current_setting('transaction_read_only') = 'on')::int;\n"
"""pgbench script that fails in a session that may write."""
# pgherd counts the rows of pgbench_branches. A view may call functions, which would run with the rights of the DSN's user.
_TABLE = """SELECT oid FROM pg_class
WHERE oid = pg_catalog.to_regclass(%s)::oid AND NOT (relname = 'pgbench_branches' AND relkind = 'v')"""
_IDENTITY = "SELECT extract(epoch FROM pg_postmaster_start_time())::text, current_database()::text"
_PROBE_FAILED = "division by zero"

# Without pg_read_all_stats, the state and the type of other users' sessions are null.
_ACTIVITY = """SELECT pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication), count(*),
       count(*) FILTER (WHERE state <> 'idle'), count(*) FILTER (WHERE state IS NULL),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
       - coalesce(current_setting('reserved_connections', true)::int, 0) - count(*),
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user AND rolconnlimit >= 0 AND NOT rolsuper)
       - count(*) FILTER (WHERE usename = session_user),
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database() AND datconnlimit >= 0
           AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = session_user)) - count(*) FILTER (WHERE datname = current_database()),
       extract(epoch FROM pg_postmaster_start_time())::text
FROM pg_stat_activity WHERE datid IS NOT NULL AND pid <> pg_backend_pid() AND coalesce(backend_type, 'client backend') = 'client backend'"""


@dataclass(frozen=True)
class ServerActivity:
    """Use of a server before a run, as its user sees it.

    ``sessions`` are those of other clients, of which ``busy`` run a statement or a transaction and ``hidden`` have an unknown state.
    ``free`` is the number of connections that it still accepts, and ``limit`` what limits them. ``limits`` has the free connections of
    every limit by its name. ``started`` identifies the server: it is equal for all of its databases.
    """

    standby: bool = False
    replicas: int = 0
    sessions: int = 0
    busy: int = 0
    hidden: int = 0
    free: int = 0
    limit: str = "max_connections"
    limits: Mapping[str, int] = field(default_factory=dict)
    started: str = ""


@dataclass(frozen=True)
class ExternalDatabaseInfo:
    """Properties of the database at a DSN.

    ``bytes`` is the size of the database. ``scale`` is the scale of pgbench's tables, None without them, and ``missing``
    lists the tables that do not exist. ``read_only`` is the reason why the server rejects writes: '' if it accepts them,
    or if this was not tested. ``pooler`` is between pgherd and the server, None without one. ``pid`` is a process of the server on
    this host, 0 if there is no proof of one. ``host`` is its host as connected to: a name, an address, or a socket's directory.
    ``facts`` is what the server shows the user about itself. ``activity`` is its use by others.
    With ``direct`` pgherd's connections do not lead through the pooler.
    """

    dsn: str
    version: str
    major: int
    database: str
    bytes: int
    scale: int | None
    missing: tuple[str, ...] = ()
    read_only: str = ""
    pooler: Pooler | None = None
    pid: int = 0
    host: str = ""
    facts: ProviderFacts = field(default_factory=ProviderFacts)
    activity: ServerActivity = ServerActivity()
    direct: bool = False


@dataclass(frozen=True)
class LibpqAddress:
    """Connection parameters for libpq: command line options, and environment variables. Neither contains a password.

    ``conninfo`` stands for ``database`` on a command line. It contains the database and all parameters that have no option
    of their own. libpq refuses the ones that it does not know by name.
    """

    host: str
    port: int
    user: str
    database: str
    environment: Mapping[str, str] = field(default_factory=dict)
    conninfo: str = ""


@dataclass(frozen=True)
class _Session:
    """Connection, the pooler that it leads through, and the reason why sessions like this one may write ('': they cannot)."""

    connection: psycopg.Connection[tuple[Any, ...]]
    pooler: Pooler | None
    may_write: str


def normalize_dsn(dsn: str, option: str = "--dsn") -> str:
    """Convert a DSN to the form ``host=… user=… dbname=…`` without its password, and store the password.

    ``password_of`` returns the password.

    Raises:
        UsageError: The text is not a DSN. The message contains ``option``, but no password.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        parameters = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error as error:
        raise UsageError(
            f"{option} {redact_dsn(dsn)}: this is not a DSN ({redact_dsn(str(error).strip())}); write it as "
            "postgresql://USER@HOST/DATABASE or as 'host=HOST user=USER dbname=DATABASE'"
        ) from None
    password = parameters.pop("password", None)
    hidden = sorted(set(parameters) & set(SECRET_KEYWORDS))
    if hidden:
        raise UsageError(
            f"{option}: {', '.join(hidden)} cannot be given in a DSN, because DSNs are recorded; use a key without it, or a service file"
        )
    plain = make_conninfo("", **parameters)
    if password not in (None, HIDDEN):
        keep(plain, str(password))
    return plain


def password_of(dsn: str) -> str | None:
    """Return the password that ``normalize_dsn`` removed from this DSN."""
    return kept(dsn)


def read_database_info(dsn: str, *, writes: bool = False, option: str = "--dsn", node: Node | None = None) -> ExternalDatabaseInfo:
    """Read the properties of the database at ``dsn``, as returned by ``normalize_dsn``. ``node`` is this host, to find its process on.

    With ``writes``, for a load that writes, this tests if the server accepts writes. Without, sessions must be read-only.

    Raises:
        UsageError: The connection fails, the version is not supported, sessions may write, or the tables are not readable.
    """
    import psycopg

    session = _connect(dsn, read_only=not writes, option=option)
    try:
        with session.connection:
            return _database_info(session, dsn, writes=writes, option=option, node=node)
    except psycopg.Error as error:
        raise UsageError(f"{option} {dsn}: {_error_text(error)}") from None


def _database_info(session: _Session, dsn: str, *, writes: bool, option: str, node: Node | None) -> ExternalDatabaseInfo:
    import psycopg

    connection = session.connection
    version = _supported_version(connection, dsn, option)
    missing = tuple(name for name in TABLES if _value(connection, _TABLE, [name]) is None)
    try:
        scale = None if set(missing) & set(_READ_TABLES) else int(_value(connection, "SELECT count(*) FROM pgbench_branches"))
    except psycopg.Error as error:
        raise UsageError(f"{option} {dsn}: pgbench's tables cannot be read: {_error_text(error)}; grant SELECT on them") from None
    _hide_other_schemas(session)
    return ExternalDatabaseInfo(
        dsn=dsn,
        version=version,
        major=connection.info.server_version // 10000,
        database=connection.info.dbname,
        bytes=int(_value(connection, "SELECT pg_database_size(current_database())")),
        scale=scale,
        missing=missing,
        read_only=_why_read_only(connection) if writes else "",
        pooler=session.pooler,
        pid=_server_pid(node, session),
        host=connection.info.host or connection.info.hostaddr,
        facts=read_facts(connection),
        activity=_activity(connection),
    )


def ask(dsn: str, statements: Sequence[str], *, option: str = "--dsn") -> tuple[str, list[list[dict[str, Any]]]]:
    """Run statements on one read-only connection to ``dsn``, as returned by ``normalize_dsn``.

    Returns:
        The server's version, and the rows of each statement by column.

    Raises:
        UsageError: The connection or a statement fails, the version is not supported, or the user lacks privileges.
    """
    import psycopg
    from psycopg.rows import dict_row

    session = _connect(dsn, option=option)
    try:
        with session.connection as connection, connection.cursor(row_factory=dict_row) as cursor:
            version = _supported_version(connection, dsn, option)
            _hide_other_schemas(session)
            return version, [cursor.execute(statement.encode()).fetchall() for statement in statements]
    except psycopg.errors.InsufficientPrivilege as error:
        raise UsageError(f"{option} {dsn}: {_error_text(error)}; connect as a superuser or a member of pg_monitor") from None
    except psycopg.Error as error:
        raise UsageError(f"{option} {dsn}: {_error_text(error)}") from None


def connect_read_only(dsn: str, *, option: str = "--dsn") -> psycopg.Connection[tuple[Any, ...]]:
    """Open a read-only connection in autocommit mode to ``dsn``, as returned by ``normalize_dsn``.

    Raises:
        UsageError: The connection fails, sessions may write, or the version is not supported.
    """
    connection = _connect(dsn, option=option).connection
    _supported_version(connection, dsn, option)
    return connection


def answering_sessions(dsn: str, number: int) -> tuple[int, str]:
    """Return how many of ``number`` simultaneous sessions behind a pooler answer, and the error of one that does not."""
    answered, error = external_connections.answering_sessions(partial(_open, dsn, options=""), number)
    return answered, redact_dsn(error)


def require_reachable(found: ExternalDatabaseInfo, *, builtin: bool, writes: bool, scale: int | None, option: str = "--dsn") -> None:
    """Require that the database can run a load.

    A ``builtin`` script requires pgbench's tables at ``scale`` (None: any scale). A load that ``writes`` requires a server
    that accepts writes.

    Raises:
        UsageError: The load cannot run. The message contains the remedy.
    """
    if writes and found.read_only:
        raise UsageError(f"{option} {found.dsn} accepts no writes: {found.read_only}; use --workload select-only, or another server")
    missing = [name for name in found.missing if writes or name in _READ_TABLES]
    if builtin and missing:
        raise UsageError(
            f"database '{found.database}' of {option} {found.dsn} has no {', '.join(missing)}, required by pgbench's scripts; pgherd "
            f"creates nothing on an external server; create them with: pgbench -i -s {scale or 10} {shlex.quote(found.dsn)}"
        )
    if scale is not None and found.scale is not None and scale != found.scale:
        raise UsageError(f"--scale is {scale}, but pgbench's tables at {option} {found.dsn} have scale {found.scale}; leave --scale out")


class ExternalServer:
    """External server, attached for a run. ``pid`` is a process of it on this host, 0 if there is no proof of one."""

    def __init__(
        self,
        node: Node,
        dsn: str,
        *,
        name: str,
        passfile: str,
        account: str | None = None,
        allow_writes: bool = False,
        query_timeout: float | None = None,
        direct: str | None = None,
    ) -> None:
        """Connect once to choose the host and resolve the connection parameters. All other connections lead to the same address.

        Args:
            node: Host from which connections are opened.
            dsn: DSN as returned by ``normalize_dsn``.
            name: Name of the server in messages.
            passfile: Path of a password file, which is created if one is required. ``account`` becomes its owner.
            account: User that drivers run as.
            allow_writes: Accept sessions that may write. ``address`` still refuses them to a load that does not write.
            query_timeout: Time limit of a statement in seconds, unless the user's options have one. None: as set on the server.
            direct: DSN of the same database without the pooler, for pgherd's own statements. None: ``dsn``.

        Raises:
            UsageError: The connection fails, sessions may write, or ``direct`` leads to another database.
        """
        self.node = node
        self.name = name
        self.dsn = dsn
        self._account, self._probe = account, f"{passfile}-probe.sql"
        session = _connect(dsn, required=not allow_writes)
        self.pooler, self._may_write = session.pooler, session.may_write
        with session.connection as connection:
            _hide_other_schemas(session)
            self.pid = _server_pid(node, session)
            info = connection.info
            self._protection = "" if self.pooler is not None else _protection(connection, query_timeout)
            self.major = info.server_version // 10000
            self._host, self._port, self._user, self._database = info.host or info.hostaddr, info.port, info.user, info.dbname
            explicit = external_connections.explicit_parameters(dsn)
            self._parameters = external_connections.driver_parameters(explicit, tls=bool(connection.pgconn.ssl_in_use))
            self._parameters |= external_connections.fixed_address(info.hostaddr)
            password = info.password
            self._direct = None if direct is None else ExternalServer(node, direct, name=name, passfile=f"{passfile}-direct")
            if self._direct is not None:
                self._require_same(self._direct, connection)
        for keyword in external_connections.FILE_KEYWORDS if account is not None else ():
            path = self._parameters.get(keyword, "")
            if path and node.exists(path):
                self._parameters[keyword] = f"{passfile}-{keyword}"
                _write_private(node, self._parameters[keyword], node.read(path), account)
        # The cache of Kerberos tickets belongs to this account.
        self._environment = {name: os.environ[name] for name in ("KRB5CCNAME",) if account is None and name in os.environ}
        if password:
            _write_passfile(node, passfile, password, account)
            self._environment["PGPASSFILE"] = self._parameters["passfile"] = passfile

    def address(self, *, writes: bool = False) -> LibpqAddress:
        """Return the parameters for a driver. Its sessions are read-only unless its load ``writes``.

        Raises:
            UsageError: The load does not write, but its sessions might.
        """
        from psycopg.conninfo import make_conninfo

        if self._may_write and not writes:
            raise UsageError(_refusal("--dsn", self.dsn, self.pooler, self._may_write))
        options = {"PGOPTIONS": self._options(read_only=not writes)}
        environment = {variable: value for variable, value in {**self._environment, **options}.items() if value}
        conninfo = make_conninfo("", dbname=self._database, **self._parameters)
        return LibpqAddress(self._host, self._port, self._user, self._database, environment, conninfo)

    def require_read_only(self, bin_: str) -> None:
        """Require that sessions of pgbench in ``bin_``, with the same parameters and user as a load, are read-only.

        Raises:
            UsageError: They may write.
            TrialError: pgbench cannot connect.
        """
        address = self.address()
        argv = [f"{bin_}/pgbench", "-n", "-M", "simple", "-c", "1", "-t", "2", "-f", "-"]
        argv += ["-h", address.host, "-p", str(address.port), "-U", address.user, address.conninfo]
        self.node.write(self._probe, READ_ONLY_PROBE.encode())
        command = Command(argv, env=dict(address.environment), user=self._account, stdin=self._probe)
        try:
            tried = self.node.run(command, timeout=_DRIVER_TIMEOUT_S)
        except TimeoutError:
            raise TrialError(f"{self.name}: pgbench got no answer from {self.dsn} within {_DRIVER_TIMEOUT_S:.0f} s") from None
        if _PROBE_FAILED in tried.err:
            raise UsageError(_refusal("--dsn", self.dsn, self.pooler, "transaction_read_only is off in the sessions of pgbench"))
        if tried.code != 0:
            error = redact_dsn(" ".join(tried.err.split())[-500:])
            raise TrialError(f"{self.name}: pgbench cannot use the connection parameters of {self.dsn}: {error}")

    def conninfo(self) -> str:
        """Return the conninfo for pgherd's connections.

        It contains no password, because it is stored with the samples.
        """
        if self._direct is not None:
            return self._direct.conninfo()
        from psycopg.conninfo import make_conninfo

        options = self._options(read_only=True)
        pgherds = {**_SESSION, "options": options and f"{options} -c {_SEARCH_PATH}"}
        timeout = {"connect_timeout": str(_CONNECT_TIMEOUT_S)}
        address = {"host": self._host, "port": str(self._port), "user": self._user, "dbname": self._database}
        chosen = {"target_session_attrs": "any"}  # otherwise PGTARGETSESSIONATTRS would judge the chosen host by read-only sessions
        return make_conninfo("", **{**timeout, **self._parameters, **address, **chosen, **pgherds})

    def _require_same(self, direct: ExternalServer, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Require that both lead to the same database of the same server. Raises UsageError."""
        through, without = connection.execute(_IDENTITY.encode()).fetchall(), direct.sql(_IDENTITY)
        direct.disconnect()
        if through != without:
            raise UsageError(f"{self.name}: direct {direct.dsn} leads to another database or server than {self.dsn}; correct one of them")

    def _options(self, *, read_only: bool) -> str:
        """Return the options of a session. Those of the user override the protection of the server."""
        if self.pooler is not None:
            return ""
        return " ".join(part for part in (self._protection, _options(self.dsn, read_only=read_only)) if part)

    def sql(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement on the node's open connection; raises psycopg.Error."""
        return self.node.sql(self.conninfo(), statement, parameters)

    @property
    def answers(self) -> bool:
        """True if the server accepts a connection now."""
        import psycopg

        try:
            self.sql("SELECT 1")
        except psycopg.Error:
            return False
        self.disconnect()
        return True

    def differing(self) -> dict[str, str]:
        """Return the visible settings that differ from their default. Possible secrets are masked."""
        rows = self.sql(DIFFERING)
        settings = differing((name, setting, boot, source, shown) for name, setting, boot, source, shown in rows)
        hidden = {name for name, value in settings.items() if value and (is_secret_name(name) or _SECRET_SETTING.search(name))}
        return {name: "(not shown)" if name in hidden else value for name, value in settings.items()}

    def disconnect(self) -> None:
        """Close the node's open connections."""
        self.node.disconnect(self.conninfo())


def _connect(dsn: str, *, read_only: bool = True, required: bool = True, option: str = "--dsn") -> _Session:
    """Connect to ``dsn`` directly with pgherd's options, or through a pooler without options.

    Raises:
        UsageError: The connection fails, or ``read_only`` is ``required`` and sessions may write.
    """
    import psycopg

    try:
        connection = _open(dsn, options=_options(dsn, read_only=read_only))
        if not external_connections.is_pooled(connection):
            may_write = external_connections.read_only_reason(connection)
            return _allowed(_Session(connection, None, may_write), dsn, required=read_only and required, option=option)
        connection.close()
    except psycopg.Error as error:
        if not external_connections.refuses_options(error):
            raise UsageError(_no_connection(dsn, error, option)) from None
    try:
        found, may_write = external_connections.examine_pooler(partial(_open, dsn, options=""))
        if _options(dsn, read_only=False):
            raise UsageError(
                f"{option} {dsn}: the server is behind {found.name}, where options of a session (PGOPTIONS, options=) are not reliable; "
                "leave them out, or name the server itself"
            )
        return _allowed(_Session(_open(dsn, options=""), found, may_write), dsn, required=read_only and required, option=option)
    except psycopg.Error as error:
        raise UsageError(_no_connection(dsn, error, option)) from None


def _supported_version(connection: psycopg.Connection[Any], dsn: str, option: str) -> str:
    """Return the server's version. If it is not supported, close the connection and raise UsageError."""
    version = str(_value(connection, "SHOW server_version")).split()[0]  # a pooler may keep the parameter of an earlier start
    if connection.info.server_version // 10000 not in SUPPORTED:
        connection.close()
        raise UsageError(
            f"{option} {dsn} is PostgreSQL {version}, which is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"
        )
    return version


def _hide_other_schemas(session: _Session) -> None:
    if session.pooler is None:  # behind one it would stay in a session that clients share
        session.connection.execute(f"SET {_SEARCH_PATH}".encode())


def _server_pid(node: Node | None, session: _Session) -> int:
    return 0 if node is None or session.pooler is not None else external_connections.server_pid(node, session.connection)


def _protection(connection: psycopg.Connection[Any], query_timeout: float | None) -> str:
    """Return the options that limit statements, and end them with their client where the server's operating system supports that."""
    import psycopg

    options = [] if query_timeout is None else [f"-c statement_timeout={round(1000 * query_timeout)}ms"]
    try:
        connection.execute(b"SET client_connection_check_interval = '1s'")
    except psycopg.Error:
        return " ".join(options)
    return " ".join([CLIENT_CHECK, *options])


def _activity(connection: psycopg.Connection[Any]) -> ServerActivity:
    row = connection.execute(_ACTIVITY.encode()).fetchone()
    assert row is not None
    standby, replicas, sessions, busy, hidden, accepted, of_role, of_database, started = row
    role = f"the CONNECTION LIMIT of role {connection.info.user}"
    database = f"the CONNECTION LIMIT of database {connection.info.dbname}"
    numbers = {"max_connections": accepted, role: of_role, database: of_database}
    limits = {name: max(0, number) for name, number in numbers.items() if number is not None}
    limit = min(limits, key=lambda name: (limits[name], name))
    return ServerActivity(standby, replicas, sessions, busy, hidden, limits[limit], limit, limits, started)


def _allowed(session: _Session, dsn: str, *, required: bool, option: str) -> _Session:
    if required and session.may_write:
        session.connection.close()
        raise UsageError(_refusal(option, dsn, session.pooler, session.may_write))
    return session


def _refusal(option: str, dsn: str, found: Pooler | None, reason: str) -> str:
    role = "connect as a role that has it by default (ALTER ROLE … SET default_transaction_read_only = on)"
    if found is None:
        return f"{option} {dsn} would only be read, but {reason}; {role}"
    return (
        f"{option} {dsn} would only be read, but the server is behind {found.name}, which does not pass read-only sessions on: {reason}; "
        f"name the server itself, or {role}, and let the pooler reconnect"
    )


def _open(dsn: str, *, options: str, dbname: str | None = None) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection in autocommit; raises psycopg.Error."""
    import psycopg

    parameters = {"options": options, **_SESSION}
    if READ_ONLY in options:
        parameters |= external_connections.host_choice(dsn)
    password = password_of(dsn)
    if password is not None:
        parameters["password"] = password
    if dbname is not None:
        parameters["dbname"] = dbname
    if "connect_timeout" not in external_connections.explicit_parameters(dsn):
        parameters["connect_timeout"] = str(_CONNECT_TIMEOUT_S)
    # Prepared statements would stay in the sessions that a pooler shares.
    return psycopg.connect(dsn, autocommit=True, prepare_threshold=None, **parameters)  # type: ignore[arg-type]


def _no_connection(dsn: str, error: Exception, option: str) -> str:
    message = _error_text(error)
    hint = "check the DSN, and that the server accepts this host and user"
    if "password" in message:
        hint = "set PGPASSWORD in the environment, or put the password into a password file (~/.pgpass)"
    return f"{option} {dsn}: no connection: {message}; {hint}"


def _options(dsn: str, *, read_only: bool) -> str:
    """Return the user's options, from the DSN, a service file or PGOPTIONS, followed by pgherd's."""
    user_options = external_connections.explicit_parameters(dsn).get("options", "")
    return " ".join(part for part in (user_options.strip(), READ_ONLY if read_only else "") if part)


def _write_passfile(node: Node, path: str, password: str, account: str | None) -> None:
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    _write_private(node, path, f"*:*:*:*:{escaped}\n".encode(), account)


def _write_private(node: Node, path: str, content: bytes, account: str | None) -> None:
    node.write(path, content)  # a new file has mode 0600, which libpq requires
    if account is not None:
        chown = node.run(Command(["chown", f"{account}:", "--", path]))
        if chown.code != 0:
            raise UsageError(f"the owner of the file {path} cannot be changed to '{account}': {chown.err.strip()}")


def _why_read_only(connection: psycopg.Connection[Any]) -> str:
    if _value(connection, "SELECT pg_is_in_recovery()"):
        return "it is a standby"
    if str(_value(connection, "SHOW transaction_read_only")) == "on":
        return "default_transaction_read_only is on for this user or database"
    return ""


def _value(connection: psycopg.Connection[Any], statement: str, parameters: Sequence[Any] = ()) -> Any:
    row = connection.execute(statement.encode(), parameters or None).fetchone()
    return row[0] if row else None


def _error_text(error: Exception) -> str:
    """Return the message of libpq or the server in one line, without passwords."""
    return redact_dsn(" ".join(str(error).split()))
