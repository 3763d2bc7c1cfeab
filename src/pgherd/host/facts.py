"""The facts of a host, gathered through a node from /proc and /sys. Nothing is changed but a probe group, made and removed."""

from __future__ import annotations

import re

from pgherd.host import cgroup_base, cpus, virtualisation
from pgherd.host.cgroup_layout import Layout, read_layout, surrounding, text_of
from pgherd.model.facts import BlockDevice, HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node

_SECTOR = 512
"""/sys/block/*/size counts sectors of 512 bytes whatever the device's own block size is."""


def gather(node: Node) -> HostFacts:
    """Everything that a reader of results needs to know of this host. What can't be seen stays None or empty."""
    layout = read_layout(node)
    limits = surrounding(node, layout)
    usable = cpus.allowed(node)
    processors = cpus.parse_cpuinfo(text_of(node, "/proc/cpuinfo"))
    threads = cpus.siblings(node, usable)
    clock = cpus.clock(node, usable)
    smt = cpus.simultaneous_multithreading(node, threads)
    hypervisor = virtualisation.detect(node, processors.hypervisor)
    nodes = _numa_nodes(node)
    cores = min(float(len(usable)), limits.cores or float("inf"))
    memory = parse_meminfo(text_of(node, "/proc/meminfo"))
    total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
    if limits.memory is not None and limits.memory < total:
        total = limits.memory
        available = min(available, max(0, limits.memory - _unreclaimable(node, limits.memory_dir)))
    where, missing = _cgroups(node, layout)
    return HostFacts(
        hostname=text_of(node, "/proc/sys/kernel/hostname"),
        kernel=text_of(node, "/proc/sys/kernel/osrelease"),
        os=parse_os_release(text_of(node, "/etc/os-release")),
        cores=cores,
        logical_cpus=len(usable),
        physical_cores=len(set(threads.values())) if len(threads) == len(usable) else None,
        smt=smt,
        numa_nodes=nodes,
        cpu_model=processors.model,
        virtualisation=hypervisor,
        governor=clock.governor,
        boost=clock.boost,
        clock_source=text_of(node, "/sys/devices/system/clocksource/clocksource0/current_clocksource") or None,
        core_note=cpus.core_note(
            virtualisation=hypervisor,
            smt=smt,
            threads=max((len(group) for group in threads.values()), default=1),
            numa_nodes=nodes,
            boost=clock.boost,
            steal=cpus.steal_share(text_of(node, "/proc/stat")),
            cores=cores,
            logical=len(usable),
        ),
        memory=total,
        memory_available=available,
        swap=memory.get("SwapTotal", 0),
        huge_pages=_huge_pages(node),
        transparent_huge_pages=chosen(text_of(node, "/sys/kernel/mm/transparent_hugepage/enabled")),
        cgroup=layout.kind,
        cgroup_writable=where,
        cgroup_missing=missing,
        devices=tuple(_devices(node)),
        root=re.search(r"^Uid:\s+\d+\s+0\s", text_of(node, "/proc/self/status"), re.MULTILINE) is not None,
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """``MemTotal:  24684096 kB`` → bytes, by name; lines without a unit (page counts) as they are."""
    found = {}
    for name, number, unit in re.findall(r"^(\S+):\s+(\d+)(?: (kB))?$", text, re.MULTILINE):
        found[name] = int(number) * (1024 if unit else 1)
    return found


def parse_os_release(text: str) -> str:
    """PRETTY_NAME of os-release(5)."""
    match = re.search(r"""^PRETTY_NAME=(["']?)(.*)\1$""", text, re.MULTILINE)
    return match[2] if match else ""


def chosen(text: str) -> str | None:
    """``none [mq-deadline] kyber`` → ``mq-deadline``; a single word without brackets is itself; '' is None."""
    match = re.search(r"\[(.+?)\]", text)
    return match[1] if match else text or None


def _numa_nodes(node: Node) -> int | None:
    online = text_of(node, "/sys/devices/system/node/online")
    return len(cpus.parse_list(online)) if online else None


def _unreclaimable(node: Node, group: str | None) -> int:
    """Bytes in use in a group that its kernel can't simply drop: usage less the inactive page cache."""
    for usage in ("memory.current", "memory.usage_in_bytes"):
        used = text_of(node, f"{group}/{usage}")
        if used.isdigit():
            statistics = dict(line.split() for line in text_of(node, f"{group}/memory.stat").splitlines() if len(line.split()) == 2)
            cache = statistics.get("total_inactive_file") or statistics.get("inactive_file") or "0"
            return max(0, int(used) - int(cache))
    return 0


def _huge_pages(node: Node) -> dict[str, int]:
    """Page size (``2 MB``) → pages reserved."""
    directory = "/sys/kernel/mm/hugepages"
    sizes = sorted(int(match[1]) for name in _names(node, directory) if (match := re.fullmatch(r"hugepages-(\d+)kB", name)))
    found = {}
    for kilobytes in sizes:
        count = text_of(node, f"{directory}/hugepages-{kilobytes}kB/nr_hugepages")
        if count.isdigit():
            found[format_bytes(kilobytes * 1024)] = int(count)
    return found


def _devices(node: Node) -> list[BlockDevice]:
    """Block devices that hold something: unbound loop devices and empty drives have size 0."""
    found = []
    for name in _names(node, "/sys/block"):
        path = f"/sys/block/{name}"
        sectors, number = text_of(node, f"{path}/size"), text_of(node, f"{path}/dev")
        if not sectors.isdigit() or int(sectors) == 0 or not number:
            continue
        rotational = text_of(node, f"{path}/queue/rotational")
        ahead = text_of(node, f"{path}/queue/read_ahead_kb")
        found.append(
            BlockDevice(
                name=name,
                number=number,
                size=int(sectors) * _SECTOR,
                scheduler=chosen(text_of(node, f"{path}/queue/scheduler")),
                rotational=rotational == "1" if rotational in ("0", "1") else None,
                read_ahead=int(ahead) * 1024 if ahead.isdigit() else None,
            )
        )
    return found


def _names(node: Node, directory: str) -> list[str]:
    try:
        return node.listdir(directory)
    except OSError:
        return []


def _cgroups(node: Node, layout: Layout) -> tuple[str | None, str]:
    """(where a group with cpu and memory can be made, '') or (None, why not)."""
    try:
        return cgroup_base.find(node, layout).where, ""
    except cgroup_base.NoBase as error:
        return None, str(error)
