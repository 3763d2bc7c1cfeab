from __future__ import annotations

import re

import pytest

from pgherd.model.load import NEW_ORDER
from pgherd.workloads.orders.transactions import UNKNOWN_ITEM, WEIGHTS, mix, text
from pgherd.workloads.script_parser import command_lines


def test_the_mix_is_the_descriptions() -> None:
    total = sum(WEIGHTS.values())
    share = {name: weight / total for name, weight in WEIGHTS.items()}
    assert share[NEW_ORDER] + share["new-order-rolled-back"] == pytest.approx(0.45)
    assert share["new-order-rolled-back"] / 0.45 == pytest.approx(0.01)
    assert share["payment"] == pytest.approx(0.43)
    assert [share[name] for name in ("order-status", "delivery", "stock-level")] == pytest.approx([0.04] * 3)
    assert {script.name: script.weight for script in mix()} == WEIGHTS


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("ending", ["", "+think"])
def test_variables_are_set_before_they_are_used(name: str, ending: str) -> None:
    script = text(name + ending)
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
    kept, rolled_back = text("new-order"), text("new-order-rolled-back")
    assert kept is not None and rolled_back is not None
    assert "ROLLBACK" not in kept and str(UNKNOWN_ITEM) not in kept
    assert "\nBEGIN;\nSELECT enter_order(" in rolled_back
    assert rolled_back.count("BEGIN;") == rolled_back.count("SELECT enter_order(") == rolled_back.count(";\nROLLBACK;") == 4
    # The last line of an order of any length is the one with the unknown item.
    assert [int(k) for k in re.findall(rf"\\set i(\d+) case when :lines = \1 then {UNKNOWN_ITEM} ", rolled_back)] == list(range(5, 16))


def test_lines_are_sent_only_as_far_as_an_order_may_have_them() -> None:
    short, long = branches(text("new-order") or "", "\\if :lines <= 10")
    assert ":i10]" in short and ":i11" not in short and ":s11" not in short
    assert ":i15]" in long and ":s15]" in long


def test_suppliers_are_sent_only_where_one_is_another_warehouse() -> None:
    script = text("new-order") or ""
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
    assert all("\\set w (:client_id + :base) % :scale + 1" in (text(name) or "") for name in WEIGHTS)


def test_only_waiting_scripts_sleep() -> None:
    assert all("\\sleep" not in (text(name) or "") for name in WEIGHTS)
    assert all((text(f"{name}+think") or "").count("\\sleep") == 2 for name in WEIGHTS)
    assert text("nothing") is None and text("nothing+think") is None
