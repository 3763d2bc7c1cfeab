from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.deployment import Database
from pgherd.model.load import NEW_ORDER
from pgherd.node.local import LocalNode
from pgherd.workloads.orders.workload import (
    NOTICE,
    ORDERS,
    RULES,
    UNKNOWN_ITEM,
    WEIGHTS,
    check,
    digest,
    parse,
    script_mix,
    script_text,
    size_estimate,
)
from pgherd.workloads.script_parser import command_lines

# ---- transactions


def test_the_mix_is_the_descriptions() -> None:
    total = sum(WEIGHTS.values())
    share = {name: weight / total for name, weight in WEIGHTS.items()}
    assert share[NEW_ORDER] + share["new-order-rolled-back"] == pytest.approx(0.45)
    assert share["new-order-rolled-back"] / 0.45 == pytest.approx(0.01)
    assert share["payment"] == pytest.approx(0.43)
    assert [share[name] for name in ("order-status", "delivery", "stock-level")] == pytest.approx([0.04] * 3)
    assert {script.name: script.weight for script in script_mix()} == WEIGHTS


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("ending", ["", "+think"])
def test_variables_are_set_before_they_are_used(name: str, ending: str) -> None:
    script = script_text(name + ending)
    assert script is not None
    known = {"client_id", "scale", "base"} | ({"think"} if ending else set())
    for line in script.splitlines():
        used = set(re.findall(r"(?<!:):([a-z_][a-z_0-9]*)", line.split("--")[0]))
        assert used <= known, (line, used - known)
        if line.startswith("\\set "):
            known.add(line.split()[1])
    assert len(command_lines(script)) == len(script.splitlines()) - 1


def branches(script: str, condition: str) -> tuple[str, str]:
    """Return the lines of the two branches of a condition."""
    depth, parts = 1, [""]
    for line in script.split(f"{condition}\n", 1)[1].splitlines():
        depth += line.startswith("\\if") - line.startswith("\\endif")
        if not depth:
            return parts[0], parts[1]
        if depth == 1 and line == "\\else":
            parts.append("")
        else:
            parts[-1] += f"{line}\n"
    raise AssertionError(f"{condition} has no end")


def test_only_what_is_to_be_rolled_back_is() -> None:
    kept, rolled_back = script_text("new-order"), script_text("new-order-rolled-back")
    assert kept is not None and rolled_back is not None
    assert "ROLLBACK" not in kept and str(UNKNOWN_ITEM) not in kept
    assert "\nBEGIN;\nSELECT enter_order(" in rolled_back
    assert rolled_back.count("BEGIN;") == rolled_back.count("SELECT enter_order(") == rolled_back.count(";\nROLLBACK;") == 4
    # The last line of an order of any length is the one with the unknown item.
    assert [int(k) for k in re.findall(rf"\\set i(\d+) case when :lines = \1 then {UNKNOWN_ITEM} ", rolled_back)] == list(range(5, 16))


def test_lines_are_sent_only_as_far_as_an_order_may_have_them() -> None:
    short, long = branches(script_text("new-order") or "", "\\if :lines <= 10")
    assert ":i10]" in short and ":i11" not in short and ":s11" not in short
    assert ":i15]" in long and ":s15]" in long


def test_suppliers_are_sent_only_where_one_is_another_warehouse() -> None:
    script = script_text("new-order") or ""
    assert script.count("\\if :home >= :lines\n") == 2
    for part in branches(script, "\\if :lines <= 10"):
        home, other = branches(part, "\\if :home >= :lines")
        assert "\\set s1 " not in home and "array_fill(:w::integer, '{15}')" in home
        assert "\\set s1 " in other and "ARRAY[:s1, " in other
    # The expression itself, as pgbench would evaluate it: the chance that an order of ten lines has none is 0.99^10.
    import math

    shares = [sum(math.log(n / 1000) / math.log(0.99) >= k for n in range(1, 1001)) / 1000 for k in (1, 5, 10)]
    assert shares == pytest.approx([0.99, 0.99**5, 0.99**10], abs=0.001)


def test_clients_have_a_home_warehouse() -> None:
    assert all("\\set w (:client_id + :base) % :scale + 1" in (script_text(name) or "") for name in WEIGHTS)


def test_only_waiting_scripts_sleep() -> None:
    assert all("\\sleep" not in (script_text(name) or "") for name in WEIGHTS)
    assert all((script_text(f"{name}+think") or "").count("\\sleep") == 2 for name in WEIGHTS)
    assert script_text("nothing") is None and script_text("nothing+think") is None


# ---- loader and consistency conditions


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
