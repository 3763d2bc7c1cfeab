"""Runtime protocol, handle of a container, and assignment of CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pgherd.model.capabilities import Capabilities
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.protocol import ClockConverter, Node


class Recorder(Protocol):
    """Writer of readings into a trial's spool."""

    def record(self, spool: Path | None) -> None:
        """Append to this spool from now on. None stops recording. Raises OSError when the spool cannot be written."""
        ...


@dataclass(frozen=True)
class ContainerHandle:
    """Handle of a running container: how processes enter it, and where its use is counted.

    A process writes itself into the files of ``join`` before exec. ``cpus`` is its CPU affinity. ``groups`` maps controllers ('v2' for
    the unified hierarchy) to cgroup directories, for samplers.

    ``node`` is set where the container is a guest: processes start there and join nothing, and ``clock`` converts the guest's instants.
    None means the host. ``balloons`` records readings of guests and their balloons. It is None in other runtimes.
    """

    container: str
    join: tuple[str, ...] = ()
    cpus: tuple[int, ...] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    node: Node | None = None
    clock: ClockConverter | None = None
    balloons: Recorder | None = None


class Runtime(Protocol):
    """Creates and removes containers on one node, within the memory and cores of one host."""

    name: str

    def capabilities(self) -> Capabilities:
        """Return the capabilities of this runtime on this host, by inspection. The cgroup runtime tries them."""
        ...

    def open(self, host: Host) -> None:
        """Create the run cgroup with the host's limits. Raises CapabilityError."""
        ...

    def create(self, container: Container) -> ContainerHandle:
        """Create one container. Raises CapabilityError where the runtime does not support a limit of the container."""
        ...

    def limit_io(self, container: Container, paths: Sequence[str]) -> None:
        """Limit the I/O of a running container on the devices with these paths, as it asks for (None: unlimited).

        Raises CapabilityError.
        """
        ...

    def destroy(self, container: str) -> None:
        """Remove one container and kill the processes in it."""
        ...

    def close(self) -> None:
        """Remove all containers and the run cgroup."""
        ...

    def change_budget(self, memory: int) -> None:
        """Set the memory (bytes) of all containers together. Raises CapabilityError where the runtime cannot limit it."""
        ...

    def try_memory(self, container: str, memory: int) -> bool:
        """Attempt to set the memory limit (bytes) of a container whose processes run. Return False if too much memory is in use.

        Raises CapabilityError where the runtime cannot change it.
        """
        ...

    def withhold(self, memory: int) -> None:
        """Reserve this many bytes of the budget for something that is not a container (0: nothing).

        Guests that share memory by balloons then share the remainder. Other runtimes do nothing.
        """
        ...

    def empty(self) -> None:
        """Drop the page cache that containers without processes are still charged for."""
        ...

    def budget_groups(self) -> Mapping[str, str]:
        """Return the directories of the run cgroup by controller, as in ``ContainerHandle.groups``. Empty where there is no such cgroup."""
        ...


class CpuAssignment:
    """Assigns CPUs round-robin, and starts again at the first one, so that overcommitted runs spread evenly."""

    def __init__(self, cpus: Sequence[int]) -> None:
        """``cpus`` are the run's CPUs in the order of assignment."""
        self.cpus = tuple(cpus)
        self._next = 0

    def place(self, container: Container) -> tuple[int, ...]:
        """Return the container's CPUs: those that it names, or the next ``vcpus`` in turn.

        Raises:
            UsageError: the container has no ``vcpus``.
            CapabilityError: ``vcpus`` is not a whole number or exceeds the run's CPUs, or the run does not have the named CPUs.
        """
        if container.cpus is not None:
            foreign = sorted(set(container.cpus) - set(self.cpus))
            if foreign:
                raise CapabilityError(
                    f"container {container.name} asks for CPU {', '.join(map(str, foreign))}, but the run has CPUs {_listed(self.cpus)}; "
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
        cpus = [self.cpus[(self._next + index) % len(self.cpus)] for index in range(count)]
        self._next = (self._next + count) % len(self.cpus)
        return tuple(sorted(cpus))


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus[:8])) + (" …" if len(cpus) > 8 else "")
