"""Uses of parameters in generic plans as PostgreSQL 15 and 18 print them."""

from __future__ import annotations

import pytest

from pgherd.capture.model import Counters, Function, SourceColumn, SourceTable, Statement, Type
from pgherd.capture.plans import Use, counters, modified, parameter_uses, relations_of

INT = Type("pg_catalog", "int4")


def table(oid: int, name: str, *columns: str) -> SourceTable:
    return SourceTable(
        oid, "public", name, 100, tuple(SourceColumn(name=column, number=k, type=INT) for k, column in enumerate(columns, 1))
    )


ACCOUNTS = table(1, "accounts", "aid", "bid", "balance")
HOSTILE = table(2, 'odd "name', 'a"b', "c d")
LINES = table(3, "order_line", "ol_i_id", "ol_quantity")
TABLES = (ACCOUNTS, HOSTILE, LINES)


def scan(condition: str, name: str = "accounts", key: str = "Index Cond") -> dict:
    return {"Node Type": "Index Scan", "Schema": "public", "Relation Name": name, "Alias": name, key: condition}


def uses(text: str, plan: dict, functions: tuple[Function, ...] = ()) -> dict[int, tuple[str, str]]:
    found = parameter_uses(Statement(1, text, Counters(), (INT,) * 9, plan), TABLES, functions)
    return {number: (use.operator, use.column) for number, use in found.items()}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("(accounts.aid = $1)", {1: ("=", "aid")}),
        ("($1 < accounts.aid)", {1: (">", "aid")}),
        ("((accounts.aid >= $1) AND (accounts.aid <= $2))", {1: (">=", "aid"), 2: ("<=", "aid")}),
        ("((accounts.bid)::text = ($2)::text)", {2: ("=", "bid")}),
        ("(accounts.aid = ANY ($1))", {1: ("any", "aid")}),
        ("(accounts.aid = ANY (ARRAY[$1, $2, $3]))", {1: ("in", "aid"), 2: ("in", "aid"), 3: ("in", "aid")}),
        ("((accounts.bid)::text ~~ ($1)::text)", {1: ("~~", "bid")}),
        ("(accounts.none = $1)", {}),
        ("(other.aid = $1)", {}),
    ],
)
def test_a_condition_names_the_column(condition, expected):
    assert uses("SELECT", scan(condition)) == expected
    assert uses("SELECT", {"Node Type": "Limit", "Plans": [scan(condition, key="Filter")]}) == expected


def test_quoted_names_are_resolved():
    plan = scan('("odd ""name"."a""b" = $1)', 'odd "name')
    assert uses("SELECT", plan) == {1: ("=", 'a"b')}


def test_an_insert_maps_parameters_by_position():
    plan = {
        "Node Type": "ModifyTable", "Operation": "Insert", "Schema": "public", "Relation Name": "accounts", "Alias": "accounts",
        "Plans": [{"Node Type": "Result", "Output": ["$2", "NULL::integer", "($1)::integer"]}],
    }  # fmt: skip
    assert uses("INSERT", plan) == {2: ("insert", "aid"), 1: ("insert", "balance")}
    assert modified(plan) == {"Insert"} and relations_of(plan) == {("public", "accounts")}
    plan["Plans"] = [{"Node Type": "Values Scan", "Output": ['"*VALUES*".column1']}]
    text = "INSERT INTO accounts (aid, BID) VALUES ($1, $2), ($3, $4)"
    assert uses(text, plan) == {1: ("insert", "aid"), 2: ("insert", "bid"), 3: ("insert", "aid"), 4: ("insert", "bid")}


def test_an_update_assigns_and_selects():
    plan = {
        "Node Type": "ModifyTable", "Operation": "Update", "Schema": "public", "Relation Name": "accounts", "Alias": "accounts",
        "Plans": [scan("(accounts.aid = $2)")],
    }  # fmt: skip
    assert uses("UPDATE accounts SET bid = $1, balance = balance + $3 WHERE aid = $2", plan) == {2: ("=", "aid"), 1: ("update", "bid")}


def test_limit_and_offset():
    assert uses("SELECT aid FROM accounts LIMIT $1 OFFSET $2", scan("")) == {1: ("limit", ""), 2: ("offset", "")}


def test_results_of_subplans_are_no_parameters():
    # Before PostgreSQL 17 the result of an InitPlan is printed like a parameter.
    sub = {"Node Type": "Result", "Parent Relationship": "InitPlan", "Subplan Name": "InitPlan 1 (returns $1)"}
    plan = scan("((accounts.aid = $1) AND (accounts.bid = $2))") | {"Plans": [sub]}
    assert uses("SELECT", plan) == {2: ("=", "bid")}


BODY = """BEGIN
    UPDATE accounts SET balance = balance + 1 WHERE aid = who;
    INSERT INTO order_line (ol_i_id, ol_quantity) SELECT item, many FROM unnest(items[1:n]) WITH ORDINALITY AS asked (item, k)
    WHERE ol_i_id = item;
    INSERT INTO accounts (aid, bid) VALUES (who, branch);
END"""


def test_arguments_of_functions_have_the_columns_of_the_body():
    function = Function("pay", ("who", "branch", "items", "nothing"), BODY)
    found = parameter_uses(
        Statement(1, "SELECT pay($1, $2, ARRAY[$3, $4]::integer[], $5)", Counters(), (INT,) * 5, {"Node Type": "Result"}),
        TABLES,
        (function,),
    )
    assert found[1].column == "aid" and found[2].column == "bid"
    assert found[3] == found[4] == Use("in", 3, "ol_i_id", found[3].alias)
    assert 5 not in found
    assert counters((function,)) == {"balance"}


@pytest.mark.parametrize("text", ["SELECT pay($1 / $2)", "SELECT pay(other($1))", "SELECT pay(", "SELECT repay($1)"])
def test_a_computed_argument_has_no_column(text):
    assert uses(text, {"Node Type": "Result"}, (Function("pay", ("who",), BODY),)) == {}


def test_a_statement_without_a_plan_has_no_uses():
    assert parameter_uses(Statement(1, "COPY t FROM STDIN", Counters()), TABLES, ()) == {}
