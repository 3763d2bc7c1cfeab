"""Load that varies over time: clients of each database in each period, from a named pattern or a list. Pure.

All databases switch at the border of a period. The warm-up after it is not counted.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence

from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase

Plan = tuple[tuple[int, ...], ...]
"""Clients of each database in each period. 0: idle."""


def _alternating(database: int, period: int, databases: int, periods: int) -> float:
    return float((database + period) % 2 == 0)


def _steady(database: int, period: int, databases: int, periods: int) -> float:
    return 0.5


def _burst(database: int, period: int, databases: int, periods: int) -> float:
    return float(period % 2 == 1)


def _diurnal(database: int, period: int, databases: int, periods: int) -> float:
    return (1 + math.cos(2 * math.pi * (period / periods - database / databases))) / 2


_SHAPES: Mapping[str, tuple[Callable[[int, int, int, int], float], str]] = {
    "alternating": (_alternating, "half of the databases are busy, the other half in the next period (E4)"),
    "diurnal": (_diurnal, "each follows a smooth daily curve; the peaks are spread evenly"),
    "steady": (_steady, "all have the mean of high and low"),
    "burst": (_burst, "all are quiet, and all are busy in every second period"),
}
PATTERNS: Mapping[str, str] = {name: description for name, (_, description) in _SHAPES.items()}
"""Description of each pattern, by name."""

_LISTED = re.compile(r"[\d,/ ]+")


def is_listed(pattern: str) -> bool:
    """Return True if the text lists clients instead of naming a pattern."""
    return _LISTED.fullmatch(pattern) is not None


def client_plan(pattern: str, *, databases: int, periods: int | None, high: int, low: int) -> Plan:
    """Return the clients of each database in each period.

    Args:
        pattern: a name of ``PATTERNS``, or one list of clients per database: ``30,2,30,2/2,30,2,30``.
        databases: number of databases.
        periods: number of periods. None: four for a named pattern, the length of the lists otherwise.
        high: clients of a busy database.
        low: clients of a quiet database.

    Raises:
        UsageError: there is no such pattern, or the lists do not match the databases or the periods.
    """
    if is_listed(pattern):
        return _listed(pattern, databases, periods)
    if pattern not in _SHAPES:
        raise UsageError(
            f"there is no pattern '{pattern}'; choose {', '.join(_SHAPES)}, or list the clients of each database in each period, such "
            "as 30,2,30,2/2,30,2,30"
        )
    if high < low or low < 1:
        raise UsageError(
            f"--busy-clients {high} and --quiet-clients {low}: a busy database needs at least as many clients as a quiet one, "
            "and a quiet one needs at least 1"
        )
    shape, count = _SHAPES[pattern][0], periods or 4
    return tuple(tuple(round(low + (high - low) * shape(i, p, databases, count)) for p in range(count)) for i in range(databases))


def _listed(pattern: str, databases: int, periods: int | None) -> Plan:
    lists = [[word.strip() for word in part.split(",")] for part in pattern.split("/")]
    if not all(word.isdigit() for part in lists for word in part):
        raise UsageError(f"--pattern {pattern}: a number of clients is missing; write them as 30,2,30,2/2,30,2,30")
    plan = tuple(tuple(map(int, part)) for part in lists)
    if len(plan) != databases:
        raise UsageError(f"--pattern {pattern} lists {len(plan)} databases, but there are {databases}; separate their lists with '/'")
    if len({len(part) for part in plan}) > 1:
        raise UsageError(
            f"--pattern {pattern}: the databases have {', '.join(str(len(part)) for part in plan)} periods; give the same number for all"
        )
    if periods is not None and len(plan[0]) != periods:
        raise UsageError(f"--pattern {pattern} lists {len(plan[0])} periods, but --periods is {periods}; give only one of them")
    empty = [number for number, period in enumerate(zip(*plan, strict=True), 1) if not any(period)]
    if empty:
        raise UsageError(f"--pattern {pattern}: in period {empty[0]} no database has a client, so there is nothing to measure")
    return plan


def phases(plan: Plan, targets: Sequence[str], load: Callable[[int], Load], *, ramp: float, seconds: float) -> tuple[Phase, ...]:
    """Return the plan as phases ``period-1``, ``period-2`` and so on.

    Args:
        plan: clients of each database in each period.
        targets: addresses of the databases, in the order of the plan.
        load: function that returns the load for a number of clients.
        ramp: warm-up of each period, in seconds. Not counted.
        seconds: measured time of each period.
    """
    periods = []
    for period in range(len(plan[0])):
        loads = {target: load(row[period]) for target, row in zip(targets, plan, strict=True) if row[period]}
        periods.append(Phase(name=f"period-{period + 1}", warmup=ramp, seconds=seconds, loads=loads))
    return tuple(periods)


def max_connections(plan: Plan) -> int:
    """Return the maximum number of simultaneous connections of a server with all these databases.

    At a border of periods the old clients finish their last transaction while the new clients connect.
    """
    totals: list[int] = [sum(period) for period in zip(*plan, strict=True)]
    borders = [before + after for before, after in itertools.pairwise(totals)]
    return max(totals + borders)


def client_range(plan: Plan) -> tuple[int, int]:
    """Return the maximum and the minimum number of clients of a database over all periods in which it is not idle."""
    active = [clients for row in plan for clients in row if clients]
    return max(active), min(active)


def format_plan(plan: Plan) -> str:
    """Return the plan as a list, such as ``30,2,30,2/2,30,2,30``."""
    return "/".join(",".join(map(str, row)) for row in plan)
