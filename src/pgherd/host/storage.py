"""Storage of a machine, read only: mounted file systems, direct I/O on them, and the block devices below them.

Mounts: proc_pid_mountinfo(5). The devices below a file system include those of RAID, LVM and loop devices.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.host.kernel_files import names_in, text_of, unescape
from pgherd.node.protocol import Command, Node

# ---- mounted file systems


@dataclass(frozen=True)
class Mount:
    """One mount: device number (major:minor), mount point, kind and source."""

    number: str
    target: str
    kind: str
    source: str
    read_only: bool


def mounts(node: Node) -> list[Mount]:
    """Return all mounts visible to this process, oldest first."""
    return parse_mounts(node.read("/proc/self/mountinfo").decode(errors="replace"))


def parse_mounts(text: str) -> list[Mount]:
    """Parse the text of /proc/PID/mountinfo; lines that are incomplete are skipped."""
    parsed = []
    for line in text.split("\n"):  # the kernel escapes blanks and newlines of ASCII only
        mount_fields, dash, source_fields = line.partition(" - ")
        left, right = mount_fields.split(" "), source_fields.split(" ")
        if not dash or len(left) < 6 or len(right) < 2:
            continue
        options = {*left[5].split(","), *(right[2].split(",") if len(right) > 2 else ())}
        parsed.append(Mount(left[2], unescape(left[4]), right[0], unescape(right[1]), "ro" in options))
    return parsed


def mount_of(node: Node, path: str) -> Mount | None:
    """Return the mount that contains a path, or None.

    Symbolic links are not followed.
    """
    innermost = None
    for mount in mounts(node):
        target = mount.target.rstrip("/")
        covers = path == mount.target or path.startswith(f"{target}/")
        if covers and (innermost is None or len(mount.target) >= len(innermost.target)):
            innermost = mount
    return innermost


def mount_at(node: Node, target: str) -> Mount | None:
    """Return the mount at exactly this path of this machine, the newest of several.

    Links are followed, because the kernel lists mount points without them.
    """
    path = os.path.realpath(target)
    matches = [mount for mount in mounts(node) if mount.target == path]
    return matches[-1] if matches else None


def device_number(node: Node, device: str) -> str:
    """Return the number (major:minor) of a device file, following links.

    The result is '' if there is none.
    """
    result = node.run(Command(("stat", "--dereference", "--format=%t:%T", "--", device)))  # hex: decimal needs coreutils 9
    match = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+)", result.out.strip()) if result.code == 0 else None
    return "" if match is None else f"{int(match[1], 16)}:{int(match[2], 16)}"


def mounts_of_device(node: Node, device: str) -> list[Mount]:
    """Return the mounts of a block device under any of its names.

    The source in mountinfo may differ from ``device``: a link (below /dev/disk, of a logical volume) has another name.
    """
    number = device_number(node, device)
    return [mount for mount in mounts(node) if mount.source == device or mount.number == number]


def mounts_below(node: Node, path: str) -> list[str]:
    """Return the mount points at or below a directory, following links."""
    directory = os.path.realpath(path)
    return [mount.target for mount in mounts(node) if mount.target == directory or mount.target.startswith(f"{directory}/")]


# ---- direct I/O


_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)


def direct_io_works(directory: str) -> bool:
    """Return whether a directory's files can be opened with O_DIRECT (open(2)).

    An unnamed file (O_TMPFILE) is tried first, because the kernel removes it on close. A file system without unnamed
    files gets a short-lived named one. The result is False if the test itself fails.
    """
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
        return True
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            return False
    path = os.path.join(directory, f"pgherd-probe-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_DIRECT, 0o600))
        return True
    except OSError:
        return False
    finally:
        if os.path.lexists(path):
            os.unlink(path)


# ---- block devices


_MAX_DEPTH = 8
_BTRFS = "/sys/fs/btrfs"


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
    by_number: dict[str, Device | None] = {}
    devices: dict[str, Device] = {}
    for path, number in _numbers_of(node, paths).items():
        if number not in by_number:
            # Subvolumes of btrfs have numbers that neither a block device nor mountinfo has.
            source = _source_of(node, number, path) if number.startswith("0:") else number
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


def devices_below(node: Node, top: Device) -> list[Device]:
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


def _source_of(node: Node, number: str, path: str) -> str:
    """Return the number of the device that a file system with a number of its own lies on, or '' if it is not one device.

    The path is used only if mountinfo does not list the number, as of a subvolume, and if it leads there on this host: links of other
    processes (/proc/PID/cwd) lead to paths of their mounts.
    """
    mount = next((mount for mount in mounts(node) if mount.number == number), None)
    if mount is None:
        target = os.path.realpath(path)
        mount = mount_of(node, target) if _numbers_of(node, [target]).get(target) == number else None
    if mount is None or not mount.source.startswith("/dev/") or (mount.kind == "bcachefs" and ":" in mount.source):
        return ""  # bcachefs lists its devices
    try:
        found = _text(node, f"/sys/class/block/{posixpath.basename(mount.source)}/dev")
    except OSError:
        found = device_number(node, mount.source)  # a name below /dev/mapper
    return "" if _is_one_of_several(node, found) else found


def _is_one_of_several(node: Node, number: str) -> bool:
    """Return True for one of several devices of a btrfs, of which mountinfo has only this one."""
    for uuid in names_in(node, _BTRFS):
        members = [text_of(node, f"{_BTRFS}/{uuid}/devices/{name}/dev") for name in names_in(node, f"{_BTRFS}/{uuid}/devices")]
        if number in members and len(members) > 1:
            return True
    return False


def _numbers_of(node: Node, paths: Sequence[str]) -> dict[str, str]:
    """Map each path that exists to the number of its file system. One process is started for all."""
    result = node.run(Command(["stat", "--dereference", "--format=%d %n", "--", *paths]))
    lines = (line.partition(" ") for line in result.out.splitlines())
    return {path: f"{os.major(int(digits))}:{os.minor(int(digits))}" for digits, _, path in lines if digits.isdigit()}


def _text(node: Node, path: str) -> str:
    """Return a file's text; raises OSError, unlike ``text_of``."""
    return node.read(path).decode(errors="replace").strip()
