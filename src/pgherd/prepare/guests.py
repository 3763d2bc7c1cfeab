"""Virtual machines of a run: checks of their options before anything starts, and their memory policy.

The checks cover three questions: can this host provide the options, which host changes do they need, and do all guests of a trial fit in
the host's memory. The memory policy defines how guests share the host's memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.host import huge_pages, ksm, paths, storage
from pgherd.host.journal import Journal
from pgherd.model.base import Model
from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Container, GuestMemoryPolicy, RuntimeName, VmMemoryPolicy, VmOptions
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import ClientPlace, Script
from pgherd.model.units import Size, format_bytes, parse_number
from pgherd.node.protocol import Node
from pgherd.prepare.load import DatabaseLoad
from pgherd.prepare.prepared_study import Workspace
from pgherd.prepare.volumes import ServerVolumes
from pgherd.runtimes import balloon_controller
from pgherd.runtimes.balloon_controller import moves, refuse_what_cannot_be_given_back
from pgherd.runtimes.balloon_manager import entitlement_of
from pgherd.runtimes.runtime_selection import choose
from pgherd.runtimes.vm import hypervisor, kernel
from pgherd.runtimes.vm.qemu import MAX_DISKS, MEMORY_UNIT_BYTES
from pgherd.study.device_io import MEMORY_FILESYSTEMS
from pgherd.study.study import study_of
from pgherd.workloads.user_script import require_self_contained

GUEST_SYSTEM = 192 * 2**20
"""Generous estimate of the memory of a guest's kernel, page tables and agent, in bytes."""
LEAST_SYSTEM = 96 * 2**20
"""Bytes that a guest's kernel and agent need at least. It is also the lowest minimum of a balloon."""
_RESERVE = VmMemoryPolicy().reserve


@dataclass(frozen=True)
class RequestedGuests:
    """Options of virtual machines, as the user gives them. None, False or empty: not given."""

    policy: GuestMemoryPolicy | None = None
    minimum: Size | None = None
    shares: tuple[str, ...] = ()
    idle_tax: float | None = None
    huge_pages: Size | None = None
    pin_vcpus: bool = False
    ksm: bool = False


def in_groups(node: Node, journal: Journal, facts: HostFacts) -> bool:
    """Return True if guests on this host run in control groups. Only then can the sum of their memory be limited."""
    return choose(node, journal, facts, None, "prep")[0].name == "cgroup"


def budget_for(guests: int, memory: int, overhead: int) -> int:
    """Return the budget (bytes) in which all ``guests`` can use all their memory.

    Each guest has ``memory`` bytes, and each hypervisor needs ``overhead`` bytes more. The budget also contains the policy's reserve.
    """
    return math.ceil(guests * (memory + overhead) / (1 - _RESERVE))


