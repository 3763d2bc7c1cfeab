from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pgherd.workloads.orders import rows
from pgherd.workloads.orders.loading import shipped, statements
from pgherd.workloads.orders.rows import C_NAME, C_NAME_LOAD, CUSTOMER, NAMES_BY_NUMBER, Population, draw_load_name, nurand

POPULATION = Population(seed=3, instant=10**15)


def column(blocks: Any, name: str) -> np.ndarray[Any, Any]:
    return np.concatenate([block.block[name] for block in blocks if name in block.block.dtype.names])


def units(blocks: Any, name: str) -> np.ndarray[Any, Any]:
    """A decimal column in units of 10^-4."""
    blocks = list(blocks)
    parts = {part: column(blocks, f"{name}.{part}").astype(np.int64) for part in ("high", "low", "fraction", "sign")}
    value = (parts["high"] * 10_000 + parts["low"]) * 10_000 + parts["fraction"]
    return np.where(parts["sign"] == 0x4000, -value, value)


def test_counts_of_the_description() -> None:
    """Clause 4.3.3.1: rows of each table for a warehouse."""
    counts = {
        name: sum(len(block.block) for block in make)
        for name, make in (
            ("warehouse", POPULATION.warehouse(1)),
            ("district", POPULATION.districts(1)),
            ("customer", POPULATION.customers(1)),
            ("history", POPULATION.history(1)),
            ("new_order", POPULATION.new_orders(1)),
            ("orders", POPULATION.orders(1)),
            ("item", POPULATION.items()),
            ("stock", POPULATION.stock(1)),
        )
    }
    assert counts == {
        "warehouse": 1, "district": 10, "customer": 30_000, "history": 30_000, "new_order": 9_000, "orders": 30_000,
        "item": 100_000, "stock": 100_000,
    }  # fmt: skip


def test_orders_and_their_lines_agree() -> None:
    orders, lines = list(POPULATION.orders(2)), list(POPULATION.order_lines(2))
    line_counts = column(orders, "o_ol_cnt")
    assert line_counts.min() == 5 and line_counts.max() == 15
    assert int(line_counts.sum()) == len(column(lines, "ol_number"))
    keys = (column(lines, "ol_d_id").astype(int) * 10_000 + column(lines, "ol_o_id")).astype(int)
    per_order = np.bincount(keys)
    expected = column(orders, "o_d_id").astype(int) * 10_000 + column(orders, "o_id")
    assert (per_order[expected] == line_counts).all()
    for key in (expected[0], expected[-1]):
        assert sorted(column(lines, "ol_number")[keys == key]) == list(range(1, per_order[key] + 1))


@pytest.mark.parametrize("make", [POPULATION.orders, POPULATION.order_lines, POPULATION.customers, POPULATION.stock, POPULATION.history])
def test_all_blocks_bring_the_same_columns(make: Any) -> None:
    """Each warehouse's rows of a table are one COPY: since PostgreSQL 16 each ends with pages that nothing is written to."""
    assert len({tuple(block.layout.names) for block in make(1)}) == 1


def test_delivered_orders_have_a_carrier_and_a_date_and_cost_nothing() -> None:
    for delivered, block in ((True, next(POPULATION.orders(1))), (False, list(POPULATION.orders(1))[1])):
        assert (block.block["o_id"] <= 2100).all() == delivered
        assert (block.block["o_carrier_id.length"] == (4 if delivered else -1)).all()
    lines = list(POPULATION.order_lines(1))
    for block in lines:
        delivered = bool((block.block["ol_o_id"] <= 2100).all())
        assert (block.block["ol_delivery_d.length"] == (8 if delivered else -1)).all()
        amounts = units([block], "ol_amount")
        assert (amounts == 0).all() if delivered else (amounts >= 100).all() and (amounts <= 99_999_900).all()


def test_every_customer_has_one_order_in_random_order() -> None:
    orders = list(POPULATION.orders(1))
    customers = column(orders, "o_c_id").reshape(10, 3000)
    assert all(sorted(district) == list(range(1, 3001)) for district in customers)
    assert (customers[0] != np.arange(1, 3001)).sum() > 2900


