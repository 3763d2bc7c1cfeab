"""What was asked of guests' hypervisors, looked at before anything is begun: whether it can be had, what it takes of this host, and whether
the guests of a study fit its memory together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pgherd.host import direct_io, huge_pages, mounts, same_page_merging
from pgherd.model.base import Model
from pgherd.model.deployment import Container, GuestMachine, GuestMemory, RuntimeName
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.node.protocol import Node
from pgherd.prepare import vm_memory_policy
from pgherd.prepare.server_volumes import ServerPlaces
from pgherd.runtimes import balloon_law
from pgherd.runtimes.balloon_law import moves, refuse_what_cannot_be_given_back
from pgherd.runtimes.balloon_manager import law_guest
from pgherd.runtimes.vm import acceleration, kernel
from pgherd.runtimes.vm.qemu import UNIT
from pgherd.study.database_options import DatabaseRequest
from pgherd.study.device_io import MEMORY_FILESYSTEMS
from pgherd.study.registry import study_of


def fields(asked: DatabaseRequest, runtime: RuntimeName, vcpus: float, cores: float) -> dict[str, Any]:
    """The fields of DatabaseOptions on guests; raises UsageError as ``asked_machine`` and ``guest_sharing.promises``."""
    return {"guest": asked_machine(asked, runtime, vcpus, cores), **vm_memory_policy.promises(asked, runtime)}


def asked_machine(asked: DatabaseRequest, runtime: RuntimeName, vcpus: float, cores: float) -> GuestMachine | None:
    """What was asked of the hypervisor of each guest, of so many ``vcpus`` on a host with a budget of ``cores``; None: nothing.

    Raises:
        UsageError: it contradicts itself, or is asked for other containers than guests.
    """
    given = {"--vm-huge-pages": asked.vm_huge_pages, "--vm-pin-vcpus": asked.vm_pin_vcpus, "--vm-ksm": asked.vm_ksm}
    named = [option for option, value in given.items() if value]
    if not named:
        return None
    if runtime != "vm":
        raise UsageError(f"{', '.join(named)}: this is for virtual machines; add --runtime vm")
    if asked.vm_pin_vcpus and vcpus > cores:
        raise UsageError(f"--vm-pin-vcpus gives each vCPU a CPU of its own, but a guest has {vcpus:g} and the run {cores:g}; lower --vcpus")
    page = parse_bytes(asked.vm_huge_pages) if asked.vm_huge_pages else None
    if page is not None:
        if page <= 0:
            raise UsageError(f"--vm-huge-pages {asked.vm_huge_pages} is no size of a page; write 2MB or 1GB, or leave it out")
        refuse_what_cannot_be_given_back(asked.vm_memory_policy or "static", huge_pages=True, locked=False)
        if asked.vm_ksm:
            raise UsageError(
                f"--vm-ksm merges ordinary pages only, and --vm-huge-pages {asked.vm_huge_pages} lays guests on others; leave one out"
            )
    return GuestMachine(pinned=asked.vm_pin_vcpus, huge_page=page, merge=asked.vm_ksm)


def whole_memory(memory: int) -> tuple[int, tuple[str, ...]]:
    """The memory of each guest (bytes) rounded down to what QEMU can be told, and what is to be said of that."""
    whole = memory // UNIT * UNIT
    said = f"Each guest has {whole // UNIT} MB of memory: {memory} bytes are no whole number of MB, and were rounded down."
    return whole, (said,) if whole != memory else ()


def page_cache(node: Node, study: str, cache: Path, places: ServerPlaces) -> tuple[str, ...]:
    """What is to be said where this host's memory holds the guests' disks, since their images' file system takes no direct I/O or lies in
    memory itself.

    Raises:
        CapabilityError: the study is about what a guest's memory holds, and the host's would answer instead of a disk.
    """
    directories = [one.path for one in places.volumes if one.kind == "directory" and one.path is not None]
    if "data" not in (places.roles or {}):
        directories.append(str(next(path for path in (cache, *cache.parents) if path.exists())))
    cached = [one for one in dict.fromkeys(directories) if _in_memory(node, one) or not direct_io.possible(one)]
    if not cached:
        return ()
    where = f"{', '.join(cached)} takes no direct I/O (O_DIRECT), or lies in memory itself"
    if study_of(study).needs_direct_io:
        raise CapabilityError(
            f"{where}, so this host's memory would hold what guests read, and no knee of theirs could be seen; lay their data elsewhere "
            "with --data-volume, or set XDG_CACHE_HOME to another file system"
        )
    return (f"{where}: this host's memory holds the guests' disks too, and what they read may come from there.",)


def _in_memory(node: Node, directory: str) -> bool:
    mount = mounts.mount_of(node, os.path.realpath(directory))
    return mount is not None and mount.kind in MEMORY_FILESYSTEMS


def host_changes(node: Node, study: str, options: Model, policy: GuestMemory | None, budget: int) -> tuple[tuple[str, ...], dict[int, int]]:
    """What a study's guests need of this host beside memory, in words and as huge pages by size (bytes).

    Raises:
        UsageError: what is guaranteed to the guests that are up together, or all their memory where nobody takes it back, is more than
            the ``budget`` (bytes) holds; the memory of one is no multiple of its pages.
        CapabilityError: this host cannot do it.
    """
    deployments = [trial.deployment for trial in study_of(study).propose(options, []).trials]
    together = [[container for _, container in one.containers() if container.runtime == "vm"] for one in deployments]
    vm_memory_policy.require_known(getattr(options, "guest_shares", {}), (one for guests in together for one in guests))
    for deployment, guests in zip(deployments, together, strict=True):
        if policy is not None and moves(policy.policy):
            balloon_law.check([law_guest(one, policy.overhead) for one in guests if one.memory is not None], budget, policy.reserve)
        elif policy is not None and not any(host.memory is not None and host.memory < budget for host in deployment.hosts):
            _insist_fit(guests, policy.overhead, budget)
    changes: list[str] = []
    wanted = _pages(together)
    if wanted:
        huge_pages.check(node, wanted)
        changes += [
            f"{pages} huge pages of {huge_pages.label(size)} ({format_bytes(size * pages)}) reserved while the guests that lie on them "
            f"run, which no one else can use then ({huge_pages.pool_file(size)})"
            for size, pages in wanted.items()
            if huge_pages.may_reserve(node, size)
        ]
    if any(one.guest is not None and one.guest.merge for guests in together for one in guests):
        same_page_merging.check(node)
        if not same_page_merging.running(node):
            changes.append(f"merging of equal pages switched on while guests run ({same_page_merging.RUN})")
    return tuple(changes), wanted


def _insist_fit(guests: Sequence[Container], overhead: int, budget: int) -> None:
    """That all guests of a trial which is not meant to be short of memory find theirs, and their hypervisors too: a guest fills what it was
    given with its page cache, and then the kernel swaps hypervisors out, or ends them."""
    memory = sum(one.memory or 0 for one in guests)
    own = len(guests) * overhead
    if memory + own > budget:
        raise UsageError(
            f"{'1 guest' if len(guests) == 1 else f'{len(guests)} guests'} with {format_bytes(memory)} of memory and {format_bytes(own)} "
            f"for QEMU itself: that is more than the host's memory budget of {format_bytes(budget)}; lower --memory, run fewer guests, "
            "raise --host-memory, or have balloons moved (--vm-memory-policy guest-balloon)"
        )


def _pages(together: Sequence[Sequence[Container]]) -> dict[int, int]:
    """Huge pages by size that the guests of the trial which needs most of them lie on."""
    most: dict[int, int] = {}
    for guests in together:
        found: dict[int, int] = {}
        for one in guests:
            page = None if one.guest is None else one.guest.huge_page
            if page is None or one.memory is None:
                continue
            if one.memory % page:
                raise UsageError(
                    f"guest {one.name} has {format_bytes(one.memory)} of memory, which is no multiple of its huge pages of "
                    f"{format_bytes(page)}; give a --memory that is"
                )
            found[page] = found.get(page, 0) + one.memory // page
        most |= {page: max(most.get(page, 0), pages) for page, pages in found.items()}
    return most


Beneath = tuple[kernel.Kernel | None, acceleration.Hypervisor | None]
"""The kernel of guests, and what runs them; None: not known yet."""


def hypervisor(node: Node, cache: Path, work: Path, *, dry: bool) -> Beneath:
    """The kernel of guests and what runs them here; found out where that is not known yet, but with ``dry`` None stands for it then.

    ``work`` is a directory of ours on the cache's file system.

    Raises:
        CapabilityError: QEMU or a kernel is missing.
    """
    booted = kernel.present(str(cache)) if dry else kernel.ensure(node, str(cache), str(work), say=lambda _: None)
    known = None if booted is None else acceleration.remembered(node, booted, str(cache))
    if known is None and booted is not None and not dry:
        known = acceleration.find(node, booted, str(cache), str(work))
    return booted, known


def sentence(node: Node, beneath: Beneath, machine: GuestMachine | None, overhead: int) -> str:
    """By what the guests of a run are made: hypervisor, accelerator, model of the vCPUs, kernel, what was asked of it, and what it is
    reckoned to need for itself, the ``overhead`` of each guest in bytes.

    ``beneath`` is what ``hypervisor`` found; what is not known yet is said. Raises CapabilityError where QEMU is missing.
    """
    booted, known = beneath
    if booted is None or known is None:
        by = f"QEMU {acceleration.version(node)}; whether KVM works is found out when the first one is booted"
    else:
        model = "max" if known.functional_only else "host"
        by = f"{known.sentence()}; Linux {booted.release} ({booted.origin}); vCPU model '{model}', machine q35"
    asked = machine or GuestMachine()
    words = [
        "each vCPU pinned to one CPU, which vCPUs share once all guests' are more than the run's cores"
        if asked.pinned
        else "vCPUs not pinned",
        "ordinary pages" if asked.huge_page is None else f"huge pages of {huge_pages.label(asked.huge_page)}",
        *(["equal pages merged (KSM)"] if asked.merge else []),
        f"{format_bytes(overhead)} reckoned for each QEMU beside its guest's memory",
    ]
    if os.geteuid() == 0 and known is not None and acceleration.groups_for(known) is None:
        words.append(f"QEMU runs as root, as no group but root's may open {acceleration.DEVICE}")
    return f"Guests run by {by}; {', '.join(words)}."