def largest_guest(guests: int, budget: int, overhead: int) -> int:
    """Return the memory (bytes) that each guest can have in a ``budget`` (bytes). This is the inverse of ``budget_for``."""
    return max(int(budget * (1 - _RESERVE)) // guests - overhead, 0)


def policy(node: Node, requested: RequestedGuests, runtime: RuntimeName) -> VmMemoryPolicy | None:
    """Return the memory policy of guests with the estimated memory of their hypervisors. None if the run has no guests.

    Raises:
        UsageError: the user sets a guest option for other containers, or a balloon option for a policy without balloons.
    """
    _require_applicable(requested, runtime)
    if not capabilities_of(runtime).own_kernel:
        return None
    shared = VmMemoryPolicy(policy=requested.policy or "static", overhead=hypervisor.overhead(node, str(paths.cache_dir())))
    return shared if requested.idle_tax is None else shared.model_copy(update={"tax": requested.idle_tax})


def promises(requested: RequestedGuests, runtime: RuntimeName) -> tuple[int | None, dict[str, float]]:
    """Return the guaranteed minimum of each guest (bytes; None: the default) and the weights of guests by name.

    Raises:
        UsageError: as ``policy``, or a minimum or weight is not above zero.
    """
    _require_applicable(requested, runtime)
    if requested.minimum is not None and requested.minimum <= 0:
        raise UsageError(f"--vm-memory-min {requested.minimum}: the minimum must be above zero, such as 256MB")
    return requested.minimum, dict(_weight(text) for text in requested.shares)


def require_known(shares: Iterable[str], guests: Iterable[Container]) -> None:
    """Require that each guest in ``shares`` is part of a trial. Raises UsageError."""
    names = sorted({guest.name for guest in guests})
    unknown = [name for name in shares if name not in names]
    if unknown:
        raise UsageError(f"--vm-memory-shares {unknown[0]}: no guest of this run has that name; use one of {', '.join(names)}")


def _require_applicable(requested: RequestedGuests, runtime: RuntimeName) -> None:
    given = {
        "--vm-memory-min": requested.minimum,
        "--vm-memory-shares": requested.shares or None,
        "--vm-idle-tax": requested.idle_tax,
    }
    option_names = [option for option, value in given.items() if value is not None]
    if not capabilities_of(runtime).own_kernel and (option_names or requested.policy is not None):
        first = f"--vm-memory-policy {requested.policy}" if requested.policy is not None else ", ".join(option_names)
        raise UsageError(f"{first}: this is for virtual machines; add --runtime vm")
    if option_names and not moves(requested.policy or "static"):
        raise UsageError(f"{', '.join(option_names)}: the memory policy does not move balloons; add --vm-memory-policy virtio-balloon")


def _weight(text: str) -> tuple[str, float]:
    name, _, weight = text.partition("=")
    value = None if "," in weight else parse_number(weight)
    if not name or value is None or value <= 0:
        raise UsageError(f"--vm-memory-shares {text}: write NAME=WEIGHT with a weight above zero, such as db01=2")
    return name, value


def requested_machine(requested: RequestedGuests, runtime: RuntimeName) -> VmOptions | None:
    """Return the hypervisor options of each guest, or None if the user gives none.

    Raises:
        UsageError: options contradict each other, or the containers are no guests.
    """
    given = {"--vm-huge-pages": requested.huge_pages, "--vm-pin-vcpus": requested.pin_vcpus, "--vm-ksm": requested.ksm}
    option_names = [option for option, value in given.items() if value is not None and value is not False]
    if not option_names:
        return None
    if not capabilities_of(runtime).own_kernel:
        raise UsageError(f"{', '.join(option_names)}: this is for virtual machines; add --runtime vm")
    page = requested.huge_pages
    if page is not None:
        if page <= 0:
            raise UsageError(f"--vm-huge-pages {requested.huge_pages} is no size of a page; write 2MB or 1GB, or leave it out")
        refuse_what_cannot_be_given_back(requested.policy or "static", huge_pages=True, locked=False)
        if requested.ksm:
            raise UsageError(
                f"--vm-ksm merges ordinary pages only, but --vm-huge-pages {requested.huge_pages} uses huge pages; leave one out"
            )
    return VmOptions(pinned=requested.pin_vcpus, huge_page=page, merge=requested.ksm)


def require_pinnable(machine: VmOptions | None, vcpus: float, cores: float) -> None:
    """Require a core of the run for each pinned vCPU of a guest. Raises UsageError."""
    if machine is not None and machine.pinned and vcpus > cores:
        raise UsageError(
            f"--vm-pin-vcpus pins each vCPU to a separate CPU, but a guest has {vcpus:g} vCPUs and the run {cores:g} CPUs; lower --vcpus"
        )


def whole_memory(memory: int) -> tuple[int, tuple[str, ...]]:
    """Round the memory of each guest (bytes) down to whole MB, the unit of QEMU's option. Return it with a message if it changed."""
    rounded = memory // MEMORY_UNIT_BYTES * MEMORY_UNIT_BYTES
    message = f"Each guest has {rounded // MEMORY_UNIT_BYTES} MB of memory: {memory} bytes are rounded down to a whole number of MB."
    return rounded, (message,) if rounded != memory else ()


def page_cache(node: Node, study: str, cache: Path, places: ServerVolumes) -> tuple[str, ...]:
    """Return a warning if this host's page cache holds the guests' disks.

    This happens if the file system of the disk images does not support direct I/O, or is in memory.

    Raises:
        CapabilityError: the study needs direct I/O. It measures the effect of a guest's memory, and reads from the host's page cache
            would hide this effect.
    """
    directories = [volume.path for volume in places.volumes if volume.kind == "directory" and volume.path is not None]
    if "data" not in (places.roles or {}):
        directories.append(str(next(path for path in (cache, *cache.parents) if path.exists())))
    cached = [
        directory for directory in dict.fromkeys(directories) if _in_memory(node, directory) or not storage.direct_io_works(directory)
    ]
    if not cached:
        return ()
    where = f"{', '.join(cached)} does not support direct I/O (O_DIRECT), or is in memory"
    if study_of(study).needs_direct_io:
        raise CapabilityError(
            f"{where}, so guests would read from this host's page cache and the knee would not be visible; put their data on another "
            "file system with --data-volume or XDG_CACHE_HOME"
        )
    return (f"{where}: this host's page cache also holds the guests' disks, so guests may read from memory instead of a disk.",)


def _in_memory(node: Node, directory: str) -> bool:
    mount = storage.mount_of(node, os.path.realpath(directory))
    return mount is not None and mount.kind in MEMORY_FILESYSTEMS


def host_changes(
    node: Node, study: str, options: Model, policy: VmMemoryPolicy | None, budget: int
) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the host changes that a study's guests need, and the number of huge pages to reserve by page size (bytes).

    ``budget`` is the memory that the run may use (bytes).

    Raises:
        UsageError: the guests of a trial do not fit in the ``budget``, a guest has too many disks, or a guest's memory is no multiple of
            its huge pages. With a policy that moves balloons the sum of the guaranteed minima must fit, otherwise all memory.
        CapabilityError: this host lacks huge pages or KSM.
    """
    deployments = [trial.deployment for trial in study_of(study).propose(options, []).trials]
    together = [[container for _, container in one.containers() if capabilities_of(container.runtime).own_kernel] for one in deployments]
    require_known(getattr(options, "vm_memory_shares", {}), (one for guests in together for one in guests))
    for deployment, guests in zip(deployments, together, strict=True):
        for guest in guests:
            _require_disks(guest)
        if policy is not None and moves(policy.policy):
            balloon_controller.check(
                [entitlement_of(one, policy.overhead) for one in guests if one.memory is not None], budget, policy.reserve
            )
        elif policy is not None and not any(host.memory is not None and host.memory < budget for host in deployment.hosts):
            _require_fit(guests, policy.overhead, budget)
    changes: list[str] = []
    page_counts = _pages(together)
    if page_counts:
        huge_pages.check(node, page_counts)
        changes += [
            f"{pages} huge pages of {huge_pages.label(size)} ({format_bytes(size * pages)}) reserved for guests while they run, "
            f"unavailable to other programs ({huge_pages.pool_file(size)})"
            for size, pages in page_counts.items()
            if huge_pages.may_reserve(node, size)
        ]
    if any(one.vm is not None and one.vm.merge for guests in together for one in guests):
        ksm.check(node)
        if not ksm.running(node):
            changes.append(f"merging of equal pages (KSM) switched on while guests run ({ksm.RUN})")
    return tuple(changes), page_counts


def _require_disks(guest: Container) -> None:
    """Require that a guest has room for the disks of its servers: data, and each part on a volume. Raises UsageError."""
    disks = sum(len({"data", *server.volumes}) + len(server.tablespaces) for server in guest.servers)
    if disks > MAX_DISKS:
        raise UsageError(
            f"guest {guest.name} needs {disks} disks for its {len(guest.servers)} servers, and a guest can have {MAX_DISKS}; "
            "lower --databases, or give fewer options for volumes"
        )


def _require_fit(guests: Sequence[Container], overhead: int, budget: int) -> None:
    """Require that the memory of all guests of a trial and of their hypervisors fits in the ``budget`` (bytes).

    A guest fills its memory with its page cache. If the host then runs out of memory, the kernel swaps hypervisors out or kills them.
    The caller skips trials that are short of memory on purpose.

    Raises:
        UsageError: the sum exceeds the budget.
    """
    memory = sum(guest.memory or 0 for guest in guests)
    hypervisor_memory = len(guests) * overhead
    if memory + hypervisor_memory > budget:
        raise UsageError(
            f"{'1 guest' if len(guests) == 1 else f'{len(guests)} guests'} with {format_bytes(memory)} of memory and "
            f"{format_bytes(hypervisor_memory)} for QEMU need more than the host's memory budget of {format_bytes(budget)}; "
            "lower --memory, run fewer guests, raise --host-memory, or add --vm-memory-policy virtio-balloon"
        )


def _pages(together: Sequence[Sequence[Container]]) -> dict[int, int]:
    """Return the largest number of huge pages that any trial needs, by page size (bytes).

    Raises:
        UsageError: the memory of a guest is no multiple of its page size.
    """
    maxima: dict[int, int] = {}
    for guests in together:
        counts: dict[int, int] = {}
        for guest in guests:
            page = None if guest.vm is None else guest.vm.huge_page
            if page is None or guest.memory is None:
                continue
            if guest.memory % page:
                raise UsageError(
                    f"guest {guest.name} has {format_bytes(guest.memory)} of memory, which is no multiple of its huge pages of "
                    f"{format_bytes(page)}; set --memory to a multiple"
                )
            counts[page] = counts.get(page, 0) + guest.memory // page
        maxima |= {page: max(maxima.get(page, 0), pages) for page, pages in counts.items()}
    return maxima


Beneath = tuple[kernel.Kernel | None, hypervisor.Hypervisor | None]
"""Kernel and hypervisor of the guests. Each is None if it is not known yet."""


@dataclass(frozen=True)
class GuestChoice:
    """Virtual machines of a run: memory policy, kernel and hypervisor, their options, and the minimum and weights of guests."""

    policy: VmMemoryPolicy
    beneath: Beneath
    machine: VmOptions | None
    minimum: int | None
    shares: Mapping[str, float]


def choose_guests(
    requested: RequestedGuests, workspace: Workspace, runtime: RuntimeName, load: DatabaseLoad, pages: str | None
) -> GuestChoice | None:
    """Return the virtual machines that the options describe, or None if the run has no guests. ``pages`` is the value of --huge-pages.

    Raises:
        UsageError: an option is wrong or is for other containers, or a script for clients inside the guest calls programs.
        CapabilityError: QEMU or a kernel is missing, or huge pages of this host are requested for servers.
    """
    machine = requested_machine(requested, runtime)
    minimum, shares = promises(requested, runtime)
    if not capabilities_of(runtime).own_kernel:
        return None
    node = workspace.node
    require_guest_can(node, pages, load.client_placement, load.scripts)
    # Before the memory policy, because the memory that a guest needs depends on the hypervisor.
    beneath = find_hypervisor(node, workspace.cache, workspace.directory, dry=workspace.dry)
    shared = policy(node, requested, runtime)
    assert shared is not None
    return GuestChoice(shared, beneath, machine, minimum, shares)


def require_guest_can(node: Node, huge_pages: str | None, client_placement: ClientPlace, scripts: Sequence[Script]) -> None:
    """Require that ``--huge-pages`` and the scripts work in a guest.

    Raises:
        CapabilityError: huge pages of this host are requested for servers.
        UsageError: a script for clients inside the guest calls programs, or cannot be read.
    """
    if huge_pages:
        raise CapabilityError(
            f"--huge-pages {huge_pages} uses this host's kernel, but a server in a guest uses the guest's kernel; leave it out, "
            "or back all guest memory with huge pages with --vm-huge-pages"
        )
    if client_placement == "inside":
        for script in scripts:
            require_self_contained(node, script)


def find_hypervisor(node: Node, cache: Path, work: Path, *, dry: bool) -> Beneath:
    """Return the kernel and the hypervisor of guests on this host.

    If they are not in the cache, the kernel is prepared and the hypervisor is probed. With ``dry`` nothing is prepared or probed, and an
    unknown value is None. ``work`` is a directory of pgherd on the cache's file system.

    Raises:
        CapabilityError: QEMU or a kernel is missing.
    """
    guest_kernel = kernel.present(str(cache)) if dry else kernel.ensure(node, str(cache), str(work), say=lambda _: None)
    known_hypervisor = None if guest_kernel is None else hypervisor.remembered(node, guest_kernel, str(cache))
    if known_hypervisor is None and guest_kernel is not None and not dry:
        known_hypervisor = hypervisor.find(node, guest_kernel, str(cache), str(work))
    return guest_kernel, known_hypervisor


def describe_guests(node: Node, beneath: Beneath, machine: VmOptions | None, overhead: int) -> str:
    """Describe the guests of a run: hypervisor, accelerator, vCPU model, kernel, the user's options, and QEMU's memory.

    ``beneath`` is the result of ``find_hypervisor``. ``overhead`` is the estimated memory of each QEMU process without its guest's
    memory, in bytes. Raises CapabilityError if QEMU is missing.
    """
    guest_kernel, known_hypervisor = beneath
    if guest_kernel is None or known_hypervisor is None:
        by = f"QEMU {hypervisor.version(node)}; KVM is probed when the first guest boots"
    else:
        model = "max" if known_hypervisor.functional_only else "host"
        by = f"{known_hypervisor.sentence()}; Linux {guest_kernel.release} ({guest_kernel.origin}); vCPU model '{model}', machine q35"
    options = machine or VmOptions()
    pool = None if options.huge_page is None else huge_pages.pools(node).get(options.huge_page)
    details = [
        "each vCPU pinned to one CPU (vCPUs share CPUs if the guests have more vCPUs than the run has cores)"
        if options.pinned
        else "vCPUs not pinned",
        "ordinary pages" if options.huge_page is None else f"huge pages of {huge_pages.label(options.huge_page)}",
        *(
            [
                f"guests' memory may be on another NUMA node than their vCPUs, because the kernel reserves huge pages on all "
                f"{len(pool.nodes)} nodes (to avoid that, leave out --vm-huge-pages and bind pgherd to one node with numactl)"
            ]
            if pool is not None and len(pool.nodes) > 1
            else []
        ),
        *(["equal pages merged (KSM)"] if options.merge else []),
        f"estimated memory of each QEMU process without its guest's memory: {format_bytes(overhead)}",
    ]
    if os.geteuid() == 0 and known_hypervisor is not None and hypervisor.groups_for(known_hypervisor) is None:
        details.append(f"QEMU runs as root, because only root's group may open {hypervisor.DEVICE}")
    return f"Guests run by {by}; {', '.join(details)}."
