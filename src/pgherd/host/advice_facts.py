"""Host facts for recommendations: drivers, schedulers, kernel settings.

Read only, from /proc and /sys through a node.
"""

from __future__ import annotations

import posixpath

from pgherd.host.block_devices import chain, devices_of
from pgherd.host.kernel_files import active_word, names_in, text_of
from pgherd.model.host_facts import HardwareDevice, HostAdviceFacts, HostFacts
from pgherd.node.protocol import Command, Node

KNOBS = (
    *("swappiness", "overcommit_memory", "overcommit_ratio", "dirty_ratio", "dirty_background_ratio", "dirty_bytes"),
    "dirty_background_bytes",
)
BALLOONS = ("/sys/bus/virtio/drivers/virtio_balloon", "/sys/bus/vmbus/drivers/hv_balloon", "/sys/module/vmw_balloon")
_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd")
_CLOCKS = "/sys/devices/system/clocksource/clocksource0"


def read_host_facts(node: Node, facts: HostFacts) -> HostAdviceFacts:
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
    devices = [top, *chain(node, top)]
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
