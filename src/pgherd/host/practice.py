"""What a host shows of the practice that its databases live with: read from /proc and /sys through a node. Nothing is changed."""

from __future__ import annotations

import posixpath

from pgherd.host.block_devices import chain, devices_of
from pgherd.host.cgroup_layout import text_of
from pgherd.host.facts import chosen
from pgherd.model.facts import HostFacts, HostPractice, Part
from pgherd.node.protocol import Command, Node

KNOBS = (
    *("swappiness", "overcommit_memory", "overcommit_ratio", "dirty_ratio", "dirty_background_ratio", "dirty_bytes"),
    "dirty_background_bytes",
)
BALLOONS = ("/sys/bus/virtio/drivers/virtio_balloon", "/sys/bus/vmbus/drivers/hv_balloon", "/sys/module/vmw_balloon")
_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd")
_CLOCKS = "/sys/devices/system/clocksource/clocksource0"


def look(node: Node, facts: HostFacts) -> HostPractice:
    """All of it; ``facts`` are this host's. What cannot be seen stays None or empty."""
    return HostPractice(
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
    """The whole devices that a directory lies on, as deep as the kernel tells; empty where it does not."""
    found = devices_of(node, [path]).get(path)
    if found is None:
        return ()
    below = chain(node, found)
    return tuple(sorted(one.name for one in [found, *below] if not one.below)) or (found.name,)


def _disks(node: Node) -> list[Part]:
    found = []
    for name in _names(node, "/sys/block"):
        at = f"/sys/block/{name}"
        if not name.startswith(_NOT_DISKS) and node.exists(f"{at}/device"):
            text = text_of(node, f"{at}/queue/scheduler")
            used = chosen(text)
            others = [word for word in text.replace("[", "").replace("]", "").split() if word != used]
            found.append(Part(name=name, driver=_disk_driver(node, at), schedulers=(used, *others) if used else ()))
    return found


def _disk_driver(node: Node, at: str) -> str:
    """The driver that talks to the hardware: of a SCSI disk that of its host adapter."""
    own = _driver(node, f"{at}/device")
    if own not in ("sd", ""):
        return own
    real = _real(node, f"{at}/device")
    adapter = next((part for part in real.split("/") if part.startswith("host") and part[4:].isdigit()), None)
    if adapter is not None:
        return text_of(node, f"/sys/class/scsi_host/{adapter}/proc_name")
    return "nvme" if posixpath.basename(at).startswith("nvme") else own


def _cards(node: Node) -> list[Part]:
    return [
        Part(name=name, driver=_driver(node, f"/sys/class/net/{name}/device"))
        for name in _names(node, "/sys/class/net")
        if node.exists(f"/sys/class/net/{name}/device")
    ]


def _balloon(node: Node) -> str | None:
    """The driver that has a device, '' where none has; None where the buses cannot be read."""
    if not node.exists("/sys/bus"):
        return None
    for place in BALLOONS:
        name = posixpath.basename(place)
        if node.exists(place) and (name == "vmw_balloon" or any(node.exists(f"{place}/{entry}/uevent") for entry in _names(node, place))):
            return name
    return ""


def _driver(node: Node, device: str) -> str:
    return posixpath.basename(_real(node, f"{device}/driver")) if node.exists(f"{device}/driver") else ""


def _real(node: Node, path: str) -> str:
    return node.run(Command(["readlink", "--canonicalize", "--", path])).out.strip()


def _names(node: Node, directory: str) -> list[str]:
    try:
        return node.listdir(directory)
    except OSError:
        return []
