"""What guests need together of their host's memory: whether a study's fit its budget, and what their balloons leave them in a trial."""

from __future__ import annotations

from pgherd.model.deployment import Container, GuestMemory
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.runtimes import balloon_law
from pgherd.runtimes.balloon_law import moves
from pgherd.runtimes.balloon_manager import law_guest
from pgherd.runtimes.vm.qemu import LEAST_MEMORY
from pgherd.studies.consolidation.options import ConsolidationOptions
from pgherd.studies.consolidation.propose import deploy


def require_fit(options: ConsolidationOptions, policy: GuestMemory) -> None:
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
                    f"--overcommit {rate:g} leaves {format_bytes(left)}, which scheme {scheme}'s hypervisors need for themselves "
                    f"({format_bytes(own)}); lower the rate, or raise --memory"
                )
            together, minima = balloon_law.for_guests(guests, left, policy.reserve), sum(guest.minimum for guest in guests)
            if moves(policy.policy) and minima > together:
                raise UsageError(
                    f"--overcommit {rate:g} leaves {format_bytes(left)}, of which scheme {scheme}'s guests can have "
                    f"{format_bytes(together)} beside their hypervisors and the reserve, but their balloons leave them "
                    f"{format_bytes(minima)} at least; lower the rate, raise --memory, or use --vm-memory-policy static"
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
