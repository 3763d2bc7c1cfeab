from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.workloads.orders.consistency import RULES, check, parse

GOOD = [(number, 0, None) for number in range(1, 13)]


def test_twelve_rules() -> None:
    assert len(RULES) == 12
    assert all(condition.holds for condition in parse(GOOD))


@given(st.permutations(GOOD), st.lists(st.integers(0, 5), min_size=12, max_size=12))
def test_order_does_not_matter_and_counts_are_kept(rows: list[tuple[int, int, None]], broken: list[int]) -> None:
    found = parse([(number, broken[number - 1], "x") for number, _, _ in rows])
    assert [condition.number for condition in found] == list(range(1, 13))
    assert [condition.broken for condition in found] == broken
    assert [condition.holds for condition in found] == [count == 0 for count in broken]


def test_a_violation_is_a_sentence() -> None:
    found = parse([*GOOD[:3], (4, 1, "district 1.2: 9 lines, orders say 10"), *GOOD[4:]])[3]
    assert found.sentence() == (
        "condition 4 (a district's orders have as many lines as they say, in all): 1 row breaks it, such as district 1.2: 9 lines, "
        "orders say 10"
    )
    assert "7 rows break it" in parse([*GOOD[:3], (4, 7, "x"), *GOOD[4:]])[3].sentence()


@pytest.mark.parametrize("rows", [[], GOOD[:11], [*GOOD, (12, 0, None)], [*GOOD[:11], (13, 0, None)]])
def test_what_is_not_the_twelve_conditions_is_refused(rows: list[tuple[int, int, None]]) -> None:
    with pytest.raises(ValueError, match="conditions 1 to 12 were to be checked"):
        parse(rows)


def test_settings_are_put_back_when_it_fails() -> None:
    asked: list[str] = []

    def query(statement: str) -> list[tuple[int, int, None]]:
        asked.append(statement)
        if statement.startswith("WITH"):
            raise RuntimeError("no")
        return []

    with pytest.raises(RuntimeError):
        check(query)
    assert "'off'" in asked[0] and "reset_val" in asked[-1] and len(asked) == 3
