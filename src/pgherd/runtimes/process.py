"""Runtimes without isolation: plain processes with at most a CPU affinity, and external servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.host import cpus as host_cpus
from pgherd.host.journal import Journal
from pgherd.model.capabilities import Capabilities, capabilities_of
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError
from pgherd.model.host_facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.runtime import ContainerHandle, CpuAssignment

_USE_CGROUP = "use the cgroup runtime (--runtime cgroup)"


class ProcessRuntime:
    """Runtime that starts servers as plain processes. It changes nothing on the host."""

    name = "process"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """``cpus`` are the reserved CPUs (None: all that this process may use). The other arguments are those of all runtimes."""
        self._allowed = host_cpus.allowed(node)
        self._cpus = tuple(cpus) if cpus is not None else self._allowed
        self._facts = facts
        self._placement: CpuAssignment | None = None

    def capabilities(self) -> Capabilities:
        missing = dict.fromkeys(("cpu_quota", "memory_limit", "weight", "accounting"), _USE_CGROUP)
        note = "no isolation: servers share CPUs, memory and page cache freely"
        return replace(capabilities_of("process"), missing=missing, note=note)

    def open(self, host: Host) -> None:
        """Turn the budget of cores into a set of CPUs. Raises CapabilityError for a fraction of a core and for a memory budget."""
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
        self._placement = CpuAssignment(pool)

    def create(self, container: Container) -> ContainerHandle:
        """Assign CPUs by affinity. Raises CapabilityError for a CPU quota, a memory limit or a weight."""
        if self._placement is None:
            raise RuntimeError("call open() before create()")
        requested = {
            "a CPU quota": container.cpu_mode == "quota",
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
        }
        for limit, is_set in requested.items():
            if is_set:
                raise CapabilityError(f"container {container.name} asks for {limit}, which the process runtime can't give; {_USE_CGROUP}")
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            return ContainerHandle(container.name, cpus=self._placement.place(container))
        pool = self._placement.cpus
        return ContainerHandle(container.name, cpus=pool if set(pool) < set(self._allowed) else None)

    def destroy(self, container: str) -> None: ...

    def close(self) -> None: ...

    def change_budget(self, memory: int) -> None:
        raise CapabilityError(f"the process runtime can't hold a host to {memory} bytes of memory; {_USE_CGROUP}")

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None: ...

    def budget_groups(self) -> Mapping[str, str]:
        return {}


_NOT_OURS = "the server is external: its limits are set where it runs"


class ExternalRuntime:
    """Runtime of external servers, which are reached by a DSN. It starts, limits, observes and stops nothing."""

    name = "external"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """The arguments are those of all runtimes. None is used."""

    def capabilities(self) -> Capabilities:
        missing = dict.fromkeys(("cpu_quota", "cpuset", "memory_limit", "weight", "accounting"), _NOT_OURS)
        return replace(capabilities_of("external"), missing=missing, note="external server: its CPU, memory and disks are not observed")

    def open(self, host: Host) -> None: ...

    def create(self, container: Container) -> ContainerHandle:
        """Return a handle without cgroups and CPUs. Raises CapabilityError for any limit."""
        requested = {
            "vCPUs": container.vcpus is not None or container.cpu_mode != "none" or container.cpus is not None,
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
        }
        for limit, is_set in requested.items():
            if is_set:
                raise CapabilityError(f"container {container.name} asks for {limit}, which an external server can't be given: {_NOT_OURS}")
        return ContainerHandle(container.name)

    def destroy(self, container: str) -> None: ...

    def close(self) -> None: ...

    def change_budget(self, memory: int) -> None:
        raise CapabilityError(f"an external server can't be held to {memory} bytes of memory: {_NOT_OURS}")

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None: ...

    def budget_groups(self) -> Mapping[str, str]:
        return {}
