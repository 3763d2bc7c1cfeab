"""Demand of databases for the resources of a host over the slots of a day, folded from one or several days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from pgherd.model.errors import UsageError

Array = NDArray[np.float32]

RESOURCES = {
    "cpu_cores": "cores",
    "memory_mb": "MB",
    "memory_min_mb": "MB",
    "read_iops": "IOPS",
    "write_iops": "IOPS",
    "wal_mb_s": "MB/s",
    "connections": "connections",
    "disk_mb": "MB",
}
"""Resource → unit. 1 MB is 2^20 bytes, and 1 MB/s is 10^6 bytes per second."""

MEMORY = frozenset({"memory_mb", "memory_min_mb"})
"""The working set, which may exceed the memory of a host as far as its overcommitment is safe, and the part that must fit."""

FULL_STOPS = MEMORY | {"connections", "disk_mb"}
"""Resources that fail at their capacity. The others slow down, so that only they may exceed it in the slots of a stated risk."""

RATE = "tps"
"""Rate of transactions, which costs turn into resources."""

MOST = 1e12
"""Largest value of a resource or a rate. Sums of larger ones could be infinite."""

MAX_SLOTS = 288
DAY = 86400


@dataclass(frozen=True)
class Unknown:
    """Values of a database and resource that the input does not have, and the upper bound that replaces each of them."""

    database: str
    resource: str
    values: int
    bound: float
    source: str


@dataclass(frozen=True)
class Cost:
    """Resources that a load needs, as a run measured them.

    Attributes:
        databases: pattern of the names of the databases with this load.
        resources: resource → lowest and highest value. Those in ``FULL_STOPS`` are needed at any rate, the others per transaction.
        source: option that named the run, for messages.
        note: limit of the measurement, or ''.
    """

    databases: str
    resources: Mapping[str, tuple[float, float]]
    source: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Demand:
    """Demand of databases in each slot of a day.

    ``high`` is planned for: the stated percentile over the days, unknown values at their upper bound. ``low`` is the opposite percentile,
    unknown values as the smallest known one of the database or 0. Both have the shape (databases, resources, slots) and the units of
    ``RESOURCES``. ``days`` is the number of days folded. ``rows`` is the first row of each database in the input, for messages. ``notes``
    are limits of the input, as sentences without a full stop.
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    slots: tuple[str, ...]
    high: Array
    low: Array
    days: int
    unknown: tuple[Unknown, ...] = ()
    rows: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def slot_labels(count: int) -> tuple[str, ...]:
    """Return the time of day at which each of ``count`` equal slots starts, such as 13:30."""
    starts = [slot * DAY // count for slot in range(count)]
    return tuple(f"{start // 3600:02d}:{start % 3600 // 60:02d}" for start in starts)


def from_rates(
    names: Sequence[str], resources: Sequence[str], values: Array, low: Array, costs: Sequence[Cost]
) -> tuple[list[str], Array, Array]:
    """Replace the rate by the resources that it needs. Return the resources, their values, and their lower bounds.

    Of several costs of a database, the first that has a resource counts. A resource that is in the input stays as it is there. A value
    that is in neither is unknown (NaN).

    Args:
        names: the databases.
        resources: names from ``RESOURCES``, and ``RATE``.
        values: shape (databases, resources, times).
        low: lower bounds of the values.
        costs: of the databases.

    Raises:
        UsageError: a cost is of no database, or there is no CPU.
    """
    matching = [np.array([fnmatchcase(name, cost.databases) for name in names], dtype=np.bool_) for cost in costs]
    for cost, matches in zip(costs, matching, strict=True):
        if not matches.any():
            raise UsageError(f"{cost.source}: no database is called {cost.databases}; there are {', '.join(names[:3])} …")
    found = [name for name in RESOURCES if name in resources or any(name in cost.resources for cost in costs)]
    if "cpu_cores" not in found:
        raise UsageError(f"{costs[0].source} has no CPU of a transaction; give a run that has one too")
    shape = (len(names), len(found), values.shape[2])
    high, least = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    rate = resources.index(RATE)
    for i, name in enumerate(found):
        if name in resources:
            high[:, i], least[:, i] = values[:, resources.index(name)], low[:, resources.index(name)]
            continue
        left = np.ones(len(names), np.bool_)
        for cost, matches in zip(costs, matching, strict=True):
            if name in cost.resources:
                chosen = left & matches
                lowest, highest = cost.resources[name]
                high[chosen, i] = highest if name in FULL_STOPS else highest * values[chosen, rate]
                least[chosen, i] = lowest if name in FULL_STOPS else lowest * low[chosen, rate]
                left &= ~matches
    return found, high, least


def fold(
    names: Sequence[str],
    resources: Sequence[str],
    values: Array,
    slot_of: Sequence[int],
    slots: int,
    percentile: float = 95.0,
    rows: Sequence[int] = (),
    low: Array | None = None,
    notes: Sequence[str] = (),
) -> Demand:
    """Fold the values of several days into one day, and bound unknown values.

    An unknown value (NaN) is replaced by the largest known one of the same database and resource, otherwise by the largest known one of any
    database.

    Args:
        names: the databases.
        resources: names from ``RESOURCES``.
        values: shape (databases, resources, times). It is changed.
        slot_of: slot of each time.
        slots: number of slots of a day. Each has at least one time.
        percentile: of the values of several days that is planned for, from 50 to 100.
        rows: first row of each database in the input.
        low: lower bounds of the values, unknown where these are. It is changed. None: the values.
        notes: limits of the input.

    Raises:
        UsageError: no value of a resource is known.
    """
    unknown: list[Unknown] = []
    low = values.copy() if low is None else low
    missing = np.isnan(values)
    for i, resource in enumerate(resources):
        if missing[:, i].all():
            raise UsageError(f"no value of {resource} is known, so it cannot be bounded; remove the column or fill it")
        largest = float(np.nanmax(values[:, i]))
        for database in map(int, np.flatnonzero(missing[:, i].any(axis=1))):
            gaps = missing[database, i]
            known = values[database, i][~gaps]
            bound = float(known.max()) if known.size else largest
            values[database, i][gaps] = bound
            low[database, i][gaps] = float(low[database, i][~gaps].min()) if known.size else 0.0
            source = "largest known value of this database" if known.size else "largest known value of any database"
            unknown.append(Unknown(names[database], resource, int(gaps.sum()), bound, source))
    where = np.asarray(slot_of)
    days = int(np.bincount(where, minlength=slots).max())
    if days > 1:
        shape = (len(names), len(resources), slots)
        folded, opposite = np.empty(shape, np.float32), np.empty(shape, np.float32)
        for slot in range(slots):
            folded[:, :, slot] = np.percentile(values[:, :, where == slot], percentile, axis=2)
            opposite[:, :, slot] = np.percentile(low[:, :, where == slot], 100 - percentile, axis=2)
        values, low = folded, opposite
    else:
        order = np.argsort(where)
        values, low = values[:, :, order], low[:, :, order]
    high = np.ascontiguousarray(values)
    return Demand(tuple(names), tuple(resources), slot_labels(slots), high, low, days, tuple(unknown), tuple(rows), tuple(notes))
