"""The relations of a database as they lie on disk, read through the server in pieces. Nothing is written.

A relation's main fork is a row of files of one segment size each (1 GB unless built otherwise). The server reads them with
pg_read_binary_file, which a superuser may use, and whoever was given the right to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a statement with parameters and returns its rows; raises psycopg.Error."""

# Temporary relations have other files; a TOAST table goes by the table that it belongs to.
LIST = """SELECT CASE WHEN owner.oid IS NULL THEN s.nspname || '.' || c.relname
            WHEN c.relkind = 't' THEN 'TOAST of ' || os.nspname || '.' || owner.relname
            ELSE 'index of TOAST of ' || os.nspname || '.' || owner.relname END,
       pg_relation_filepath(c.oid), pg_relation_size(c.oid)
FROM pg_class c
JOIN pg_namespace s ON s.oid = c.relnamespace
LEFT JOIN pg_index i ON i.indexrelid = c.oid AND s.nspname = 'pg_toast'
LEFT JOIN pg_class owner ON owner.reltoastrelid = coalesce(i.indrelid, c.oid) AND s.nspname = 'pg_toast'
LEFT JOIN pg_namespace os ON os.oid = owner.relnamespace
WHERE c.relkind IN ('r', 'm', 'i', 't') AND c.relpersistence <> 't'
  AND coalesce(os.nspname, s.nspname) NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
  AND coalesce(os.nspname, s.nspname) NOT LIKE 'pg\\_temp\\_%'
ORDER BY 3 DESC, 1"""
"""Name, path below the data directory and size (bytes) of all relations of users, largest first."""

_FILE = "SELECT setting::bigint * current_setting('block_size')::bigint FROM pg_settings WHERE name = 'segment_size'"
_MAY = "SELECT has_function_privilege('pg_read_binary_file(text,bigint,bigint,boolean)', 'EXECUTE')"
_READ = "SELECT pg_read_binary_file(%s, %s, %s, true)"


@dataclass(frozen=True)
class Relation:
    """One relation that holds something."""

    name: str
    path: str
    size: int


class Relations:
    """The relations of one database, through a connection to it."""

    def __init__(self, query: Query) -> None:
        """Look once; raises psycopg.Error."""
        self._query = query
        self._file = int(query(_FILE, ())[0][0])
        self.all = [Relation(str(name), str(path), int(size)) for name, path, size in query(LIST, ()) if path is not None and int(size) > 0]

    @property
    def readable(self) -> bool:
        """Whether this user may read them."""
        return bool(self._query(_MAY, ())[0][0])

    def read(self, relation: Relation, offset: int, length: int) -> bytes:
        """Bytes of its main fork (``offset`` and ``length`` must not straddle a file); empty where they are gone meanwhile."""
        number, within = divmod(offset, self._file)
        path = relation.path if number == 0 else f"{relation.path}.{number}"
        found = self._query(_READ, (path, within, length))[0][0]
        return b"" if found is None else bytes(found)
