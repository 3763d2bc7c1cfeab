"""Demand of databases for the resources of a host over the slots of a day, folded from one or several days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pgherd.model.errors import UsageError

Array = NDArray[np.float32]

RESOURCES = {
    "cpu_cores": "cores",
    "memory_mb": "MB",
    "read_iops": "IOPS",
    "write_iops": "IOPS",
    "wal_mb_s": "MB/s",
    "connections": "connections",
    "disk_mb": "MB",
}
"""Resource → unit. 1 MB is 2^20 bytes."""

FULL_STOPS = frozenset({"memory_mb", "connections", "disk_mb"})
"""Resources that fail at their capacity. The others slow down, so that only they may exceed it in the slots of a stated risk."""

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


@dataclass(frozen=True, eq=False)
class Demand:
    """Demand of databases in each slot of a day.

    ``high`` is planned for: the stated percentile over the days, unknown values at their upper bound. ``low`` is the opposite percentile,
    unknown values as the smallest known one of the database or 0. Both have the shape (databases, resources, slots) and the units of
    ``RESOURCES``. ``days`` is the number of days folded. ``rows`` is the first row of each database in the input, for messages.
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    slots: tuple[str, ...]
    high: Array
    low: Array
    days: int
    unknown: tuple[Unknown, ...] = ()
    rows: tuple[int, ...] = ()


def slot_labels(count: int) -> tuple[str, ...]:
    """Return the time of day at which each of ``count`` equal slots starts, such as 13:30."""
    starts = [slot * DAY // count for slot in range(count)]
    return tuple(f"{start // 3600:02d}:{start % 3600 // 60:02d}" for start in starts)


def fold(
    names: Sequence[str],
    resources: Sequence[str],
    values: Array,
    slot_of: Sequence[int],
    slots: int,
    percentile: float = 95.0,
    rows: Sequence[int] = (),
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

    Raises:
        UsageError: no value of a resource is known.
    """
    unknown: list[Unknown] = []
    low = values.copy()
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
            low[database, i][gaps] = float(known.min()) if known.size else 0.0
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
    return Demand(tuple(names), tuple(resources), slot_labels(slots), np.ascontiguousarray(values), low, days, tuple(unknown), tuple(rows))
