"""Limits of containers: CPU and memory from the user's options and the runtime's features, and the swap of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from pgherd.host import swap as host_swap
from pgherd.host.cgroups import LEAST_CORES
from pgherd.host.swap_areas import areas
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import CpuMode, RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import Swap
from pgherd.model.units import Size, format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.postgres import settings
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.prepare import guests
from pgherd.prepare.hosts import HostShare
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.runner.deploy import huge_pages
from pgherd.study.swap_options import SwapRequest

_WHOLE = 64 * 2**20
_LEAST_BUFFERS = 8 * 2**20


@dataclass(frozen=True)
class Containers:
    """Containers of a run: their runtime and share of the hosts, this host's CPUs, and the limits that the user sets."""

    runtime: RuntimeName
    share: HostShare
    logical_cpus: int
    vcpus: float | None = None
    cpu_mode: CpuMode | None = None
    memory: Size | None = None


@dataclass(frozen=True)
class ContainerCpu:
    """CPU limit of each database's container: cores, and the way in which they are enforced."""

    vcpus: float
    cpu_mode: CpuMode


@dataclass(frozen=True)
class ContainerLimits:
    """CPU limit and memory limit (bytes; None: no limit) of each database's container, and ``messages`` about the choice."""

    cpu: ContainerCpu
    memory: int | None
    messages: tuple[str, ...] = ()


def choose_cpu(containers: Containers, default: float) -> ContainerCpu:
    """Return the CPU limit of each container: ``--vcpus`` and ``--cpu-mode``, or their defaults.

    The default number of vCPUs is ``default``, or fewer if no host has as many. The default mode is quota if the runtime supports it.
    pgherd does not limit an external server.

    Raises:
        UsageError: the options contradict each other, or exceed the host.
        CapabilityError: they need another runtime.
    """
    runtime, largest = containers.runtime, containers.share.largest
    if not capabilities_of(runtime).managed:
        return ContainerCpu(containers.share.cores, "none")
    size = containers.vcpus or min(default, largest)
    if capabilities_of(runtime).whole_vcpus:
        return _of_guest(containers.vcpus or max(1.0, float(round(size))), containers.cpu_mode, containers.logical_cpus)
    if runtime == "cgroup":
        mode: CpuMode = containers.cpu_mode or "quota"
    else:
        if containers.vcpus is None:
            size = max(1.0, float(min(round(size), int(largest))))
        mode = containers.cpu_mode or ("cpuset" if size == int(size) else "none")
        if mode == "quota":
            raise CapabilityError("--cpu-mode quota needs the cgroup runtime; 'pgherd doctor' shows what this host lacks")
    if mode == "cpuset" and size != int(size):
        raise UsageError(f"--cpu-mode cpuset gives whole CPUs, but --vcpus is {size:g}; use a whole number, or --cpu-mode quota")
    if size > largest:
        raise UsageError(
            f"--vcpus {size:g} is more than the {largest:g} cores that the run may use on a host; lower --vcpus, or raise --host-cores"
        )
    if mode == "quota" and size < LEAST_CORES:
        raise UsageError(f"--vcpus {size:g} is less than the least CPU quota that the kernel accepts, {LEAST_CORES:g} cores; raise it")
    return ContainerCpu(size, mode)


def choose_memory(containers: Containers) -> int | None:
    """Return the memory limit of each container in bytes, or None without ``--memory``.

    Raises:
        UsageError: it is too small for a server to start.
        CapabilityError: the runtime cannot limit memory.
    """
    if containers.memory is None:
        return None
    if not capabilities_of(containers.runtime).memory_limit:
        raise CapabilityError("--memory needs the cgroup runtime, or --runtime vm; 'pgherd doctor' shows what this host lacks")
    size, minimum = containers.memory, settings.memory_needed(_LEAST_BUFFERS, 0)
    if size < minimum:
        raise UsageError(
            f"--memory {containers.memory} is less than the {format_bytes(minimum)} that a server needs without any client; raise it"
        )
    return size


def complete_limits(
    cpu: ContainerCpu, memory: int | None, runtime: RuntimeName, settings: Mapping[str, str], reserved: HugePageNeed | None
) -> ContainerLimits:
    """Return the limits of each container, with the memory of guests. Guests always have a limit, in whole MB.

    ``memory`` includes the huge pages that are ``reserved`` for the server.

    Raises:
        UsageError: ``memory`` is too small for these huge pages.
    """
    if reserved is not None:
        huge_pages.require_room(reserved, memory)
    if not capabilities_of(runtime).own_kernel:
        return ContainerLimits(cpu, memory)
    if memory is None:
        memory = guest_memory_needed(settings)
        return ContainerLimits(
            cpu, memory, (f"Each guest has {format_bytes(memory)} of memory, for its server, its kernel and its agent.",)
        )
    return ContainerLimits(cpu, *guests.whole_memory(memory))


