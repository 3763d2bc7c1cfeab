"""The workload ``orders``: what fills its databases, its transactions, its conditions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.model.load import Script
from pgherd.node.protocol import LoadTarget, Node, Say, silent
from pgherd.workloads.orders import consistency, loading, transactions
from pgherd.workloads.workload import Query

NOTICE = "The workload orders is derived from TPC-C's description; its results are not comparable with published TPC results."

# Measured after loading on PostgreSQL 15 and 18 alike: the catalogues and the items; then what each warehouse adds.
_WITHOUT_WAREHOUSES = 21_000_000
_PER_WAREHOUSE = 113_600_000

_DECISIVE = ("schema.sql", "keys.sql", "functions.sql", "rows.py", "names.py", "loading.py")


def size_estimate(warehouses: int) -> int:
    """Size of a freshly loaded database (pg_database_size) in bytes."""
    return _WITHOUT_WAREHOUSES + _PER_WAREHOUSE * warehouses


@cache
def digest() -> str:
    """Hash of all that decides what a database holds: a golden copy of an older loader is not taken for a new one."""
    files = resources.files("pgherd.workloads.orders")
    return hashlib.sha256(b"\0".join(files.joinpath(name).read_bytes() for name in _DECISIVE)).hexdigest()[:12]


@dataclass(frozen=True)
class OrdersFilling:
    """The nine tables of so many warehouses (``scale``), with keys, indexes and functions."""

    database: str
    scale: int

    @property
    def identity(self) -> str:
        """``orders-2-a1b2c3d4e5f6``."""
        return f"orders-{self.scale}-{digest()}"

    @property
    def size_estimate(self) -> int:
        """Bytes."""
        return size_estimate(self.scale)

    def load(self, target: LoadTarget, say: Say = silent) -> None:
        """Fill the database and check its conditions; ``say`` gets a line whenever something was done.

        Raises:
            TrialError: PostgreSQL refused something, or a condition does not hold.
        """
        import psycopg
        from psycopg.conninfo import make_conninfo

        where = make_conninfo(
            host=target.socket_dir, port=str(target.port), user=target.user, dbname=self.database, application_name="pgherd"
        )
        loading.fill(lambda: psycopg.connect(where, connect_timeout=10), self.scale, say)
        say("checking the consistency conditions")
        with psycopg.connect(where, autocommit=True, connect_timeout=10) as connection:
            broken = ORDERS.violations(lambda statement: connection.execute(statement.encode()).fetchall())
        if broken:
            raise TrialError(f"the loaded database contradicts itself: {'; '.join(broken)}")


@dataclass(frozen=True)
class OrdersWorkload:
    """Order entry by five kinds of transactions; ``scale`` is the number of warehouses."""

    name: str = "orders"
    read_only: bool = False
    default_scale: int = 1

    def scripts(self) -> Sequence[Script]:
        """The mix, without waiting."""
        return transactions.mix()

    def filling(self, node: Node, database: Database) -> OrdersFilling:
        """So many warehouses as the database's scale says."""
        return OrdersFilling(database=database.name, scale=database.scale)

    def size_estimate(self, scale: int) -> int:
        """Bytes of a database of so many warehouses."""
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        """The conditions that do not hold, in sentences."""
        return [condition.sentence() for condition in consistency.check(query) if not condition.holds]


ORDERS = OrdersWorkload()
