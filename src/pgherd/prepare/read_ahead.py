"""What is to be said of a disk that reads far ahead, where memory is going to be short."""

from __future__ import annotations

from pgherd.host import block_devices
from pgherd.model.facts import HostFacts
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Node

MUCH = 2**20
"""Bytes of read-ahead beyond which it is said; Linux has 128 kB by itself."""


def words(node: Node, facts: HostFacts, place: str) -> list[str]:
    """A warning where the device below the directory ``place`` reads far ahead; nothing where it does not, or none is seen.

    A page of a program that was evicted is read with as much around it as the device reads ahead, and a file that is read from one
    end to the other is read so far beyond what was asked for: where memory is short both push out what is needed.
    """
    lies_on = block_devices.devices_of(node, [place]).get(place)
    found = next((device for device in facts.devices if lies_on is not None and device.number == lies_on.number), None)
    if found is None or found.read_ahead is None or found.read_ahead <= MUCH:
        return []
    return [
        f"Warning: {found.name}, where the databases lie, reads up to {format_bytes(found.read_ahead)} ahead (Linux's default is 128 kB): "
        "where memory is short, what nobody asked for pushes out what is needed, and trials may get much slower than elsewhere, or hang; "
        f"'echo 128 > /sys/block/{found.name}/queue/read_ahead_kb' as root changes it until the next boot."
    ]
