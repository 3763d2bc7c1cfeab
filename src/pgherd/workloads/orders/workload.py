"""Loader, transactions and consistency conditions of the workload ``orders``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.model.load import Script
from pgherd.node.protocol import LoaderServer, Node, Say, silent
from pgherd.workloads import Query
from pgherd.workloads.orders import loading, transactions

NOTICE = "The workload orders is derived from TPC-C's description; its results are not comparable with published TPC results."

# Measured after loading, with the same result on PostgreSQL 15 and 18: catalogs and items, and the size of a warehouse.
_WITHOUT_WAREHOUSES = 21_000_000
_PER_WAREHOUSE = 113_600_000

_LOADER_FILES = ("schema.sql", "keys.sql", "functions.sql", "rows.py", "loading.py")

RULES = (
    "a warehouse's revenue is the sum over its districts",
    "a district's next order number follows its largest order, and its largest new order is that order",
    "a district's new orders have consecutive numbers",
    "the number of lines of a district is the sum over its orders",
    "an order has no carrier if and only if it is new",
    "an order has as many lines as its line count",
    "a line has no delivery date if and only if its order has no carrier",
    "a warehouse's revenue is the sum of its payments",
    "a district's revenue is the sum of its payments",
    "a customer's balance is the sum of deliveries minus the sum of payments",
    "a district has 2,100 orders, and one per delivery, more than new orders",
    "a customer's balance plus payments is the sum of deliveries",
)
"""Consistency conditions 1 to 12 of the TPC-C specification (clause 3.3.2).

The specification states condition 11 for a new database without deliveries. It is generalized here.
"""


@dataclass(frozen=True)
class Condition:
    """Result of one condition: number of rows that violate it, and a description of the first one."""

    number: int
    rule: str
    broken: int
    example: str

    @property
    def holds(self) -> bool:
        """True if no row violates it."""
        return self.broken == 0

    def sentence(self) -> str:
        """Describe the violation in one sentence."""
        rows = "1 row violates" if self.broken == 1 else f"{self.broken} rows violate"
        return f"condition {self.number} ({self.rule}): {rows} it, such as {self.example}"


def parse(rows: Sequence[tuple[Any, ...]]) -> tuple[Condition, ...]:
    """Parse the rows of consistency.sql: (number, number of violating rows, an example).

    Raises:
        ValueError: The rows are not the twelve conditions.
    """
    numbers = [int(row[0]) for row in rows]
    if sorted(numbers) != list(range(1, len(RULES) + 1)):
        raise ValueError(f"expected the conditions 1 to {len(RULES)}, but the result contains {numbers}")
    conditions = (Condition(int(number), RULES[int(number) - 1], int(broken), str(example or "")) for number, broken, example in rows)
    return tuple(sorted(conditions, key=lambda condition: condition.number))


# JIT compilation takes longer than the statement. Nested loops are off because the planner's row estimates for aggregates of
# aggregates are too low.
_SET_PLANNER = "SELECT set_config(name, 'off', false) FROM unnest(ARRAY['jit', 'enable_nestloop']) AS name"
_RESET_PLANNER = "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name IN ('jit', 'enable_nestloop')"


def check(query: Query) -> tuple[Condition, ...]:
    """Check all conditions in one statement, and so in one snapshot. ``query`` must use one connection for all statements."""
    query(_SET_PLANNER)
    try:
        return parse(query(loading.shipped("consistency.sql")))
    finally:
        query(_RESET_PLANNER)


def size_estimate(warehouses: int) -> int:
    """Return the size of a loaded database (pg_database_size) in bytes."""
    return _WITHOUT_WAREHOUSES + _PER_WAREHOUSE * warehouses


@cache
def digest() -> str:
    """Hash the files that determine the contents of a database, so that a changed loader causes a new template."""
    files = resources.files("pgherd.workloads.orders")
    return hashlib.sha256(b"\0".join(files.joinpath(name).read_bytes() for name in _LOADER_FILES)).hexdigest()[:12]


@dataclass(frozen=True)
class OrdersLoader:
    """Loader of nine tables of ``scale`` warehouses, with keys, indexes and functions."""

    database: str
    scale: int

    @property
    def identity(self) -> str:
        """Identity such as ``orders-2-a1b2c3d4e5f6``."""
        return f"orders-{self.scale}-{digest()}"

    @property
    def size_estimate(self) -> int:
        """Expected size in bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Fill the database and check the consistency conditions.

        Raises:
            TrialError: PostgreSQL reports an error, or a condition is violated.
        """
        import psycopg
        from psycopg.conninfo import make_conninfo

        conninfo = make_conninfo(
            host=target.socket_dir, port=str(target.port), user=target.user, dbname=self.database, application_name="pgherd"
        )
        loading.fill(lambda: psycopg.connect(conninfo, connect_timeout=10), self.scale, say)
        say("checking the consistency conditions")
        with psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection:
            violations = ORDERS.violations(lambda statement: connection.execute(statement.encode()).fetchall())
        if violations:
            raise TrialError(f"the loaded database is inconsistent: {'; '.join(violations)}")


@dataclass(frozen=True)
class OrdersWorkload:
    """Order entry with five kinds of transactions. ``scale`` is the number of warehouses."""

    name: str = "orders"
    read_only: bool = False
    default_scale: int = 1

    def scripts(self) -> Sequence[Script]:
        """Return the mix without keying and think times."""
        return transactions.mix()

    def filling(self, node: Node, database: Database) -> OrdersLoader:
        return OrdersLoader(database=database.name, scale=database.scale)

    def size_estimate(self, scale: int) -> int:
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        return [condition.sentence() for condition in check(query) if not condition.holds]


ORDERS = OrdersWorkload()
