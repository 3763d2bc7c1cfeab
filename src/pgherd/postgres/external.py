"""Somebody else's server, by its DSN: looked at and loaded, never changed.

No database is made, no setting written, nothing restarted, no checkpoint asked for. Every connection of ours begins with
default_transaction_read_only=on, and so does every one of a driver whose load does not write.

How the DSN's user is let in (a password of the DSN, PGPASSWORD, a password file, a service file) is found out by
connecting once. Drivers, which run with a clean environment and under another account, are told it in libpq's
environment variables; a password in a file that only they can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgherd.model.errors import UsageError
from pgherd.node.protocol import Command, Node
from pgherd.postgres import dsn as dsns
from pgherd.postgres.installations import SUPPORTED
from pgherd.postgres.settings import DIFFERING, differing

if TYPE_CHECKING:
    import psycopg

READ_ONLY = "-c default_transaction_read_only=on"
"""What makes a session read-only, for PGOPTIONS."""
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
"""What pgbench's builtin scripts use; a reading one uses the first only, and reads its scale from the second."""
_READ = TABLES[:2]
_CONNECT_SECONDS = 10
# Settings whose values may hold what nobody else is to see.
_SECRET = re.compile(r"conninfo|_command$|password|passphrase|secret|token|(^|[._])(api)?_?key$")
# Said otherwise (host, port, user, dbname), or resolved by connecting.
_NOT_PASSED_ON = ("password", "passfile", "service", "servicefile", "application_name", "options", "connect_timeout", "hostaddr")


@dataclass(frozen=True)
class Found:
    """What was found at a DSN: server version, database and its size (bytes), the scale of pgbench's tables (None: they are
    not there), which of them are missing, and why nothing can be written ('' if it can, or if nobody asked)."""

    dsn: str
    version: str
    major: int
    database: str
    bytes: int
    scale: int | None
    missing: tuple[str, ...] = ()
    read_only: str = ""


@dataclass(frozen=True)
class Address:
    """How libpq gets there: what goes on a command line, and the rest for the environment. No password in either."""

    host: str
    port: int
    user: str
    database: str
    environment: Mapping[str, str] = field(default_factory=dict)


def look(dsn: str, *, writes: bool = False, option: str = "--server") -> Found:
    """Connect, look, and disconnect; nothing is written. ``dsn`` is as ``dsn.take`` gives it. ``writes``: whether the load will
    write; unless it does, nobody asks whether the server would let it.

    Raises:
        UsageError: no connection, an unsupported version, or tables that may not be read.
    """
    import psycopg

    connection = _connect(dsn, read_only=not writes, option=option)
    with connection:
        major = connection.info.server_version // 10000
        version = str(_one(connection, "SHOW server_version")).split()[0]
        if major not in SUPPORTED:
            raise UsageError(
                f"{option} {dsn} is PostgreSQL {version}, which is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"
            )
        missing = tuple(name for name in TABLES if _one(connection, "SELECT to_regclass(%s)", [name]) is None)
        try:
            scale = None if set(missing) & set(_READ) else int(_one(connection, "SELECT count(*) FROM pgbench_branches"))
        except psycopg.Error as error:
            raise UsageError(f"{option} {dsn}: pgbench's tables cannot be read: {_words(error)}; let the user read them") from None
        return Found(
            dsn=dsn,
            version=version,
            major=major,
            database=connection.info.dbname,
            bytes=int(_one(connection, "SELECT pg_database_size(current_database())")),
            scale=scale,
            missing=missing,
            read_only=_why_read_only(connection) if writes else "",
        )


def ask(dsn: str, statements: Sequence[str], *, option: str = "--server") -> tuple[str, list[list[dict[str, Any]]]]:
    """The server's version, and each statement's rows by column, on one read-only connection. ``dsn`` is as ``dsn.take`` gives it.

    Raises:
        UsageError: no connection, an unsupported version, or the user may not ask that.
    """
    import psycopg
    from psycopg.rows import dict_row

    with _connect(dsn, option=option) as connection:
        version = str(_one(connection, "SHOW server_version")).split()[0]
        if connection.info.server_version // 10000 not in SUPPORTED:
            raise UsageError(
                f"{option} {dsn} is PostgreSQL {version}, which is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"
            )
        try:
            with connection.cursor(row_factory=dict_row) as cursor:
                return version, [cursor.execute(statement.encode()).fetchall() for statement in statements]
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(f"{option} {dsn}: {_words(error)}; connect as a superuser or a member of pg_monitor") from None


def insist(found: Found, *, builtin: bool, writes: bool, scale: int | None, option: str = "--server") -> None:
    """Insist that a load can run there: pgbench's tables for ``builtin`` scripts at ``scale`` (None: any), and for a load that
    ``writes`` a server that takes it.

    Raises:
        UsageError: it cannot; the message says how to make it able.
    """
    if writes and found.read_only:
        raise UsageError(f"{option} {found.dsn} takes no writes: {found.read_only}; use --workload select-only, or name a server that does")
    missing = [name for name in found.missing if writes or name in _READ]
    if builtin and missing:
        raise UsageError(
            f"database '{found.database}' of {option} {found.dsn} has no {', '.join(missing)}, which pgbench's own scripts use, and pgherd "
            f"makes nothing on a server that is not its own; make them with: pgbench -i -s {scale or 10} '{found.dsn}'"
        )
    if scale is not None and found.scale is not None and scale != found.scale:
        raise UsageError(f"--scale is {scale}, but pgbench's tables at {option} {found.dsn} have scale {found.scale}; leave --scale out")


