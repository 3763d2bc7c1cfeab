"""The five transactions as pgbench scripts, and their mix.

A new order that is rolled back is a script of its own: pgbench's log then tells by the script's number which new orders
were committed, and no client has to branch. Variables: ``scale`` (warehouses; pgbench's -s), ``base`` (number of clients
that other pgbench processes of the same database have before this one's first), ``think`` (multiple of the
specification's keying and think times; only in the scripts that wait).

Each client is a terminal with a home warehouse, and for stock levels a home district. The client draws every input, as a
terminal would; functions.sql takes it from there.
"""

from __future__ import annotations

from pgherd.model.load import NEW_ORDER, Script
from pgherd.workloads.orders.names import C_CUSTOMER, C_ITEM, C_NAME, nurand
from pgherd.workloads.orders.rows import ITEMS

PREFIX = "orders:"
WAITING = "+think"
"""Ends the name of a script that waits as a person would."""

UNKNOWN_ITEM = ITEMS + 1
MOST_LINES = 15
_SHORT = 10

WEIGHTS = {NEW_ORDER: 4455, "new-order-rolled-back": 45, "payment": 4300, "order-status": 400, "delivery": 400, "stock-level": 400}
"""Of 10,000 transactions: 45 % new orders, of which 1 % are rolled back; 43 % payments; 4 % each of the others."""

# Seconds to key the input in, and mean seconds to think about the answer (clause 5.2.5.7).
_TIMES = {
    NEW_ORDER: (18, 12),
    "new-order-rolled-back": (18, 12),
    "payment": (3, 12),
    "order-status": (2, 10),
    "delivery": (2, 5),
    "stock-level": (2, 5),
}

_WAREHOUSE = "\\set w (:client_id + :base) % :scale + 1"
_OTHER = "(:w + random(0, :scale - 2)) % :scale + 1"  # any warehouse but w, all alike
_DISTRICT = "\\set d random(1, 10)"
_HOME_DISTRICT = "\\set d (:client_id + :base) / :scale % 10 + 1"
_BY_NAME = (
    "\\set by_name random(1, 100)",
    f"\\set name {nurand(255, 0, 999, C_NAME)}",
    f"\\set c case when :by_name <= 60 then 0 else {nurand(1023, 1, 3000, C_CUSTOMER)} end",
)


def mix(think: bool = False) -> tuple[Script, ...]:
    """The scripts with their weights, as a load names them; ``think``: those that wait."""
    ending = WAITING if think else ""
    return tuple(Script(source=f"{PREFIX}{name}{ending}", weight=weight, name=name) for name, weight in WEIGHTS.items())


def text(name: str) -> str | None:
    """The text of a script (``payment``, ``payment+think``); None if there is none of that name."""
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
            # Negative exponential, cut off at ten times its mean (clause 5.2.5.4).
            f"\\set thinking int(least(-ln(random(1, 1000000) / 1000000.0), 10.0) * {thinking * 1_000_000} * :think)",
            "\\sleep :thinking us",
        ]
    return "\n".join([f"-- {plain}: made by pgherd; see docs/orders.md", *lines]) + "\n"


def _new_order(rolled_back: bool = False) -> list[str]:
    """Lines beyond the tenth are drawn, and sent, only for orders that have more: half of them do not."""
    lines = [_WAREHOUSE, _DISTRICT, f"\\set c {nurand(1023, 1, 3000, C_CUSTOMER)}", "\\set lines random(5, 15)"]
    first, rest = (_lines(part, rolled_back) for part in (range(1, _SHORT + 1), range(_SHORT + 1, MOST_LINES + 1)))
    short, long = (["BEGIN;", call, "ROLLBACK;"] if rolled_back else [call] for call in (_enter_order(_SHORT), _enter_order(MOST_LINES)))
    return [*lines, *first, f"\\if :lines <= {_SHORT}", *short, "\\else", *rest, *long, "\\endif"]


def _lines(numbers: range, rolled_back: bool) -> list[str]:
    """Item, supplier and quantity of these lines; the last line of an order that is rolled back has an item that is not there."""
    found = []
    for k in numbers:
        item = nurand(8191, 1, ITEMS, C_ITEM)
        if rolled_back and k >= 5:
            item = f"case when :lines = {k} then {UNKNOWN_ITEM} else {item} end"
        found += [
            f"\\set i{k} {item}",
            f"\\set s{k} case when random(1, 100) > 1 or :scale = 1 then :w else {_OTHER} end",
            f"\\set q{k} random(1, 10)",
        ]
    return found


def _enter_order(most: int) -> str:
    arrays = ", ".join("ARRAY[" + ", ".join(f":{name}{k}" for k in range(1, most + 1)) + "]::integer[]" for name in "isq")
    return f"SELECT enter_order(:w, :d, :c, :lines, {arrays});"


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
