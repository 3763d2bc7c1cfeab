"""Hosts of a run and the containers on them: the run's share, roles in a cluster, limits of CPU and memory, and swap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pgherd.host import storage
from pgherd.host import swap as host_swap
from pgherd.host.cgroups import LEAST_CORES
from pgherd.host.swap_areas import areas
from pgherd.model import placement
from pgherd.model.capabilities import Capabilities, capabilities_of
from pgherd.model.deployment import Container, CpuMode, Host, RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import Swap
from pgherd.model.units import Size, format_bytes, parse_buffers
from pgherd.node.protocol import Node
from pgherd.postgres import settings
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.prepare import guests
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.prepare.requests import parse_variant, plain
from pgherd.runner.deploy import huge_pages
from pgherd.study.database_options import FREE_SHARE
from pgherd.study.shared_options import ClusterRequest, SwapRequest


def cores_of(cores: float | None, facts: HostFacts, this: str = "this host") -> float:
    """Return the cores of ``--host-cores``, by default all cores of the host. Raises UsageError if the host has fewer."""
    requested = facts.cores if cores is None else cores
    if requested > facts.cores:
        raise UsageError(f"--host-cores {requested:g} is more than {this} has ({facts.cores:g}); lower it")
    return requested


def one_host(cores: float | None, memory: int | None, facts: HostFacts, name: str = "") -> tuple[float, int]:
    """Return the cores and the memory (bytes) that a run may use on one host.

    They are ``--host-cores`` and ``--host-memory``. The defaults are all cores and most of the free memory.

    Raises:
        UsageError: the host has less.
    """
    this = f"host {name}" if name else "this host"
    share_cores = cores_of(cores, facts, this)
    size = int(facts.memory_available * FREE_SHARE) if memory is None else memory
    if size > facts.memory:
        raise UsageError(f"--host-memory {format_bytes(size)} is more than {this} has ({format_bytes(facts.memory)}); lower it")
    return share_cores, size


@dataclass(frozen=True)
class HostShare:
    """Cores and memory (bytes) that a run may use.

    On several ``hosts`` they are sums, and the rule ``placement`` distributes the containers. Without ``hosts`` it is the share of this
    host.
    """

    cores: float
    memory: int
    hosts: tuple[Host, ...] = ()
    placement: str = "spread"

    @property
    def largest(self) -> float:
        """Maximum number of cores of one container."""
        return max((host.cores or 0.0 for host in self.hosts), default=self.cores)

    @property
    def smallest(self) -> float:
        """Cores of the smallest host. A default for containers must fit on every host."""
        return min((host.cores or 0.0 for host in self.hosts), default=self.cores)

    def holds(self, each: int) -> int:
        """Return the number of containers with ``each`` bytes that fit in the memory."""
        if not self.hosts:
            return self.memory // each
        return sum((host.memory or 0) // each for host in self.hosts)

    def most_on_one(self, many: int, vcpus: float) -> int:
        """Return the number of containers on the fullest host, if there are ``many`` in total."""
        if not self.hosts:
            return many
        return max(self._counts(many, vcpus).values())

    def memory_of_each(self, many: int, vcpus: float) -> int:
        """Return the memory (bytes) of each of ``many`` containers, if all have the same and the hosts must hold them."""
        if not self.hosts:
            return self.memory // many
        counts = self._counts(many, vcpus)
        return min((host.memory or 0) // counts[host.name] for host in self.hosts if counts[host.name])

    def _counts(self, many: int, vcpus: float) -> dict[str, int]:
        try:
            return placement.counts(many, self.hosts, Container(name="c", vcpus=vcpus), self.placement)
        except ValueError as error:
            raise UsageError(f"--placement {self.placement}: {error}") from None


def choose_share(
    facts: HostFacts, cores: float | None = None, memory: int | None = None, over: tuple[Host, ...] = (), placement: str = "spread"
) -> HostShare:
    """Return the share of a run of this host, see ``one_host``, or of the hosts in ``over``. Raises UsageError if this host has less."""
    if not over:
        return HostShare(*one_host(cores, memory, facts))
    return HostShare(sum(host.cores or 0.0 for host in over), sum(host.memory or 0 for host in over), over, placement)


Use = Literal["together", "one", "in turn"]
"""Use of a cluster by a study.

