"""The runtime without isolation: servers are plain processes, held to CPUs by affinity at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.host import cpus as host_cpus
from pgherd.host.journal import Journal
from pgherd.model.capabilities import Capabilities, capabilities_of
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.runtime import Placement, Room

_USE_CGROUP = "use the cgroup runtime (--runtime cgroup)"


class ProcessRuntime:
    """Implements ``runtimes.runtime.Runtime``. It makes nothing on the host, so there is nothing to undo."""

    name = "process"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """``cpus``: those to use (a reservation's); default: all that this process may use. Journal and suffix are
        taken for the sake of the common constructor only."""
        self._allowed = host_cpus.allowed(node)
        self._cpus = tuple(cpus) if cpus is not None else self._allowed
        self._facts = facts
        self._placement: Placement | None = None

    def capabilities(self) -> Capabilities:
        """Always available, and never more than affinity."""
        missing = dict.fromkeys(("cpu_quota", "memory_limit", "weight", "accounting"), _USE_CGROUP)
        note = "no isolation: servers share CPUs, memory and page cache freely"
        return replace(capabilities_of("process"), missing=missing, note=note)

    def open(self, host: Host) -> None:
        """Take the budget of cores as a set of CPUs; raises CapabilityError for a fraction of one, and for a memory budget."""
        if host.memory is not None:
            raise CapabilityError(f"the process runtime can't hold a host to {host.memory} bytes of memory; {_USE_CGROUP} or leave it out")
        pool = self._cpus
        if host.cores is not None and host.cores < min(self._facts.cores, len(pool)):
            if host.cores != int(host.cores):
                raise CapabilityError(
                    f"the process runtime gives whole CPUs only, and the host's budget is {host.cores:g} cores; "
                    f"{_USE_CGROUP} or give a whole number"
                )
            pool = pool[: int(host.cores)]
        self._placement = Placement(pool)

    def create(self, container: Container) -> Room:
        """A room is an affinity; raises CapabilityError for a quota, a memory limit or a weight."""
        if self._placement is None:
            raise RuntimeError("open() comes before create()")
        asked = {
            "a CPU quota": container.cpu_mode == "quota",
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
        }
        for what, wanted in asked.items():
            if wanted:
                raise CapabilityError(f"container {container.name} asks for {what}, which the process runtime can't give; {_USE_CGROUP}")
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            return Room(container.name, cpus=self._placement.place(container))
        pool = self._placement.cpus
        return Room(container.name, cpus=pool if set(pool) < set(self._allowed) else None)

    def destroy(self, container: str) -> None:
        """Nothing to do: whoever started a process here ends it."""

    def close(self) -> None:
        """Nothing to do."""

    def change_budget(self, memory: int) -> None:
        """Raises CapabilityError."""
        raise CapabilityError(f"the process runtime can't hold a host to {memory} bytes of memory; {_USE_CGROUP}")

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None:
        """Nothing to do."""

    def budget_groups(self) -> Mapping[str, str]:
        """There is none."""
        return {}


_NOT_OURS = "the server is somebody else's: what limits it is set where it runs"


class ExternalRuntime:
    """Implements ``runtimes.runtime.Runtime`` for servers that are reached by a DSN. It does nothing at all."""

    name = "external"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """All are taken for the sake of the common constructor only."""

    def capabilities(self) -> Capabilities:
        """Always available, and able to do nothing."""
        missing = dict.fromkeys(("cpu_quota", "cpuset", "memory_limit", "weight", "accounting"), _NOT_OURS)
        return replace(capabilities_of("external"), missing=missing, note="somebody else's server: its CPU, memory and disks are not seen")

    def open(self, host: Host) -> None:
        """The budget bounds what pgherd runs; there is nothing of ours here."""

    def create(self, container: Container) -> Room:
        """A room without walls; raises CapabilityError for any limit."""
        asked = {
            "vCPUs": container.vcpus is not None or container.cpu_mode != "none" or container.cpus is not None,
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
        }
        for what, wanted in asked.items():
            if wanted:
                raise CapabilityError(f"container {container.name} asks for {what}, which an external server can't be given: {_NOT_OURS}")
        return Room(container.name)

    def destroy(self, container: str) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def change_budget(self, memory: int) -> None:
        """Raises CapabilityError."""
        raise CapabilityError(f"an external server can't be held to {memory} bytes of memory: {_NOT_OURS}")

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None:
        """Nothing to do."""

    def budget_groups(self) -> Mapping[str, str]:
        """There is none."""
        return {}
