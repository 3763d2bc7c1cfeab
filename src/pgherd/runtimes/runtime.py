"""What a runtime is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pgherd.model.capabilities import Capabilities
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.protocol import Clock, Node


class Recorder(Protocol):
    """Something that can write what it sees into a trial's spool."""

    def record(self, spool: Path | None) -> None:
        """Append to this spool from now on; None: to none. Raises OSError when it cannot be written."""
        ...


@dataclass(frozen=True)
class Room:
    """A container that is up: how processes enter it, and where its accounting is read.

    ``join`` are the files a process writes itself into before exec; ``cpus`` its affinity; ``groups`` the cgroup
    directories by controller ('v2' for the unified one), for samplers. ``node`` is the container's own where it is a
    machine of its own (a guest): its processes are started there, and need not join anything; ``clock`` converts its instants.
    None: the host's. ``balloons`` records what is seen of the host's guests and their balloons; None where this is none of them.
    """

    container: str
    join: tuple[str, ...] = ()
    cpus: tuple[int, ...] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    node: Node | None = None
    clock: Clock | None = None
    balloons: Recorder | None = None


class Runtime(Protocol):
    """Makes and removes containers on one node, within one host budget."""

    name: str

    def capabilities(self) -> Capabilities:
        """What works here, found by looking (and for cgroups by trying)."""
        ...

    def open(self, host: Host) -> None:
        """Make the host group with the host's budget; raises CapabilityError."""
        ...

    def create(self, container: Container) -> Room:
        """Make one container; raises CapabilityError where the runtime cannot give what the container asks."""
        ...

    def destroy(self, container: str) -> None:
        """Remove one container, killing what still runs in it."""
        ...

    def close(self) -> None:
        """Remove all containers and the host group."""
        ...

    def change_budget(self, memory: int) -> None:
        """Set the memory (bytes) that all containers have together; raises CapabilityError where the runtime cannot."""
        ...

    def withhold(self, memory: int) -> None:
        """Reserve this many bytes of the budget for something that is not a container (0: nothing). Containers whose memory a balloon
        divides then share the remainder. Other runtimes do nothing."""
        ...

    def empty(self) -> None:
        """Drop what containers without processes are still charged for: page cache."""
        ...

    def budget_groups(self) -> Mapping[str, str]:
        """The host group's directories by controller, as in ``Room.groups``; empty where there is none."""
        ...


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