class External:
    """One such server, attached for a run."""

    def __init__(self, node: Node, dsn: str, *, name: str, passfile: str, account: str | None = None) -> None:
        """Connect once and find out how.

        Args:
            node: where connections are made from.
            dsn: as ``dsn.take`` gives it.
            name: what the server is called in messages.
            passfile: path at which a password file is made if one is needed, owned by ``account``.
            account: as whom drivers run.

        Raises:
            UsageError: no connection.
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
        self._words = {keyword: value for keyword, (_, value) in options.items()}
        if password:
            _write_passfile(node, passfile, password, account)
            self._environment["PGPASSFILE"] = self._words["passfile"] = passfile

    def address(self, *, writes: bool = False) -> Address:
        """For a driver, in read-only sessions unless its load ``writes``."""
        options = {"PGOPTIONS": _options(self.dsn, read_only=not writes)}
        environment = {variable: value for variable, value in {**self._environment, **options}.items() if value}
        return Address(self._host, self._port, self._user, self._database, environment)

    def conninfo(self) -> str:
        """For our own connections; without a password in it, since it is recorded with what was sampled over it."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(
            "",
            **self._words,
            host=self._host,
            port=str(self._port),
            user=self._user,
            dbname=self._database,
            options=_options(self.dsn, read_only=True),
            application_name="pgherd",
            connect_timeout=str(_CONNECT_SECONDS),
        )

    def sql(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement on the node's kept connection; raises psycopg.Error."""
        return self.node.sql(self.conninfo(), statement, parameters)

    @property
    def answers(self) -> bool:
        """Whether it can be reached now."""
        import psycopg

        try:
            self.sql("SELECT 1")
        except psycopg.Error:
            return False
        self.disconnect()
        return True

    def differing(self) -> dict[str, str]:
        """Its settings that differ from the default, as far as the user may see them; what may be secret is not shown."""
        rows = self.sql(DIFFERING)
        found = differing((name, setting, boot, source, shown) for name, setting, boot, source, shown in rows)
        return {name: "(not shown)" if value and _SECRET.search(name) else value for name, value in found.items()}

    def disconnect(self) -> None:
        """Close the node's kept connections."""
        self.node.disconnect(self.conninfo())


def _connect(dsn: str, *, read_only: bool = True, option: str = "--server") -> psycopg.Connection[tuple[Any, ...]]:
    import psycopg

    given = {"options": _options(dsn, read_only=read_only), "application_name": "pgherd"}
    password = dsns.password_of(dsn)
    if password is not None:
        given["password"] = password
    try:
        return psycopg.connect(dsn, autocommit=True, connect_timeout=_CONNECT_SECONDS, **given)  # type: ignore[arg-type]
    except psycopg.Error as error:
        words = _words(error)
        hint = "check the DSN, and that the server lets this host and user in"
        if "password" in words:
            hint = "set PGPASSWORD in the environment, or put the password into a password file (~/.pgpass)"
        raise UsageError(f"{option} {dsn}: no connection: {words}; {hint}") from None


def _options(dsn: str, *, read_only: bool) -> str:
    """What the user's own options are (of the DSN, else PGOPTIONS), and ours after them."""
    import os

    from psycopg.conninfo import conninfo_to_dict

    own = str(conninfo_to_dict(dsn).get("options") or os.environ.get("PGOPTIONS", ""))
    return " ".join(part for part in (own.strip(), READ_ONLY if read_only else "") if part)


def _explicit(connection: psycopg.Connection[Any]) -> list[tuple[str, tuple[str, str]]]:
    """(keyword, (environment variable, value)) of what was given beside the address, wherever it was given."""
    found = []
    for option in connection.pgconn.info:
        keyword = option.keyword.decode()
        if option.val is None or option.envvar is None or option.val == option.compiled:
            continue
        if keyword in _NOT_PASSED_ON or keyword in ("host", "port", "user", "dbname"):
            continue
        found.append((keyword, (option.envvar.decode(), option.val.decode())))
    return found


def _write_passfile(node: Node, path: str, password: str, account: str | None) -> None:
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    node.write(path, f"*:*:*:*:{escaped}\n".encode())  # a new file has mode 0600, which libpq insists on
    if account is not None:
        owned = node.run(Command(["chown", f"{account}:", "--", path]))
        if owned.code != 0:
            raise UsageError(f"account {account} cannot be given the password file {path}: {owned.err.strip()}")


def _why_read_only(connection: psycopg.Connection[Any]) -> str:
    if _one(connection, "SELECT pg_is_in_recovery()"):
        return "it is a standby"
    if str(_one(connection, "SHOW transaction_read_only")) == "on":
        return "default_transaction_read_only is on for this user or database"
    return ""


def _one(connection: psycopg.Connection[Any], statement: str, parameters: Sequence[Any] = ()) -> Any:
    row = connection.execute(statement.encode(), parameters or None).fetchone()
    return row[0] if row else None


def _words(error: Exception) -> str:
    """libpq's or the server's words, in one line, without any password."""
    return dsns.redact(" ".join(str(error).split()))
