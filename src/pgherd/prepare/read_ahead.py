"""Warning about a disk with a large read-ahead, for runs that are short of memory."""

from __future__ import annotations

from pgherd.host import block_devices
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node

MUCH = 2**20
"""Read-ahead in bytes above which the warning appears. The default of Linux is 128 kB."""


def words(node: Node, facts: HostFacts, place: str) -> list[str]:
    """Return a warning if the device below the directory ``place`` has a large read-ahead. Return an empty list if it is unknown.

    When the kernel reads an evicted page of a program, it also reads the pages around it, up to the read-ahead. It also reads ahead in
    a file that is read sequentially. If memory is short, these extra pages evict pages that are needed.
    """
    below = block_devices.devices_of(node, [place]).get(place)
    disk = next((device for device in facts.devices if below is not None and device.number == below.number), None)
    if disk is None or disk.read_ahead is None or disk.read_ahead <= MUCH:
        return []
    return [
        "Warning: trials may be much slower than on other disks, or hang, if memory is short: the databases' device "
        f"{disk.name} reads up to {format_bytes(disk.read_ahead)} ahead (Linux's default is 128 kB), and these pages evict needed pages. "
        f"As root, 'echo 128 > /sys/block/{disk.name}/queue/read_ahead_kb' changes it until the next boot."
    ]
