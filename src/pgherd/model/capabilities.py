"""Capabilities of runtimes: the differences between them that other code depends on.

Code that depends on such a difference reads a capability instead of comparing the runtime's name. A new runtime then needs an entry in
this module, and no change in the code that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of one runtime.

    ``capabilities_of`` returns them by the runtime's name, for every host. ``Runtime.capabilities`` returns them for one host.
    """

    available: bool
    """The runtime works on this host. ``capabilities_of`` does not check the host and returns True."""
    cpu_quota: bool = False
    """A container's CPU can be limited to a fraction of a core."""
    cpuset: bool = False
    """A container can get whole CPUs."""
    memory_limit: bool = False
    """A container's memory can be limited, and so can the memory of all containers together."""
    io_limit: bool = False
    """I/O operations and bytes per second of a container can be limited."""
    accounting: bool = False
    """The kernel counts a container's CPU, memory and OOM kills."""
    memory_changes: bool = False
    """A container's memory can be changed while its processes run."""
    cgroups: bool = False
    """A container is a cgroup of the host's kernel. The kernel can reclaim memory from servers that run in it."""
    own_kernel: bool = False
    """A container is a virtual machine. Its kernel, page cache, swap and huge pages are separate from the host's. It has a fixed memory
    size, of which its system uses a part. It keeps its memory after its servers stop, and gives memory back through a balloon only."""
    whole_vcpus: bool = False
    """A container has a whole number of vCPUs, with or without a CPU limit in addition."""
    host_files: bool = False
    """Data directories are on the host's file systems and survive the container."""
    managed: bool = True
    """pgherd starts, stops and observes the servers. False for external servers."""
    several_hosts: bool = False
    """The runtime works on the hosts of a cluster."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Capability that this host does not offer → what would make it available."""
    note: str = ""
    """Description for people, or the reason why the runtime is not available."""


_BY_NAME: Mapping[str, Capabilities] = {
    "process": Capabilities(available=True, cpuset=True, host_files=True, several_hosts=True),
    "cgroup": Capabilities(
        available=True,
        cpu_quota=True,
        cpuset=True,
        memory_limit=True,
        io_limit=True,
        accounting=True,
        memory_changes=True,
        cgroups=True,
        host_files=True,
        several_hosts=True,
    ),
    "vm": Capabilities(
        available=True,
        cpu_quota=True,
        cpuset=True,
        memory_limit=True,
        accounting=True,
        memory_changes=True,
        own_kernel=True,
        whole_vcpus=True,
    ),
    "external": Capabilities(available=True, managed=False),
}


def capabilities_of(runtime: str) -> Capabilities:
    """Return the capabilities of a runtime, on a host that supports all of them. Nothing is opened, and no host is checked.

    Raises:
        KeyError: no runtime has this name.
    """
    return _BY_NAME[runtime]


def is_cpu_limited(runtime: str, cpu_mode: str) -> bool:
    """Whether a container cannot use more than its vCPUs. A guest cannot in any mode."""
    return cpu_mode != "none" or capabilities_of(runtime).whole_vcpus
