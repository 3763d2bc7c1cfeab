"""CPU and memory limits of containers, from the user's options and the runtime's features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.host.cgroups import LEAST_CORES
from pgherd.model.capabilities import capabilities_of
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
"""Generous estimate of the memory of a guest's kernel, page tables and agent, in bytes."""
_WHOLE = 64 * 2**20
_LEAST_BUFFERS = 8 * 2**20


@dataclass(frozen=True)
class Limits:
    """CPU limit of each database's container: cores, and the way in which they are enforced."""

    vcpus: float
    cpu_mode: CpuMode


def limits(asked: DatabaseRequest, runtime: RuntimeName, cores: float, facts: HostFacts, vcpus: float) -> Limits:
    """Return the CPU limit of each container.

    The default is ``vcpus``, or fewer if no host has as many. The default mode is quota if the runtime supports it. ``cores`` is the
    number of cores that the run may use.

    Raises:
        UsageError: the request contradicts itself, or exceeds the host.
        CapabilityError: it needs another runtime.
    """
    maximum = host_share.largest(asked, cores)
    vcpus = asked.vcpus or min(vcpus, maximum)
    if capabilities_of(runtime).whole_vcpus:
        return _of_guest(asked, facts, asked.vcpus or max(1.0, float(round(vcpus))))
    if runtime == "cgroup":
        mode: CpuMode = asked.cpu_mode or "quota"
    else:
        if asked.vcpus is None:
            vcpus = max(1.0, float(min(round(vcpus), int(maximum))))
        mode = asked.cpu_mode or ("cpuset" if vcpus == int(vcpus) else "none")
        if mode == "quota":
            raise CapabilityError("--cpu-mode quota needs the cgroup runtime; 'pgherd doctor' shows what this host lacks")
    if mode == "cpuset" and vcpus != int(vcpus):
        raise UsageError(f"--cpu-mode cpuset gives whole CPUs, but --vcpus is {vcpus:g}; use a whole number, or --cpu-mode quota")
    if vcpus > maximum:
        raise UsageError(
            f"--vcpus {vcpus:g} is more than the {maximum:g} cores that the run may use on a host; lower --vcpus, or raise --host-cores"
        )
    if mode == "quota" and vcpus < LEAST_CORES:
        raise UsageError(f"--vcpus {vcpus:g} is less than the least CPU quota that the kernel accepts, {LEAST_CORES:g} cores; raise it")
    return Limits(vcpus, mode)


def memory(asked: DatabaseRequest, runtime: RuntimeName) -> int | None:
    """Return the memory limit of each container in bytes, or None without ``--memory``.

    Raises:
        UsageError: it is too small for a server to start.
        CapabilityError: the runtime cannot limit memory.
    """
    if asked.memory is None:
        return None
    if not capabilities_of(runtime).memory_limit:
        raise CapabilityError("--memory needs the cgroup runtime, or --runtime vm; 'pgherd doctor' shows what this host lacks")
    size, minimum = parse_bytes(asked.memory), settings.memory_needed(_LEAST_BUFFERS, 0)
    if size < minimum:
        raise UsageError(
            f"--memory {asked.memory} is less than the {format_bytes(minimum)} that a server needs without any client; raise it"
        )
    return size


def require_guest_can(node: Node, asked: DatabaseRequest, scripts: Sequence[Script]) -> None:
    """Require that all requested features work in a guest.

    Raises:
        CapabilityError: huge pages of this host are requested for servers.
        UsageError: a script for clients inside the guest calls programs, or cannot be read.
    """
    if asked.huge_pages:
        raise CapabilityError(
            f"--huge-pages {asked.huge_pages} uses this host's kernel, but a server in a guest uses the guest's kernel; leave it out, "
            "or back all guest memory with huge pages with --vm-huge-pages"
        )
    if asked.client_placement == "inside":
        for script in scripts:
            require_self_contained(node, script)


def guest_memory_needed(chosen: Mapping[str, str]) -> int:
    """Return the memory (bytes, a multiple of 64 MB) that a guest needs for a server with these settings."""
    buffers = parse_bytes(chosen.get("shared_buffers", "128MB"))
    need = settings.memory_needed(buffers, int(chosen.get("max_connections", "100"))) + GUEST_SYSTEM
    return -(-need // _WHOLE) * _WHOLE


def _of_guest(asked: DatabaseRequest, facts: HostFacts, vcpus: float) -> Limits:
    """Return the CPU limit of a guest. Its vCPUs limit it already, so a quota applies only if the user sets ``--cpu-mode quota``."""
    if vcpus != int(vcpus) and asked.cpu_mode != "quota":
        raise UsageError(f"--vcpus {vcpus:g}: a guest has whole vCPUs; use a whole number, or add --cpu-mode quota")
    if vcpus > facts.logical_cpus:
        raise UsageError(f"--vcpus {vcpus:g} is more than the {facts.logical_cpus} CPUs of this host; lower it")
    return Limits(vcpus, asked.cpu_mode or "none")
