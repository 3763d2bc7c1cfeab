"""Facts of a host, read through a node from /proc and /sys: those of every run, and those for recommendations.

The only change is a temporary probe cgroup.
"""

from __future__ import annotations

import posixpath
import re
import struct

from pgherd.host import cgroup_parent, cpus
from pgherd.host.cgroup_parent import CgroupHierarchies, enclosing_limits, read_layout
from pgherd.host.kernel_files import active_word, names_in, text_of
from pgherd.host.storage import devices_below, devices_of
from pgherd.model.host_facts import BlockDevice, HardwareDevice, HostAdviceFacts, HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

_DMI = "/sys/class/dmi/id"
_DMI_FILES = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
_HYPERVISOR_VENDORS = (
    ("KVM", "KVM"),
    ("OpenStack", "KVM (OpenStack)"),
    ("KubeVirt", "KVM (KubeVirt)"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google Compute Engine", "Google Compute Engine (KVM)"),
    ("AHV", "Nutanix AHV"),
    ("Nutanix", "Nutanix AHV"),
    ("QEMU", "QEMU"),
    ("VMware", "VMware"),
    ("VMW", "VMware"),
    ("innotek GmbH", "VirtualBox"),
    ("VirtualBox", "VirtualBox"),
    ("Xen", "Xen"),
    ("Bochs", "Bochs"),
    ("Parallels", "Parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "Microsoft Hyper-V"),
    ("Virtual Machine", "Microsoft Hyper-V"),
    ("Apple Virtualization", "Apple Virtualization"),
)
_HYPERVISOR_CLOCKS = (("kvm-clock", "KVM"), ("hyperv", "Microsoft Hyper-V"), ("xen", "Xen"))

_PROCESS_LIMITS = {"Max cpu time": "-t", "Max file size": "-f", "Max data size": "-d", "Max address space": "-v"}
"""Limit in /proc/PID/limits → option of the shell's ulimit."""

_AT_PAGESZ = 6
"""Key of the page size in the auxiliary vector (getauxval(3))."""
_NODES = "/sys/devices/system/node"
_SECTOR = 512
"""Unit of /sys/block/*/size in bytes, regardless of the device's block size."""


def gather(node: Node) -> HostFacts:
    """Gather the facts that a reader of results needs.

    Facts that are not visible stay None or empty.
    """
    layout = read_layout(node)
    limits = enclosing_limits(node, layout)
    usable = cpus.allowed(node)
    processors = cpus.parse_cpuinfo(text_of(node, "/proc/cpuinfo"))
    threads = cpus.siblings(node, usable)
    clock = cpus.cpu_frequency(node, usable)
    smt = cpus.simultaneous_multithreading(node, threads)
    hypervisor = hypervisor_of(node, processors.hypervisor)
    node_of = cpus.numa_nodes(node, usable)
    nodes = len(set(node_of.values())) or None
    cores = min(float(len(usable)), limits.cores or float("inf"))
    memory = parse_meminfo(text_of(node, "/proc/meminfo"))
    total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
    if closest := _memory_of_nodes(node):
        total, available = min(total, closest[0]), min(available, closest[1])
    if limits.memory is not None and limits.memory < total:
        total = limits.memory
        available = min(available, max(0, limits.memory - _unreclaimable(node, limits.memory_dir)))
    cgroup_parent, reason = _cgroup_parent(node, layout)
    return HostFacts(
        hostname=text_of(node, "/proc/sys/kernel/hostname"),
        kernel=text_of(node, "/proc/sys/kernel/osrelease"),
        os=parse_os_release(text_of(node, "/etc/os-release")),
        cores=cores,
        logical_cpus=len(usable),
        physical_cores=len(set(threads.values())) if len(threads) == len(usable) else None,
        smt=smt,
        numa_nodes=nodes,
        cpu_nodes=tuple(node_of.values()) if len(node_of) == len(usable) else (),
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
        page_size=page_size(node),
        huge_pages=_huge_pages(node),
        transparent_huge_pages=chosen(text_of(node, "/sys/kernel/mm/transparent_hugepage/enabled")),
        cgroup=layout.kind,
        cgroup_writable=cgroup_parent,
        cgroup_missing=reason,
        enclosing_limits=(*limits.others, *parse_process_limits(text_of(node, "/proc/self/limits"))),
        devices=tuple(_devices(node)),
        root=re.search(r"^Uid:\s+\d+\s+0\s", text_of(node, "/proc/self/status"), re.MULTILINE) is not None,
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo into bytes by name.

    Numbers without a unit (pages) are not converted.
    """
    values = {}
    for name, number, unit in re.findall(r"^(\S+):\s+(\d+)(?: (kB))?$", text, re.MULTILINE):
        values[name] = int(number) * (1024 if unit else 1)
    return values


def parse_process_limits(text: str) -> list[str]:
    """Describe the limits in /proc/PID/limits (proc(5)) that end or stop a server: of its files, its memory and its CPU time."""
    found = re.findall(rf"^({'|'.join(_PROCESS_LIMITS)}) +(\d+) +\S+ +(\w+)", text, re.MULTILINE)
    return [f"{name[4:]} of a process (ulimit {_PROCESS_LIMITS[name]}) is {value} {unit}" for name, value, unit in found]


def parse_os_release(text: str) -> str:
    """Return PRETTY_NAME of os-release(5)."""
    match = re.search(r"""^PRETTY_NAME=(["']?)(.*)\1$""", text, re.MULTILINE)
    return match[2] if match else ""


def chosen(text: str) -> str | None:
    """Return the active word: ``none [mq-deadline] kyber`` → ``mq-deadline``.

    The result is None for an empty text.
    """
    return active_word(text) or None


def hypervisor_of(node: Node, hypervisor_flag: bool | None) -> str | None:
    """Return the name of the hypervisor; None on bare metal, as far as visible.

    The rules are those of systemd-detect-virt (systemd, src/basic/virt.c). Firmware strings come first, because they
    distinguish products with the same hypervisor. They count only if the CPU flag does not rule out a hypervisor.
    ``hypervisor_flag`` is pgherd.host.cpus.CpuInfo.hypervisor.
    """
    if text_of(node, "/sys/hypervisor/type") == "xen":
        # Xen's first domain is the system that controls the hardware.
        return "Xen (control domain)" if "control_d" in text_of(node, "/proc/xen/capabilities") else "Xen"
    if hypervisor_flag is False:
        return None
    firmware = [text_of(node, f"{_DMI}/{file}") for file in _DMI_FILES]
    if re.search(r"\.metal(-|$)", firmware[0]):  # bare-metal machines of Amazon have the same vendor string
        return None
    for needle, name in _HYPERVISOR_VENDORS:
        if any(text.startswith(needle) for text in firmware):
            return name
    if node.exists("/proc/device-tree/hypervisor/compatible"):
        return text_of(node, "/proc/device-tree/hypervisor/compatible").rstrip("\0") or "unknown hypervisor"
    clocks = text_of(node, "/sys/devices/system/clocksource/clocksource0/available_clocksource")
    for needle, name in _HYPERVISOR_CLOCKS:
        if needle in clocks:
            return name
    return "unknown hypervisor" if hypervisor_flag else None


def _memory_of_nodes(node: Node) -> tuple[int, int] | None:
    """Return total and available memory of the NUMA nodes that this process may use, in bytes. None if it may use all."""
    allowed = re.search(r"^Mems_allowed_list:\s*(\S+)", text_of(node, "/proc/self/status"), re.MULTILINE)
    online = cpus.parse_list(text_of(node, f"{_NODES}/has_memory"))
    usable = [number for number in cpus.parse_list(allowed[1]) if number in online] if allowed else []
    if not usable or len(usable) == len(online):
        return None
    total = available = 0
    for number in usable:
        text = re.sub(r"^Node \d+ ", "", text_of(node, f"{_NODES}/node{number}/meminfo"), flags=re.MULTILINE)
        memory = parse_meminfo(text)
        total += memory.get("MemTotal", 0)
        available += sum(memory.get(name, 0) for name in ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable"))
    return (total, available) if total else None


def _unreclaimable(node: Node, group: str | None) -> int:
    """Return a group's memory usage without the inactive page cache, in bytes."""
    for file in ("memory.current", "memory.usage_in_bytes"):
        usage = text_of(node, f"{group}/{file}")
        if usage.isdigit():
            statistics = dict(line.split() for line in text_of(node, f"{group}/memory.stat").splitlines() if len(line.split()) == 2)
            cache = statistics.get("total_inactive_file") or statistics.get("inactive_file") or "0"
            return max(0, int(usage) - int(cache))
    return 0


def page_size(node: Node) -> int | None:
    """Return the size of a page in bytes, or None without /proc."""
    try:
        vector = node.read("/proc/self/auxv")
    except OSError:
        return None
    return next((int(value) for key, value in struct.iter_unpack("LL", vector) if key == _AT_PAGESZ), None)


def _huge_pages(node: Node) -> dict[str, int]:
    """Map each page size (``2 MB``) to its number of reserved pages."""
    directory = "/sys/kernel/mm/hugepages"
    sizes = sorted(int(match[1]) for name in names_in(node, directory) if (match := re.fullmatch(r"hugepages-(\d+)kB", name)))
    pages = {}
    for kilobytes in sizes:
        count = text_of(node, f"{directory}/hugepages-{kilobytes}kB/nr_hugepages")
        if count.isdigit():
            pages[format_bytes(kilobytes * 1024)] = int(count)
    return pages


def _devices(node: Node) -> list[BlockDevice]:
    """Return the block devices without those of size 0 (unbound loops, empty drives)."""
    devices = []
    for name in names_in(node, "/sys/block"):
        path = f"/sys/block/{name}"
        sectors, number = text_of(node, f"{path}/size"), text_of(node, f"{path}/dev")
        if not sectors.isdigit() or int(sectors) == 0 or not number:
            continue
        rotational = text_of(node, f"{path}/queue/rotational")
        ahead = text_of(node, f"{path}/queue/read_ahead_kb")
        devices.append(
            BlockDevice(
                name=name,
                number=number,
                size=int(sectors) * _SECTOR,
                scheduler=chosen(text_of(node, f"{path}/queue/scheduler")),
                rotational=rotational == "1" if rotational in ("0", "1") else None,
                read_ahead=int(ahead) * 1024 if ahead.isdigit() else None,
            )
        )
    return devices


def _cgroup_parent(node: Node, layout: CgroupHierarchies) -> tuple[str | None, str]:
    """Return a parent directory for cgroups and '', or None and the reason."""
    try:
        return cgroup_parent.find(node, layout).where, ""
    except cgroup_parent.CgroupUnavailable as error:
        return None, str(error)


# ---- facts for recommendations


KNOBS = (
    *("swappiness", "overcommit_memory", "overcommit_ratio", "dirty_ratio", "dirty_background_ratio", "dirty_bytes"),
    "dirty_background_bytes",
)
BALLOONS = ("/sys/bus/virtio/drivers/virtio_balloon", "/sys/bus/vmbus/drivers/hv_balloon", "/sys/module/vmw_balloon")
_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd")
_CLOCKS = "/sys/devices/system/clocksource/clocksource0"


def read_advice_facts(node: Node, facts: HostFacts) -> HostAdviceFacts:
    """Read the facts of the host with ``facts``.

    Facts that are not visible stay None or empty.
    """
    return HostAdviceFacts(
        hostname=facts.hostname,
        virtualisation=facts.virtualisation,
        memory=facts.memory,
        swap=facts.swap,
        disks=tuple(_disks(node)),
        cards=tuple(_cards(node)),
        balloon=_balloon(node),
        knobs={name: int(text) for name in KNOBS if (text := text_of(node, f"/proc/sys/vm/{name}")).isdigit()},
        transparent_huge_pages=facts.transparent_huge_pages,
        governor=facts.governor,
        clock_source=facts.clock_source,
        clock_sources=tuple(text_of(node, f"{_CLOCKS}/available_clocksource").split()),
    )


def disks_below(node: Node, path: str) -> tuple[str, ...]:
    """Return the names of the lowest block devices of a directory.

    The result is empty if the kernel shows none.
    """
    top = devices_of(node, [path]).get(path)
    if top is None:
        return ()
    devices = [top, *devices_below(node, top)]
    return tuple(sorted(device.name for device in devices if not device.below)) or (top.name,)


def _disks(node: Node) -> list[HardwareDevice]:
    disks = []
    for name in names_in(node, "/sys/block"):
        sysfs = f"/sys/block/{name}"
        if not name.startswith(_NOT_DISKS) and node.exists(f"{sysfs}/device"):
            text = text_of(node, f"{sysfs}/queue/scheduler")
            active = active_word(text)
            others = [word for word in text.replace("[", "").replace("]", "").split() if word != active]
            disks.append(HardwareDevice(name=name, driver=_disk_driver(node, sysfs), schedulers=(active, *others) if active else ()))
    return disks


def _disk_driver(node: Node, sysfs: str) -> str:
    """Return the driver of the hardware; for a SCSI disk, that of its host adapter."""
    driver = _driver(node, f"{sysfs}/device")
    if driver not in ("sd", ""):
        return driver
    real = _real(node, f"{sysfs}/device")
    adapter = next((part for part in real.split("/") if part.startswith("host") and part[4:].isdigit()), None)
    if adapter is not None:
        return text_of(node, f"/sys/class/scsi_host/{adapter}/proc_name")
    return "nvme" if posixpath.basename(sysfs).startswith("nvme") else driver


def _cards(node: Node) -> list[HardwareDevice]:
    return [
        HardwareDevice(name=name, driver=_driver(node, f"/sys/class/net/{name}/device"))
        for name in names_in(node, "/sys/class/net")
        if node.exists(f"/sys/class/net/{name}/device")
    ]


def _balloon(node: Node) -> str | None:
    """Return the balloon driver that has a device, '' if none has.

    The result is None if the buses are unreadable.
    """
    if not node.exists("/sys/bus"):
        return None
    for directory in BALLOONS:
        name = posixpath.basename(directory)
        if not node.exists(directory):
            continue
        if name == "vmw_balloon" or any(node.exists(f"{directory}/{entry}/uevent") for entry in names_in(node, directory)):
            return name
    return ""


def _driver(node: Node, device: str) -> str:
    return posixpath.basename(_real(node, f"{device}/driver")) if node.exists(f"{device}/driver") else ""


def _real(node: Node, path: str) -> str:
    return node.run(Command(["readlink", "--canonicalize", "--", path])).out.strip()
