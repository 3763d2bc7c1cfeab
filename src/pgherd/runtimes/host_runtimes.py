"""Runtimes on the host's own kernel: cgroups, plain processes with at most a CPU affinity, and external servers.

The cgroup runtime has a CPU quota or cpuset, a memory limit and a weight per container, below one run cgroup. All its containers share the
host's kernel, so results do not apply to virtual machines. The others isolate nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.host import cgroup_parent, storage
from pgherd.host import cpus as host_cpus
from pgherd.host.cgroups import LEAST_CORES, CgroupLimits, HostGroup, IoLimit, io_limit_missing
from pgherd.host.journal import Journal
from pgherd.model.capabilities import Capabilities, capabilities_of
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.runtime import ContainerHandle, CpuAssignment

_FEATURES = ("cpu_quota", "cpuset", "memory_limit", "weight", "io_limit", "accounting")


class CgroupRuntime:
    """Runtime with cgroups v1, v2 or both."""

    name = "cgroup"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """``suffix`` names the run cgroup ('pgherd-SUFFIX'). ``cpus`` are the reserved CPUs (None: all)."""
        self._node, self._journal, self._facts, self._suffix = node, journal, facts, suffix
        self._allowed = host_cpus.allowed(node)
        self._cpus = tuple(cpus) if cpus is not None else self._allowed
        self._base: cgroup_parent.CgroupParent | None = None
        self._missing = ""
        self._group: HostGroup | None = None
        self._placement = CpuAssignment(self._cpus)

    def capabilities(self) -> Capabilities:
        """Create and remove a probe cgroup once, and report the result."""
        base = self._find()
        if base is None:
            return Capabilities(available=False, missing=dict.fromkeys(_FEATURES, self._missing), note=self._missing)
        note = f"cgroup {base.version} below {base.where}; all containers share one kernel"
        if base.move:
            note += f"; pgherd and other processes of that cgroup move into {base.where}/{cgroup_parent.LEAF} during the run"
        missing = {} if base.limits_io else {"io_limit": io_limit_missing(base)}
        return replace(capabilities_of("cgroup"), io_limit=base.limits_io, missing=missing, note=note)

    def open(self, host: Host) -> None:
        """Create the run cgroup. Its limits are the memory, and the cores where they are fewer than this process may use.

        If this process may only use some of the CPUs, neither may the group: a cgroup at the top is outside the cpuset around pgherd.
        """
        base = self._find()
        if base is None:
            raise CapabilityError(f"the cgroup runtime can't be used: {self._missing}; or use --runtime process")
        pool = self._cpus if set(self._cpus) < set(self._allowed) or host_cpus.restricted(self._node) else None
        quota = host.cores if host.cores is not None and host.cores < min(self._facts.cores, len(self._cpus)) else None
        group = HostGroup(self._node, self._journal, base, self._suffix)
        group.make(CgroupLimits(cores=quota, cpus=pool if self._has_cpuset else None, memory=host.memory, swap=host.swap))
        self._group = group
        self._placement = CpuAssignment(self._cpus)

    def create(self, container: Container) -> ContainerHandle:
        """Create the container's cgroup. Raises UsageError for a quota without vcpus, and CapabilityError for what the kernel refuses."""
        if self._group is None:
            raise RuntimeError("call open() before create()")
        cores, cpus = None, None
        if container.cpu_mode == "quota":
            cores = container.vcpus
            if cores is None:
                raise UsageError(f"container {container.name} has cpu_mode quota but no vcpus; give it vcpus")
            if cores < LEAST_CORES:
                raise CapabilityError(
                    f"container {container.name} asks for {cores:g} vCPUs; the kernel's minimum CPU quota is {LEAST_CORES:g}"
                )
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            cpus = self._placement.place(container)
        elif not self._has_cpuset and set(self._cpus) < set(self._allowed):
            cpus = self._cpus
        cpuset = cpus if self._has_cpuset else None
        limits = CgroupLimits(
            cores=cores,
            period=container.cpu_period,
            cpus=cpuset,
            memory=container.memory,
            weight=container.weight,
            swap=container.swap,
        )
        groups = self._group.add(container.name, limits)
        # Affinity replaces the cpuset controller, which a user's delegated subtree often lacks.
        return ContainerHandle(
            container.name, join=self._group.join(container.name), cpus=None if self._has_cpuset else cpus, groups=groups
        )

    def limit_io(self, container: Container, paths: Sequence[str]) -> None:
        """Limit the I/O of the container on the devices with these paths.

        Raises CapabilityError, also for a file system without a block device.
        """
        if self._group is None:
            raise RuntimeError("call open() before limit_io()")
        devices = storage.devices_of(self._node, paths)
        without = next((path for path in paths if path not in devices), None)
        if without is not None:
            raise CapabilityError(
                f"the I/O of container {container.name} cannot be limited: {without} is on a file system without a block device; "
                "use --data-volume on another file system"
            )
        numbers = tuple(dict.fromkeys(device.number for device in devices.values()))
        self._group.limit_io(container.name, IoLimit(numbers, container.iops, container.io_bandwidth))

    def destroy(self, container: str) -> None:
        """Remove the container's cgroup and kill the processes in it. Raises OSError where it cannot be removed."""
        if self._group is not None:
            self._group.remove(container)

    def close(self) -> None:
        """Remove all cgroups and kill the processes in them. Raises OSError for what could not be removed. The journal keeps it."""
        group, self._group = self._group, None
        failed = group.close() if group is not None else []
        if failed:
            raise OSError("; ".join(failed))

    def change_budget(self, memory: int) -> None:
        """Change the memory limit of the run cgroup.

        A limit below the memory in use makes the kernel reclaim and swap. A higher limit swaps nothing back in, so stop the servers before
        raising it. Raises CapabilityError, also where the kernel can reclaim too little.
        """
        if self._group is None:
            raise RuntimeError("call open() before change_budget()")
        self._group.change(None, CgroupLimits(memory=memory))

    def try_memory(self, container: str, memory: int) -> bool:
        """Attempt to set a container's memory limit. Return False if too much is in use. Raises CapabilityError."""
        if self._group is None:
            raise RuntimeError("call open() before try_memory()")
        return self._group.try_memory(container, memory)

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None:
        if self._group is not None:
            self._group.empty()

    def budget_groups(self) -> Mapping[str, str]:
        return self._group.groups() if self._group is not None else {}

    @property
    def _has_cpuset(self) -> bool:
        return self._base is not None and "cpuset" in self._base.controllers

    def _find(self) -> cgroup_parent.CgroupParent | None:
        if self._base is None and not self._missing:
            try:
                self._base = cgroup_parent.find(self._node)
            except cgroup_parent.CgroupUnavailable as error:
                self._missing = str(error)
        return self._base


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
        missing = dict.fromkeys(("cpu_quota", "memory_limit", "weight", "io_limit", "accounting"), _USE_CGROUP)
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
        """Assign CPUs by affinity. Raises CapabilityError for a CPU quota, a memory or I/O limit, or a weight."""
        if self._placement is None:
            raise RuntimeError("call open() before create()")
        requested = {
            "a CPU quota": container.cpu_mode == "quota",
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
            "an I/O limit": container.io_limited,
        }
        for limit, is_set in requested.items():
            if is_set:
                raise CapabilityError(f"container {container.name} asks for {limit}, which the process runtime can't give; {_USE_CGROUP}")
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            return ContainerHandle(container.name, cpus=self._placement.place(container))
        pool = self._placement.cpus
        return ContainerHandle(container.name, cpus=pool if set(pool) < set(self._allowed) else None)

    def limit_io(self, container: Container, paths: Sequence[str]) -> None: ...

    def destroy(self, container: str) -> None: ...

    def close(self) -> None: ...

    def change_budget(self, memory: int) -> None:
        raise CapabilityError(f"the process runtime can't hold a host to {memory} bytes of memory; {_USE_CGROUP}")

    def try_memory(self, container: str, memory: int) -> bool:
        raise CapabilityError(f"the process runtime can't hold container {container} to {memory} bytes of memory; {_USE_CGROUP}")

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
        missing = dict.fromkeys(_FEATURES, _NOT_OURS)
        return replace(capabilities_of("external"), missing=missing, note="external server: what runs it is only read")

    def open(self, host: Host) -> None: ...

    def create(self, container: Container) -> ContainerHandle:
        """Return a handle without cgroups and CPUs. Raises CapabilityError for any limit."""
        requested = {
            "vCPUs": container.vcpus is not None or container.cpu_mode != "none" or container.cpus is not None,
            "a memory limit": container.memory is not None,
            "a CPU weight": container.weight is not None,
            "an I/O limit": container.io_limited,
        }
        for limit, is_set in requested.items():
            if is_set:
                raise CapabilityError(f"container {container.name} asks for {limit}, which an external server can't be given: {_NOT_OURS}")
        return ContainerHandle(container.name)

    def limit_io(self, container: Container, paths: Sequence[str]) -> None: ...

    def destroy(self, container: str) -> None: ...

    def close(self) -> None: ...

    def change_budget(self, memory: int) -> None:
        raise CapabilityError(f"an external server can't be held to {memory} bytes of memory: {_NOT_OURS}")

    def try_memory(self, container: str, memory: int) -> bool:
        raise CapabilityError(f"container {container} can't be held to {memory} bytes of memory: {_NOT_OURS}")

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None: ...

    def budget_groups(self) -> Mapping[str, str]:
        return {}
