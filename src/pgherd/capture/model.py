"""Observed properties of a database and its load, as read from the catalogue and from pg_stat_statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from psycopg import sql

from pgherd.model.result import counter_increase

Values = Literal["none", "common", "all"]
"""Data values that may leave the server: none, the most common ones, or also the bounds of histograms."""


@dataclass(frozen=True)
class Type:
    """Base type of a column or parameter. Domains are resolved. ``element`` is the type of an array's elements."""

    schema: str
    name: str
    enum: bool = False
    element: Type | None = None

    def quoted(self) -> str:
        """Return the name for a cast, quoted because the server chooses it."""
        return quoted(self.schema, self.name)


@dataclass(frozen=True)
class SourceColumn:
    """Column of a table, with the statistics of pg_stats that contain no data values, unless they were allowed.

    Attributes:
        number: position in the table (attnum). Dropped columns keep theirs.
        modifier: type modifier (atttypmod), such as the length of a character type plus 4.
        writable: false for a generated column.
        distinct: n_distinct. A negative value is a fraction of the rows. None without statistics.
        width: average size in bytes.
        common: most common values as text, with their frequencies.
        bounds: bounds of the histogram as text. Each bucket has the same number of rows.
    """

    name: str
    number: int
    type: Type
    modifier: int = -1
    not_null: bool = False
    has_default: bool = False
    writable: bool = True
    distinct: float | None = None
    null_fraction: float = 0.0
    width: int = 8
    correlation: float | None = None
    common: tuple[tuple[str, float], ...] = ()
    bounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForeignKey:
    """Reference of columns to the columns of another table, by the table's oid."""

    columns: tuple[str, ...]
    table: int
    referenced: tuple[str, ...]


@dataclass(frozen=True)
class SourceTable:
    """Table with its estimated number of rows.

    Attributes:
        key: columns of the primary key.
        uniques: columns of each other unique index, also of one on a part of the rows. Those of its expressions come last.
        checks: names of its check constraints.
        partitioning: '' for a table without partitions, 'any' if each row has a partition, else 'some'.
    """

    oid: int
    schema: str
    name: str
    rows: int
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...] = ()
    uniques: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[str, ...] = ()
    partitioning: Literal["", "any", "some"] = ""

    def quoted(self) -> str:
        """Return the qualified name, quoted."""
        return quoted(self.schema, self.name)

    def column(self, name: str) -> SourceColumn | None:
        """Return a column by its name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True)
class Function:
    """Function in SQL or PL/pgSQL with the names of its input arguments."""

    name: str
    arguments: tuple[str, ...]
    body: str


@dataclass(frozen=True)
class Counters:
    """Counters of pg_stat_statements for a statement, or their increase in a window. Times are in ms."""

    calls: int = 0
    rows: int = 0
    hit: int = 0
    read: int = 0
    time_ms: float = 0.0
    wal_bytes: int = 0
    wal_fpi: int = 0

    def since(self, before: Counters | None) -> Counters:
        """Return the increase since ``before``. Counters that were reset count from zero."""
        return self if before is None else Counters(**counter_increase(vars(before), vars(self)))


@dataclass(frozen=True)
class Statement:
    """Statement with its increase in the window.

    Attributes:
        number: 1 for the statement with the largest share.
        text: normalized text of pg_stat_statements, with ``$1`` for each constant and parameter.
        parameters: types of the parameters, from the server.
        plan: generic plan as EXPLAIN reports it, None for statements that cannot be planned.
        error: reason why the server does not accept the normalized text, '' if it does.
        observed: constants in place of parameters in running statements, if values are allowed.
        shortened: of each list that PostgreSQL 18 shortens, the text has one element, because the server accepts no array instead.
    """

    number: int
    text: str
    counters: Counters
    parameters: tuple[Type, ...] = ()
    plan: dict[str, Any] | None = None
    error: str = ""
    observed: dict[int, tuple[str, ...]] = field(default_factory=dict)
    shortened: bool = False


@dataclass(frozen=True)
class Source:
    """Everything that was read from a server.

    Attributes:
        statements: analysed statements, those with the largest shares of calls or time first.
        total: counters of all statements of the database.
        unread: number and counters of the statements that were not analysed.
        transactions: committed and rolled back transactions of the database in the window.
        seconds: length of the window.
        notes: limits of this observation, such as missing statistics.
        schemas: existing schemas of the search_path, in its order.
        foreign: foreign tables as (schema, name).
    """

    database: str
    version: str
    major: int
    tables: tuple[SourceTable, ...]
    functions: tuple[Function, ...]
    statements: tuple[Statement, ...]
    total: Counters
    unread: tuple[int, Counters]
    transactions: int
    seconds: float
    notes: tuple[str, ...] = field(default=())
    schemas: tuple[str, ...] = ()
    foreign: tuple[tuple[str, str], ...] = ()

    @property
    def search_path(self) -> str:
        """Value of search_path with which the copy resolves the same names, '' if the default does."""
        return "" if self.schemas in ((), ("public",)) else ", ".join(map(quoted, self.schemas))


def quoted(*names: str) -> str:
    """Quote a qualified name for SQL."""
    return sql.Identifier(*names).as_string(None)


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return sql.Literal(text).as_string(None).strip()
