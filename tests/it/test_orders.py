"""The workloads orders and random-block on real servers: what they load, what their transactions do, what the checks see."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.templates import LOADING
from pgherd.runner.deploy.servers import require_consistent
from pgherd.workloads import bundled_scripts, random_block
from pgherd.workloads.orders import workload
from pgherd.workloads.orders.workload import OrdersLoader, check, size_estimate

_spec = importlib.util.spec_from_file_location("postgres_conftest", Path(__file__).parents[1] / "postgres/conftest.py")
assert _spec and _spec.loader
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
node, account, installation = _shared.node, _shared.account, _shared.installation

WAREHOUSES = 2
UNKNOWN = workload.UNKNOWN_ITEM


@dataclass(frozen=True)
class Shop:
    """A server with a database of the workload, and the lines that its loader said."""

    server: Instance
    directory: Path
    said: list[str]

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.conninfo("shop"), **options)

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self.connect(autocommit=True) as connection:
            return connection.execute(statement, parameters).fetchall()

    def one(self, statement: str, *parameters: Any) -> Any:
        return self.rows(statement, *parameters)[0][0]

    def broken(self) -> list[int]:
        return [condition.number for condition in check(lambda s: self.server.sql(s, database="shop")) if not condition.holds]

    def pgbench(self, database: str, scripts: dict[str, int], *options: str) -> subprocess.CompletedProcess[str]:
        """Run scripts, by source and weight, to the end."""
        argv = [f"{self.server.bin}/pgbench", "-h", self.server.socket_dir, "-U", "postgres", "-n", "-M", "prepared", *options]
        for source, weight in scripts.items():
            file = self.directory / f"{source.replace(':', '-')}.sql"
            file.write_text(bundled_scripts.text(source) or "")
            argv += ["-f", f"{file}@{weight}"]
        done = self.server.node.run(Command([*argv, database], cwd=str(self.directory)), timeout=120)
        assert done.code == 0, done.err
        return subprocess.CompletedProcess(argv, done.code, done.out, done.err)


@pytest.fixture(scope="module")
def shop(node: LocalNode, installation: Installation, account: str | None) -> Iterator[Shop]:
    directory = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    directory.chmod(0o755)
    cluster = directory / "cluster"
    node.make_dir(str(cluster), mode=0o755)
    node.make_dir(str(cluster / "data"), user=account)
    said: list[str] = []
    server = Instance(node, installation, str(cluster / "data"), str(directory / "s"), account=account, log=str(cluster / "log"))
    try:
        initdb(node, installation, server.data_dir, account=account, checksums=False)
        server.write_settings({**LOADING, "max_connections": "50"})
        server.start()
        server.wait_ready()
        server.sql("CREATE DATABASE shop")
        OrdersLoader("shop", WAREHOUSES).load(server, said.append)
        yield Shop(server, directory, said)
    finally:
        server.disconnect(["shop", "blocks"])
        server.stop("immediate")
        shutil.rmtree(directory)


def close_to(count: int, share: float, total: int) -> bool:
    """Within five standard deviations of what chance gives: once in a million tests it is not."""
    return abs(count - share * total) <= 5 * math.sqrt(total * share * (1 - share)) + 1


def test_the_loader_fills_checks_and_says_how_far_it_is(shop: Shop) -> None:
    assert shop.said == [
        "loaded 1 of 2 warehouses",
        "loaded 2 of 2 warehouses",
        "creating keys, indexes and statistics",
        "checking the consistency conditions",
    ]
    assert shop.one("SELECT pg_database_size('shop')") == pytest.approx(size_estimate(WAREHOUSES), rel=0.01)
    counts = {
        table: shop.one(f"SELECT count(*) FROM {table}") for table in ("warehouse", "district", "customer", "new_order", "item", "stock")
    }
    assert counts == {"warehouse": 2, "district": 20, "customer": 60_000, "new_order": 18_000, "item": 100_000, "stock": 200_000}
    # Frozen as they were written, but for pages that were half full when a COPY began: little is left for a vacuum.
    seen, pages = shop.rows("SELECT sum(relallvisible), sum(relpages) FROM pg_class WHERE relname IN ('stock', 'order_line', 'customer')")[
        0
    ]
    assert seen > 0.98 * pages
    instants = """SELECT o_entry_d FROM orders WHERE o_id <= 3000 UNION SELECT ol_delivery_d FROM order_line WHERE ol_o_id <= 2100
        UNION SELECT c_since FROM customer UNION SELECT min(h_date) FROM history"""
    assert len(shop.rows(instants)) == 1, "delivered when it was entered"
    names = shop.rows("SELECT c_last, count(*) FROM customer WHERE c_w_id = 1 AND c_d_id = 1 AND c_id <= 1000 GROUP BY 1")
    assert len(names) == 1000
    assert {(first, last) for first, last in shop.rows("SELECT min(length(c_first)), max(length(c_first)) FROM customer")} == {(9, 15)}


@pytest.fixture(scope="module")
def loaded(shop: Shop) -> tuple[Shop, dict[str, int], dict[str, int]]:
    """The shop after 30 clients have been at work; committed and all transactions by script."""
    before = shop.one("SELECT sum(d_next_o_id) FROM district")
    mix = {script.source: script.weight for script in workload.script_mix()}
    options = ["-c", "30", "-j", "2", "-T", "5", "-s", str(WAREHOUSES), "-D", "base=0", "-l", f"--log-prefix={shop.directory}/log"]
    told = shop.pgbench("shop", mix, *options)
    assert "number of failed transactions: 0 " in told.stdout
    lines = [line.split() for file in shop.directory.glob("log.*") for line in file.read_text().splitlines()]
    assert all(line[2].isdigit() for line in lines)
    counts = {name: sum(int(line[3]) == number for line in lines) for number, name in enumerate(workload.WEIGHTS)}
    deadlocks = shop.one("SELECT deadlocks FROM pg_stat_database WHERE datname = 'shop'")
    placed = shop.one("SELECT sum(d_next_o_id) FROM district") - before
    return shop, counts, {"deadlocks": deadlocks, "placed": placed}


def test_thirty_clients_neither_fail_nor_deadlock_and_keep_all_conditions(loaded: Any) -> None:
    shop, _, seen = loaded
    assert seen["deadlocks"] == 0
    assert shop.broken() == []


def test_the_mix_and_notpm_are_exact(loaded: Any) -> None:
    _, counts, seen = loaded
    total = sum(counts.values())
    assert total > 200
    for name, weight in workload.WEIGHTS.items():
        assert close_to(counts[name], weight / 10_000, total), (name, counts)
    # The number of the script that commits is the number of orders that came to be: what is rolled back left nothing.
    assert counts["new-order"] == seen["placed"]


def test_shares_within_the_transactions(loaded: Any) -> None:
    shop, counts, _ = loaded
    payments = shop.rows(
        "SELECT h_c_w_id <> h_w_id, count(*) FROM history WHERE h_amount <> 10 OR h_date > (SELECT min(h_date) FROM history) GROUP BY 1"
    )
    by_place = dict(payments)
    assert sum(by_place.values()) == counts["payment"]
    assert close_to(by_place.get(True, 0), 0.15, counts["payment"])
    fresh = "FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id WHERE o_id > 3000"
    lines = shop.one(f"SELECT count(*) {fresh}")
    assert close_to(shop.one(f"SELECT count(*) {fresh} AND ol_supply_w_id <> ol_w_id"), 0.01, lines)
    early = shop.one(f"SELECT count(*) {fresh} AND ol_number <= 5 AND ol_supply_w_id <> ol_w_id")
    assert close_to(early, 0.01, shop.one(f"SELECT count(*) {fresh} AND ol_number <= 5")), "a line's place in the order decides nothing"
    quantities = dict(shop.rows(f"SELECT ol_quantity, count(*) {fresh} GROUP BY 1"))
    assert sorted(quantities) == list(range(1, 11)) and all(close_to(count, 0.1, lines) for count in quantities.values())
    beyond = dict(shop.rows(f"SELECT ol_quantity, count(*) {fresh} AND ol_number > 10 GROUP BY 1"))
    assert all(close_to(beyond.get(one, 0), 0.1, sum(beyond.values())) for one in range(1, 11))
    per_order = shop.rows("SELECT min(o_ol_cnt), max(o_ol_cnt), avg(o_ol_cnt) FROM orders WHERE o_id > 3000")[0]
    assert per_order[:2] == (5, 15) and 9 < per_order[2] < 11
    all_local = """SELECT count(*) FROM orders WHERE o_id > 3000 AND (o_all_local = 1) <> NOT EXISTS (
        SELECT 1 FROM order_line WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_supply_w_id <> o_w_id)"""
    assert shop.one(all_local) == 0
    # Every line of a new order is in the counters of its stock.
    counted = shop.rows("SELECT sum(s_order_cnt), sum(s_ytd), sum(s_remote_cnt) FROM stock")[0]
    ordered = shop.rows(f"SELECT count(*), sum(ol_quantity), count(*) FILTER (WHERE ol_supply_w_id <> ol_w_id) {fresh}")[0]
    assert counted == ordered


def test_sixty_per_cent_of_customers_are_asked_for_by_name(shop: Shop) -> None:
    """The share lies in the scripts: seen in what the function is called with."""
    with shop.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE asked (c integer)")
        connection.execute("CREATE FUNCTION note(c integer) RETURNS void LANGUAGE sql AS 'INSERT INTO asked VALUES (c)'")
    text = (bundled_scripts.text("orders:order-status") or "").replace("SELECT show_order(:w, :d, :c, :name);", "SELECT note(:c);")
    assert "note" in text
    file = shop.directory / "asked.sql"
    file.write_text(text)
    argv = [f"{shop.server.bin}/pgbench", "-h", shop.server.socket_dir, "-U", "postgres", "-n", "-t", "2000", "-s", "2", "-D", "base=0"]
    assert shop.server.node.run(Command([*argv, "-f", str(file), "shop"])).code == 0
    by_name = shop.one("SELECT count(*) FILTER (WHERE c = 0) FROM asked")
    assert close_to(by_name, 0.6, 2000)


def enter(connection: psycopg.Connection[Any], items: list[int], supplies: list[int], quantities: list[int], w: int = 1) -> dict[str, Any]:
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        cursor.execute("SELECT * FROM enter_order(%s, 1, 1, %s, %s, %s, %s)", [w, len(items), items, supplies, quantities])
        found = cursor.fetchone()
        assert found is not None
        return found


def test_a_new_order_returns_the_whole_screen(shop: Shop) -> None:
    items, supplies, quantities = [5, 3, 99, 1000, 7], [1, 1, 2, 1, 1], [1, 2, 3, 4, 10]
    before = {
        i: shop.rows("SELECT s_quantity FROM stock WHERE s_w_id = %s AND s_i_id = %s", w, i)[0][0]
        for i, w in zip(items, supplies, strict=True)
    }
    with shop.connect() as connection:
        screen = enter(connection, items, supplies, quantities)
    prices = {i: shop.one("SELECT i_price FROM item WHERE i_id = %s", i) for i in items}
    lines = {n: k for k, n in enumerate(screen["line_numbers"])}
    assert sorted(lines) == [1, 2, 3, 4, 5]
    for number, (item, quantity) in enumerate(zip(items, quantities, strict=True), 1):
        k = lines[number]
        assert screen["prices"][k] == prices[item] and screen["amounts"][k] == prices[item] * quantity
        left = before[item] - quantity
        assert screen["stocks"][k] == (left if before[item] >= quantity + 10 else left + 91)
        assert screen["names"][k] == shop.one("SELECT i_name FROM item WHERE i_id = %s", item)
        both = shop.one(
            "SELECT concat(i_data, s_data) ~ 'ORIGINAL.*ORIGINAL' FROM item, stock WHERE s_i_id = i_id AND i_id = %s AND s_w_id = %s",
            item,
            supplies[number - 1],
        )
        assert screen["brands"][k] == ("B" if both else "G")
    customer = shop.rows("SELECT c_last, c_credit, c_discount FROM customer WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1")[0]
    assert (screen["last"], screen["credit"], screen["discount"]) == customer
    taxes = shop.rows("SELECT w_tax, d_tax FROM warehouse JOIN district ON d_w_id = w_id WHERE w_id = 1 AND d_id = 1")[0]
    assert (screen["warehouse_tax"], screen["district_tax"]) == taxes
    goods = sum(screen["amounts"])
    assert screen["total"] == round(goods * (1 - customer[2]) * (1 + taxes[0] + taxes[1]), 2)
    assert shop.broken() == []


def test_lines_that_repeat_item_and_supply_all_come_to_be(shop: Shop) -> None:
    """An UPDATE touches a row once however often it is joined; the consistency conditions see a line that is lost."""
    before = shop.rows("SELECT s_ytd, s_order_cnt, s_remote_cnt FROM stock WHERE s_w_id = 2 AND s_i_id = 44")[0]
    with shop.connect() as connection:
        screen = enter(connection, [44, 44, 45, 44, 45, 44], [2, 2, 1, 1, 1, 2], [1, 2, 3, 4, 5, 6])
    assert sorted(screen["line_numbers"]) == [1, 2, 3, 4, 5, 6]
    assert len(screen["amounts"]) == len(screen["names"]) == len(screen["brands"]) == len(screen["stocks"]) == len(screen["prices"]) == 6
    after = shop.rows("SELECT s_ytd, s_order_cnt, s_remote_cnt FROM stock WHERE s_w_id = 2 AND s_i_id = 44")[0]
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == (9, 3, 3)
    written = shop.rows(
        "SELECT ol_number, ol_quantity FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = %s ORDER BY 1", screen["order_id"]
    )
    assert written == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]
    assert shop.broken() == []


@pytest.mark.parametrize("items", [[5, 6, 7, 8, UNKNOWN], [UNKNOWN] * 5, [5, 5, 5, 5, UNKNOWN]])
def test_an_unknown_item_has_no_total_and_leaves_nothing_once_rolled_back(shop: Shop, items: list[int]) -> None:
    before = shop.rows("SELECT (SELECT sum(d_next_o_id) FROM district), (SELECT sum(s_ytd) FROM stock), (SELECT count(*) FROM order_line)")
    with shop.connect() as connection:
        screen = enter(connection, items, [1] * 5, [1] * 5)
        assert screen["total"] is None
        assert screen["last"] and screen["order_id"]
        connection.rollback()
    assert (
        shop.rows("SELECT (SELECT sum(d_next_o_id) FROM district), (SELECT sum(s_ytd) FROM stock), (SELECT count(*) FROM order_line)")
        == before
    )


def test_a_payment_by_name_takes_the_customer_in_the_middle(shop: Shop) -> None:
    number = 371
    named = [
        row[0]
        for row in shop.rows("SELECT c_id FROM customer WHERE c_w_id = 1 AND c_d_id = 3 AND c_last = 'PRICALLYOUGHT' ORDER BY c_first")
    ]
    assert named
    with shop.connect() as connection:
        screen = connection.execute(
            "SELECT customer_id, balance, credit, notes FROM take_payment(2, 4, 1, 3, 0, %s, 12.34)", [number]
        ).fetchone()
    assert screen is not None
    assert screen[0] == named[math.ceil(len(named) / 2) - 1]
    assert shop.one(
        "SELECT h_amount FROM history WHERE h_c_id = %s AND h_c_d_id = 3 AND h_c_w_id = 1 AND h_d_id = 4 ORDER BY h_date DESC",
        screen[0],
    ) == Decimal("12.34")
    assert (screen[3] is not None) == (screen[2] == "BC")
    assert shop.broken() == []


def test_bad_credit_gets_a_note_and_keeps_its_length(shop: Shop) -> None:
    customer = shop.one("SELECT min(c_id) FROM customer WHERE c_w_id = 1 AND c_d_id = 5 AND c_credit = 'BC'")
    with shop.connect() as connection:
        notes = connection.execute("SELECT notes FROM take_payment(1, 5, 1, 5, %s, 0, 99.5)", [customer]).fetchone()
    assert notes is not None and notes[0].startswith(f"{customer} 5 1 5 1 99.5") and len(notes[0]) == 200
    assert shop.one("SELECT length(c_data) FROM customer WHERE c_w_id = 1 AND c_d_id = 5 AND c_id = %s", customer) <= 500


def test_a_delivery_takes_the_oldest_order_of_each_district(shop: Shop) -> None:
    oldest = dict(shop.rows("SELECT no_d_id, min(no_o_id) FROM new_order WHERE no_w_id = 2 GROUP BY 1"))
    with shop.connect() as connection:
        found = connection.execute("SELECT * FROM deliver_orders(2, 7)").fetchone()
    assert found is not None
    assert dict(zip(*found, strict=True)) == oldest
    carried = shop.rows(
        "SELECT o_d_id, o_carrier_id FROM orders WHERE o_w_id = 2 AND (o_d_id, o_id) IN (SELECT * FROM unnest(%s::int[], %s::int[]))",
        *found,
    )
    assert sorted(carried) == [(d, 7) for d in range(1, 11)]
    assert shop.broken() == []


def test_two_deliveries_at_once_take_different_orders(shop: Shop) -> None:
    import threading

    results: list[Any] = []
    first = shop.connect()
    try:
        results.append(first.execute("SELECT * FROM deliver_orders(1, 3)").fetchone())

        def second() -> None:
            with shop.connect() as connection:
                results.append(connection.execute("SELECT * FROM deliver_orders(1, 4)").fetchone())

        thread = threading.Thread(target=second)
        thread.start()
        while (
            shop.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT * FROM deliver_orders%%'")
            == 0
        ):
            assert thread.is_alive()
        first.commit()
        thread.join(60)
    finally:
        first.close()
    (districts, one), (others, two) = results
    assert sorted(districts) == sorted(others) == list(range(1, 11))
    assert all(
        b == a + 1 for a, b in zip(*(dict(zip(d, o, strict=True)).values() for d, o in ((districts, one), (others, two))), strict=True)
    )
    assert shop.broken() == []


def test_an_order_is_shown_with_its_lines(shop: Shop) -> None:
    with shop.connect() as connection:
        entered = enter(connection, [11, 12, 13, 14, 15], [1] * 5, [1, 2, 3, 4, 5])
        connection.commit()
        shown = connection.execute("SELECT order_id, items, quantities, carrier, delivery_dates FROM show_order(1, 1, 1, 0)").fetchone()
    assert shown is not None
    assert shown[0] == entered["order_id"]
    assert dict(zip(shown[1], shown[2], strict=True)) == {11: 1, 12: 2, 13: 3, 14: 4, 15: 5}
    assert shown[3] is None and shown[4] == [None] * 5


def test_low_stock_is_counted_over_the_last_twenty_orders(shop: Shop) -> None:
    expected = """SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = 1 AND s_i_id = ol_i_id
        WHERE ol_w_id = 1 AND ol_d_id = 2 AND s_quantity < 20
        AND ol_o_id >= (SELECT d_next_o_id - 20 FROM district WHERE d_w_id = 1 AND d_id = 2)"""
    assert shop.one("SELECT count_low_stock(1, 2, 20)") == shop.one(expected)


# What breaks a condition, and which ones see it.
BREAKS = {
    "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1": {1, 8},
    "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1": {1, 9},
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 1": {2},
    "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 2999": {
        3,
        5,
        11,
    },
    "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2999 AND ol_number = 1": {4, 6},
    "UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 2 AND o_d_id = 1 AND o_id = 3000": {5, 7},
    "UPDATE orders SET o_ol_cnt = o_ol_cnt + CASE o_id WHEN 1 THEN 1 ELSE -1 END WHERE o_w_id = 1 AND o_d_id = 1 AND o_id IN (1, 2)": {6},
    "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1": {7},
    "UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1": {10, 12},
    "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1": {12},
    "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1": {11},
    "UPDATE history SET h_amount = h_amount + 1 WHERE ctid = (SELECT min(ctid) FROM history)": {8, 9, 10},
}


@pytest.mark.parametrize("statement", BREAKS)
def test_each_condition_sees_what_breaks_it(shop: Shop, statement: str) -> None:
    with shop.connect() as connection:
        assert connection.execute(statement.encode()).rowcount > 0
        found = check(lambda query: connection.execute(query.encode()).fetchall())
        connection.rollback()
    assert {condition.number for condition in found if not condition.holds} == BREAKS[statement]


def test_a_violation_fails_the_trial(shop: Shop) -> None:
    database = Database(name="shop", workload="orders", scale=WAREHOUSES, verify=True)
    require_consistent(shop.server, database)
    with shop.connect(autocommit=True) as connection:
        connection.execute("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1")
    try:
        with pytest.raises(TrialError, match=r"condition 1 .*condition 9"):
            require_consistent(shop.server, database)
    finally:
        with shop.connect(autocommit=True) as connection:
            connection.execute("UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 1")


def test_a_second_process_has_other_home_warehouses(shop: Shop) -> None:
    """Stacked pgbench processes: ``base`` is the number of clients before this one's first."""
    before = dict(shop.rows("SELECT d_w_id, sum(d_next_o_id) FROM district GROUP BY 1"))
    shop.pgbench("shop", {"orders:new-order": 1}, "-c", "1", "-t", "3", "-s", str(WAREHOUSES), "-D", "base=1")
    after = dict(shop.rows("SELECT d_w_id, sum(d_next_o_id) FROM district GROUP BY 1"))
    assert {w: after[w] - before[w] for w in after} == {1: 0, 2: 3}


