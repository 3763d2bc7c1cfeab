"""Scripts from statements, and the texts that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgherd.capture.columns import Shapes
from pgherd.capture.model import Counters, ForeignKey, Source, SourceColumn, SourceTable, Statement, Type
from pgherd.capture.scripts import TAG, NotReproducible, is_control, make_mix, substitute
from pgherd.capture.source import without_lists

INT = Type("pg_catalog", "int4")
INTS = Type("pg_catalog", "_int4", element=INT)
ACCOUNTS = SourceTable(
    1, "public", "accounts", 1000, (SourceColumn("aid", 1, INT, distinct=-1.0), SourceColumn("n", 2, INT, distinct=100.0)), key=("aid",)
)
HISTORY = SourceTable(2, "public", "history", 10, (SourceColumn("aid", 1, INT, distinct=-1.0),))


def scan(condition: str = "(accounts.aid = $1)") -> dict:
    return {"Node Type": "Index Scan", "Schema": "public", "Relation Name": "accounts", "Alias": "accounts", "Index Cond": condition}


def statement(number: int, text: str, calls: int, rows: float = 1, plan: dict | None = None, parameters: int = 1, **more) -> Statement:
    return Statement(number, text, Counters(calls=calls, rows=round(calls * rows)), (INT,) * parameters, plan or scan(), **more)


def source(*statements: Statement, transactions: int = 0, unread=None) -> Source:
    total = Counters(calls=sum(one.counters.calls for one in statements))
    return Source("app", "18.0", 18, (ACCOUNTS, HISTORY), (), statements, total, unread or (0, Counters()), transactions, 10.0)


def mix(*statements: Statement, **more):
    found = source(*statements, **more)
    return make_mix(found, Shapes(found.tables))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT $2::int, a[$1:b] FROM t -- $1\n/* $2 */", "SELECT (y)::int, a[(x) : b] FROM t"),
        ("SELECT '$1', \"$2\", $tag$ $1 $tag$, $1 ;", "SELECT '$1', \"$2\", $tag$ $1 $tag$, (x)"),
        ("SELECT f(a := $1) FROM x$1", "SELECT f(a := (x)) FROM x$1"),
    ],
)
def test_parameters_are_replaced_outside_of_quotes(text, expected):
    assert substitute(text, ["(x)", "(y)"]) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 1 \n\\! touch /tmp/x", "backslash"),
        ("SELECT E'a\\'", "backslash"),
        ("SELECT 'a\n\\shell x'", "backslash"),
        ('SELECT "a:b" FROM t', "colon"),
        ("SELECT '10:30'", "colon"),
        ("SELECT 1; DROP TABLE t", "several statements"),
        ("SELECT /* a /* b */ */ 1", "nested comment"),
        ("SELECT /* a", "nested comment"),
        ("SELECT $3", "no type"),
    ],
)
def test_a_text_that_pgbench_could_read_as_a_command_is_refused(text, reason):
    with pytest.raises(NotReproducible, match=reason):
        substitute(text, ["(x)", "(y)"])


@pytest.mark.parametrize(
    "text", ["BEGIN", "begin isolation level serializable", "START  TRANSACTION", "COMMIT", "end", "ROLLBACK", "abort work"]
)
def test_transaction_control(text):
    assert is_control(text) and not is_control("SELECT 1")


@pytest.mark.parametrize(
    "text",
    [
        "COMMIT PREPARED $1",
        "ROLLBACK PREPARED 'x'",
        "ROLLBACK TO SAVEPOINT s",
        "rollback  to s",
        "ROLLBACK WORK TO s",
        "abort transaction to s",
    ],
)
def test_a_transaction_goes_on_after_a_savepoint_and_ends_before_its_second_phase(text):
    assert not is_control(text)
    found = mix(statement(1, "SELECT n FROM accounts WHERE aid = $1", 500), Statement(2, text, Counters(calls=50)), transactions=500)
    assert not any("rolled back" in line for line in found.lost)


def test_a_lookup_by_key_draws_a_row():
    (script,) = mix(statement(1, "SELECT n FROM accounts WHERE aid = $1", 500), transactions=500).scripts
    assert script.text.splitlines()[1:] == [
        "\\set s1_1 random(1, 1000)",
        'SELECT /* pgherd 1 */ n FROM accounts WHERE aid = CAST(:s1_1 AS "pg_catalog"."int4");',
    ]
    assert script.weight == 10_000 and script.statements == {1: 1}


def test_half_of_the_lookups_find_no_row():
    (script,) = mix(statement(1, "SELECT n FROM accounts WHERE aid = $1", 500, rows=0.5), transactions=500).scripts
    assert "random(1, 2000)" in script.text


def test_a_range_has_the_rows_of_the_source():
    plan = scan("((accounts.aid >= $1) AND (accounts.aid < $2))")
    (script,) = mix(statement(1, "SELECT n FROM accounts WHERE aid >= $1 AND aid < $2", 500, 20, plan, 2), transactions=500).scripts
    assert script.text.splitlines()[1:4] == ["\\set s1_1 random(1, 981)", "\\set s1_2 :s1_1 + 0", "\\set s1_3 :s1_1 + 20"]


def listed(column: str, rows: float, operator: str = "IN") -> tuple[int, list[str]]:
    """The elements and the losses of a list of PostgreSQL 18, in a statement with this number of rows."""
    text = without_lists(f"SELECT n FROM accounts WHERE {column} {operator} ($1 /*, ... */)")
    shown = {"IN": "= ANY", "NOT IN": "<> ALL"}[operator]
    one = Statement(1, text, Counters(calls=500, rows=round(500 * rows)), (INTS,), scan(f"(accounts.{column} {shown} ($1))"))
    found = mix(one, transactions=500)
    (script,) = found.scripts
    assert f"{shown} (CAST(ARRAY[CAST(" in script.text and script.text.endswith('AS "pg_catalog"."_int4"));\n')
    return script.text.count('AS "pg_catalog"."int4")'), found.lost


def test_a_list_has_as_many_elements_as_select_the_rows():
    assert listed("aid", 50) == (50, [])
    assert listed("n", 20) == (2, []), "a value has 10 rows"
    assert listed("n", 1) == (1, [])


def test_the_elements_that_a_list_lacks_are_named():
    assert listed("aid", 300) == (100, ["statement 1, parameter $1 (_int4): 300 elements; 100 in the copy"])
    assert listed("n", 980, "NOT IN") == (1, ["statement 1, parameter $1 (_int4): number of elements is unknown; 1 in the copy"])


def test_lists_with_one_element_are_named():
    found = mix(statement(1, "SELECT n FROM accounts WHERE aid = $1", 500, shortened=True), transactions=500)
    assert found.lost == ["statement 1 (100.0 % of calls): its lists of constants have one element in the copy"]


def test_a_limit_is_the_number_of_rows():
    (script,) = mix(statement(1, "SELECT n FROM accounts ORDER BY aid LIMIT $1", 500, 10, scan("")), transactions=500).scripts
    assert "\\set s1_1 10" in script.text


def test_weights_are_proportional_to_calls_and_the_rate_counts_transactions():
    found = mix(
        statement(1, "SELECT n FROM accounts WHERE aid = $1", 3000),
        statement(2, "SELECT aid FROM accounts WHERE aid = $1", 1000),
        transactions=4000,
    )
    assert [script.weight for script in found.scripts] == [7500, 2500] and found.rate == 400


def members(*, begin: bool) -> list[Statement]:
    update = {"Node Type": "ModifyTable", "Operation": "Update", "Schema": "public", "Relation Name": "accounts", "Alias": "accounts"}
    insert = {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "history", "Alias": "history"}
    return [
        statement(1, "INSERT INTO history (aid) VALUES ($1)", 1000, plan=insert | {"Plans": [{"Node Type": "Result", "Output": ["$1"]}]}),
        statement(2, "SELECT n FROM accounts WHERE aid = $1", 2000),
        statement(3, "UPDATE accounts SET n = $2 WHERE aid = $1", 1001, plan=update | {"Plans": [scan()]}, parameters=2),
        *([Statement(4, "BEGIN", Counters(calls=1000)), Statement(5, "COMMIT", Counters(calls=1000))] if begin else []),
    ]


@pytest.mark.parametrize("begin", [True, False])
def test_statements_with_the_calls_of_transactions_form_one(begin):
    found = mix(*members(begin=begin), transactions=1000)
    (script,) = found.scripts
    assert script.name == "transaction.sql" and script.statements == {3: 1, 2: 2, 1: 1}
    lines = [line for line in script.text.splitlines() if not line.startswith(("--", "\\set"))]
    assert [TAG.sub(r"\1", line).split()[0] for line in lines] == ["BEGIN;", "3", "2", "2", "1", "END;"]
    row = lines[1].split("aid = ")[1]
    assert lines[2].endswith(row) and not lines[3].endswith(row)  # the first call selects the row that the update changes
    assert any("order is not recorded" in line for line in found.lost)


def test_a_statement_that_is_left_out_does_not_end_its_transaction():
    refused = statement(7, 'SELECT n AS "a:b" FROM accounts WHERE aid = $1', 1000)
    found = mix(*members(begin=True), refused, transactions=1000)
    assert [script.name for script in found.scripts] == ["transaction.sql"]
    assert any(line.startswith("statement 7") and "quoted colon" in line for line in found.lost)


def test_equal_calls_without_transactions_stay_apart():
    found = mix(*members(begin=False), transactions=4000)
    assert len(found.scripts) == 3 and not any("boundaries" in line for line in found.lost)


def test_unclear_transactions_are_named():
    found = mix(
        *members(begin=True)[:1], *members(begin=True)[3:], statement(6, "SELECT n FROM accounts WHERE aid = $1", 650), transactions=300
    )
    assert any(line.startswith("transaction boundaries: the 300 transactions") for line in found.lost) and len(found.scripts) == 2


def test_losses_are_named():
    found = mix(
        statement(1, "SELECT n FROM accounts WHERE aid = $1", 900),
        Statement(2, "VACUUM secret", Counters(calls=50)),
        statement(3, "SELECT $1", 50, error='syntax error at or near "$1"'),
        statement(4, "SELECT n FROM accounts WHERE f($1)", 1, plan=scan("f($1)")),
        Statement(5, "ROLLBACK", Counters(calls=7)),
        statement(6, "SELECT relname FROM pg_class", 5, plan={"Schema": "pg_catalog", "Relation Name": "pg_class"}, parameters=0),
        transactions=1000,
        unread=(3, Counters(calls=10, time_ms=1)),
    )
    told = "\n".join(found.lost)
    assert "statement 2 (4.9 % of calls): utility statement" in told and "secret" not in told
    assert 'statement 3 (4.9 % of calls): the server does not accept its normalized text: syntax error at or near "$1"' in told
    assert "statement 4, parameter $1 (int4): compared with no column" in told
    assert "7 transactions were rolled back" in told and "statement 6 (0.5 % of calls): reads only system catalogs" in told
    assert "3 rare statements: 1.0 % of calls" in told
    assert [script.name for script in found.scripts] == ["statement-001.sql", "statement-004.sql"]


def test_statements_on_foreign_tables_are_left_out():
    remote = {"Schema": "public", "Relation Name": "remote", "Alias": "remote"}
    partitions = {"Node Type": "Append", "Plans": [scan(), {"Node Type": "Foreign Scan", **remote}]}
    found = source(
        statement(1, "SELECT n FROM accounts WHERE aid = $1", 900),
        statement(2, "SELECT n FROM v WHERE aid = $1", 50, plan=partitions),
        statement(3, "SELECT count(*) FROM v", 50, plan={"Node Type": "Foreign Scan", "Output": ["count(*)"]}, parameters=0),
        statement(4, "INSERT INTO remote (n) VALUES ($1)", 50, plan={"Node Type": "ModifyTable", "Operation": "Insert", **remote}),
        transactions=1050,
    )
    made = make_mix(replace(found, foreign=(("public", "remote"),)), Shapes(found.tables))
    assert [script.name for script in made.scripts] == ["statement-001.sql"]
    assert [line for line in made.lost if line.startswith("statement")] == [
        f"statement {number} (4.8 % of calls): uses a foreign table" for number in (2, 3, 4)
    ]


def test_an_insert_draws_new_unique_values_but_no_new_references():
    plan = {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "profile", "Alias": "profile"}
    plan["Plans"] = [{"Node Type": "Result", "Output": ["$1", "$2"]}]
    columns = (SourceColumn("aid", 1, INT, distinct=-1.0), SourceColumn("code", 2, INT, distinct=-1.0))
    keys = {"uniques": (("aid",), ("code",)), "foreign_keys": (ForeignKey(("aid",), 1, ("aid",)),)}
    found = source(statement(1, "INSERT INTO profile (aid, code) VALUES ($1, $2)", 100, plan=plan, parameters=2), transactions=100)
    found = replace(found, tables=(ACCOUNTS, SourceTable(3, "public", "profile", 500, columns, **keys)))
    (script,) = make_mix(found, Shapes(found.tables)).scripts
    assert "\\set s1_1 random(1, 500)" in script.text and "random(501, 2147483647)" in script.text


@pytest.mark.parametrize(
    ("column", "kind", "largest", "lost"),
    [
        (SourceColumn("id", 1, Type("pg_catalog", "int8")), Type("pg_catalog", "int8"), 2**62, []),
        (SourceColumn("id", 1, Type("pg_catalog", "int8")), INT, 2**31 - 1, []),
        (SourceColumn("id", 1, Type("pg_catalog", "uuid")), Type("pg_catalog", "uuid"), 2**62, []),
        (SourceColumn("id", 1, Type("pg_catalog", "numeric"), (8 << 16) + 4), Type("pg_catalog", "numeric"), 10**8 - 1, []),
        (SourceColumn("id", 1, Type("pg_catalog", "text"), width=40), Type("pg_catalog", "text"), 10**12 - 1, []),
        (
            SourceColumn("id", 1, Type("pg_catalog", "text"), width=5),
            Type("pg_catalog", "text"),
            9999,
            [
                "statement 1, parameter $1 (text): new random values of a unique column; 19 duplicates in 60 s are expected, and each "
                "ends a client of pgbench"
            ],
        ),
        (
            SourceColumn("id", 1, Type("pg_catalog", "float4")),
            Type("pg_catalog", "float4"),
            2**24,
            [
                "statement 1, parameter $1 (float4): new random values of a unique column; 0.011 duplicates in 60 s are expected, and each "
                "ends a client of pgbench"
            ],
        ),
    ],
)
def test_new_keys_hardly_collide_or_their_collisions_are_predicted(column, kind, largest, lost):
    plan = {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "t", "Alias": "t"}
    plan["Plans"] = [{"Node Type": "Result", "Output": ["$1"]}]
    one = Statement(1, "INSERT INTO t (id) VALUES ($1)", Counters(calls=100, rows=100), (kind,), plan)
    found = replace(source(one, transactions=100), tables=(SourceTable(3, "public", "t", 500, (column,), key=("id",)),))
    made = make_mix(found, Shapes(found.tables))
    assert f"\\set s1_1 random(501, {largest})\n" in made.scripts[0].text and made.lost == lost


@pytest.mark.parametrize(
    ("kind", "rows", "draw", "number"),
    [
        ("text", 500, "random(501, 9999)", "1,800,000"),  # width 5
        ("int2", 100_000, "random(1, 32767)", "1,800,000"),
        ("bool", 2, "random(1, 2)", "1,800,000"),
    ],
)
def test_no_more_duplicates_than_inserts_are_predicted(kind, rows, draw, number):
    plan = {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "t", "Alias": "t"}
    plan["Plans"] = [{"Node Type": "Result", "Output": ["$1"]}]
    column = SourceColumn("id", 1, Type("pg_catalog", kind), width=5)
    one = Statement(1, "INSERT INTO t (id) VALUES ($1)", Counters(calls=300_000, rows=300_000), (column.type,), plan)
    found = replace(source(one, transactions=300_000), tables=(SourceTable(3, "public", "t", rows, (column,), key=("id",)),))
    made = make_mix(found, Shapes(found.tables))
    assert f" {draw}\n" in made.scripts[0].text and f"; {number} duplicates in 60 s" in made.lost[0], made


def test_a_group_takes_the_values_of_all_groups_if_the_type_has_no_more():
    """Each of 1000 groups has one of two values: an insert is a duplicate with a probability of a half."""
    plan = {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "t", "Alias": "t"}
    plan["Plans"] = [{"Node Type": "Result", "Output": ["$1", "$2"]}]
    columns = (SourceColumn("a", 1, INT, distinct=1000.0), SourceColumn("b", 2, Type("pg_catalog", "bool")))
    one = Statement(1, "INSERT INTO t (a, b) VALUES ($1, $2)", Counters(calls=2, rows=2), (INT, columns[1].type), plan)
    found = replace(source(one, transactions=2), tables=(SourceTable(3, "public", "t", 1000, columns, key=("a", "b")),))
    made = make_mix(found, Shapes(found.tables))
    assert " random(1, 2)\n" in made.scripts[0].text and "; 6 duplicates in 60 s" in made.lost[0], "12 rows"


def test_new_values_collide_only_within_their_group():
    plan = {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "t", "Alias": "t"}
    plan["Plans"] = [{"Node Type": "Result", "Output": ["$1", "$2"]}]
    columns = (SourceColumn("a", 1, INT, distinct=100.0), SourceColumn("b", 2, INT))
    one = Statement(1, "INSERT INTO t (a, b) VALUES ($1, $2)", Counters(calls=10_000, rows=10_000), (INT, INT), plan)
    found = replace(source(one, transactions=10_000), tables=(SourceTable(3, "public", "t", 500, columns, key=("a", "b")),))
    assert make_mix(found, Shapes(found.tables)).lost == [], "0.84 duplicates in 60 s without groups"


@pytest.mark.parametrize(
    ("schemas", "expected"), [((), ""), (("public",), ""), (("app", "public"), '"app", "public"'), (('a"b',), '"a""b"')]
)
def test_a_search_path_other_than_the_default_is_kept(schemas, expected):
    assert replace(source(), schemas=schemas).search_path == expected


def test_observed_constants_replace_unknown_parameters():
    one = statement(1, "SELECT n FROM accounts WHERE f($1)", 10, plan=scan("f($1)"), observed={1: ("it's :x", "b")})
    (script,) = mix(one, transactions=10).scripts
    assert b"it's :x".hex() in script.text and ":x" not in script.text and "random(1, 2)" in script.text