def test_customers_names() -> None:
    """Fixed-size rows whose border between last and first name moves: the first thousand have each name once."""

    block = next(POPULATION.customers(1)).block
    raw = block.view("u1").reshape(len(block), -1)
    last, first = [], []
    for size in block["c_last.length"]:
        row = raw[len(last)].view(CUSTOMER[int(size)].dtype())[0]
        assert row["c_first.length"] == 24 - size
        last.append(bytes(row["c_last"]).decode())
        first.append(bytes(row["c_first"]).decode())
        assert row["c_credit"] in (b"GC", b"BC")
    assert last[:1000] == list(NAMES_BY_NUMBER)
    assert set(last) == set(NAMES_BY_NUMBER)
    assert {len(name) for name in first} == {24 - len(name) for name in NAMES_BY_NUMBER}
    assert all(name.isalpha() for name in first)


def test_balances_and_takings_of_a_fresh_database() -> None:
    customers = list(POPULATION.customers(1))
    assert units(POPULATION.warehouse(1), "w_ytd").tolist() == [3_000_000_000]
    assert units(POPULATION.districts(1), "d_ytd").tolist() == [300_000_000] * 10
    assert units(customers, "c_discount").max() <= 5_000
    assert 0.08 < (column(customers, "c_credit") == b"BC").mean() < 0.12


@pytest.mark.parametrize(("make", "name"), [("items", "i_data"), ("stock", "s_data")])
def test_a_tenth_is_original(make: str, name: str) -> None:
    blocks = list(POPULATION.items() if make == "items" else POPULATION.stock(1))
    data = column(blocks, name)
    places = np.char.find(data, b"ORIGINAL")
    assert 0.09 < (places >= 0).mean() < 0.11
    assert places.max() == 30 and (places == 0).any()


def test_the_same_seed_gives_the_same_rows_and_another_warehouse_others() -> None:
    again = Population(seed=3, instant=10**15)
    assert bytes(next(POPULATION.stock(1)).data()) == bytes(next(again.stock(1)).data())
    assert bytes(next(POPULATION.stock(1)).data()) != bytes(next(POPULATION.stock(2)).data())
    other = Population(seed=4, instant=10**15)
    assert (column(POPULATION.stock(1), "s_quantity") != column(other.stock(1), "s_quantity")).any()


def test_layouts_have_the_tables_columns() -> None:
    layouts = {
        "warehouse": rows.WAREHOUSE, "district": rows.DISTRICT, "history": rows.HISTORY, "new_order": rows.NEW_ORDER, "item": rows.ITEM,
        "stock": rows.STOCK, "orders": rows.ORDERS[True], "order_line": rows.ORDER_LINE[False], "customer": CUSTOMER[12],
    }  # fmt: skip
    for table, table_statements in statements(shipped("schema.sql")).items():
        columns = [line.split()[0] for line in table_statements[0].splitlines()[1:] if line.startswith("    ")]
        columns = [column for column in columns if column != "--"]
        brought = {*layouts[table].names}
        defaults = {*rows.CONSTANTS.get(table, ()), *rows.HOMES.get(table, ()), *([rows.DATES[table]] if table in rows.DATES else [])}
        assert brought | defaults == set(columns), table
        assert not brought & defaults, table


def test_names_of_the_description() -> None:
    # Clause 4.3.2.3: 371 is PRI, CALLY and OUGHT; 40 is BAR, PRES and BAR.
    assert NAMES_BY_NUMBER[371] == "PRICALLYOUGHT"
    assert NAMES_BY_NUMBER[40] == "BARPRESBAR"
    assert len(set(NAMES_BY_NUMBER)) == 1000
    assert (min(map(len, NAMES_BY_NUMBER)), max(map(len, NAMES_BY_NUMBER))) == (9, 15)


def test_the_two_constants_for_names_differ_as_clause_2_1_6_1_asks() -> None:
    delta = abs(C_NAME - C_NAME_LOAD)
    assert 65 <= delta <= 119 and delta not in (96, 112)


def test_nurand_as_an_expression() -> None:
    assert nurand(255, 0, 999, 7) == "((random(0, 255) | random(0, 999)) + 7) % 1000"
    assert nurand(8191, 1, 100_000, 0) == "(random(0, 8191) | random(1, 100000)) % 100000 + 1"
    assert nurand(1023, 1, 3000, 7) == "((random(0, 1023) | random(1, 3000)) + 7) % 3000 + 1"


def test_load_names_are_skewed_and_within_range() -> None:
    load_name = draw_load_name(np.random.default_rng(1), 100_000)
    counts = np.bincount(load_name, minlength=1000)
    assert len(counts) == 1000
    assert counts.max() > 5 * counts.mean()  # of 256 | 1000 values some occur far more often