def guest_memory_needed(chosen: Mapping[str, str]) -> int:
    """Return the memory (bytes, a multiple of 64 MB) that a guest needs for a server with these settings."""
    buffers = parse_bytes(chosen.get("shared_buffers", "128MB"))
    need = settings.memory_needed(buffers, int(chosen.get("max_connections", "100"))) + guests.GUEST_SYSTEM
    return -(-need // _WHOLE) * _WHOLE


def _of_guest(vcpus: float, cpu_mode: CpuMode | None, logical_cpus: int) -> ContainerCpu:
    """Return the CPU limit of a guest. Its vCPUs limit it already, so a quota applies only if the user sets ``--cpu-mode quota``."""
    if vcpus != int(vcpus) and cpu_mode != "quota":
        raise UsageError(f"--vcpus {vcpus:g}: a guest has whole vCPUs; use a whole number, or add --cpu-mode quota")
    if vcpus > logical_cpus:
        raise UsageError(f"--vcpus {vcpus:g} is more than the {logical_cpus} CPUs of this host; lower it")
    return ContainerCpu(vcpus, cpu_mode or "none")


def choose_swap(
    node: Node, request: SwapRequest, *, size: int, overcommitted: bool, cache: Path, facts: HostFacts, budget: int
) -> tuple[Swap, list[str]]:
    """Return the run's swap, and messages about the choice.

    ``size`` (bytes) and ``cache`` (directory of a swap file) are the defaults. ``budget`` is the run's memory in bytes. The memory of
    zram is not part of it. Without ``--swap`` the swap is zram if memory is ``overcommitted`` and this host supports zram, otherwise
    none.

    Raises:
        UsageError: options contradict each other, or a value is invalid.
        CapabilityError: this host cannot create the swap of ``--swap``.
    """
    if request.swap is None and not overcommitted:
        _require_unused(request)
        return Swap(kind="none"), []
    if request.swap == "none":
        _require_unused(request)
        count = len(areas(node))
        messages = [f"No swap: the run creates none, and the containers cannot use the host's swap ({count} areas)."] if count else []
        return Swap(kind="none"), messages
    swap = _requested(request, request.swap or "zram", size if request.swap_size is None else request.swap_size, cache)
    try:
        host_swap.check(node, swap)
    except CapabilityError as error:
        if request.swap is not None:
            raise
        return Swap(kind="none"), [f"Warning: no swap for memory that does not fit: {error}."]
    messages = [f"Swap: {swap.kind} of {format_bytes(swap.size)}, created for this run. The containers use at most this swap."]
    if swap.kind == "zram":
        messages += _zram_warning(swap, facts, budget)
    host_areas = areas(node)
    if host_areas:
        messages.append(
            f"Warning: this host already has swap ({', '.join(area.path for area in host_areas)}). The kernel fills the run's swap first, "
            "so pages of the run and of other programs can be in either. Other programs that swap disturb the run."
        )
    return swap, messages


def with_swap(prepared: PreparedStudy, swap: Swap | None) -> PreparedStudy:
    """Return the study with this swap in its environment, in its host changes, and in the changes that the user must confirm."""
    if swap is None:
        return prepared
    environment = prepared.environment.model_copy(update={"swap": swap})
    if swap.kind == "none":
        return replace(prepared, environment=environment)
    change = describe_swap(swap)
    return replace(prepared, environment=environment, host_changes=(*prepared.host_changes, change), confirm=(*prepared.confirm, change))


def describe_swap(swap: Swap) -> str:
    """Describe the host change that creates the swap."""
    where = f" in {swap.path}" if swap.path else ""
    limit = f", taking at most {format_bytes(swap.memory)} of memory" if swap.memory else ""
    how = f" compressed by {swap.algorithm}" if swap.algorithm else ""
    kind = "a swap file" if swap.kind == "file" else "compressed swap in memory (zram)"
    return f"{kind} of {format_bytes(swap.size)}{where}{how}{limit}, switched on during the run; existing swap is left unchanged"


def _requested(request: SwapRequest, kind: str, size: int, cache: Path) -> Swap:
    if kind != "file" and request.swap_dir is not None:
        raise UsageError(f"--swap-dir {request.swap_dir} is for a swap file, but the swap is {kind}; add --swap file, or leave it out")
    if kind != "zram" and (request.zram_algorithm or request.zram_mem_limit):
        given = "--zram-algorithm" if request.zram_algorithm else "--zram-mem-limit"
        raise UsageError(f"{given} is for compressed swap, but the swap is a {kind}; add --swap zram, or leave it out")
    values = {
        "kind": kind,
        "size": size,
        "path": (str(Path(request.swap_dir).resolve()) if request.swap_dir else str(cache)) if kind == "file" else None,
        "algorithm": request.zram_algorithm,
        "memory": request.zram_mem_limit,
    }
    try:
        return Swap.model_validate(values)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(f"the swap is invalid: {reason}; check --swap-size, --zram-mem-limit and --zram-algorithm") from None


def _require_unused(request: SwapRequest) -> None:
    for name in ("swap_size", "swap_dir", "zram_algorithm", "zram_mem_limit"):
        value = getattr(request, name)
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {value} is set, but the run creates no swap; leave it out, or add --swap zram or --swap file")


def _zram_warning(swap: Swap, facts: HostFacts, budget: int) -> list[str]:
    """Return a warning if zram may need more memory than the run's ``budget`` (bytes) leaves free."""
    spare = facts.memory_available - budget
    maximum = swap.memory or swap.size
    if maximum <= spare:
        return []
    return [
        f"Warning: zram may take up to {format_bytes(maximum)} of memory if pages do not compress, but only "
        f"{format_bytes(max(spare, 0))} are free outside the run's budget; --zram-mem-limit limits it."
    ]
