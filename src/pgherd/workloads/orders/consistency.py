"""The twelve consistency conditions of the TPC-C description (clause 3.3.2), asked in one statement and so of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.workloads.orders.loading import shipped

Query = Callable[[str], Sequence[tuple[Any, ...]]]

RULES = (
    "a warehouse's takings are the sum of its districts'",
    "a district's next order number follows its largest order, and its largest new order is that order",
    "a district's new orders have consecutive numbers",
    "a district's orders have as many lines as they say, in all",
    "an order has no carrier if and only if it is new",
    "an order has as many lines as it says",
    "a line has no delivery date if and only if its order has no carrier",
    "a warehouse's takings are the sum of its history",
    "a district's takings are the sum of its history",
    "a customer's balance is what was delivered less what was paid",
    "a district has 2,100 orders and one for each delivery more than it has new orders",
    "a customer's balance and payments together are what was delivered",
)
"""Conditions 1 to 12. The eleventh is stated for a fresh database there, in which nothing has been delivered since."""


@dataclass(frozen=True)
class Condition:
    """One condition: how many rows break it, and the first of them in words."""

    number: int
    rule: str
    broken: int
    example: str

    @property
    def holds(self) -> bool:
        """Whether no row breaks it."""
        return self.broken == 0

    def sentence(self) -> str:
        """What is wrong, in one sentence."""
        rows = "1 row breaks" if self.broken == 1 else f"{self.broken} rows break"
        return f"condition {self.number} ({self.rule}): {rows} it, such as {self.example}"


def parse(rows: Sequence[tuple[Any, ...]]) -> tuple[Condition, ...]:
    """The conditions from the statement's rows: (number, rows that break it, an example).

    Raises:
        ValueError: they are not the twelve conditions, each once.
    """
    numbers = [int(row[0]) for row in rows]
    if sorted(numbers) != list(range(1, len(RULES) + 1)):
        raise ValueError(f"the conditions 1 to {len(RULES)} were to be checked, but the answer holds {numbers}")
    found = (Condition(int(number), RULES[int(number) - 1], int(broken), str(example or "")) for number, broken, example in rows)
    return tuple(sorted(found, key=lambda condition: condition.number))


# Compiling the statement takes longer than running it; and of aggregates of aggregates the planner knows too little to
# be allowed a join that visits one side for each row of the other.
_PLAIN = "SELECT set_config(name, 'off', false) FROM unnest(ARRAY['jit', 'enable_nestloop']) AS name"
_AS_BEFORE = "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name IN ('jit', 'enable_nestloop')"


def check(query: Query) -> tuple[Condition, ...]:
    """All conditions, as the database answers. ``query`` must run all statements on one connection."""
    query(_PLAIN)
    try:
        return parse(query(shipped("consistency.sql")))
    finally:
        query(_AS_BEFORE)
