"""Tablespaces of a run's own: one for temporary files, and several over which a database's tables and indexes are spread.

A relation is moved whole (ALTER TABLE … SET TABLESPACE): a database of one large table is spread no further than its table and
its indexes, unless the table is partitioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.postgres.instance import Instance

TEMP = "pgherd_temp"
SPACE = "pgherd_space"

RELATIONS = """SELECT n.nspname, c.relname, c.relkind::text, pg_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'i', 'm') AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY 4 DESC, 1, 2"""
"""Tables, materialized views and indexes of the user's schemas with the bytes of their main fork, largest first."""

_KINDS = {"r": "TABLE", "i": "INDEX", "m": "MATERIALIZED VIEW"}


@dataclass(frozen=True)
class Spaces:
    """Empty directories that the server's account owns: for temporary files (or None), and for tables and indexes."""

    temp: str | None = None
    data: tuple[str, ...] = ()


def create(instance: Instance, databases: Sequence[str], spaces: Spaces) -> None:
    """Make the tablespaces on a running server of ours, have temporary files go to theirs, and spread the databases' relations.

    Raises:
        psycopg.Error: the server refuses it, for instance because a disk is full.
    """
    from psycopg import sql

    if spaces.temp is not None:
        _space(instance, TEMP, spaces.temp)
        instance.sql(sql.SQL("ALTER SYSTEM SET temp_tablespaces = {}").format(sql.Literal(TEMP)).as_string())
        instance.reload()
    names = [f"{SPACE}_{number}" for number in range(len(spaces.data))]
    for name, directory in zip(names, spaces.data, strict=True):
        _space(instance, name, directory)
    for database in databases if names else ():
        found = instance.sql(RELATIONS, database=database)
        for (schema, name, kind, _), at in zip(found, spread([size for *_, size in found], len(names)), strict=True):
            moved = sql.SQL("ALTER {} {} SET TABLESPACE {}").format(
                sql.SQL(_KINDS[kind]), sql.Identifier(schema, name), sql.Identifier(names[at])
            )
            instance.sql(moved.as_string(), database=database)
        instance.checkpoint()


def spread(sizes: Sequence[int], places: int) -> list[int]:
    """For each size the place that it goes to: the emptiest at its turn (Graham's rule; largest first, no place ends up with more
    than 4/3 of what is best)."""
    filled = [0] * places
    found = []
    for size in sizes:
        at = min(range(places), key=lambda place: (filled[place], place))
        filled[at] += max(size, 1)
        found.append(at)
    return found


def _space(instance: Instance, name: str, directory: str) -> None:
    from psycopg import sql

    statement = sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(sql.Identifier(name), sql.Literal(directory))
    instance.sql(statement.as_string())
