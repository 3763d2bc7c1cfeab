"""What the order-entry workload costs: loading beside ``pgbench -i``, a new order beside a plain loop over its lines, and its driver.

All three are CPU time, which neighbours move far less than wall clock. Loading is counted for client and server, with
keys, indexes and vacuum, per byte of the finished database. A new order is counted for the server, per committed order;
the yardstick is a function that handles one line after the other and returns the total alone, where ours returns the
whole screen. The driver's share is pgbench's of all CPU under the whole mix, with every transaction logged; it is judged
by E4's load, and shown for few clients too, where pgbench wakes for each answer alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outcome
import paired
import psycopg
from outcome import Figure

from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.drivers.driver import Endpoint
from pgherd.drivers.pgbench import DRIVER
from pgherd.drivers.pgbench_output import read_logs, read_report
from pgherd.host.server_user import server_account
from pgherd.model.errors import TrialError
from pgherd.model.load import NEW_ORDER, Load, Script
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres import installations
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.templates import LOADING
from pgherd.workloads import bundled_scripts, pgbench
from pgherd.workloads.orders import loading, workload

LOAD_GOAL, ORDER_GOAL, DRIVER_GOAL = 1.3, 0.9, 0.94
CLIENTS = 8
BUSY = 30
"""Clients of a busy database as E4 has it: the load of the studies that this workload is for, by which the driver is judged."""

# One line after the other, in the order that avoids deadlocks; the same rows are written.
LOOP = """
CREATE FUNCTION loop_order(w integer, d integer, c integer, lines integer, items integer[], supplies integer[], quantities integer[])
RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    w_tax_now numeric; d_tax_now numeric; order_id integer; customer record; good record; held record; line record;
    goods numeric := 0; amount numeric; brand text; local integer := 1;
