"""Whether all of a host's memory budget is accounted for: what the containers have and what nobody has must add up to it. Pure.

In every second: sum of the containers' usage + unallocated = budget, where unallocated is the budget less what is charged to the
group around all containers. What is missing is charged to that group but to none of its containers (a removed container's page
cache, a process outside); what is too much was read at another instant. Compressed swap's own memory is charged to nobody and stands
apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Series = Sequence[tuple[float, float]]
"""(seconds since the epoch, bytes), in order of time."""

TOGETHER = 0.5
"""Seconds: readings further apart are not of one instant. Samples are taken once a second."""


@dataclass(frozen=True)
class Second:
    """One instant: the budget, the containers' sum and what nobody has, bytes."""

    at: float
    budget: float
    containers: float
    unallocated: float

    @property
    def gap(self) -> float:
        """What is missing (negative: too much), as a share of the budget."""
        return (self.budget - self.containers - self.unallocated) / self.budget


@dataclass(frozen=True)
class Accounted:
    """The identity over a window: how many seconds were looked at, and the one in which most was missing or too much."""

    seconds: int
    worst: Second


def seconds(limit: Series, charged: Series, containers: Mapping[str, Series]) -> list[Second]:
    """One per reading of what is charged to the group around all, where each container was read within half a second of it.

    ``limit`` is that group's limit, which holds until its next reading. A container that was not read then (it did not exist yet) makes
    no second; without any container there is none.
    """
    found: list[Second] = []
    for at, used in charged:
        budget = _at(limit, at)
        parts = [near(series, at) for series in containers.values()]
        if budget is None or budget <= 0 or not parts or any(part is None for part in parts):
            continue
        found.append(Second(at, budget, sum(part for part in parts if part is not None), budget - used))
    return found


def account(found: Sequence[Second], start: float, end: float) -> Accounted | None:
    """The identity between two instants; None where no second lies there."""
    inside = [one for one in found if start <= one.at <= end]
    return Accounted(len(inside), max(inside, key=lambda one: abs(one.gap))) if inside else None


def near(series: Series, at: float) -> float | None:
    """The reading that is nearest in time, if that is near enough."""
    index = bisect_left(series, (at, float("-inf")))
    around = [series[i] for i in (index - 1, index) if 0 <= i < len(series)]
    nearest = min(around, key=lambda one: abs(one[0] - at), default=None)
    return nearest[1] if nearest is not None and abs(nearest[0] - at) <= TOGETHER else None


def ratio(original: float, used: float) -> float | None:
    """By how much memory was compressed: bytes before ÷ bytes of memory taken; None while nothing is."""
    return original / used if used > 0 and original > 0 else None


def _at(series: Series, at: float) -> float | None:
    """The last reading until then; the first one where all came later."""
    index = bisect_left(series, (at + TOGETHER, float("-inf")))
    return series[max(index - 1, 0)][1] if series else None
