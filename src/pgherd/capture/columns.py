"""Values of a copy's columns as functions of the row number, and the SQL that generates the rows.

A value is chosen in two steps. Its *ordinal* (1, 2, …) follows from the row number by integer arithmetic that SQL and pgbench's
``\\set`` both understand, so that a script can compute the key of a row without reading it. Then an SQL expression renders the
ordinal as a value of the column's type and width. A column with D distinct values has the ordinals 1 to D.

The columns of a key divide the rows hierarchically: the first column into D groups of equal size, the second each of these, and
the last one numbers the rows of a group. If the other columns have as many groups as another table has rows, they take its key, as
many schemas have no foreign key there. Foreign keys take the ordinals of a row of the referenced table. Other columns scatter
their ordinals by multiplication modulo 2^31 - 1 (Park and Miller 1988), or rise with the row number if they are correlated with
the physical order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import gcd, prod

from pgherd.capture.model import ForeignKey, SourceColumn, SourceTable, Type, literal, quoted

_MODULUS = 2**31 - 1
_GENERATOR = 48271
"""Its powers modulo 2^31 - 1 are the multipliers. Columns with different ones are uncorrelated."""
_VALUES, _SHARES, _NULLS = range(3)
"""Uses of scattered numbers by one column."""
_ORDERED = 0.9
"""Correlation from which a column is in the physical order of the rows."""
_SHUFFLED = 0.5
"""Correlation of a key up to which the rows are in random order."""
_SIMILAR = 0.03
"""Relative error of n_distinct up to which a key may be that of another table."""
_PARTS = 1_000_000
"""Resolution of frequencies."""
_NUMBERED_WIDTH = 12
"""Digits of the number in a text. Wider texts are filled with hexadecimal digits of a hash, which hardly compress."""

_LARGEST = 2**62
"""Largest ordinal. pgbench's random() accepts no range of 2^63 numbers."""

INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
"""Integer types → bits of their largest value."""


@dataclass(frozen=True)
class Formula:
    """Ordinal of a column as an expression of the row number, and the column that renders it.

    With ``is_row`` the ordinal is the row number, so a larger number is the key of no row.
    """

    column: SourceColumn
    ordinal: Callable[[str], str]
    distinct: int
    is_row: bool = False
    has_values: bool = False

    def value(self, ordinal: str, quote: Callable[[str], str]) -> str | None:
        """Return the SQL expression of the value, or None if its type cannot be generated. ``quote`` quotes a text for SQL."""
        column = self.column
        shaped = render(column.type, ordinal, column.modifier, column.width)
        if not self.has_values or shaped is None:
            return shaped
        kind, common = column.type, len(column.common)
        if column.bounds and kind.name in INTEGERS and len(column.bounds) > 1:
            buckets = len(column.bounds) - 1
            bounds = _array(column.bounds, kind, quote)
            bucket = f"(1 + {ordinal} % {buckets})"
            span = f"greatest(CAST(({bounds})[{bucket} + 1] AS int8) - ({bounds})[{bucket}], 1)"
            shaped = f"CAST(({bounds})[{bucket}] + {ordinal} / {buckets} % {span} AS {kind.quoted()})"
        elif column.bounds and self.distinct <= common + len(column.bounds):
            shaped = f"({_array(column.bounds, kind, quote)})[1 + {ordinal} % {len(column.bounds)}]"
        if not common:
            return shaped
        values = _array([text for text, _ in column.common], kind, quote)
        return f"CASE WHEN {ordinal} <= {common} THEN ({values})[{ordinal}] ELSE {shaped} END"


def _array(texts: Iterable[str], kind: Type, quote: Callable[[str], str]) -> str:
    return f"ARRAY[{', '.join(f'CAST({quote(text)} AS {kind.quoted()})' for text in texts)}]"


def text_literal(text: str) -> str:
    """Return an SQL expression of a text that contains no part of it, so that psql and pgbench find nothing to replace in it."""
    return f"convert_from(decode('{text.encode().hex()}', 'hex'), 'UTF8')"


