"""Filling a database: tables made and filled in one transaction each group, then keys, indexes and statistics.

Tables are filled by binary COPY with FREEZE, which needs a table to be made in the same transaction: its pages are then
written once, all-visible, and without WAL where ``wal_level`` is minimal. What is the same in all rows of a warehouse is
not sent: meanwhile it is the column's default. Two groups of tables that take about the same
time are filled at once, each by a connection of its own: more would only crowd each other out of the caches.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from pgherd.model.errors import TrialError
from pgherd.workloads.binary_copy import EPOCH, HEADER, TRAILER, Rows
from pgherd.workloads.orders.rows import CONSTANTS, DATES, HOMES, Population

if TYPE_CHECKING:
    import psycopg

SEED = 20
Say = Callable[[str], None]

GROUPS = (("stock", "item", "warehouse", "district", "customer", "history"), ("orders", "new_order", "order_line"))
"""Tables that are filled one after the other by one connection."""


def shipped(name: str) -> str:
    """The text of an SQL file of this package."""
    return resources.files("pgherd.workloads.orders").joinpath(name).read_text(encoding="utf-8")


def statements(sql: str) -> dict[str, list[str]]:
    """The statements of schema.sql or keys.sql by the table that they are about, in order."""
    found: dict[str, list[str]] = {}
    for statement in sql.split(";\n"):
        about = re.search(r"^(?:CREATE TABLE|ALTER TABLE|CREATE INDEX \w+ ON) (\w+)", statement, re.MULTILINE)
        if about:
            found.setdefault(about[1], []).append(statement)
    return found


def fill(connect: Callable[[], psycopg.Connection[Any]], warehouses: int, say: Say = lambda _: None) -> None:
    """Make and fill all tables, with keys, indexes, functions and statistics. ``connect`` opens a connection.

    Raises:
        TrialError: PostgreSQL refused something; the message holds its words.
    """
    import psycopg

    population = Population(SEED, int((time.time() - EPOCH) * 1_000_000))
    progress = _Progress(warehouses, say)
    try:
        with ThreadPoolExecutor(max_workers=len(GROUPS), thread_name_prefix="load") as pool:
            _all(pool, progress, [partial(_fill_group, connect, population, group, warehouses, progress) for group in GROUPS])
            say("keys, indexes and statistics")
            keys = statements(shipped("keys.sql"))
            tables = [*keys, "history"]
            _all(pool, progress, [partial(_finish, connect, table, keys.get(table, ())) for table in tables])
        with connect() as connection:
            connection.execute(shipped("functions.sql").encode())
    except psycopg.Error as error:
        raise TrialError(f"the database of the workload orders cannot be filled: {str(error).strip()}") from None


class _Progress:
    """How many warehouses each group has done; a line whenever all groups have got a twentieth further."""

    def __init__(self, warehouses: int, say: Say) -> None:
        self._all, self._say = warehouses, say
        self._done: dict[tuple[str, ...], int] = dict.fromkeys(GROUPS, 0)
        self._told = 0
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def done(self, group: tuple[str, ...]) -> None:
        """A group has done a warehouse; raises TrialError where another group has failed."""
        if self.stopped.is_set():
            raise TrialError("another part of loading has failed")
        with self._lock:
            self._done[group] += 1
            least = min(self._done.values())
            if least - self._told >= max(1, self._all // 20) or least == self._all > self._told:
                self._told = least
                self._say(f"loaded {least} of {self._all} warehouse{'' if self._all == 1 else 's'}")


def _all(pool: ThreadPoolExecutor, progress: _Progress, jobs: Iterable[Callable[[], None]]) -> None:
    """Run the jobs; when one fails, or we are interrupted, the others stop at their next warehouse."""
    futures = [pool.submit(job) for job in jobs]
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for failed in done:
            failed.result()
    finally:
        progress.stopped.set()
        for future in futures:
            future.cancel()
    progress.stopped.clear()


def _fill_group(
    connect: Callable[[], psycopg.Connection[Any]], population: Population, group: tuple[str, ...], warehouses: int, progress: _Progress
) -> None:
    schema = statements(shipped("schema.sql"))
    makers = _makers(population)
    with connect() as connection:
        for table in group:
            for statement in schema[table]:
                connection.execute(statement.encode())
        for w in range(1, warehouses + 1):
            for table in group:
                if table == "item" and w > 1:
                    continue
                _set_defaults(connection, table, w, population)
                _copy(connection, table, makers[table](w))
            progress.done(group)
        for table in group:
            _drop_defaults(connection, table)


def _makers(population: Population) -> Mapping[str, Callable[[int], Iterator[Rows]]]:
    return {
        "item": lambda _: population.items(),
        "warehouse": population.warehouse,
        "district": population.districts,
        "customer": population.customers,
        "history": population.history,
        "stock": population.stock,
        "orders": population.orders,
        "new_order": population.new_orders,
        "order_line": population.order_lines,
    }


def _set_defaults(connection: psycopg.Connection[Any], table: str, w: int, population: Population) -> None:
    """What a warehouse's rows of a table do not bring themselves; the first warehouse's statement has what is the same in all of them."""
    from psycopg import sql

    values: dict[str, sql.Composable] = {column: sql.Literal(w) for column in HOMES.get(table, ())}
    if w == 1:
        values |= {column: sql.Literal(value) for column, value in CONSTANTS.get(table, {}).items()}
        values |= {DATES[table]: sql.Literal(population.moment())} if table in DATES else {}
    if values:
        parts = [sql.SQL("ALTER {} SET DEFAULT {}").format(sql.Identifier(column), value) for column, value in values.items()]
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(sql.Identifier(table), sql.SQL(", ").join(parts)))


def _drop_defaults(connection: psycopg.Connection[Any], table: str) -> None:
    from psycopg import sql

    columns = [*HOMES.get(table, ()), *CONSTANTS.get(table, {}), *([DATES[table]] if table in DATES else [])]
    if columns:
        parts = [sql.SQL("ALTER {} DROP DEFAULT").format(sql.Identifier(column)) for column in columns]
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(sql.Identifier(table), sql.SQL(", ").join(parts)))


def _copy(connection: psycopg.Connection[Any], table: str, blocks: Iterator[Rows]) -> None:
    from psycopg import sql
    from psycopg.copy import LibpqWriter

    first = next(blocks)
    columns = sql.SQL(", ").join(map(sql.Identifier, first.layout.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary, FREEZE)").format(sql.Identifier(table), columns)
    # Each piece is sent before the next one is taken: what waits in libpq's buffer would be moved to its front with every send.
    with connection.cursor() as cursor, cursor.copy(statement, writer=LibpqWriter(cursor, flush_threshold=0)) as copy:
        copy.write(HEADER)
        copy.write(first.data())
        for block in blocks:
            copy.write(block.data())
        copy.write(TRAILER)


def _finish(connect: Callable[[], psycopg.Connection[Any]], table: str, keys: Iterable[str]) -> None:
    from psycopg import sql

    with connect() as connection:
        connection.autocommit = True
        # Sorting by itself: workers of one sort would only compete with the other tables' sorts.
        connection.execute("SET max_parallel_maintenance_workers = 0")
        for statement in keys:
            connection.execute(statement.encode())
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
