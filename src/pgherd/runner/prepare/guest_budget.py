"""What guests need together of their host's memory: whether a study's fit its budget, and what their balloons leave them in a trial."""

from __future__ import annotations

import math

from pgherd.host.journal import Journal
from pgherd.model.deployment import Container, GuestMemory
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node
from pgherd.runtimes import balloon_law
from pgherd.runtimes.balloon_manager import law_guest
from pgherd.runtimes.balloon_policy import moves
from pgherd.runtimes.choice import choose
from pgherd.runtimes.vm.qemu import LEAST_MEMORY
from pgherd.studies.consolidation.options import ConsolidationOptions
from pgherd.studies.consolidation.schemes import deploy

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


def insist_fit(options: ConsolidationOptions, policy: GuestMemory) -> None:
    """That the guests can come up, and that at every rate what is left holds what is guaranteed to them.

    Raises:
        UsageError: they cannot, or it does not; the message says what to change.
    """
    if options.share < LEAST_MEMORY:
        raise UsageError(
            f"--memory {format_bytes(options.share)}: a guest needs {format_bytes(LEAST_MEMORY)} to come up, and its server needs memory "
            "beside that; raise --memory"
        )
    for scheme in options.runnable:
        for rate in options.rates:
            left = options.available(rate)
            guests = [law_guest(container, policy.overhead) for container in _guests(options, scheme)]
            own = sum(guest.overhead for guest in guests)
            if left <= own:
                raise UsageError(
                    f"--rates {rate:g} leaves {format_bytes(left)}, which scheme {scheme}'s hypervisors need for themselves "
                    f"({format_bytes(own)}); lower the rate, or raise --memory"
                )
            together, minima = balloon_law.for_guests(guests, left, policy.reserve), sum(guest.minimum for guest in guests)
            if moves(policy.policy) and minima > together:
                raise UsageError(
                    f"--rates {rate:g} leaves {format_bytes(left)}, of which scheme {scheme}'s guests can have {format_bytes(together)} "
                    f"beside their hypervisors and the reserve, but their balloons leave them {format_bytes(minima)} at least; lower the "
                    "rate, raise --memory, or use --guest-memory static"
                )


def words(options: ConsolidationOptions, scheme: int, policy: GuestMemory) -> str:
    """What becomes of the memory of a scheme's guests: ``balloons leave each at least 1 GB of its 4 GB``."""
    one = law_guest(_guests(options, scheme)[0], policy.overhead)
    if moves(policy.policy):
        return f"its balloon leaves it at least {format_bytes(one.minimum)} of its {format_bytes(one.memory)}"
    told = "it reports what is free" if policy.policy == "free-page-reporting" else "its balloon is not moved"
    return f"{told}, and what the host is short of it compresses or swaps"


def _guests(options: ConsolidationOptions, scheme: int) -> list[Container]:
    return [container for _, container in deploy(options, scheme, options.buffers[0], 0.0).containers()]