class Shapes:
    """Formulas of all columns of all tables.

    ``counters`` are names of columns that statements increase by one and read, such as the next number of a customer's orders.
    Their values follow the largest number among the rows that refer to their row.
    """

    def __init__(self, tables: Sequence[SourceTable], counters: Collection[str] = ()) -> None:
        self.tables = {table.oid: table for table in tables}
        self._counters = counters
        self._formulas: dict[int, dict[str, Formula]] = {}
        self._rows: dict[int, int] = {}

    def rows(self, table: SourceTable) -> int:
        """Return the rows that the copy of a table has. A key that is a foreign key has at most those of the other table."""
        self.formulas(table)
        return self._rows[table.oid]

    def formulas(self, table: SourceTable) -> dict[str, Formula]:
        """Return the formulas of a table by column.

        Keys come first, so that a table can reference itself. The other columns then find the keys of other tables.
        """
        if table.oid not in self._formulas:
            self._formulas[table.oid], self._rows[table.oid] = {}, max(table.rows, 0)
            found = self._formulas[table.oid] = self._key_formulas(table)
            for key in table.foreign_keys:
                self._add_reference(table, key, found)
            self._add_uniques(table, found)
            for column in table.columns:
                if column.name not in found:
                    found[column.name] = self._plain(table, column)
        return self._formulas[table.oid]

    def _key_formulas(self, table: SourceTable) -> dict[str, Formula]:
        rows, columns = max(table.rows, 1), [column for name in table.key if (column := table.column(name)) is not None]
        if not columns or len(columns) < len(table.key):
            return {}
        names = [column.name for column in columns]
        for reference in table.foreign_keys:
            other = self.tables.get(reference.table)
            if other is None or other.oid == table.oid or not self.rows(other):
                continue
            if set(reference.columns) == set(names):
                rows = self._rows[table.oid] = min(rows, self.rows(other)) if table.rows else 0
                return self._referenced(reference, other, f"(1 + ({{i}} - 1) * {self.rows(other)} / {max(rows, 1)})")
        if len(columns) == 1:
            shuffled = columns[0].correlation is not None and abs(columns[0].correlation) < _SHUFFLED and rows > 1
            ordinal = _permutation(rows, columns[0].number) if shuffled else _identity
            return {names[0]: Formula(columns[0], ordinal, rows, is_row=not shuffled)}
        parent = self._parent(table)
        if parent is not None:
            groups = self.rows(self.tables[parent.table])
            found = self._referenced(parent, self.tables[parent.table], f"(1 + ({{i}} - 1) * {groups} / {rows})")
            return {**found, names[-1]: Formula(columns[-1], _position(groups, rows), max(1, rows // groups))}
        counts = self._counts(table)
        found, groups = {}, 1
        for column, count in zip(columns[:-1], counts, strict=True):
            groups = min(groups * count, rows)
            found[column.name] = Formula(column, _group(groups, rows, count), count)
        found[names[-1]] = Formula(columns[-1], _position(groups, rows), max(1, rows // groups))
        return found

    def _parent(self, table: SourceTable) -> ForeignKey | None:
        """Return the reference of a key's columns, except the last one, to another table.

        Without a foreign key, this is a table with a key of the same types, and nearly as many rows as these columns have groups.
        """
        prefix = table.key[:-1]
        if not prefix:
            return None
        for key in table.foreign_keys:
            other = self.tables.get(key.table)
            if other is not None and other.oid != table.oid and other.rows and set(key.columns) == set(prefix):
                return key
        kinds = [column.type for name in prefix if (column := table.column(name)) is not None]
        groups = min(prod(self._counts(table)), max(table.rows, 1))
        for other in self.tables.values():
            others = [column.type for name in other.key if (column := other.column(name)) is not None]
            similar = other.rows > 0 and abs(other.rows - groups) <= _SIMILAR * groups
            if other.oid != table.oid and others == kinds and similar and other.rows <= table.rows:
                return ForeignKey(prefix, other.oid, other.key)
        return None

    def _counts(self, table: SourceTable) -> list[int]:
        """Return the distinct values of a key's columns, except the last one."""
        rows = max(table.rows, 1)
        columns = [column for name in table.key[:-1] if (column := table.column(name)) is not None]
        return [min(distinct_count(column, rows), self._largest_reference(table, column.name, rows)) for column in columns]

    def _first_free(self, table: SourceTable) -> int:
        """Return a number larger than those of the rows that refer to a row of the table."""
        children = [other for other in self.tables.values() if (key := self._parent(other)) is not None and key.table == table.oid]
        if not children:
            return 1 + max(other.rows for other in self.tables.values())
        return 2 + max(other.rows // max(table.rows, 1) for other in children)

    def _largest_reference(self, table: SourceTable, column: str, rows: int) -> int:
        counts = [self.rows(self.tables[key.table]) for key in table.foreign_keys if key.columns == (column,) and key.table in self.tables]
        return max(1, min([rows, *counts]))

    def _add_reference(self, table: SourceTable, key: ForeignKey, found: dict[str, Formula]) -> None:
        other = self.tables.get(key.table)
        missing = [name for name in key.columns if name not in found]
        if other is None or not missing or not self.rows(other):
            return
        number, count = self._number(table, key.columns[0]), self.rows(other)
        is_unique = any(set(names) <= set(key.columns) for names in table.uniques)
        row = _permutation(count, number)("{i}") if is_unique else f"(1 + {scattered('{i}', number, count)})"
        referenced = self._referenced(key, other, row)
        if len(missing) == len(key.columns):
            found.update(referenced)
            return
        for name, target in zip(key.columns, key.referenced, strict=True):
            column, formula = table.column(name), self.formulas(other).get(target)
            if name in missing and column is not None and formula is not None:
                found[name] = Formula(formula.column, _scatter(column.number, formula.distinct), formula.distinct)

    def _referenced(self, key: ForeignKey, other: SourceTable, row: str) -> dict[str, Formula]:
        """Return formulas that take the values of a row of another table. ``row`` contains ``{i}``, this table's row number."""
        formulas, result = self.formulas(other), {}
        for name, target in zip(key.columns, key.referenced, strict=True):
            formula = formulas.get(target)
            if formula is not None:
                result[name] = Formula(formula.column, _composed(formula.ordinal, row), formula.distinct)
        return result

    def _number(self, table: SourceTable, name: str) -> int:
        column = table.column(name)
        return column.number if column is not None else 0

    def _add_uniques(self, table: SourceTable, found: dict[str, Formula]) -> None:
        """Make the last column of each unique index unique by itself, unless its columns contain the key."""
        rows = max(table.rows, 1)
        for names in table.uniques:
            free = [column for name in names if name not in found and (column := table.column(name)) is not None]
            if free and not (table.key and set(table.key) <= set(names)):
                found[free[-1].name] = Formula(free[-1], _permutation(rows, free[-1].number) if rows > 1 else _identity, rows)

    def _plain(self, table: SourceTable, column: SourceColumn) -> Formula:
        rows = max(table.rows, 1)
        count = distinct_count(column, rows)
        if column.name in self._counters and column.type.name in INTEGERS:
            first = str(self._first_free(table))
            return Formula(column, lambda row: first, 1)
        if column.common:
            return Formula(column, _frequencies(column, count), count, has_values=True)
        if column.correlation is not None and abs(column.correlation) > _ORDERED and count > 1:
            return Formula(column, _ordered(rows, count, falling=column.correlation < 0), count, has_values=bool(column.bounds))
        return Formula(column, _scatter(column.number, count), count, has_values=bool(column.bounds))


def distinct_count(column: SourceColumn, rows: int) -> int:
    """Return the number of distinct values among ``rows`` rows, from 1. Without statistics each row has its own value."""
    if column.distinct is None:
        return max(rows, 1)
    count = -column.distinct * rows if column.distinct < 0 else column.distinct
    return max(1, min(round(count), rows))


# ---- ordinals


def scattered(row: str, number: int, count: int, use: int = _VALUES) -> str:
    """Return an expression that scatters row numbers over 0 to ``count`` - 1, for the column with this number."""
    multiplier = pow(_GENERATOR, 3 * number + use + 2, _MODULUS)
    return f"(({row}) * {multiplier} % {_MODULUS} * {count} / {_MODULUS})"


def _identity(row: str) -> str:
    return row


def _composed(ordinal: Callable[[str], str], row: str) -> Callable[[str], str]:
    return lambda i: ordinal(row.replace("{i}", i))


def _scatter(number: int, count: int) -> Callable[[str], str]:
    return lambda row: "1" if count == 1 else f"(1 + {scattered(row, number, count)})"


def _ordered(rows: int, count: int, *, falling: bool) -> Callable[[str], str]:
    return lambda row: f"({count} - (({row}) - 1) * {count} / {rows})" if falling else f"(1 + (({row}) - 1) * {count} / {rows})"


def _permutation(rows: int, number: int) -> Callable[[str], str]:
    """Return the ordinals of a bijection of 1 to ``rows``: multiples of a number without a common divisor."""
    step = round(rows * 0.618) + number
    while gcd(step, rows) != 1:
        step += 1
    return lambda row: f"(1 + (({row}) - 1) * {step} % {rows})"


def _group(groups: int, rows: int, count: int) -> Callable[[str], str]:
    return lambda row: "1" if count == 1 else f"(1 + (({row}) - 1) * {groups} / {rows} % {count})"


def _position(groups: int, rows: int) -> Callable[[str], str]:
    """Return the number of a row in its group, from 1."""
    return lambda row: f"(({row}) - ((({row}) - 1) * {groups} / {rows} * {rows} + {groups - 1}) / {groups})"


def _frequencies(column: SourceColumn, count: int) -> Callable[[str], str]:
    limits = [round(share * _PARTS) for share in accumulate(share for _, share in column.common)]
    others = max(1, count - len(limits))

    def ordinal(row: str) -> str:
        drawn = scattered(row, column.number, _PARTS, _SHARES)
        cases = " ".join(f"when {drawn} < {limit} then {k}" for k, limit in enumerate(limits, 1))
        return f"(case {cases} else {len(limits) + 1} + {scattered(row, column.number, others)} end)"

    return ordinal


# ---- values


def render(kind: Type, ordinal: str, modifier: int = -1, width: int = 8) -> str | None:
    """Return the SQL expression of a value of this type, or None if it cannot be generated.

    Args:
        ordinal: expression of a positive integer. Different integers have different values, as far as the type has as many.
        modifier: type modifier.
        width: average size of a value in bytes, with its header if it has one.
    """
    v = f"CAST({ordinal} AS pg_catalog.int8)"
    builtin = kind.schema == "pg_catalog"
    if kind.element is not None:
        inner = min(max(kind_width(kind.element), 1), 32)
        count = max(1, min(100, (width - 20) // max(inner, 4))) if width > 24 else 1
        element = render(kind.element, ordinal, -1, inner)
        return None if element is None else f"CAST(pg_catalog.array_fill({element}, ARRAY[{count}]) AS {kind.quoted()})"
    if kind.enum:
        labels = f"enum_range(CAST(NULL AS {kind.quoted()}))"
        return f"({labels})[1 + {v} % array_length({labels}, 1)]"
    if not builtin:
        return None
    match kind.name:
        case "int2" | "int4" | "int8" | "oid":
            return f"CAST({ordinal} AS pg_catalog.{kind.name})"
        case "float4" | "float8":
            return f"CAST({v} AS pg_catalog.{kind.name})"
        case "numeric":
            return _numeric(v, modifier)
        case "bool":
            return f"({v} % 2 = 0)"
        case "text" | "varchar" | "bpchar" | "name":
            return f"CAST({_text(v, _characters(kind.name, modifier, width))} AS pg_catalog.{kind.name})"
        case "bytea":
            return f"decode({_text(f'md5(CAST({v} AS text))', 2 * _characters('bytea', -1, width), is_hash=True)}, 'hex')"
        case "date":
            return f"CAST(date '2020-01-01' + CAST({v} % 1000000 AS int4) AS date)"
        case "timestamp" | "timestamptz":
            return f"CAST(timestamp '2020-01-01' + {v} * interval '1 second' AS pg_catalog.{kind.name})"
        case "time":
            return f"CAST(interval '1 second' * ({v} % 86400) AS time)"
        case "interval":
            return f"({v} * interval '1 second')"
        case "uuid":
            return f"CAST(md5(CAST({v} AS text)) AS uuid)"
        case "json" | "jsonb":
            return f"CAST({kind.name}_build_object('v', {_text(v, max(1, width - 16))}) AS {kind.name})"
        case "inet":
            return f"(inet '10.0.0.0' + {v} % 4000000000)"
    return None


def largest_ordinal(column: SourceColumn, rows: int) -> int:
    """Return the largest ordinal up to which ``render`` gives different values of a column, from 1. Hashes can be equal by chance."""
    if column.type.element is not None:
        element = column.type.element
        return largest_ordinal(replace(column, type=element, modifier=-1, width=kind_width(element), distinct=None), rows)
    if column.type.enum:
        return distinct_count(column, rows)
    kind, modifier = column.type.name, column.modifier
    match kind:
        case "bool":
            return 2
        case "int2" | "int4":
            return int(2 ** INTEGERS[kind] - 1)
        case "int8" | "uuid":
            return _LARGEST
        case "numeric":
            return _LARGEST if modifier < 4 else int(min(_LARGEST, 10 ** ((modifier - 4) >> 16 & 0xFFFF) - 1))
        case "text" | "varchar" | "bpchar" | "name":
            return _largest_in_text(_characters(kind, modifier, column.width))
        case "json" | "jsonb":
            return _largest_in_text(max(1, column.width - 16))
        case "bytea":
            return int(min(_LARGEST, 256 ** _characters(kind, -1, column.width)))
        case "date":
            return 1_000_000
        case "time":
            return 86_400
        case "float4":
            return 2**24
    return 2_000_000_000


def kind_width(kind: Type) -> int:
    """Return the size of a value of a fixed type, or a usual one."""
    return {"bool": 1, "int2": 2, "int4": 4, "float4": 4, "date": 4, "uuid": 16}.get(kind.name, 8)


def _numeric(v: str, modifier: int) -> str:
    if modifier < 4:
        return f"CAST({v} AS numeric)"
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale = scale if scale < 1024 else 0  # a negative scale
    limited = v if precision > 18 else f"{v} % {10**precision}"
    return f"CAST(CAST({limited} AS numeric) / {10**scale} AS numeric({precision}, {scale}))"


def _characters(name: str, modifier: int, width: int) -> int:
    """Return the length of a character type's values. Sizes up to 127 bytes include a header of 1 byte, larger ones of 4."""
    length = max(0, width - (1 if width <= 127 else 4))
    if name == "name":
        return min(63, length)
    return min(length, modifier - 4) if modifier > 4 and name != "bytea" else length


def _text(v: str, length: int, *, is_hash: bool = False) -> str:
    """Return a text of this length that contains the number ``v``, if the length suffices."""
    if is_hash:
        return f"left(repeat({v}, {length // 32 + 1}), {length // 2 * 2})"
    if length <= 0:
        return "''"
    if length <= _NUMBERED_WIDTH:
        return f"lpad(CAST({v} % {10**length} AS text), {length}, '0')"
    rest = length - _NUMBERED_WIDTH
    return f"lpad(CAST({v} AS text), {_NUMBERED_WIDTH}, '0') || left(repeat(md5(CAST({v} AS text)), {rest // 32 + 1}), {rest})"


def _largest_in_text(length: int) -> int:
    return int(max(1, 10 ** min(length, _NUMBERED_WIDTH) - 1))


# ---- generator

_SEQUENCES = """SELECT setval(s.seqrelid, greatest(s.seqmin, least(s.seqmax, {rows}), pg_sequence_last_value(s.seqrelid)))
FROM pg_sequence AS s WHERE s.seqrelid = CAST(pg_get_serial_sequence({table}, {column}) AS regclass) OR s.seqrelid IN (
    SELECT d.refobjid FROM pg_attribute AS a JOIN pg_attrdef AS f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
    JOIN pg_depend AS d ON d.classid = CAST('pg_attrdef' AS regclass) AND d.objid = f.oid AND d.refclassid = CAST('pg_class' AS regclass)
    WHERE a.attrelid = CAST({table} AS regclass) AND a.attname = {column});"""
"""Sets the sequences of a column: of its identity, and of its default. Several tables can use one sequence."""


def generator(shapes: Shapes) -> tuple[str, list[str]]:
    """Return the SQL that fills the tables, and a list of what it cannot reproduce. Constraints of keys must not exist yet."""
    parts, lost = [], []
    for table in shapes.tables.values():
        if table.partitioning == "some" and table.rows:
            lost.append(f"table {table.quoted()}: not filled, because its partitions accept some values only")
            continue
        parts += [f"ALTER TABLE {table.quoted()} DROP CONSTRAINT IF EXISTS {quoted(name)};" for name in table.checks]
        if table.checks:
            lost.append(f"table {table.quoted()}: check constraints {', '.join(map(quoted, table.checks))} are dropped in the copy")
        if not shapes.rows(table):
            continue
        names, values = [], []
        formulas = shapes.formulas(table)
        refused = None
        for column in table.columns:
            value = formulas[column.name].value(formulas[column.name].ordinal("i"), literal) if column.writable else None
            if value is None:
                if column.writable:
                    lost.append(f"column {table.quoted()}.{quoted(column.name)}: no values of type {column.type.quoted()}")
                    refused = column if column.not_null and not column.has_default else refused
                continue
            names.append(quoted(column.name))
            values.append(_with_nulls(column, value))
        if refused is not None:
            lost.append(f"table {table.quoted()}: not filled, because {quoted(refused.name)} cannot be null")
            continue
        if names:
            parts.append(
                f"INSERT INTO {table.quoted()} ({', '.join(names)}) OVERRIDING SYSTEM VALUE\nSELECT "
                + ",\n    ".join(values)
                + f"\nFROM generate_series(CAST(1 AS int8), {shapes.rows(table)}) AS i;"
            )
        parts += [
            _SEQUENCES.format(table=literal(table.quoted()), column=literal(column.name), rows=shapes.rows(table))
            for column in table.columns
            if column.type.name in (*INTEGERS, "numeric") and column.has_default
        ]
    return "\n".join(parts) + "\n", lost


def _with_nulls(column: SourceColumn, value: str) -> str:
    parts = round(column.null_fraction * _PARTS)
    if column.not_null or parts == 0:
        return value
    if parts == _PARTS:
        return "NULL"
    return f"CASE WHEN {scattered('i', column.number, _PARTS, _NULLS)} < {parts} THEN NULL ELSE {value} END"
