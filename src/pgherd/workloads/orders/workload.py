"""The workload ``orders``: its transactions as pgbench scripts, its loader, and its consistency conditions.

A rolled back new order is a separate script. The script number in pgbench's log therefore identifies the committed new
orders, and no client branches. The variables are ``scale`` (warehouses, pgbench's -s), ``base`` (number of clients of
earlier pgbench processes on the same database), and ``think`` (multiple of the specification's keying and think times,
only in scripts that wait).

Each client is a terminal with a home warehouse, and for stock levels a home district. The client draws all inputs, like a
terminal. The functions in functions.sql process them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import log
from typing import Any, ClassVar

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.model.load import NEW_ORDER, Script
from pgherd.node.protocol import LoaderServer, Node, Say, silent
from pgherd.workloads import Query
from pgherd.workloads.orders import loading
from pgherd.workloads.orders.rows import C_CUSTOMER, C_ITEM, C_NAME, ITEMS, nurand

# ---- transactions


PREFIX = "orders:"
WAITING = "+think"
"""Suffix of scripts with keying and think times."""

UNKNOWN_ITEM = ITEMS + 1
MOST_LINES = 15
_SHORT = 10

WEIGHTS = {NEW_ORDER: 4455, "new-order-rolled-back": 45, "payment": 4300, "order-status": 400, "delivery": 400, "stock-level": 400}
"""Per 10,000 transactions: 45 % new orders, of which 1 % are rolled back, 43 % payments, and 4 % each of the others."""

# Keying time and mean think time in seconds (clause 5.2.5.7).
_TIMES = {
    NEW_ORDER: (18, 12),
    "new-order-rolled-back": (18, 12),
    "payment": (3, 12),
    "order-status": (2, 10),
    "delivery": (2, 5),
    "stock-level": (2, 5),
}

_WAREHOUSE = "\\set w (:client_id + :base) % :scale + 1"
_OTHER = "(:w + random(0, :scale - 2)) % :scale + 1"  # uniform choice of another warehouse than w
_DISTRICT = "\\set d random(1, 10)"
# Number of lines before the first one that another warehouse supplies: geometric with a probability of 1 %, by inversion,
# and not rounded down.
_HOME = f"\\set home case when :scale = 1 then {MOST_LINES} else ln(random(1, 1000000) / 1000000.0) / {log(0.99)} end"
_HOME_DISTRICT = "\\set d (:client_id + :base) / :scale % 10 + 1"
_BY_NAME = (
    f"\\set c case when random(1, 100) <= 60 then 0 else {nurand(1023, 1, 3000, C_CUSTOMER)} end",
    f"\\set name case when :c = 0 then {nurand(255, 0, 999, C_NAME)} else 0 end",
)


def script_mix(think: bool = False) -> tuple[Script, ...]:
    """Return the scripts with their weights. With ``think`` they contain keying and think times."""
    ending = WAITING if think else ""
    return tuple(Script(source=f"{PREFIX}{name}{ending}", weight=weight, name=name) for name, weight in WEIGHTS.items())


def script_text(name: str) -> str | None:
    """Return the text of a script such as ``payment`` or ``payment+think``, or None if it does not exist."""
    plain = name.removesuffix(WAITING)
    if plain not in WEIGHTS:
        return None
    lines = {
        NEW_ORDER: _new_order,
        "new-order-rolled-back": lambda: _new_order(rolled_back=True),
        "payment": _payment,
        "order-status": _order_status,
        "delivery": _delivery,
        "stock-level": _stock_level,
    }[plain]()
    if name != plain:
        keying, thinking = _TIMES[plain]
        lines = [
            f"\\set keying int({keying * 1_000_000} * :think)",
            "\\sleep :keying us",
            *lines,
            # Exponential distribution, truncated at ten times its mean (clause 5.2.5.4).
            f"\\set thinking int(least(-ln(random(1, 1000000) / 1000000.0), 10.0) * {thinking * 1_000_000} * :think)",
            "\\sleep :thinking us",
        ]
    return "\n".join([f"-- {plain}: created by pgherd; see docs/reference/workloads.md", *lines]) + "\n"


def _new_order(rolled_back: bool = False) -> list[str]:
    """Return the lines of a new order.

    Half of the orders have at most ten lines, and the home warehouse supplies nine in ten orders completely. The script
    draws and sends only required values, because each variable costs pgbench about as much time as PostgreSQL.
    """
    inputs = [_WAREHOUSE, _DISTRICT, f"\\set c {nurand(1023, 1, 3000, C_CUSTOMER)}", "\\set lines random(5, 15)", _HOME]
    short, further = range(1, _SHORT + 1), range(_SHORT + 1, MOST_LINES + 1)
    return [
        *inputs,
        f"\\set q random(0, {10 ** len(short) - 1})",
        *_items(short, rolled_back),
        f"\\if :lines <= {_SHORT}",
        *_entered(_SHORT, rolled_back),
        "\\else",
        f"\\set q :q * {10 ** len(further)} + random(0, {10 ** len(further) - 1})",
        *_items(further, rolled_back),
        *_entered(MOST_LINES, rolled_back),
        "\\endif",
    ]


def _items(numbers: range, rolled_back: bool) -> list[str]:
    """Set the items of these lines. The last line of an order that is rolled back has an unknown item."""
    item = nurand(8191, 1, ITEMS, C_ITEM)
    unknown = {k: f"case when :lines = {k} then {UNKNOWN_ITEM} else {item} end" for k in numbers if rolled_back and k >= 5}
    return [f"\\set i{k} {unknown.get(k, item)}" for k in numbers]


def _entered(most: int, rolled_back: bool) -> list[str]:
    """Enter an order of at most ``most`` lines. Suppliers are drawn only if one of them is another warehouse."""
    suppliers = [
        # Another warehouse supplies line :home + 1 first, and each later line with a probability of 1 %.
        f"\\set s{k} case when :home >= {k} or (:home < {k - 1} and random(1, 100) > 1) then :w else {_OTHER} end"
        for k in range(1, most + 1)
    ]
    calls = [_enter_order(most, supplies) for supplies in (f"array_fill(:w::integer, '{{{MOST_LINES}}}')", _array("s", most))]
    home, other = (["BEGIN;", call, "ROLLBACK;"] if rolled_back else [call] for call in calls)
    return ["\\if :home >= :lines", *home, "\\else", *suppliers, *other, "\\endif"]


def _enter_order(most: int, supplies: str) -> str:
    return f"SELECT enter_order(:w, :d, :c, :lines, {_array('i', most)}, {supplies}, line_quantities(:q));"


def _array(name: str, most: int) -> str:
    return "ARRAY[" + ", ".join(f":{name}{k}" for k in range(1, most + 1)) + "]::integer[]"


def _payment() -> list[str]:
    return [
        _WAREHOUSE,
        _DISTRICT,
        "\\set remote random(1, 100)",
        f"\\set customer_w case when :remote <= 85 or :scale = 1 then :w else {_OTHER} end",
        "\\set customer_d case when :remote > 85 then random(1, 10) else :d end",
        *_BY_NAME,
        "\\set cents random(100, 500000)",
        "SELECT take_payment(:w, :d, :customer_w, :customer_d, :c, :name, :cents / 100.0);",
    ]


def _order_status() -> list[str]:
    return [_WAREHOUSE, _DISTRICT, *_BY_NAME, "SELECT show_order(:w, :d, :c, :name);"]


def _delivery() -> list[str]:
    return [_WAREHOUSE, "\\set carrier random(1, 10)", "SELECT deliver_orders(:w, :carrier);"]


def _stock_level() -> list[str]:
    return [_WAREHOUSE, _HOME_DISTRICT, "\\set threshold random(10, 20)", "SELECT count_low_stock(:w, :d, :threshold);"]


# ---- loader and consistency conditions


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

    settings: ClassVar[Mapping[str, str]] = {}
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
        return script_mix()

    def filling(self, node: Node, database: Database) -> OrdersLoader:
        return OrdersLoader(database=database.name, scale=database.scale)

    def size_estimate(self, scale: int) -> int:
        return size_estimate(scale)

    def violations(self, query: Query) -> Sequence[str]:
        return [condition.sentence() for condition in check(query) if not condition.holds]


ORDERS = OrdersWorkload()