'together': the study uses all hosts as one large host. 'one': the study runs on one host. 'in turn': each block of trials runs on one
host, and the next block runs on the next host.
"""


@dataclass(frozen=True)
class HostRoles:
    """Hosts with a role. ``carry`` are the hosts of servers, in the order of their blocks. ``client`` is the host for clients only."""

    carry: tuple[Host, ...]
    client: Host | None = None


def choose_roles(use: Use, request: ClusterRequest, hosts: Sequence[Host]) -> HostRoles:
    """Choose the hosts of a request among all ``hosts`` of a cluster.

    The rule of ``--placement`` selects candidates: hosts with its label, or hosts that it lists. Otherwise the candidates are all hosts
    except the client host. For 'one', the study runs on the candidate with most cores, or on the first candidate with ``pack``.

    Raises:
        UsageError: the rule does not fit the hosts, lists several hosts for 'one', leaves no host for servers, or ``--hosts`` names
            unknown hosts.
    """
    client = _client(request, hosts)
    others = [host for host in hosts if host != client]
    if not others:
        raise UsageError(f"--client-host {client_of(request)} is the cluster's only host: no host remains for a server; leave it out")
    try:
        named = placement.named(request.placement, others)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if use == "together":  # exclude hosts that the rule leaves unused, because their cores and memory must not count for containers
        return HostRoles(tuple(host for host in _between(request, others) if host in named), client)
    if request.placement == "pack":
        return HostRoles((named[0],), client)
    if use == "in turn":
        return HostRoles(tuple(named), client)
    if request.placement.startswith("listed:") and len(named) > 1:
        raise UsageError(
            f"--placement {request.placement} names {len(named)} hosts, but the study runs on one; name one, such as "
            f"listed:*={named[0].name}"
        )
    return HostRoles((max(named, key=lambda host: host.cores or 0.0),), client)  # the first of equal hosts


def _between(request: ClusterRequest, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts that ``--hosts`` names, or all hosts without it. Raises UsageError for unknown hosts."""
    names: tuple[str, ...] = getattr(request, "hosts", ())
    unknown = sorted(set(names) - {host.name for host in hosts})
    if unknown:
        raise UsageError(
            f"--hosts names {', '.join(unknown)}, but the cluster has {', '.join(host.name for host in hosts)}; name some of these"
        )
    return tuple(host for host in hosts if not names or host.name in names)


def client_of(request: ClusterRequest) -> str | None:
    """Return the ``--client-host`` of a request, or None."""
    name: str | None = getattr(request, "client_host", None)
    return name


def _client(request: ClusterRequest, hosts: Sequence[Host]) -> Host | None:
    name = client_of(request)
    if name is None:
        return None
    client = next((host for host in hosts if host.name == name), None)
    if client is None:
        raise UsageError(f"--client-host {name} is not one of {', '.join(host.name for host in hosts)}; name one of these")
    if "client_placement" in request.model_fields_set and getattr(request, "client_placement", None) == "inside":
        raise UsageError(
            f"--client-placement inside runs clients next to the server, but --client-host {name} is another host; leave one of them out"
        )
    for variant, changes in map(parse_variant, getattr(request, "variant", ())):
        if any(plain(key) == "client_placement" for key in changes):
            raise UsageError(
                f"variant '{variant}': client-placement cannot differ between variants, because all clients run on --client-host {name}; "
                "leave one of them out"
            )
    return client


def describe_roles(use: Use, roles: HostRoles, hosts: Sequence[Host]) -> list[str]:
    """Describe the chosen hosts for the plan. Return an empty list if a study uses all hosts together."""
    names = ", ".join(host.name for host in roles.carry)
    used = {host.name for host in (*roles.carry, *([roles.client] if roles.client else []))}
    idle = [host.name for host in hosts if host.name not in used]
    unused = f"; {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} not used" if idle else ""
    messages = []
    if len(roles.carry) == 1 and use != "together":
        messages.append(f"Host {names} runs the servers{unused}. If it is lost, the run stops, and 'pgherd resume' continues it.")
    elif use == "together" and idle:
        messages.append(f"{unused.removeprefix('; ')}.")
    elif use == "in turn":
        messages.append(f"Blocks take turns on {names}{unused}: each runs on one host from its first trial to its last.")
    if roles.client is not None:
        messages.append(
            f"Clients run on host {roles.client.name}, which runs no server. They connect over TCP, with scram-sha-256 and TLS."
        )
    return messages


