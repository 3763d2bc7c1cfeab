"""External servers, named by a DSN: benchmarked or read, never changed.

pgherd creates no database there, writes no setting, and triggers no restart or checkpoint. Its connections start with
default_transaction_read_only=on, and so do the connections of drivers whose load does not write.

The DSN's user may authenticate by a password in the DSN, PGPASSWORD, a password file or a service file. ``External``
connects once to resolve this. Drivers run with a clean environment and as another user, so they receive the result in
libpq's environment variables, and a password in a file that only they can read.

A password in a DSN stays in this process, stored under the DSN without it. Records contain only the DSN without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgherd.model.errors import UsageError
from pgherd.model.text import HIDDEN
from pgherd.node.protocol import Command, Node
from pgherd.node.secrets import DSN_SECRETS, keep, kept, redact_dsn
from pgherd.postgres.installations import SUPPORTED
from pgherd.postgres.settings import DIFFERING, differing

if TYPE_CHECKING:
    import psycopg

READ_ONLY = "-c default_transaction_read_only=on"
"""Value of PGOPTIONS that makes a session read-only."""
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
"""Tables of pgbench's built-in scripts. A read-only script uses the first, and reads its scale from the second."""
_READ_TABLES = TABLES[:2]
_CONNECT_TIMEOUT_S = 10
# Settings whose values may contain secrets.
_SECRET_SETTING = re.compile(r"conninfo|_command$|password|passphrase|secret|token|(^|[._])(api)?_?key$")
# Options that are passed separately (host, port, user, dbname), or resolved by connecting.
_RESOLVED = ("password", "passfile", "service", "servicefile", "application_name", "options", "connect_timeout", "hostaddr")


@dataclass(frozen=True)
class ExternalDatabaseInfo:
    """Properties of the database at a DSN.

    ``bytes`` is the size of the database. ``scale`` is the scale of pgbench's tables, None without them, and ``missing``
    lists the tables that do not exist. ``read_only`` is the reason why the server rejects writes: '' if it accepts them,
    or if this was not tested.
    """

    dsn: str
    version: str
    major: int
    database: str
    bytes: int
    scale: int | None
    missing: tuple[str, ...] = ()
    read_only: str = ""


@dataclass(frozen=True)
class LibpqAddress:
    """Connection parameters for libpq: command line options, and environment variables. Neither contains a password."""

    host: str
    port: int
    user: str
    database: str
    environment: Mapping[str, str] = field(default_factory=dict)


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
    hidden = sorted(set(parameters) & set(DSN_SECRETS))
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


def read_database_info(dsn: str, *, writes: bool = False, option: str = "--dsn") -> ExternalDatabaseInfo:
    """Read the properties of the database at ``dsn``, as returned by ``normalize_dsn``.

    With ``writes``, for a load that writes, this tests if the server accepts writes.

    Raises:
        UsageError: The connection fails, the version is not supported, or the tables are not readable.
    """
    import psycopg

    connection = _connect(dsn, read_only=not writes, option=option)
    with connection:
        major = connection.info.server_version // 10000
        version = str(_value(connection, "SHOW server_version")).split()[0]
        if major not in SUPPORTED:
            raise UsageError(
                f"{option} {dsn} is PostgreSQL {version}, which is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"
            )
        missing = tuple(name for name in TABLES if _value(connection, "SELECT to_regclass(%s)", [name]) is None)
        try:
            scale = None if set(missing) & set(_READ_TABLES) else int(_value(connection, "SELECT count(*) FROM pgbench_branches"))
        except psycopg.Error as error:
            raise UsageError(f"{option} {dsn}: pgbench's tables cannot be read: {_error_text(error)}; grant SELECT on them") from None
        return ExternalDatabaseInfo(
            dsn=dsn,
            version=version,
            major=major,
            database=connection.info.dbname,
            bytes=int(_value(connection, "SELECT pg_database_size(current_database())")),
            scale=scale,
            missing=missing,
            read_only=_why_read_only(connection) if writes else "",
        )


def ask(dsn: str, statements: Sequence[str], *, option: str = "--dsn") -> tuple[str, list[list[dict[str, Any]]]]:
    """Run statements on one read-only connection to ``dsn``, as returned by ``normalize_dsn``.

    Returns:
        The server's version, and the rows of each statement by column.

    Raises:
        UsageError: The connection fails, the version is not supported, or the user lacks privileges.
    """
    import psycopg
    from psycopg.rows import dict_row

    with _connect(dsn, option=option) as connection:
        version = str(_value(connection, "SHOW server_version")).split()[0]
        if connection.info.server_version // 10000 not in SUPPORTED:
            raise UsageError(
                f"{option} {dsn} is PostgreSQL {version}, which is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"
            )
        try:
            with connection.cursor(row_factory=dict_row) as cursor:
                return version, [cursor.execute(statement.encode()).fetchall() for statement in statements]
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(f"{option} {dsn}: {_error_text(error)}; connect as a superuser or a member of pg_monitor") from None


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
            f"creates nothing on an external server; create them with: pgbench -i -s {scale or 10} '{found.dsn}'"
        )
    if scale is not None and found.scale is not None and scale != found.scale:
        raise UsageError(f"--scale is {scale}, but pgbench's tables at {option} {found.dsn} have scale {found.scale}; leave --scale out")