BEGIN
    SELECT w_tax INTO w_tax_now FROM warehouse WHERE w_id = w;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
    RETURNING d_tax, d_next_o_id - 1 INTO d_tax_now, order_id;
    SELECT c_discount, c_last, c_credit INTO customer FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    FOR k IN 1..lines LOOP
        IF supplies[k] <> w THEN
            local := 0;
        END IF;
    END LOOP;
    INSERT INTO orders (o_entry_d, o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local) VALUES (now(), w, d, order_id, c, lines, local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (w, d, order_id);
    FOR line IN
        SELECT item, supply, quantity, number
        FROM unnest(items[1:lines], supplies[1:lines], quantities[1:lines]) WITH ORDINALITY AS asked (item, supply, quantity, number)
        ORDER BY supply, item
    LOOP
        SELECT i_price, i_name, i_data INTO good FROM item WHERE i_id = line.item;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= line.quantity + 10 THEN s_quantity - line.quantity
                ELSE s_quantity - line.quantity + 91 END,
            s_ytd = s_ytd + line.quantity, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + (line.supply <> w)::integer
        WHERE s_w_id = line.supply AND s_i_id = line.item
        RETURNING s_quantity, s_data,
            CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05
                WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END AS place
        INTO held;
        amount := line.quantity * good.i_price;
        goods := goods + amount;
        brand := CASE WHEN position('ORIGINAL' IN good.i_data) > 0 AND position('ORIGINAL' IN held.s_data) > 0 THEN 'B' ELSE 'G' END;
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
        VALUES (w, d, order_id, line.number, line.item, line.supply, line.quantity, amount, held.place);
    END LOOP;
    RETURN round(goods * (1 - customer.c_discount) * (1 + w_tax_now + d_tax_now), 2);
END $$
"""


@dataclass(frozen=True)
class Bench:
    """A server, and where its clients' files lie."""

    server: Instance
    place: Path
    warehouses: int

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement."""
        with psycopg.connect(self.server.conninfo(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def cpu(self) -> float:
        """CPU seconds of the server's processes so far, once those that have ended are counted by their parent."""
        before = -1
        while before != (before := len(self._children())):
            time.sleep(0.3)
        tick = os.sysconf("SC_CLK_TCK")
        return (sum(_stat(self.server.pid)[:4]) + sum(sum(_stat(pid)[:2]) for pid in self._children())) / tick

    def _children(self) -> list[int]:
        pid = self.server.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stat(pid: int) -> list[int]:
    """utime, stime, cutime and cstime of a process, in ticks."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]
    return [0, 0, 0, 0]


@contextlib.contextmanager
def opened(warehouses: int) -> Iterator[Bench]:
    """A server of its own, which goes with all it holds."""
    node, account = LocalNode(), server_account()
    place = Path(tempfile.mkdtemp(prefix="pgherd-benchmark-"))
    place.chmod(0o755)
    try:
        installation = installations.reachable_copy(node, installations.choose(node), account, str(place))
        node.make_dir(str(place / "cluster"), user=account)
        node.make_dir(str(place / "s"), user=account)
        initdb(node, installation, str(place / "cluster/data"), account=account, checksums=False)
        server = Instance(
            node, installation, str(place / "cluster/data"), str(place / "s"), account=account, log=str(place / "cluster/log")
        )
        server.write_settings(LOADING)
        try:
            server.start()
            server.wait_ready()
            yield Bench(server, place, warehouses)
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(place)


def loaded(bench: Bench, fill: Callable[[], None]) -> dict[str, float]:
    """CPU seconds of client and server, and bytes, of a database ``side`` that is filled."""
    bench.sql("DROP DATABASE IF EXISTS side")
    bench.sql("CREATE DATABASE side")
    bench.sql("CHECKPOINT")
    server, client, began = bench.cpu(), _client_cpu(), time.monotonic()
    fill()
    wall, client = time.monotonic() - began, _client_cpu() - client
    server = bench.cpu() - server
    size = float(bench.sql("SELECT pg_database_size('side')")[0][0])
    return {"client": client, "server": server, "bytes": size, "seconds": wall, "CPU s/GB": (client + server) / size * 1e9}


def _client_cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def by_loader(bench: Bench, warehouses: int) -> None:
    """pgherd's own loader, and what a template gets after it (postgres/templates.py)."""
    loading.fill(lambda: psycopg.connect(bench.server.conninfo("side")), warehouses)
    bench.sql("VACUUM (FREEZE, ANALYZE)", "side")


def by_pgbench(bench: Bench, scale: int) -> None:
    """pgbench -i with all its default steps."""
    argv = [f"{bench.server.bin}/pgbench", "-h", bench.server.socket_dir, "-U", "postgres", "-i", "-q", "-s", str(scale), "side"]
    done = bench.server.node.run(Command(argv), timeout=3600)
    if done.code != 0:
        raise TrialError(f"pgbench -i failed: {done.err}")


def driven(bench: Bench, scripts: tuple[Script, ...], seconds: float, clients: int = CLIENTS) -> dict[str, float]:
    """CPU seconds of client and server, and committed new orders, of a load by pgherd's own command line."""
    output = bench.place / "out"
    output.mkdir()
    try:
        named = tuple(
            script.model_copy(update={"source": str(bench.place / f"{script.source.replace(':', '-')}.sql")}) for script in scripts
        )
        load = Load(clients=clients, threads=1, scripts=named, sampling=1.0, options={"define:base": "0"})
        endpoint = Endpoint("orders", bench.server.bin, bench.server.socket_dir, 5432, "orders", "postgres", str(output), bench.warehouses)
        server = bench.cpu()
        done = bench.server.node.run(Command(DRIVER.argv(load, endpoint, seconds), cwd=str(output)), timeout=seconds + 60)
        server = bench.cpu() - server
        files = {"stdout": done.out, "stderr": done.err} | {file.name: file.read_text() for file in output.iterdir()}
        numbers = [x.script for x in read_logs(files, False)]
        if len(numbers) != read_report(files).transactions:
            raise TrialError(f"pgbench's log has {len(numbers)} transactions, its report {read_report(files).transactions}")
    finally:
        shutil.rmtree(output)
    committed = sum(scripts[number].name == NEW_ORDER for number in numbers)
    return {"client": done.cpu, "server": server, "new orders": committed, "server ms": 1000 * server / committed}


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 6, "pairs of each comparison")
    parser.add_argument("--warehouses", type=int, metavar="W", help="warehouses  [default: 10; --quick: 1]")
    parser.add_argument("--duration", type=float, help="length of each load  [default: 10; --quick: 3]")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 6)
    warehouses = options.warehouses or (1 if options.quick else 10)
    seconds = options.duration or (3.0 if options.quick else 10.0)
    seed = outcome.seed_of(options)
    rng = random.Random(seed)
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    import numpy  # noqa: F401 - whose import is not loading

    with opened(warehouses) as bench:
        scale = round(
            (bundled_scripts.ORDERS.size_estimate(warehouses) - 7_800_000) / (pgbench.size_estimate(2) - pgbench.size_estimate(1))
        )

        def note(what: str) -> Callable[[int, dict[str, dict[str, float]]], bool]:
            def said(number: int, pair: dict[str, dict[str, float]]) -> bool:
                raw.append({"what": what, **pair})
                words = "; ".join(f"{side}: {', '.join(f'{k} {v:.4g}' for k, v in found.items())}" for side, found in pair.items())
                outcome.say(f"{what} {number}: {words}")
                return False

            return said

        sides = {
            "orders": lambda: loaded(bench, lambda: by_loader(bench, warehouses)),
            "pgbench": lambda: loaded(bench, lambda: by_pgbench(bench, scale)),
        }
        by_pgbench_first = sides["pgbench"]()  # not counted: a virtual machine is slow on memory that it touches for the first time
        outcome.say(f"warming: {by_pgbench_first['seconds']:.1f} s")
        paired.run_blocks(pairs, rng, sides, note("loading"))

        bench.sql("DROP DATABASE side")
        bench.sql("CREATE DATABASE orders")
        loading.fill(lambda: psycopg.connect(bench.server.conninfo("orders")), warehouses)
        bench.sql(LOOP, "orders")
        # In memory, and without checkpoints: what a transaction costs, not what was left to be written before it.
        bench.server.write_settings(
            {**LOADING, "shared_buffers": f"{256 + 160 * warehouses}MB", "wal_level": "minimal", "max_wal_size": "64GB"}
        )
        bench.server.stop("fast", 300)
        bench.server.start()
        bench.server.wait_ready()
        ours = workload.script_mix()
        order = next(script for script in ours if script.name == NEW_ORDER)
        loop = Script(source="loop-order", name=NEW_ORDER)
        for script in ours:
            (bench.place / f"{script.source.replace(':', '-')}.sql").write_text(bundled_scripts.text(script.source) or "")
        text = (bundled_scripts.text(order.source) or "").replace("SELECT enter_order(", "SELECT loop_order(")
        (bench.place / "loop-order.sql").write_text(text)
        costs = {"sets": lambda: driven(bench, (order,), seconds), "loop": lambda: driven(bench, (loop,), seconds)}
        for cost in (*costs.values(), *costs.values()):
            cost()  # into memory, and its pages into the WAL
        paired.run_blocks(pairs, rng, costs, note("new orders"))
        loads = {"mix": lambda: driven(bench, ours, seconds), "busy": lambda: driven(bench, ours, seconds, BUSY)}
        paired.run_blocks(pairs, rng, loads, note("the whole mix"))
        version = bench.server.installation.version
    settings = {
        "warehouses": warehouses,
        "pgbench's scale": scale,
        "clients": CLIENTS,
        "busy clients": BUSY,
        "seconds": seconds,
        "postgres": version,
    }
    result = outcome.Outcome("orders", options.quick, seed, settings, figures(raw, options.quick), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def figures(raw: list[dict[str, Any]], quick: bool) -> list[Figure]:
    """Ratios with their intervals, the driver's share, and what they are made of."""

    def values(what: str, side: str, name: str) -> list[float]:
        return [row[side][name] for row in raw if row["what"] == what]

    def goal(found: Estimate, words: str, **bound: float) -> tuple[str, bool | None]:
        return ("", None) if quick else (words, outcome.met(found, **bound))

    load = paired.ratio(values("loading", "orders", "CPU s/GB"), values("loading", "pgbench", "CPU s/GB"))
    order = paired.ratio(values("new orders", "sets", "server ms"), values("new orders", "loop", "server ms"))
    left, busy = (
        mean_interval(
            [s / (s + c) for s, c in zip(values("the whole mix", side, "server"), values("the whole mix", side, "client"), strict=True)]
        )
        for side in ("mix", "busy")
    )
    mean = {
        f"{side}: {name}": mean_interval(values(what, side, name))
        for what, side, name in (
            ("loading", "orders", "CPU s/GB"),
            ("loading", "pgbench", "CPU s/GB"),
            ("new orders", "sets", "server ms"),
            ("new orders", "loop", "server ms"),
            ("the whole mix", "mix", "server ms"),
        )
    }
    return [
        Figure.of("CPU of loading per byte, orders ÷ pgbench -i", "", load, *goal(load, f"≤ {LOAD_GOAL:g}", most=LOAD_GOAL)),
        Figure.of("server's CPU per new order, sets ÷ loop", "", order, *goal(order, f"≤ {ORDER_GOAL:g}", most=ORDER_GOAL)),
        Figure.of(
            f"server's share of all CPU, whole mix, {BUSY} clients",
            "%",
            busy.scaled(100),
            *goal(busy, f"≥ {DRIVER_GOAL:.0%}", least=DRIVER_GOAL),
        ),
        Figure.of(f"the same with {CLIENTS} clients", "%", left.scaled(100)),
        Figure.of("loading orders", "CPU s/GB", mean["orders: CPU s/GB"]),
        Figure.of("pgbench -i", "CPU s/GB", mean["pgbench: CPU s/GB"]),
        Figure.of("a new order by sets, with its screen", "ms of the server's CPU", mean["sets: server ms"]),
        Figure.of("a new order by a loop, without", "ms of the server's CPU", mean["loop: server ms"]),
        Figure.of("all transactions per new order", "ms of the server's CPU", mean["mix: server ms"]),
    ]


if __name__ == "__main__":
    outcome.run(main)
