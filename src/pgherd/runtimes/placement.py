"""Which CPUs a container gets when it is given whole CPUs: round-robin over those of the run."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.deployment import Container
from pgherd.model.errors import CapabilityError, UsageError


class Placement:
    """Hands out CPUs in turn; begins anew with the first when all have been given, so that overcommitted runs spread evenly."""

    def __init__(self, cpus: Sequence[int]) -> None:
        """``cpus`` are the run's CPUs, in the order in which they are given."""
        self.cpus = tuple(cpus)
        self._next = 0

    def place(self, container: Container) -> tuple[int, ...]:
        """The container's CPUs: those that it names, else the next ``vcpus`` in turn.

        Raises UsageError without ``vcpus``, and CapabilityError where they are not a whole number, more than there
        are, or name CPUs that the run does not have.
        """
        if container.cpus is not None:
            foreign = sorted(set(container.cpus) - set(self.cpus))
            if foreign:
                raise CapabilityError(
                    f"container {container.name} asks for CPU {', '.join(map(str, foreign))}, but this run has CPUs {_shown(self.cpus)}; "
                    "name others, or give the run more cores"
                )
            return container.cpus
        if container.vcpus is None:
            raise UsageError(f"container {container.name} has cpu_mode cpuset but neither vcpus nor cpus; give one of them")
        if container.vcpus != int(container.vcpus):
            raise CapabilityError(
                f"container {container.name} asks for {container.vcpus:g} vCPUs, but only whole CPUs can be assigned; "
                "use a whole number, or a CPU quota with the cgroup runtime"
            )
        count = int(container.vcpus)
        if count > len(self.cpus):
            raise CapabilityError(
                f"container {container.name} asks for {count} vCPUs, but this run has {len(self.cpus)} CPUs; ask for fewer"
            )
        given = [self.cpus[(self._next + index) % len(self.cpus)] for index in range(count)]
        self._next = (self._next + count) % len(self.cpus)
        return tuple(sorted(given))


def _shown(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus[:8])) + (" …" if len(cpus) > 8 else "")
