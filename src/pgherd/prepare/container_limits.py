"""What each container is limited to, as the user asked and the runtime can: CPU and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.host.cgroups import LEAST_CORES
from pgherd.model.deployment import CpuMode, RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import settings
from pgherd.prepare import host_share
from pgherd.study.database_options import DatabaseRequest
from pgherd.workloads.script import require_self_contained

GUEST_SYSTEM = 192 * 2**20
"""What a guest's kernel, its page tables and its agent take, generously; bytes."""
_WHOLE = 64 * 2**20
_LEAST_BUFFERS = 8 * 2**20


@dataclass(frozen=True)
class Limits:
    """CPU of each database's container."""

    vcpus: float
    cpu_mode: CpuMode


def limits(asked: DatabaseRequest, runtime: RuntimeName, cores: float, facts: HostFacts, vcpus: float) -> Limits:
    """CPU of each container: what was asked for, else ``vcpus``, or less where no host has that much; by quota where the runtime has
    one. ``cores`` is the budget.

    Raises:
        UsageError: it cannot be given so.
        CapabilityError: it needs another runtime.
    """
    most = host_share.largest(asked, cores)
    vcpus = asked.vcpus or min(vcpus, most)
    if runtime == "vm":
        return _of_guest(asked, facts, asked.vcpus or max(1.0, float(round(vcpus))))
    if runtime == "cgroup":
        mode: CpuMode = asked.cpu_mode or "quota"
    else:
        if asked.vcpus is None:
            vcpus = max(1.0, float(min(round(vcpus), int(most))))
        mode = asked.cpu_mode or ("cpuset" if vcpus == int(vcpus) else "none")
        if mode == "quota":
            raise CapabilityError("--cpu-mode quota needs the cgroup runtime; 'pgherd doctor' says what would make it possible here")
    if mode == "cpuset" and vcpus != int(vcpus):
        raise UsageError(f"--cpu-mode cpuset gives whole CPUs, but --vcpus is {vcpus:g}; give a whole number, or use --cpu-mode quota")
    if vcpus > most:
        raise UsageError(f"--vcpus {vcpus:g} is more than the {most:g} cores of the host's budget")
    if mode == "quota" and vcpus < LEAST_CORES:
        raise UsageError(f"--vcpus {vcpus:g} is less than the least CPU quota that the kernel takes, {LEAST_CORES:g} cores; give more")
    return Limits(vcpus, mode)


def memory(asked: DatabaseRequest, runtime: RuntimeName) -> int | None:
    """The memory that was asked for each container.

    Raises:
        UsageError: no server would start in it.
        CapabilityError: the runtime cannot limit it.
    """
    if asked.memory is None:
        return None
    if runtime not in ("cgroup", "vm"):
        raise CapabilityError("--memory needs the cgroup runtime, or --runtime vm; 'pgherd doctor' says what would make it possible here")
    size, least = parse_bytes(asked.memory), settings.memory_needed(_LEAST_BUFFERS, 0)
    if size < least:
        raise UsageError(
            f"--memory {asked.memory} is less than the {format_bytes(least)} that a server needs without any client; give more"
        )
    return size


def require_guest_can(node: Node, asked: DatabaseRequest, scripts: Sequence[Script]) -> None:
    """That nothing is asked which a guest cannot have.

    Raises:
        CapabilityError: it cannot have that.
        UsageError: a script that is to run in it calls programs, or cannot be read.
    """
    if asked.huge_pages:
        raise CapabilityError(
            f"--huge-pages {asked.huge_pages} is about this machine's kernel, and a server in a guest has the guest's own; leave it out, "
            "or lay the whole guest on huge pages with --vm-huge-pages"
        )
    if asked.client_placement == "inside":
        for script in scripts:
            require_self_contained(node, script)


def guest_memory_needed(chosen: Mapping[str, str]) -> int:
    """Memory (bytes, whole 64 MB) that a guest needs in which a server with these settings runs."""
    buffers = parse_bytes(chosen.get("shared_buffers", "128MB"))
    need = settings.memory_needed(buffers, int(chosen.get("max_connections", "100"))) + GUEST_SYSTEM
    return -(-need // _WHOLE) * _WHOLE


def _of_guest(asked: DatabaseRequest, facts: HostFacts, vcpus: float) -> Limits:
    """A guest uses no more than its vCPUs by itself; a quota on top of them must be asked for."""
    if vcpus != int(vcpus) and asked.cpu_mode != "quota":
        raise UsageError(f"--vcpus {vcpus:g}: a guest has whole vCPUs; give a whole number, or add --cpu-mode quota")
    if vcpus > facts.logical_cpus:
        raise UsageError(f"--vcpus {vcpus:g} is more than the {facts.logical_cpus} CPUs of this host")
    return Limits(vcpus, asked.cpu_mode or "none")