LARGE_READ_AHEAD = 2**20
"""Read-ahead in bytes above which the warning appears. The default of Linux is 128 kB."""


def warn_of_read_ahead(node: Node, facts: HostFacts, place: str) -> list[str]:
    """Return a warning if the device below the directory ``place`` has a large read-ahead. Return an empty list if it is unknown.

    When the kernel reads an evicted page of a program, it also reads the pages around it, up to the read-ahead. It also reads ahead in
    a file that is read sequentially. If memory is short, these extra pages evict pages that are needed.
    """
    below = storage.devices_of(node, [place]).get(place)
    disk = next((device for device in facts.devices if below is not None and device.number == below.number), None)
    if disk is None or disk.read_ahead is None or disk.read_ahead <= LARGE_READ_AHEAD:
        return []
    return [
        "Warning: trials may be much slower than on other disks, or hang, if memory is short: the databases' device "
        f"{disk.name} reads up to {format_bytes(disk.read_ahead)} ahead (Linux's default is 128 kB), and these pages evict needed pages. "
        f"As root, 'echo 128 > /sys/block/{disk.name}/queue/read_ahead_kb' changes it until the next boot."
    ]


_WHOLE = 64 * 2**20
_LEAST_BUFFERS = 8 * 2**20
_LEAST_BANDWIDTH = 64 * 2**10


@dataclass(frozen=True)
class Containers:
    """Containers of a run: their runtime and share of the hosts, this host's CPUs, and the limits that the user sets."""

    runtime: RuntimeName
    share: HostShare
    logical_cpus: int
    vcpus: float | None = None
    cpu_mode: CpuMode | None = None
    memory: Size | None = None
    cpu_weight: int | None = None
    iops: int | None = None
    io_bandwidth: Size | None = None


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
        if containers.vcpus is None and largest >= 1:  # on less than one core there is no whole CPU to choose
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


def check_io(containers: Containers, capabilities: Capabilities, facts: HostFacts) -> list[str]:
    """Check ``--cpu-weight``, ``--iops`` and ``--io-bandwidth``. Return a sentence on what the I/O limits do not limit.

    ``capabilities`` are those of the runtime on this host.

    Raises:
        UsageError: the bandwidth is too small for a server.
        CapabilityError: this host or the runtime cannot enforce them.
    """
    options = {"--cpu-weight": containers.cpu_weight, "--iops": containers.iops, "--io-bandwidth": containers.io_bandwidth}
    given = [option for option, value in options.items() if value is not None]
    if given and not capabilities.cgroups:
        raise CapabilityError(f"{given[0]} needs the cgroup runtime; 'pgherd doctor' shows what this host lacks")
    if not given or given == ["--cpu-weight"]:
        return []
    if not capabilities.io_limit:
        raise CapabilityError(f"{given[-1]} cannot be enforced: {capabilities.missing['io_limit']}")
    if containers.io_bandwidth is not None and containers.io_bandwidth < _LEAST_BANDWIDTH:
        raise UsageError(
            f"--io-bandwidth {containers.io_bandwidth} is less than the minimum, {format_bytes(_LEAST_BANDWIDTH)} per second; raise it"
        )
    if facts.cgroup == "v2":
        return ["I/O limits apply to reads, and to writes if the file system supports cgroup writeback (ext4, btrfs, XFS)."]
    return [
        "I/O limits apply to reads, direct writes and flushes by the servers. cgroup v1 does not limit the pages that the kernel writes "
        "back later, such as those of a checkpoint."
    ]


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
    buffers = parse_buffers(chosen.get("shared_buffers", "128MB"))
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
