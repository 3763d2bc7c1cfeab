"""From a trial's readings to what its phases say of the host's memory: is all of the budget accounted for?"""

from __future__ import annotations

from collections.abc import Iterable

from pgherd.analysis import memory_accounting
from pgherd.metrics.cgroup import BUDGET
from pgherd.metrics.spool import SpoolReading
from pgherd.model.result import MemoryAccount

_CONTAINER = "container:"


def account(readings: Iterable[SpoolReading], start: float, end: float) -> MemoryAccount | None:
    """The identity in the window of a phase (seconds since the epoch); None where no group holds the budget."""
    limit: list[tuple[float, float]] = []
    charged: list[tuple[float, float]] = []
    containers: dict[str, list[tuple[float, float]]] = {}
    for at, sampler, entity, values in readings:
        if sampler != "cgroup_memory":
            continue
        if entity == BUDGET and "memory.limit" in values:
            limit.append((at, values["memory.limit"]))
        if "memory.usage" not in values:
            continue
        if entity == BUDGET:
            charged.append((at, values["memory.usage"]))
        elif entity.startswith(_CONTAINER):
            containers.setdefault(entity, []).append((at, values["memory.usage"]))
    found = memory_accounting.account(memory_accounting.seconds(limit, charged, containers), start, end)
    if found is None:
        return None
    worst = found.worst
    return MemoryAccount(
        seconds=found.seconds,
        worst=worst.gap,
        worst_at=worst.at,
        budget=worst.budget,
        containers=worst.containers,
        unallocated=worst.unallocated,
    )