def test_every_script_that_waits_runs_too(shop: Shop) -> None:
    scripts = {script.source: 1 for script in workload.script_mix(think=True)}
    shop.pgbench("shop", scripts, "-c", "2", "-t", "12", "-s", str(WAREHOUSES), "-D", "base=0", "-D", "think=0.0001")
    assert shop.broken() == []


@pytest.mark.long
def test_psql_alone_makes_a_database_of_the_same_kind(shop: Shop) -> None:
    shop.server.sql("CREATE DATABASE plain")
    try:
        argv = [f"{shop.server.bin}/psql", "-h", shop.server.socket_dir, "-U", "postgres", *random_block.load_arguments(1), "plain"]
        file = shop.directory / "plain.sql"
        file.write_text(bundled_scripts.load_sql("orders") or "")
        done = shop.server.node.run(Command(argv, stdin=str(file)), timeout=300)
        assert done.code == 0, done.err
        shop.server.sql("VACUUM ANALYZE", database="plain")
        found = check(lambda statement: shop.server.sql(statement, database="plain"))
        assert all(condition.holds for condition in found), json.dumps([condition.sentence() for condition in found])
        assert shop.one("SELECT pg_database_size('plain')") == pytest.approx(size_estimate(1), rel=0.02)
    finally:
        shop.server.disconnect(["plain"])
        shop.server.sql("DROP DATABASE plain")


