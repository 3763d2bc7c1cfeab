"""Ordinals of rows, evaluated as SQL and pgbench do: integers, with a division that truncates."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.capture.columns import Shapes, generator, largest_ordinal, render, text_literal
from pgherd.capture.model import ForeignKey, SourceColumn, SourceTable, Type, literal

INT = Type("pg_catalog", "int4")
TEXT = Type("pg_catalog", "text")


def column(number: int, name: str, kind: Type = INT, **statistics) -> SourceColumn:
    return SourceColumn(name=name, number=number, type=kind, **statistics)


def table(oid: int, name: str, rows: int, columns: tuple[SourceColumn, ...], **keys) -> SourceTable:
    return SourceTable(oid=oid, schema="public", name=name, rows=rows, columns=columns, **keys)


def evaluate(expression: str, row: int) -> int:
    """The value of an expression without CASE. All operands are positive, so // truncates."""
    return int(eval(re.sub(r"\bi\b", str(row), expression).replace("/", "//")))


def rows_of(shapes: Shapes, of: SourceTable, *names: str) -> list[tuple[int, ...]]:
    formulas = shapes.formulas(of)
    return [tuple(evaluate(formulas[name].ordinal("i"), row) for name in names) for row in range(1, shapes.rows(of) + 1)]


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 40))
def test_a_composite_key_is_unique_and_has_its_distinct_values(rows, first, second):
    columns = (column(1, "a", distinct=float(first)), column(2, "b", distinct=float(second)), column(3, "c"))
    one = table(1, "t", rows, columns, key=("a", "b", "c"))
    found = rows_of(Shapes([one]), one, "a", "b", "c")
    assert len(set(found)) == rows
    assert {a for a, _, _ in found} == set(range(1, min(first, rows) + 1))
    assert all(b in range(1, second + 1) and c >= 1 for _, b, c in found)


@given(st.integers(2, 500))
def test_a_shuffled_key_is_a_permutation(rows):
    one = table(1, "t", rows, (column(1, "a", correlation=0.01, distinct=-1.0),), key=("a",))
    assert sorted(rows_of(Shapes([one]), one, "a")) == [(n,) for n in range(1, rows + 1)]


@given(st.integers(1, 200), st.integers(1, 50))
def test_a_foreign_key_refers_to_a_row(rows, parents):
    parent = table(1, "p", parents, (column(1, "id", distinct=-1.0, correlation=0.0),), key=("id",))
    reference = ForeignKey(("p_id",), 1, ("id",))
    child = table(2, "c", rows, (column(1, "id"), column(2, "p_id", distinct=-1.0)), key=("id",), foreign_keys=(reference,))
    shapes = Shapes([child, parent])
    assert set(rows_of(shapes, child, "p_id")) <= set(rows_of(shapes, parent, "id"))


@given(st.integers(1, 100), st.integers(0, 50))
def test_a_unique_foreign_key_refers_to_no_row_twice(rows, more):
    parent = table(1, "p", rows + more, (column(1, "id", distinct=-1.0, correlation=0.0),), key=("id",))
    reference = ForeignKey(("p_id",), 1, ("id",))
    columns = (column(1, "id"), column(2, "p_id", distinct=-1.0))
    child = table(2, "c", rows, columns, key=("id",), foreign_keys=(reference,), uniques=(("p_id",),))
    shapes = Shapes([child, parent])
    found = rows_of(shapes, child, "p_id")
    assert len(set(found)) == rows and set(found) <= set(rows_of(shapes, parent, "id"))


def test_lines_follow_their_orders_without_a_foreign_key():
    orders = table(1, "orders", 30, (column(1, "w", distinct=2.0), column(2, "o", distinct=15.0)), key=("w", "o"))
    # The estimate of 16 orders is one too many.
    lines = table(
        2, "lines", 90, (column(1, "w", distinct=2.0), column(2, "o", distinct=15.4), column(3, "n", distinct=3.0)), key=("w", "o", "n")
    )
    shapes = Shapes([lines, orders])
    assert {line[:2] for line in rows_of(shapes, lines, "w", "o", "n")} == set(rows_of(shapes, orders, "w", "o"))


def test_a_table_refers_to_itself_and_tables_to_each_other():
    self_reference = ForeignKey(("parent",), 1, ("id",))
    one = table(1, "tree", 50, (column(1, "id"), column(2, "parent")), key=("id",), foreign_keys=(self_reference,))
    assert all(1 <= parent <= 50 for (parent,) in rows_of(Shapes([one]), one, "parent"))
    a = table(1, "a", 5, (column(1, "id"),), key=("id",), foreign_keys=(ForeignKey(("id",), 2, ("id",)),))
    b = table(2, "b", 5, (column(1, "id"),), key=("id",), foreign_keys=(ForeignKey(("id",), 1, ("id",)),))
    assert len(Shapes([a, b]).formulas(a)) == 1


