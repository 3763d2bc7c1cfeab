"""Relations of a database: read file by file through the server, or spread over tablespaces.

The main fork of a relation is a sequence of files of one segment size (1 GB by default). ``Relations`` reads them with
pg_read_binary_file, which superusers and granted roles may call. It writes nothing.

``create`` makes tablespaces for one run: one for temporary files, and several for tables and indexes. ALTER TABLE … SET
TABLESPACE moves a complete relation. A database with one large table is therefore spread only over the tablespaces of
that table and its indexes, unless the table is partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.postgres.instance import WRITABLE, Instance

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Callback that runs a statement with parameters and returns its rows; raises psycopg.Error."""

# Temporary relations have other file names and are excluded. A TOAST table is named after its table.
# Functions and operators are PostgreSQL's, because a reader may be a superuser: with other types, those of other schemas may fit better.
LIST = """SELECT CASE WHEN owner.oid IS NULL THEN s.nspname::text || '.' || c.relname::text
            WHEN c.relkind = 't' THEN 'TOAST of ' || os.nspname::text || '.' || owner.relname::text
            ELSE 'index of TOAST of ' || os.nspname::text || '.' || owner.relname::text END,
       pg_catalog.pg_relation_filepath(c.oid), pg_catalog.pg_relation_size(c.oid)
FROM pg_class c
JOIN pg_namespace s ON s.oid = c.relnamespace
LEFT JOIN pg_index i ON i.indexrelid = c.oid AND s.nspname = 'pg_toast'
LEFT JOIN pg_class owner ON owner.reltoastrelid = coalesce(i.indrelid, c.oid) AND s.nspname = 'pg_toast'
LEFT JOIN pg_namespace os ON os.oid = owner.relnamespace
WHERE c.relkind IN ('r', 'm', 'i', 't') AND c.relpersistence <> 't'
  AND coalesce(os.nspname, s.nspname) NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
  AND coalesce(os.nspname, s.nspname)::text NOT LIKE 'pg\\_temp\\_%'
ORDER BY 3 DESC, 1"""
"""Query for name, path below the data directory and size (bytes) of all user relations, largest first."""

_SEGMENT_BYTES = "SELECT setting::bigint * current_setting('block_size')::bigint FROM pg_settings WHERE name = 'segment_size'"
_READABLE = "SELECT has_function_privilege('pg_catalog.pg_read_binary_file(text,bigint,bigint,boolean)', 'EXECUTE')"
_READ = "SELECT pg_catalog.pg_read_binary_file(%s, %s, %s, true)"


@dataclass(frozen=True)
class Relation:
    """Relation that is not empty."""

    name: str
    path: str
    size: int


class Relations:
    """Relations of one database, read through a connection to it."""

    def __init__(self, query: Query) -> None:
        """List the relations once; raises psycopg.Error."""
        self._query = query
        self._segment_bytes = int(query(_SEGMENT_BYTES, ())[0][0])
        self.all = [Relation(str(name), str(path), int(size)) for name, path, size in query(LIST, ()) if path is not None and int(size) > 0]

    @property
    def readable(self) -> bool:
        """True if the user may call pg_read_binary_file."""
        return bool(self._query(_READABLE, ())[0][0])

    def read(self, relation: Relation, offset: int, length: int) -> bytes:
        """Read bytes of the main fork from one file. The result is empty if the file no longer exists.

        The range of ``offset`` and ``length`` must not cross the end of a file.
        """
        number, within = divmod(offset, self._segment_bytes)
        path = relation.path if number == 0 else f"{relation.path}.{number}"
        data = self._query(_READ, (path, within, length))[0][0]
        return b"" if data is None else bytes(data)


TEMP = "pgherd_temp"
SPACE = "pgherd_space"

RELATIONS = """SELECT n.nspname, c.relname, c.relkind::text, pg_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'i', 'm') AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY 4 DESC, 1, 2"""
"""Query for tables, materialized views and indexes of user schemas with the size of their main fork, largest first."""

_KINDS = {"r": "TABLE", "i": "INDEX", "m": "MATERIALIZED VIEW"}


@dataclass(frozen=True)
class TablespaceDirs:
    """Empty directories owned by the server's user: one for temporary files (or None), others for tables and indexes."""

    temp: str | None = None
    data: tuple[str, ...] = ()


def create(instance: Instance, databases: Sequence[str], spaces: TablespaceDirs) -> None:
    """Create tablespaces on a running private server, set temp_tablespaces, and spread the relations of the databases.

    Raises:
        psycopg.Error: A statement fails, for example because a disk is full.
    """
    from psycopg import sql

    if spaces.temp is not None:
        _create_tablespace(instance, TEMP, spaces.temp)
        instance.sql(sql.SQL("ALTER SYSTEM SET temp_tablespaces = {}").format(sql.Literal(TEMP)).as_string())
        instance.reload()
    names = [f"{SPACE}_{number}" for number in range(len(spaces.data))]
    for name, directory in zip(names, spaces.data, strict=True):
        _create_tablespace(instance, name, directory)
    for database in databases if names else ():
        instance.sql(WRITABLE, database=database)
        relations = instance.sql(RELATIONS, database=database)
        for (schema, name, kind, _), at in zip(relations, spread([size for *_, size in relations], len(names)), strict=True):
            statement = sql.SQL("ALTER {} {} SET TABLESPACE {}").format(
                sql.SQL(_KINDS[kind]), sql.Identifier(schema, name), sql.Identifier(names[at])
            )
            instance.sql(statement.as_string(), database=database)
        instance.checkpoint()


def spread(sizes: Sequence[int], places: int) -> list[int]:
    """Assign each size to the least filled of ``places`` and return their indexes.

    With the largest size first, no place receives more than 4/3 of the optimum (Graham's rule).
    """
    filled = [0] * places
    assigned = []
    for size in sizes:
        index = min(range(places), key=lambda place: (filled[place], place))
        filled[index] += max(size, 1)
        assigned.append(index)
    return assigned


def _create_tablespace(instance: Instance, name: str, directory: str) -> None:
    from psycopg import sql

    statement = sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(sql.Identifier(name), sql.Literal(directory))
    instance.sql(WRITABLE)
    instance.sql(statement.as_string())
