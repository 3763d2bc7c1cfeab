"""What E7 published: working sets of an order-entry load on 30 warehouses, in virtual machines with swap. Of another machine and another
program: they say what to expect in kind, not in size."""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.studies.working_set.options import Curve

SOURCE = "VMware vFabric Postgres 9.2, DBT-2 with 30 warehouses, shared_buffers 1 GB, virtual machines; another machine"

SIZES: Mapping[str, Mapping[int, int]] = {"memory": {30: 1376, 2: 1152}, "buffers": {30: 984, 2: 524}}
"""Sweep → clients → MB. The 1152 MB hold a small safety margin."""

CONFIGURED, HEADROOM, RATE = 4096, 5664, 0.69
"""MB of each of the two databases, MB left over by both, and the overcommitment rate that this makes honest."""

DIP = (0.45, 0.55)
"""Shares of the container's memory that shared buffers are to avoid: throughput dips there."""


def working_set(curve: Curve) -> str | None:
    """What to set beside a knee."""
    size = SIZES[curve.sweep].get(curve.clients)
    return None if size is None else f"{size} MB ({SOURCE})"


def headroom(clients: tuple[int, ...]) -> str | None:
    """What to set beside the headroom: only where the loads are E7's."""
    return f"{HEADROOM} MB of 2 × {CONFIGURED} MB ({SOURCE})" if sorted(clients) == [2, 30] else None


def rate(clients: tuple[int, ...]) -> str | None:
    """What to set beside the largest honest rate."""
    return f"{100 * RATE:.0f} % ({SOURCE})" if sorted(clients) == [2, 30] else None


def dip() -> str:
    """What to set beside the dip."""
    return f"a dip where shared_buffers are {100 * DIP[0]:.0f}–{100 * DIP[1]:.0f} % of the memory ({SOURCE})"
