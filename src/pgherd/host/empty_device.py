"""Whether a block device holds nothing, so that it may be formatted. Reads only; in doubt the answer is no."""

from __future__ import annotations

from pgherd.host import mounts, swap_areas
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

LEAST = 64 * 2**20
"""Bytes of the smallest device that is used."""
HEAD = 2**20
"""Bytes at the device's start that must all be zero, beside that no known signature is found anywhere."""
_UNKNOWN = "data of an unknown kind in its first megabyte"


def insist_empty(node: Node, device: str) -> int:
    """The size of a block device (bytes) that holds nothing.

    Raises:
        UsageError: it is missing, no block device, read-only, mounted, in use, partitioned, too small, or holds something.
    """
    if not node.exists(device):
        raise UsageError(f"device {device} is not there; 'lsblk' lists the block devices of this host")
    kind = node.run(Command(("stat", "--dereference", "--format=%F", "--", device))).out.strip()
    if kind != "block special file":
        raise UsageError(f"{device} is no block device but a {kind or 'thing unknown'}; name one of 'lsblk', or a directory")
    number = mounts.number_of(node, device)
    at = f"/sys/dev/block/{number}"
    real = node.run(Command(("readlink", "--canonicalize", "--", device))).out.strip() or device
    used = [mount.target for mount in mounts.mounts(node) if mount.number == number or mount.source in (device, real)]
    if used:
        raise UsageError(f"device {device} is mounted at {used[0]}; name that directory instead, or a device that is not in use")
    if {device, real} & {area.path for area in swap_areas.areas(node)}:
        raise UsageError(f"device {device} is in use as swap; name a device that is not in use")
    if _names(node, f"{at}/holders"):
        raise UsageError(f"device {device} is in use by {', '.join(_names(node, f'{at}/holders'))}; name a device that is not in use")
    parts = [name for name in _names(node, at) if node.exists(f"{at}/{name}/partition")]
    if parts:
        raise UsageError(f"device {device} has partitions ({', '.join(parts)}); it is not formatted: name an empty device")
    if _text(node, f"{at}/ro") == "1":
        raise UsageError(f"device {device} is read-only; name one that can be written to")
    size = int(_text(node, f"{at}/size") or 0) * 512
    if size < LEAST:
        raise UsageError(f"device {device} has {format_bytes(size)}, and {format_bytes(LEAST)} are the least; name a larger one")
    holds = _holds(node, device)
    if holds:
        # wipefs finds no signature in what it does not know, as in what an mkfs leaves that was killed.
        by = f"dd if=/dev/zero of={device} bs=1M count=1" if holds == _UNKNOWN else f"wipefs --all {device}"
        raise UsageError(
            f"device {device} holds {holds}; it is not formatted. If nothing on it is needed, empty it yourself ('{by}'), or name another"
        )
    return size


def _holds(node: Node, device: str) -> str:
    """What is on a device, in words; '' for nothing. Two probes that know different signatures, and the first bytes."""
    probe = node.run(Command(("blkid", "--probe", "--output", "export", "--", device)))
    if probe.code != 2:  # blkid(8): 2 is 'no specified token or device found', 8 an ambivalent probe, 0 something known
        fields = dict(line.partition("=")[::2] for line in probe.out.splitlines())
        return next((f"{fields[name]}" for name in ("TYPE", "PTTYPE") if name in fields), "something that blkid cannot tell")
    wiped = node.run(Command(("wipefs", "--no-act", "--noheadings", "--output", "TYPE", "--", device)))
    if wiped.code != 0:
        return f"something that cannot be read ({wiped.err.strip()})"
    if wiped.out.strip():
        return wiped.out.split()[0]
    zeros = node.run(Command(("cmp", f"--bytes={HEAD}", "--", device, "/dev/zero")))
    return "" if zeros.code == 0 else _UNKNOWN


def _names(node: Node, path: str) -> list[str]:
    try:
        return node.listdir(path)
    except OSError:
        return []


def _text(node: Node, path: str) -> str:
    try:
        return node.read(path).decode(errors="replace").strip()
    except OSError:
        return ""
