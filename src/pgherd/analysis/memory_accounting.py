"""Balance of a host's memory budget: containers plus unallocated memory must equal it.

In each second the sum of the containers' usage + unallocated = budget. Unallocated is the budget less the charge of the cgroup
around all containers. Missing memory is charged to that cgroup but to none of its containers (a removed container's page cache,
another process). Excess memory results from readings at different instants. The memory of compressed swap is charged to no
cgroup and is reported separately.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Series = Sequence[tuple[float, float]]
"""(seconds since the epoch, bytes), in order of time."""

MAX_DISTANCE_S = 0.5
"""Maximum seconds between two readings of one instant. Samples are taken once a second."""


@dataclass(frozen=True)
class MemoryInstant:
    """Memory at one instant, in bytes: the budget, the sum of the containers, and unallocated memory."""

    at: float
    budget: float
    containers: float
    unallocated: float

    @property
    def gap(self) -> float:
        """Missing memory as a share of the budget. Negative for an excess."""
        return (self.budget - self.containers - self.unallocated) / self.budget


@dataclass(frozen=True)
class MemoryBalanceResult:
    """Balance over a window: the number of seconds, and the one with the largest gap."""

    seconds: int
    worst: MemoryInstant


def instants(limit: Series, charged: Series, containers: Mapping[str, Series]) -> list[MemoryInstant]:
    """Return the balance at each reading of the cgroup around all containers.

    Each container must have a reading within half a second. Otherwise (it does not exist yet) that instant is skipped. Without
    containers the result is empty.

    Args:
        limit: limit of that cgroup. A reading holds until the next one.
        charged: charge of that cgroup.
        containers: usage by container.
    """
    balances: list[MemoryInstant] = []
    for instant, used in charged:
        budget = _latest(limit, instant)
        parts = [nearest_value(series, instant) for series in containers.values()]
        if budget is None or budget <= 0 or not parts or any(part is None for part in parts):
            continue
        balances.append(MemoryInstant(instant, budget, sum(part for part in parts if part is not None), budget - used))
    return balances


def balance(balances: Sequence[MemoryInstant], start: float, end: float) -> MemoryBalanceResult | None:
    """Return the balance between two instants, or None without readings in between."""
    inside = [instant for instant in balances if start <= instant.at <= end]
    return MemoryBalanceResult(len(inside), max(inside, key=lambda instant: abs(instant.gap))) if inside else None


def nearest_value(series: Series, at: float) -> float | None:
    """Return the reading nearest in time, if it is within ``MAX_DISTANCE_S``."""
    index = bisect_left(series, (at, float("-inf")))
    neighbours = [series[i] for i in (index - 1, index) if 0 <= i < len(series)]
    nearest = min(neighbours, key=lambda reading: abs(reading[0] - at), default=None)
    return nearest[1] if nearest is not None and abs(nearest[0] - at) <= MAX_DISTANCE_S else None


def compression_ratio(original: float, used: float) -> float | None:
    """Return the compression ratio: bytes before ÷ bytes of memory used. None if nothing is compressed."""
    return original / used if used > 0 and original > 0 else None


def _latest(series: Series, at: float) -> float | None:
    """Return the last reading up to an instant, or the first one if all are later."""
    index = bisect_left(series, (at + MAX_DISTANCE_S, float("-inf")))
    return series[max(index - 1, 0)][1] if series else None