def test_a_counter_follows_the_largest_number_of_its_rows():
    districts = table(1, "district", 10, (column(1, "d", distinct=-1.0), column(2, "next", distinct=1.0)), key=("d",))
    orders = table(2, "orders", 30_000, (column(1, "d", distinct=10.0), column(2, "o")), key=("d", "o"))
    shapes = Shapes([districts, orders], {"next"})
    largest = max(o for _, o in rows_of(shapes, orders, "d", "o"))
    assert largest == 3000
    assert all(largest < value <= largest + 2 for (value,) in rows_of(shapes, districts, "next"))


def test_a_correlated_column_rises_with_the_rows():
    one = table(1, "t", 100, (column(1, "a", distinct=10.0, correlation=1.0), column(2, "b", distinct=10.0, correlation=-1.0)))
    found = rows_of(Shapes([one]), one, "a", "b")
    assert [a for a, _ in found] == sorted(a for a, _ in found) and [b for _, b in found] == sorted((b for _, b in found), reverse=True)
    assert len({a for a, _ in found}) == len({b for _, b in found}) == 10


def test_scattered_columns_are_uniform_and_independent():
    one = table(1, "t", 4000, (column(1, "a", distinct=4.0), column(2, "b", distinct=4.0)))
    found = rows_of(Shapes([one]), one, "a", "b")
    counts = [found.count(pair) for pair in set(found)]
    assert len(counts) == 16 and min(counts) > 150 and max(counts) < 350  # 250 expected


def test_the_type_decides_how_a_value_is_rendered():
    assert "numeric(6, 2)" in (render(Type("pg_catalog", "numeric"), "7", (6 << 16 | 2) + 4) or "")
    assert render(Type("extensions", "geometry"), "7") is None
    hostile = Type('a"b', "c'; DROP TABLE t; --", enum=True)
    assert '"a""b"."c\'; DROP TABLE t; --"' in (render(hostile, "7") or "")


@pytest.mark.parametrize("text", ["'; \\! touch x", ":name", "a\nb", "\u00e9\U0001f600", ""])
def test_a_text_in_a_script_has_no_part_of_it(text):
    quoted = text_literal(text)
    assert re.fullmatch(r"convert_from\(decode\('[0-9a-f]*', 'hex'\), 'UTF8'\)", quoted)
    assert bytes.fromhex(quoted.split("'")[1]).decode() == text


def test_the_generator_quotes_names_and_lists_what_is_lost():
    name = 't"; DROP TABLE x; --'
    columns = (column(1, "a\n\\! touch y"), column(2, "shape", Type("pg_catalog", "point"), not_null=True))
    kept = table(1, name, 3, columns[:1], checks=("c'",))
    refused = table(2, "u", 3, columns)
    parts = table(3, "parts", 9, columns[:1], partitioning="some")
    text, lost = generator(Shapes([kept, refused, parts]))
    assert 'INSERT INTO "public"."t""; DROP TABLE x; --" ("a\n\\! touch y")' in text
    assert 'DROP CONSTRAINT IF EXISTS "c\'"' in text
    assert '"u"' not in text and '"parts"' not in text
    assert [line.split(":")[0] for line in lost] == [
        'table "public"."t""; DROP TABLE x; --"',
        'column "public"."u"."shape"',
        'table "public"."u"',
        'table "public"."parts"',
    ]


@pytest.mark.parametrize(
    ("kind", "width", "largest"),
    [
        (Type("pg_catalog", "bool"), 1, 2),
        (Type("pg_catalog", "time"), 8, 86_400),
        (Type("pg_catalog", "float4"), 4, 2**24),
        (Type("pg_catalog", "date"), 4, 1_000_000),
        (Type("app", "kind", enum=True), 4, 3),
        (Type("pg_catalog", "jsonb"), 19, 999),
        (Type("pg_catalog", "bytea"), 3, 2**16),
        (Type("pg_catalog", "text"), 1, 1),
        (Type("pg_catalog", "_int2", element=Type("pg_catalog", "int2")), 30, 2**15 - 1),
    ],
)
def test_the_largest_ordinal_is_that_of_the_type(kind, width, largest):
    assert largest_ordinal(column(1, "a", kind, width=width, distinct=3.0), 10) == largest


def test_sequences_follow_the_rows_of_their_tables():
    columns = (column(1, "id", has_default=True), column(2, "n", Type("pg_catalog", "numeric"), has_default=True), column(3, "x"))
    text, _ = generator(Shapes([table(1, "t", 7, columns), table(2, "empty", 0, columns)]))
    names = re.findall(r"least\(s\.seqmax, 7\).*?pg_get_serial_sequence\((.*?)\).*?pg_attrdef.*?a\.attname = (.*?)\);", text, re.DOTALL)
    assert names == [("'\"public\".\"t\"', 'id'", "'id'"), ("'\"public\".\"t\"', 'n'", "'n'")]
    assert text.count("setval") == 2


def test_common_values_have_their_frequencies():
    one = table(1, "t", 10, (column(1, "a", TEXT, distinct=5.0, common=(("it's", 0.5), ("b", 0.25))),))
    text, _ = generator(Shapes([one]))
    assert literal("it's") in text and "< 500000 then 1" in text and "< 750000 then 2" in text
