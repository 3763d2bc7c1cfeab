from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.workloads.orders.workload import NOTICE, ORDERS, RULES, check, digest, parse, size_estimate


def test_the_scale_is_the_number_of_warehouses() -> None:
    filling = ORDERS.filling(LocalNode(), Database(workload="orders", scale=3))
    assert re.fullmatch(r"orders-3-[0-9a-f]{12}", filling.identity)
    assert filling.identity.endswith(digest())
    assert filling.size_estimate == size_estimate(3) == ORDERS.size_estimate(3)


def test_size_estimate_against_a_measured_size() -> None:
    # pg_database_size of 2 warehouses after loading and VACUUM (FREEZE, ANALYZE): PostgreSQL 15.18.
    assert size_estimate(2) == pytest.approx(247_456_259, rel=0.01)


def test_violations_are_sentences() -> None:
    rows = [(number, int(number == 3), "district 1.1") for number in range(1, 13)]
    violations = ORDERS.violations(lambda statement: rows if statement.startswith("WITH") else [])
    assert len(violations) == 1 and violations[0].startswith("condition 3")


def test_reports_say_what_it_is_not() -> None:
    assert "derived" in NOTICE and "not comparable with published TPC results" in NOTICE
    assert (ORDERS.name, ORDERS.read_only) == ("orders", False)


GOOD = [(number, 0, None) for number in range(1, 13)]


def test_twelve_rules() -> None:
    assert len(RULES) == 12
    assert all(condition.holds for condition in parse(GOOD))


@given(st.permutations(GOOD), st.lists(st.integers(0, 5), min_size=12, max_size=12))
def test_order_does_not_matter_and_counts_are_kept(rows: list[tuple[int, int, None]], broken: list[int]) -> None:
    conditions = parse([(number, broken[number - 1], "x") for number, _, _ in rows])
    assert [condition.number for condition in conditions] == list(range(1, 13))
    assert [condition.broken for condition in conditions] == broken
    assert [condition.holds for condition in conditions] == [count == 0 for count in broken]


def test_a_violation_is_a_sentence() -> None:
    condition = parse([*GOOD[:3], (4, 1, "district 1.2: 9 lines, orders say 10"), *GOOD[4:]])[3]
    assert condition.sentence() == (
        "condition 4 (the number of lines of a district is the sum over its orders): 1 row violates it, such as district 1.2: 9 lines, "
        "orders say 10"
    )
    assert "7 rows violate it" in parse([*GOOD[:3], (4, 7, "x"), *GOOD[4:]])[3].sentence()


@pytest.mark.parametrize("rows", [[], GOOD[:11], [*GOOD, (12, 0, None)], [*GOOD[:11], (13, 0, None)]])
def test_what_is_not_the_twelve_conditions_is_refused(rows: list[tuple[int, int, None]]) -> None:
    with pytest.raises(ValueError, match="expected the conditions 1 to 12"):
        parse(rows)


def test_settings_are_put_back_when_it_fails() -> None:
    statements: list[str] = []

    def query(statement: str) -> list[tuple[int, int, None]]:
        statements.append(statement)
        if statement.startswith("WITH"):
            raise RuntimeError("no")
        return []

    with pytest.raises(RuntimeError):
        check(query)
    assert "'off'" in statements[0] and "reset_val" in statements[-1] and len(statements) == 3
