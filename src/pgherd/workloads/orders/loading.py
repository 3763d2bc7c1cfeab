"""Load a database: create and fill tables by groups, then create keys, indexes and statistics.

Tables are filled by binary COPY with FREEZE, which requires that the same transaction creates the table. Its pages are
then written once, all-visible, and without WAL if ``wal_level`` is minimal. Values that are equal in all rows of a
warehouse are not sent, but set as column defaults during the COPY. Two groups of tables that take about the same time are
filled concurrently, each by one connection. More connections would only evict each other's data from the CPU caches.
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
from pgherd.workloads.binary_copy import EPOCH, HEADER, TRAILER, CopyRows
from pgherd.workloads.orders.rows import CONSTANTS, DATES, HOMES, Population

if TYPE_CHECKING:
    import psycopg

SEED = 20
Say = Callable[[str], None]

GROUPS = (("stock", "item", "warehouse", "district", "customer", "history"), ("orders", "new_order", "order_line"))
"""Groups of tables. One connection fills the tables of a group one after the other."""


def shipped(name: str) -> str:
    """Return the text of an SQL file of this package."""
    return resources.files("pgherd.workloads.orders").joinpath(name).read_text(encoding="utf-8")


def statements(sql: str) -> dict[str, list[str]]:
    """Return the statements of schema.sql or keys.sql in order, by table."""
    by_table: dict[str, list[str]] = {}
    for statement in sql.split(";\n"):
        table = re.search(r"^(?:CREATE TABLE|ALTER TABLE|CREATE INDEX \w+ ON) (\w+)", statement, re.MULTILINE)
        if table:
            by_table.setdefault(table[1], []).append(statement)
    return by_table


def fill(connect: Callable[[], psycopg.Connection[Any]], warehouses: int, say: Say = lambda _: None) -> None:
    """Create and fill all tables, with keys, indexes, functions and statistics. ``connect`` opens a connection.

    Raises:
        TrialError: PostgreSQL reports an error. The message contains it.
    """
    import psycopg

    population = Population(SEED, int((time.time() - EPOCH) * 1_000_000))
    progress = _Progress(warehouses, say)
    try:
        with ThreadPoolExecutor(max_workers=len(GROUPS), thread_name_prefix="load") as pool:
            _run_all(pool, progress, [partial(_fill_group, connect, population, group, warehouses, progress) for group in GROUPS])
            say("creating keys, indexes and statistics")
            keys = statements(shipped("keys.sql"))
            tables = [*keys, "history"]
            _run_all(pool, progress, [partial(_finish, connect, table, keys.get(table, ())) for table in tables])
        with connect() as connection:
            connection.execute(shipped("functions.sql").encode())
    except psycopg.Error as error:
        raise TrialError(f"the database of the workload orders cannot be filled: {str(error).strip()}") from None


class _Progress:
    """Number of loaded warehouses by group. Reports progress after every 5 % that all groups have loaded."""

    def __init__(self, warehouses: int, say: Say) -> None:
        self._total, self._say = warehouses, say
        self._loaded: dict[tuple[str, ...], int] = dict.fromkeys(GROUPS, 0)
        self._reported = 0
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def add(self, group: tuple[str, ...]) -> None:
        """Count one loaded warehouse of a group; raises TrialError if another group has failed."""
        if self.stopped.is_set():
            raise TrialError("another part of loading has failed")
        with self._lock:
            self._loaded[group] += 1
            loaded = min(self._loaded.values())
            if loaded - self._reported >= max(1, self._total // 20) or loaded == self._total > self._reported:
                self._reported = loaded
                self._say(f"loaded {loaded} of {self._total} warehouse{'' if self._total == 1 else 's'}")


def _run_all(pool: ThreadPoolExecutor, progress: _Progress, jobs: Iterable[Callable[[], None]]) -> None:
    """Run the jobs. After a failure or an interrupt the other jobs stop at their next warehouse."""
    futures = [pool.submit(job) for job in jobs]
    try:
        finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in finished:
            future.result()
    finally:
        progress.stopped.set()
        for future in futures:
            future.cancel()
    progress.stopped.clear()


def _fill_group(
    connect: Callable[[], psycopg.Connection[Any]], population: Population, group: tuple[str, ...], warehouses: int, progress: _Progress
) -> None:
    schema = statements(shipped("schema.sql"))
    sources = _row_sources(population)
    with connect() as connection:
        for table in group:
            for statement in schema[table]:
                connection.execute(statement.encode())
        for w in range(1, warehouses + 1):
            for table in group:
                if table == "item" and w > 1:
                    continue
                _set_defaults(connection, table, w, population)
                _copy(connection, table, sources[table](w))
            progress.add(group)
        for table in group:
            _drop_defaults(connection, table)


def _row_sources(population: Population) -> Mapping[str, Callable[[int], Iterator[CopyRows]]]:
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
    """Set column defaults to values that are not sent: those of warehouse ``w``, and for w = 1 also the constants."""
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


def _copy(connection: psycopg.Connection[Any], table: str, blocks: Iterator[CopyRows]) -> None:
    from psycopg import sql
    from psycopg.copy import LibpqWriter

    first = next(blocks)
    columns = sql.SQL(", ").join(map(sql.Identifier, first.layout.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary, FREEZE)").format(sql.Identifier(table), columns)
    # Send each block before the next one, because libpq moves unsent data to the front of its buffer with every send.
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
        # Sort without parallel workers, which would compete with the sorts of the other tables.
        connection.execute("SET max_parallel_maintenance_workers = 0")
        for statement in keys:
            connection.execute(statement.encode())
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
