"""How guests share their host's memory, as the user asked: the policy, and what each guest is promised."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pgherd.host import paths
from pgherd.host.journal import Journal
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
"""Bytes below which a guest's kernel and its agent cannot do, whatever is reclaimed; the least minimum of a balloon is as much."""
_RESERVE = GuestMemory().reserve


def in_groups(node: Node, journal: Journal, facts: HostFacts) -> bool:
    """Whether guests run in control groups here, so that the memory that they have together can be limited."""
    return choose(node, journal, facts, None, "prep")[0].name == "cgroup"


def needed(guests: int, memory: int, overhead: int) -> int:
    """The budget (bytes) in which so many guests of so much ``memory`` each have all of it, with their hypervisors, which need the
    ``overhead`` each, and the reserve."""
    return math.ceil(guests * (memory + overhead) / (1 - _RESERVE))


def largest(guests: int, budget: int, overhead: int) -> int:
    """The memory (bytes) that each of so many guests can have in a budget: the other way round."""
    return max(int(budget * (1 - _RESERVE)) // guests - overhead, 0)


def policy(node: Node, asked: DatabaseRequest, runtime: RuntimeName) -> GuestMemory | None:
    """How guests share memory, with what the hypervisor of each is reckoned to need here; None where there are none.

    Raises:
        UsageError: something of it was asked for other containers, or for balloons that nobody moves.
    """
    _insist_meant(asked, runtime)
    if runtime != "vm":
        return None
    found = GuestMemory(policy=asked.vm_memory_policy or "static", overhead=acceleration.overhead(node, str(paths.cache_dir())))
    return found if asked.vm_idle_tax is None else found.model_copy(update={"tax": asked.vm_idle_tax})


def promises(asked: DatabaseRequest, runtime: RuntimeName) -> dict[str, Any]:
    """The fields of DatabaseOptions that say what guests are promised; raises UsageError as ``policy``, and for what is no weight."""
    _insist_meant(asked, runtime)
    least = None if asked.vm_memory_min is None else parse_bytes(asked.vm_memory_min)
    if least is not None and least <= 0:
        raise UsageError(f"--vm-memory-min {asked.vm_memory_min}: give each guest more than nothing, such as 256MB")
    return {"guest_minimum": least, "guest_shares": dict(_weight(text) for text in asked.vm_memory_shares)}


def require_known(shares: Iterable[str], guests: Iterable[Container]) -> None:
    """That all guests which were given a weight are there in some trial; raises UsageError."""
    names = sorted({one.name for one in guests})
    unknown = [name for name in shares if name not in names]
    if unknown:
        raise UsageError(f"--vm-memory-shares {unknown[0]}: no guest of this run has that name; they are {', '.join(names)}")


def _insist_meant(asked: DatabaseRequest, runtime: RuntimeName) -> None:
    given = {
        "--vm-memory-min": asked.vm_memory_min,
        "--vm-memory-shares": asked.vm_memory_shares or None,
        "--vm-idle-tax": asked.vm_idle_tax,
    }
    named = [option for option, value in given.items() if value is not None]
    if runtime != "vm" and (named or asked.vm_memory_policy is not None):
        first = f"--vm-memory-policy {asked.vm_memory_policy}" if asked.vm_memory_policy is not None else ", ".join(named)
        raise UsageError(f"{first}: this is for virtual machines; add --runtime vm")
    if named and not moves(asked.vm_memory_policy or "static"):
        raise UsageError(f"{', '.join(named)}: nobody moves the guests' balloons; add --vm-memory-policy guest-balloon")


def _weight(text: str) -> tuple[str, float]:
    name, _, weight = text.partition("=")
    try:
        found = float(weight)
    except ValueError:
        found = math.nan
    if not name or not 0 < found < math.inf:
        raise UsageError(f"--vm-memory-shares {text}: write NAME=WEIGHT with a weight above zero, such as db01=2")
    return name, found