class ExternalServer:
    """External server, attached for a run."""

    def __init__(self, node: Node, dsn: str, *, name: str, passfile: str, account: str | None = None) -> None:
        """Connect once to resolve the connection parameters.

        Args:
            node: Host from which connections are opened.
            dsn: DSN as returned by ``normalize_dsn``.
            name: Name of the server in messages.
            passfile: Path of a password file, which is created if one is required. ``account`` becomes its owner.
            account: User that drivers run as.

        Raises:
            UsageError: The connection fails.
        """
        self.node = node
        self.name = name
        self.dsn = dsn
        connection = _connect(dsn)
        with connection:
            self.major = connection.info.server_version // 10000
            options = dict(_explicit(connection))
            self._host, self._port = connection.info.host or connection.info.hostaddr, connection.info.port
            self._user, self._database = connection.info.user, connection.info.dbname
            password = connection.info.password
        self._environment = {variable: value for _, (variable, value) in options.items()}
        self._parameters = {keyword: value for keyword, (_, value) in options.items()}
        if password:
            _write_passfile(node, passfile, password, account)
            self._environment["PGPASSFILE"] = self._parameters["passfile"] = passfile

    def address(self, *, writes: bool = False) -> LibpqAddress:
        """Return the parameters for a driver. Its sessions are read-only unless its load ``writes``."""
        options = {"PGOPTIONS": _options(self.dsn, read_only=not writes)}
        environment = {variable: value for variable, value in {**self._environment, **options}.items() if value}
        return LibpqAddress(self._host, self._port, self._user, self._database, environment)

    def conninfo(self) -> str:
        """Return the conninfo for pgherd's connections.

        It contains no password, because it is stored with the samples.
        """
        from psycopg.conninfo import make_conninfo

        return make_conninfo(
            "",
            **self._parameters,
            host=self._host,
            port=str(self._port),
            user=self._user,
            dbname=self._database,
            options=_options(self.dsn, read_only=True),
            application_name="pgherd",
            connect_timeout=str(_CONNECT_TIMEOUT_S),
        )

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
        return {name: "(not shown)" if value and _SECRET_SETTING.search(name) else value for name, value in settings.items()}

    def disconnect(self) -> None:
        """Close the node's open connections."""
        self.node.disconnect(self.conninfo())


def _connect(dsn: str, *, read_only: bool = True, option: str = "--dsn") -> psycopg.Connection[tuple[Any, ...]]:
    import psycopg

    parameters = {"options": _options(dsn, read_only=read_only), "application_name": "pgherd"}
    password = password_of(dsn)
    if password is not None:
        parameters["password"] = password
    try:
        return psycopg.connect(dsn, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S, **parameters)  # type: ignore[arg-type]
    except psycopg.Error as error:
        message = _error_text(error)
        hint = "check the DSN, and that the server accepts this host and user"
        if "password" in message:
            hint = "set PGPASSWORD in the environment, or put the password into a password file (~/.pgpass)"
        raise UsageError(f"{option} {dsn}: no connection: {message}; {hint}") from None


def _options(dsn: str, *, read_only: bool) -> str:
    """Return the user's options, from the DSN or PGOPTIONS, followed by pgherd's."""
    import os

    from psycopg.conninfo import conninfo_to_dict

    user_options = str(conninfo_to_dict(dsn).get("options") or os.environ.get("PGOPTIONS", ""))
    return " ".join(part for part in (user_options.strip(), READ_ONLY if read_only else "") if part)


def _explicit(connection: psycopg.Connection[Any]) -> list[tuple[str, tuple[str, str]]]:
    """Return (keyword, (environment variable, value)) of explicit options other than the address, from any source."""
    options = []
    for option in connection.pgconn.info:
        keyword = option.keyword.decode()
        if option.val is None or option.envvar is None or option.val == option.compiled:
            continue
        if keyword in _RESOLVED or keyword in ("host", "port", "user", "dbname"):
            continue
        options.append((keyword, (option.envvar.decode(), option.val.decode())))
    return options


def _write_passfile(node: Node, path: str, password: str, account: str | None) -> None:
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    node.write(path, f"*:*:*:*:{escaped}\n".encode())  # a new file has mode 0600, which libpq requires
    if account is not None:
        chown = node.run(Command(["chown", f"{account}:", "--", path]))
        if chown.code != 0:
            raise UsageError(f"the owner of the password file {path} cannot be changed to '{account}': {chown.err.strip()}")


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