def test_random_block_has_a_row_on_every_page_and_does_not_grow(shop: Shop) -> None:
    shop.server.sql("CREATE DATABASE blocks")
    random_block.RandomBlockLoader("blocks", 8).load(shop.server)
    shop.server.sql("VACUUM (FREEZE, ANALYZE)", database="blocks")
    pages = (
        "SELECT pg_relation_size('block') / 8192, (SELECT count(*) FROM block), (SELECT count(DISTINCT (ctid::text::point)[0]) FROM block)"
    )
    assert shop.server.sql(pages, database="blocks") == [(8 * 128,) * 3]
    assert shop.server.sql("SELECT pg_database_size('blocks')")[0][0] == pytest.approx(random_block.size_estimate(8), rel=0.03)
    for zipf in (None, 1.3):
        scripts, variables = random_block.mix(40, zipf)
        shop.server.sql("UPDATE block SET updates = 0", database="blocks")
        shop.server.sql("VACUUM block", database="blocks")
        defines = [word for name, value in variables.items() for word in ("-D", f"{name}={value}")]
        told = shop.pgbench("blocks", {script.source: script.weight for script in scripts}, "-c", "2", "-t", "2000", "-s", "8", *defines)
        assert "number of failed transactions: 0 " in told.stdout
        total, most, touched = shop.server.sql(
            "SELECT sum(updates), max(updates), count(*) FILTER (WHERE updates > 0) FROM block", database="blocks"
        )[0]
        assert close_to(int(total), 0.4, 4000)
        # 1,600 updates of 1,024 rows: Poisson with 1.6 each, or a quarter of them on the most popular row.
        assert (most < 20 and touched > 700) if zipf is None else (most > 250 and touched < 500)
    assert shop.server.sql("SELECT pg_relation_size('block')", database="blocks")[0][0] < 2.5 * 2**23
