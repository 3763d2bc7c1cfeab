"""The runtime of control groups: CPU quota or cpuset, memory limit and weight per container, below one host group.

All containers share one kernel, so this says nothing about virtual machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgherd.host import cgroup_base
from pgherd.host import cpus as host_cpus
from pgherd.host.cgroups import LEAST_CORES, HostGroup, Limits
from pgherd.host.journal import Journal
from pgherd.model.capabilities import Capabilities, capabilities_of
from pgherd.model.deployment import Container, Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.node.protocol import Node
from pgherd.runtimes.runtime import Placement, Room

_FEATURES = ("cpu_quota", "cpuset", "memory_limit", "weight", "accounting")


class CgroupRuntime:
    """Implements ``runtimes.runtime.Runtime`` with cgroups v1, v2 or both."""

    name = "cgroup"

    def __init__(self, node: Node, journal: Journal, facts: HostFacts, suffix: str, cpus: Sequence[int] | None = None) -> None:
        """``suffix`` names the host group ('pgherd-SUFFIX'); ``cpus``: those to use (a reservation's), default all."""
        self._node, self._journal, self._facts, self._suffix = node, journal, facts, suffix
        self._allowed = host_cpus.allowed(node)
        self._cpus = tuple(cpus) if cpus is not None else self._allowed
        self._base: cgroup_base.Base | None = None
        self._missing = ""
        self._group: HostGroup | None = None
        self._placement = Placement(self._cpus)

    def capabilities(self) -> Capabilities:
        """Found by making and removing a probe group, once."""
        base = self._find()
        if base is None:
            return Capabilities(available=False, missing=dict.fromkeys(_FEATURES, self._missing), note=self._missing)
        note = f"cgroup {base.version} below {base.where}; all containers share one kernel"
        if base.move:
            note += f"; pgherd and what runs beside it move into {base.where}/{cgroup_base.LEAF} for the time of the run"
        return replace(capabilities_of("cgroup"), note=note)

    def open(self, host: Host) -> None:
        """Make the host group. Cores below what this process could use, and memory if it is given, become its limits."""
        base = self._find()
        if base is None:
            raise CapabilityError(f"the cgroup runtime can't be used: {self._missing}; or use --runtime process")
        pool = self._cpus if set(self._cpus) < set(self._allowed) else None
        quota = host.cores if host.cores is not None and host.cores < min(self._facts.cores, len(self._cpus)) else None
        group = HostGroup(self._node, self._journal, base, self._suffix)
        group.make(Limits(cores=quota, cpus=pool if self._has_cpuset else None, memory=host.memory, swap=host.swap))
        self._group = group
        self._placement = Placement(self._cpus)

    def create(self, container: Container) -> Room:
        """Make the container's group; raises UsageError for a quota without vcpus, CapabilityError for what the kernel refuses."""
        if self._group is None:
            raise RuntimeError("open() comes before create()")
        cores, cpus = None, None
        if container.cpu_mode == "quota":
            cores = container.vcpus
            if cores is None:
                raise UsageError(f"container {container.name} has cpu_mode quota but no vcpus; give it vcpus")
            if cores < LEAST_CORES:
                raise CapabilityError(
                    f"container {container.name} asks for {cores:g} vCPUs; the least CPU quota that the kernel takes is {LEAST_CORES:g}"
                )
        if container.cpu_mode == "cpuset" or container.cpus is not None:
            cpus = self._placement.place(container)
        elif not self._has_cpuset and set(self._cpus) < set(self._allowed):
            cpus = self._cpus
        given = cpus if self._has_cpuset else None
        limits = Limits(
            cores=cores,
            period=container.cpu_period,
            cpus=given,
            memory=container.memory,
            weight=container.weight,
            swap=container.swap,
        )
        groups = self._group.add(container.name, limits)
        # Where the cpuset controller is missing (often so in a user's delegated subtree) affinity does its work.
        return Room(container.name, join=self._group.join(container.name), cpus=None if self._has_cpuset else cpus, groups=groups)

    def destroy(self, container: str) -> None:
        """Remove the container's group, killing what runs in it; raises OSError where it can't be removed."""
        if self._group is not None:
            self._group.remove(container)

    def close(self) -> None:
        """Remove all groups, killing what runs in them; raises OSError for what is left (it stays in the journal)."""
        group, self._group = self._group, None
        failed = group.close() if group is not None else []
        if failed:
            raise OSError("; ".join(failed))

    def change_budget(self, memory: int) -> None:
        """Change the host group's limit. Lowered below what is in use it makes the kernel reclaim and swap; raised again it swaps
        nothing back in: stop the servers before that. Raises CapabilityError, also where too little can be reclaimed."""
        if self._group is None:
            raise RuntimeError("open() comes before change_budget()")
        self._group.change(None, Limits(memory=memory))

    def withhold(self, memory: int) -> None: ...

    def empty(self) -> None:
        """Have the kernel drop what the groups are still charged for."""
        if self._group is not None:
            self._group.empty()

    def budget_groups(self) -> Mapping[str, str]:
        """The host group's directories."""
        return self._group.groups() if self._group is not None else {}

    @property
    def _has_cpuset(self) -> bool:
        return self._base is not None and "cpuset" in self._base.controllers

    def _find(self) -> cgroup_base.Base | None:
        if self._base is None and not self._missing:
            try:
                self._base = cgroup_base.find(self._node)
            except cgroup_base.NoBase as error:
                self._missing = str(error)
        return self._base
