"""Block devices of directories, and the devices below them (RAID, LVM, loop).

Read only.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.host import mounts
from pgherd.host.kernel_files import names_in
from pgherd.node.protocol import Command, Node

_MAX_DEPTH = 8


@dataclass(frozen=True)
class Device:
    """A whole block device: of a partition, the disk that it is part of.

    ``below`` holds the numbers of the devices that receive its requests: the members of a RAID or a logical volume,
    or the device with a loop device's file.
    """

    number: str
    name: str
    below: tuple[str, ...] = ()


def devices_of(node: Node, paths: Sequence[str]) -> dict[str, Device]:
    """Map each path to the whole device of its file system, following links.

    A path that does not exist is absent from the result. So is one without a block device (tmpfs, NFS, overlay).
    One process is started for all paths.
    """
    if not paths:
        return {}
    result = node.run(Command(["stat", "--dereference", "--format=%d %n", "--", *paths]))
    sources: Mapping[str, str] | None = None
    by_number: dict[str, Device | None] = {}
    devices: dict[str, Device] = {}
    for line in result.out.splitlines():
        digits, _, path = line.partition(" ")
        if not digits.isdigit():
            continue
        number = f"{os.major(int(digits))}:{os.minor(int(digits))}"
        if number not in by_number:
            source = number
            if number.startswith("0:"):  # btrfs and similar file systems have device numbers that name no block device
                sources = _mount_sources(node) if sources is None else sources
                source = sources.get(number, "")
            by_number[number] = device(node, source) if source else None
        whole_device = by_number[number]
        if whole_device is not None:
            devices[path] = whole_device
    return devices


def device(node: Node, number: str) -> Device | None:
    """Return the whole device with this number (``major:minor``).

    The result is None if the kernel shows none.
    """
    directory = f"/sys/dev/block/{number}"
    try:
        if node.exists(f"{directory}/partition"):
            number = _text(node, f"{directory}/../dev")
            directory = f"/sys/dev/block/{number}"
        fields = dict(line.partition("=")[::2] for line in _text(node, f"{directory}/uevent").splitlines())
    except OSError:
        return None
    return Device(number, fields.get("DEVNAME", number), tuple(_numbers_below(node, directory)))


def chain(node: Node, top: Device) -> list[Device]:
    """Return all devices below one, nearest first, without the device itself."""
    devices: dict[str, Device] = {}
    level = [top]
    for _ in range(_MAX_DEPTH):
        numbers = [number for upper in level for number in upper.below if number not in devices and number != top.number]
        level = [lower for number in dict.fromkeys(numbers) if (lower := device(node, number)) is not None]
        devices |= {lower.number: lower for lower in level}
    return list(devices.values())


def _numbers_below(node: Node, directory: str) -> list[str]:
    with contextlib.suppress(OSError):
        backing = _text(node, f"{directory}/loop/backing_file")
        return [lower.number for lower in devices_of(node, [backing.removesuffix(" (deleted)")]).values()]
    return [_text(node, f"{directory}/slaves/{name}/dev") for name in names_in(node, f"{directory}/slaves")]


def _mount_sources(node: Node) -> dict[str, str]:
    """Map the number of each mounted file system to that of its source device."""
    numbers: dict[str, str] = {}
    for mount in mounts.mounts(node):
        if mount.source.startswith("/dev/"):
            with contextlib.suppress(OSError):
                numbers[mount.number] = _text(node, f"/sys/class/block/{posixpath.basename(mount.source)}/dev")
    return numbers


def _text(node: Node, path: str) -> str:
    """Return a file's text; raises OSError, unlike ``text_of``."""
    return node.read(path).decode(errors="replace").strip()
