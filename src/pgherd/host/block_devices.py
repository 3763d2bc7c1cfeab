"""Which block device a directory lies on, and what it lies on in turn. Reads only."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.node.protocol import Command, Node

_DEPTH = 8


@dataclass(frozen=True)
class Device:
    """A whole device (of a partition: the one it is a part of). ``below`` are the numbers of the devices that it passes its
    requests on to: members of a RAID or a logical volume, or what holds a loop device's file."""

    number: str
    name: str
    below: tuple[str, ...] = ()


def devices_of(node: Node, paths: Sequence[str]) -> dict[str, Device]:
    """Path → the whole device that its file system lies on; links are followed. A path that is not there, and one on no block
    device (tmpfs, NFS, overlay), is absent. One process is started for all paths."""
    if not paths:
        return {}
    done = node.run(Command(["stat", "--dereference", "--format=%d %n", "--", *paths]))
    mounts: Mapping[str, str] | None = None
    known: dict[str, Device | None] = {}
    found: dict[str, Device] = {}
    for line in done.out.splitlines():
        word, _, path = line.partition(" ")
        if not word.isdigit():
            continue
        number = f"{os.major(int(word))}:{os.minor(int(word))}"
        if number not in known:
            source = number
            if number.startswith("0:"):  # btrfs and its like number their file systems by themselves
                mounts = _mounts(node) if mounts is None else mounts
                source = mounts.get(number, "")
            known[number] = device(node, source) if source else None
        at = known[number]
        if at is not None:
            found[path] = at
    return found


def device(node: Node, number: str) -> Device | None:
    """The whole device of this number; None where the kernel shows none."""
    at = f"/sys/dev/block/{number}"
    try:
        if node.exists(f"{at}/partition"):
            number = _text(node, f"{at}/../dev")
            at = f"/sys/dev/block/{number}"
        fields = dict(line.partition("=")[::2] for line in _text(node, f"{at}/uevent").splitlines())
    except OSError:
        return None
    return Device(number, fields.get("DEVNAME", number), tuple(_below(node, at)))


def chain(node: Node, top: Device) -> list[Device]:
    """All devices below one, nearest first, without itself."""
    found: dict[str, Device] = {}
    level = [top]
    for _ in range(_DEPTH):
        numbers = [number for one in level for number in one.below if number not in found and number != top.number]
        level = [one for number in dict.fromkeys(numbers) if (one := device(node, number)) is not None]
        found |= {one.number: one for one in level}
    return list(found.values())


def _below(node: Node, at: str) -> list[str]:
    with contextlib.suppress(OSError):
        backing = _text(node, f"{at}/loop/backing_file")
        return [one.number for one in devices_of(node, [backing.removesuffix(" (deleted)")]).values()]
    try:
        slaves = node.listdir(f"{at}/slaves")
    except OSError:
        return []
    return [_text(node, f"{at}/slaves/{name}/dev") for name in slaves]


def _mounts(node: Node) -> dict[str, str]:
    """Number of a mounted file system → number of the device that it says it lies on (proc_pid_mountinfo(5))."""
    found: dict[str, str] = {}
    for line in node.read("/proc/self/mountinfo").decode(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        own, source = before.split()[2:3], after.split()[1:2]
        if own and source and source[0].startswith("/dev/"):
            with contextlib.suppress(OSError):
                found[own[0]] = _text(node, f"/sys/class/block/{posixpath.basename(source[0])}/dev")
    return found


def _text(node: Node, path: str) -> str:
    return node.read(path).decode(errors="replace").strip()
