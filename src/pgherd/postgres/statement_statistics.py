"""Counters of pg_stat_statements on an external server: whether they can be read, snapshots of them, and their increase.

Texts leave the server only if PostgreSQL has replaced their constants. Of other commands, such as ALTER ROLE … PASSWORD, only the first
word is kept. Statements without the right to see them are one statement without a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pgherd.model.result import StatementCounters

if TYPE_CHECKING:
    import psycopg

TOP = 10
"""Statements that are kept of each server and phase."""
OUTDATED = "pg_stat_statements is of an older PostgreSQL than the server, as after pg_upgrade"
_MAX_TEXT = 1000
_SCHEMA = """SELECT pg_catalog.quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'pg_stat_statements'"""
_LOOK = "SELECT toplevel FROM {schema}.pg_stat_statements(false) LIMIT 1"
_COUNTERS = """SELECT coalesce(queryid::text, ''), sum(calls)::bigint, sum(total_exec_time)::float8, sum(rows)::bigint,
       sum(shared_blks_hit)::bigint, sum(shared_blks_read)::bigint, sum(wal_bytes)::bigint
FROM {schema}.pg_stat_statements(false)
WHERE toplevel AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY 1"""
_TEXTS = """SELECT queryid::text, min(query) FROM {schema}.pg_stat_statements(true)
WHERE toplevel AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND queryid::text = ANY(%s) GROUP BY 1"""
_COMMENTS = re.compile(r"^(?:\s+|/\*.*?\*/|--[^\n]*(?:\n|$))+", re.DOTALL)
_WITHOUT_CONSTANTS = {"select", "insert", "update", "delete", "merge", "with", "values", "table"}

Sql = Callable[..., Sequence[tuple[Any, ...]]]
"""Function that runs a statement with parameters; raises psycopg.Error."""
Snapshot = Mapping[str, StatementCounters]
"""Query identifier → counters since the server's statistics began."""


def why_unreadable(connection: psycopg.Connection[Any]) -> str:
    """Return the reason why a connection in autocommit cannot read the counters, with the remedy. '' if it can."""
    import psycopg

    found = connection.execute(_SCHEMA.encode()).fetchone()
    if found is None:
        return (
            "the database has no extension pg_stat_statements. Add it to shared_preload_libraries, restart the server, and run "
            "CREATE EXTENSION pg_stat_statements;"
        )
    try:
        connection.execute(_LOOK.format(schema=found[0]).encode())
    except psycopg.errors.UndefinedColumn:
        return f"{OUTDATED}. As its owner, run ALTER EXTENSION pg_stat_statements UPDATE;"
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return "pg_stat_statements is not loaded. Add it to shared_preload_libraries, and restart the server."
    except psycopg.Error as error:
        function = f"{found[0]}.pg_stat_statements(boolean)"
        return f"{' '.join(str(error).split())}. As a superuser: GRANT USAGE ON SCHEMA {found[0]} and EXECUTE ON FUNCTION {function}."
    return ""


def schema(sql: Sql) -> str:
    """Return the extension's schema as an SQL identifier, '' without the extension. Raises psycopg.Error."""
    found = sql(_SCHEMA)
    return str(found[0][0]) if found else ""


def snapshot(sql: Sql, schema: str) -> dict[str, StatementCounters]:
    """Return the counters of the database's statements. Raises psycopg.Error."""
    names = list(StatementCounters.model_fields)
    return {str(row[0]): StatementCounters(**dict(zip(names, row[1:], strict=True))) for row in sql(_COUNTERS.format(schema=schema))}


def increase(before: Snapshot, after: Snapshot) -> dict[str, StatementCounters]:
    """Return the counters' increase by query identifier, of statements that ended in between, the one with most time first."""
    found = {queryid: counters.since(before.get(queryid)) for queryid, counters in after.items()}
    return dict(sorted(((name, used) for name, used in found.items() if used.calls > 0), key=lambda item: -item[1].time_ms))


def texts(sql: Sql, schema: str, queryids: Sequence[str]) -> dict[str, str]:
    """Return query identifier → text, in one line. Raises psycopg.Error."""
    return {str(queryid): public_text(text or "") for queryid, text in sql(_TEXTS.format(schema=schema), [list(queryids)])}


def public_text(text: str) -> str:
    """Return a statement in one line. One whose constants PostgreSQL may have kept is shortened to its first word."""
    words = _COMMENTS.sub("", text).split()
    if len(words) > 1 and words[0].lower().lstrip("(") not in _WITHOUT_CONSTANTS:
        return f"{words[0]} …"
    line = " ".join(words)
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"
