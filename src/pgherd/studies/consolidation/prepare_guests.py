"""Host memory of all guests: the check against the host's budget, and a sentence on the minimum of each guest."""

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
    """Require that the guests can boot, and that the memory at every overcommitment rate covers their guaranteed minimum.

    Raises:
        UsageError: the memory is insufficient. The message names the options to change.
    """
    if options.share < LEAST_MEMORY:
        raise UsageError(
            f"--memory {format_bytes(options.share)}: a guest needs {format_bytes(LEAST_MEMORY)} to boot, and its server needs additional "
            "memory; raise --memory"
        )
    for scheme in options.runnable:
        for rate in options.rates:
            left = options.available(rate)
            guests = [law_guest(container, policy.overhead) for container in _guests(options, scheme)]
            overhead = sum(guest.overhead for guest in guests)
            if left <= overhead:
                raise UsageError(
                    f"--overcommit {rate:g} leaves {format_bytes(left)}, but the hypervisors of scheme {scheme} need "
                    f"{format_bytes(overhead)}; lower the rate, or raise --memory"
                )
            together, minima = balloon_law.for_guests(guests, left, policy.reserve), sum(guest.minimum for guest in guests)
            if moves(policy.policy) and minima > together:
                raise UsageError(
                    f"--overcommit {rate:g} leaves {format_bytes(left)}, of which {format_bytes(together)} remain for the guests of "
                    f"scheme {scheme} after hypervisors and the reserve, but their guaranteed minimum is {format_bytes(minima)}; lower the "
                    "rate, raise --memory, or use --vm-memory-policy static"
                )


def words(options: ConsolidationOptions, scheme: int, policy: GuestMemory) -> str:
    """Describe how a scheme's guests share memory, such as ``its balloon leaves it at least 1 GB of its 4 GB``."""
    one = law_guest(_guests(options, scheme)[0], policy.overhead)
    if moves(policy.policy):
        return f"its balloon leaves it at least {format_bytes(one.minimum)} of its {format_bytes(one.memory)}"
    method = "it reports free pages" if policy.policy == "free-page-reporting" else "its balloon keeps its size"
    return f"{method}, and the host compresses or swaps its pages when memory is short"


def _guests(options: ConsolidationOptions, scheme: int) -> list[Container]:
    return [container for _, container in deploy(options, scheme, options.buffers[0], 0.0).containers()]
