"""Memory policy of guests: how they share the host's memory, and the minimum and weight of each guest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Container, GuestMemory, RuntimeName
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.units import parse_bytes
from pgherd.node.protocol import Node
from pgherd.runtimes.balloon_law import moves
from pgherd.runtimes.choice import choose
from pgherd.runtimes.vm import acceleration
from pgherd.study.database_options import DatabaseRequest

LEAST_SYSTEM = 96 * 2**20
"""Bytes that a guest's kernel and agent need at least. It is also the lowest minimum of a balloon."""
_RESERVE = GuestMemory().reserve


def in_groups(node: Node, journal: Journal, facts: HostFacts) -> bool:
    """Return True if guests on this host run in control groups. Only then can the sum of their memory be limited."""
    return choose(node, journal, facts, None, "prep")[0].name == "cgroup"


def needed(guests: int, memory: int, overhead: int) -> int:
    """Return the budget (bytes) in which all ``guests`` can use all their memory.

    Each guest has ``memory`` bytes, and each hypervisor needs ``overhead`` bytes more. The budget also contains the policy's reserve.
    """
    return math.ceil(guests * (memory + overhead) / (1 - _RESERVE))


def largest(guests: int, budget: int, overhead: int) -> int:
    """Return the memory (bytes) that each guest can have in a ``budget`` (bytes). This is the inverse of ``needed``."""
    return max(int(budget * (1 - _RESERVE)) // guests - overhead, 0)


def policy(node: Node, asked: DatabaseRequest, runtime: RuntimeName) -> GuestMemory | None:
    """Return the memory policy of guests with the estimated memory of their hypervisors. None if the run has no guests.

    Raises:
        UsageError: the user sets a guest option for other containers, or a balloon option for a policy without balloons.
    """
    _require_applicable(asked, runtime)
    if not capabilities_of(runtime).own_kernel:
        return None
    shared = GuestMemory(policy=asked.vm_memory_policy or "static", overhead=acceleration.overhead(node, str(paths.cache_dir())))
    return shared if asked.vm_idle_tax is None else shared.model_copy(update={"tax": asked.vm_idle_tax})


def promises(asked: DatabaseRequest, runtime: RuntimeName) -> dict[str, Any]:
    """Return the fields of DatabaseOptions with the minimum and the weights of guests.

    Raises:
        UsageError: as ``policy``, or a minimum or weight is not above zero.
    """
    _require_applicable(asked, runtime)
    minimum = None if asked.vm_memory_min is None else parse_bytes(asked.vm_memory_min)
    if minimum is not None and minimum <= 0:
        raise UsageError(f"--vm-memory-min {asked.vm_memory_min}: the minimum must be above zero, such as 256MB")
    return {"guest_minimum": minimum, "guest_shares": dict(_weight(text) for text in asked.vm_memory_shares)}


def require_known(shares: Iterable[str], guests: Iterable[Container]) -> None:
    """Require that each guest in ``shares`` is part of a trial. Raises UsageError."""
    names = sorted({guest.name for guest in guests})
    unknown = [name for name in shares if name not in names]
    if unknown:
        raise UsageError(f"--vm-memory-shares {unknown[0]}: no guest of this run has that name; use one of {', '.join(names)}")


def _require_applicable(asked: DatabaseRequest, runtime: RuntimeName) -> None:
    given = {
        "--vm-memory-min": asked.vm_memory_min,
        "--vm-memory-shares": asked.vm_memory_shares or None,
        "--vm-idle-tax": asked.vm_idle_tax,
    }
    option_names = [option for option, value in given.items() if value is not None]
    if not capabilities_of(runtime).own_kernel and (option_names or asked.vm_memory_policy is not None):
        first = f"--vm-memory-policy {asked.vm_memory_policy}" if asked.vm_memory_policy is not None else ", ".join(option_names)
        raise UsageError(f"{first}: this is for virtual machines; add --runtime vm")
    if option_names and not moves(asked.vm_memory_policy or "static"):
        raise UsageError(f"{', '.join(option_names)}: the memory policy does not move balloons; add --vm-memory-policy virtio-balloon")


def _weight(text: str) -> tuple[str, float]:
    name, _, weight = text.partition("=")
    try:
        value = float(weight)
    except ValueError:
        value = math.nan
    if not name or not 0 < value < math.inf:
        raise UsageError(f"--vm-memory-shares {text}: write NAME=WEIGHT with a weight above zero, such as db01=2")
    return name, value
