"""Time-varying load: how many clients each database has in each period, by a pattern's name or as listed. Pure.

All databases switch together at a period's border; the ramp-up after it is not counted.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence

from pgherd.model.errors import UsageError
from pgherd.model.load import Load, Phase

Plan = tuple[tuple[int, ...], ...]
"""For each database its clients in each period; 0: idle."""


def _alternating(database: int, period: int, databases: int, periods: int) -> float:
    return float((database + period) % 2 == 0)


def _steady(database: int, period: int, databases: int, periods: int) -> float:
    return 0.5


def _burst(database: int, period: int, databases: int, periods: int) -> float:
    return float(period % 2 == 1)


def _diurnal(database: int, period: int, databases: int, periods: int) -> float:
    return (1 + math.cos(2 * math.pi * (period / periods - database / databases))) / 2


_SHAPES: Mapping[str, tuple[Callable[[int, int, int, int], float], str]] = {
    "alternating": (_alternating, "every other database is busy, and the others in the next period (E4)"),
    "diurnal": (_diurnal, "each goes through one smooth day, the databases' days spread evenly"),
    "steady": (_steady, "all have the mean of high and low throughout"),
    "burst": (_burst, "all are quiet, and in every second period all are busy at once"),
}
PATTERNS: Mapping[str, str] = {name: words for name, (_, words) in _SHAPES.items()}
"""Pattern → what it means."""

_LISTED = re.compile(r"[\d,/ ]+")


def is_listed(pattern: str) -> bool:
    """Whether it lists the clients itself, and is no name."""
    return _LISTED.fullmatch(pattern) is not None


def client_plan(pattern: str, *, databases: int, periods: int | None, high: int, low: int) -> Plan:
    """Clients of each database in each period.

    Args:
        pattern: a name of ``NAMES``, or the clients themselves: ``30,2,30,2/2,30,2,30``, one list for each database.
        databases: how many there are.
        periods: how many periods a named pattern has, four if None; a listed one has as many as it lists.
        high: clients of a busy database.
        low: clients of a quiet one.

    Raises:
        UsageError: no such pattern, or lists that do not fit the databases or the periods.
    """
    if is_listed(pattern):
        return _listed(pattern, databases, periods)
    if pattern not in _SHAPES:
        raise UsageError(
            f"there is no pattern '{pattern}'; there are {', '.join(_SHAPES)}, or list the clients of each database in each period, such "
            "as 30,2,30,2/2,30,2,30"
        )
    if high < low or low < 1:
        raise UsageError(f"--high {high} and --low {low}: a busy database has at least as many clients as a quiet one, and that at least 1")
    shape, count = _SHAPES[pattern][0], periods or 4
    return tuple(tuple(round(low + (high - low) * shape(i, p, databases, count)) for p in range(count)) for i in range(databases))


def _listed(pattern: str, databases: int, periods: int | None) -> Plan:
    lists = [[word.strip() for word in part.split(",")] for part in pattern.split("/")]
    if not all(word.isdigit() for part in lists for word in part):
        raise UsageError(f"--pattern {pattern}: a number of clients is missing; write them as 30,2,30,2/2,30,2,30")
    found = tuple(tuple(map(int, part)) for part in lists)
    if len(found) != databases:
        raise UsageError(f"--pattern {pattern} lists {len(found)} databases, but there are {databases}; part their lists with '/'")
    if len({len(part) for part in found}) > 1:
        raise UsageError(
            f"--pattern {pattern}: the databases have {', '.join(str(len(part)) for part in found)} periods; give all equally many"
        )
    if periods is not None and len(found[0]) != periods:
        raise UsageError(f"--pattern {pattern} lists {len(found[0])} periods, but --periods is {periods}; leave one of them out")
    empty = [number for number, period in enumerate(zip(*found, strict=True), 1) if not any(period)]
    if empty:
        raise UsageError(f"--pattern {pattern}: in period {empty[0]} no database has a client, so there is nothing to measure")
    return found


def phases(plan: Plan, targets: Sequence[str], load: Callable[[int], Load], *, ramp: float, seconds: float) -> tuple[Phase, ...]:
    """The plan as phases, ``period-1`` and so on. ``targets`` are the databases' addresses in the plan's order, ``load`` makes
    the load of so many clients; ``ramp`` (not counted) and ``seconds`` are those of each period."""
    found = []
    for period in range(len(plan[0])):
        loads = {target: load(row[period]) for target, row in zip(targets, plan, strict=True) if row[period]}
        found.append(Phase(name=f"period-{period + 1}", ramp=ramp, seconds=seconds, loads=loads))
    return tuple(found)


def max_connections(plan: Plan) -> int:
    """Connections that a server with all these databases has at once at most: at a border the old clients finish their last
    transaction while the new ones connect."""
    totals: list[int] = [sum(period) for period in zip(*plan, strict=True)]
    borders = [before + after for before, after in itertools.pairwise(totals)]
    return max(totals + borders)


def client_range(plan: Plan) -> tuple[int, int]:
    """The most and the fewest clients that a database has in any period in which it is not idle."""
    every = [client_plan for row in plan for client_plan in row if client_plan]
    return max(every), min(every)


def format_plan(plan: Plan) -> str:
    """``30,2,30,2/2,30,2,30``: as it can be listed."""
    return "/".join(",".join(map(str, row)) for row in plan)
