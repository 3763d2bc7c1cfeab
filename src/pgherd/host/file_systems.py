"""File systems that exist for one run, on loop devices or on empty block devices.

Each change is in the journal before it is made. Undo recognises a loop device by its file, a mount by its mount point and
source, and the file system on a block device by its UUID.
"""

from __future__ import annotations

import os
import posixpath
import re
import uuid
from collections.abc import Sequence

from pgherd.host import storage, swap_areas
from pgherd.host.journal import Journal
from pgherd.host.kernel_files import names_in, text_of
from pgherd.host.permissions import in_container, privileges
from pgherd.host.undo_actions import DetachLoop, Unmount, WipeFileSystem
from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

_LOOP_DEVICE = re.compile(r"loop(?:-control|\d+)")
_LOOP_TOOLS = {"losetup": "mount", "mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount", "fallocate": "util-linux"}
"""Tools for a loop volume, and the Debian package of each."""
DEVICE_TOOLS = {"mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount", "blkid": "util-linux", "wipefs": "util-linux"}
"""Tools for a block device, and the Debian package of each."""

MIN_DEVICE_BYTES = 64 * 2**20
HEAD_BYTES = 2**20
"""Bytes at the start of an empty device that must be zero."""

_COMMAND_TIMEOUT_S = 600.0
_MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")
_MOUNT_OPTIONS = "noatime,nosuid,nodev"
"""Nothing on a volume needs set-user-id programs or device files, and its files belong to the servers' user."""
_UNKNOWN_DATA = "data of an unknown kind in its first megabyte"


# ---- file systems


def require_tools(node: Node, tools: dict[str, str], label: str) -> None:
    """Require root and these tools.

    Raises CapabilityError with the package to install.
    """
    if os.geteuid() != 0:
        raise CapabilityError(f"{label} must be mounted, which needs root; run pgherd as root, or use a directory instead")
    for tool, package in tools.items():
        if not any(node.exists(f"{directory}/{tool}") for directory in ("/usr/sbin", "/sbin", "/usr/bin", "/bin")):
            raise CapabilityError(
                f"{label} needs {tool}, which is not installed; install the package {package} (apt-get install {package})"
            )


def require_loop(node: Node, label: str) -> None:
    """Require root, the tools of a loop volume, and loop devices. Raises CapabilityError with the remedy."""
    require_tools(node, _LOOP_TOOLS, label)
    if not any(_LOOP_DEVICE.fullmatch(name) for name in names_in(node, "/dev")):
        remedy = f"start the container with {privileges()}" if in_container(node) else "run 'modprobe loop' as root"
        raise CapabilityError(f"{label} needs loop devices, and there are none in /dev; {remedy}")


def make_loop(node: Node, journal: Journal, home: str, name: str, size: int) -> str:
    """Create a file system on a file, mount it, and return the mount point.

    Args:
        home: directory that is removed with the journal.
        size: bytes of the file.

    Raises:
        CapabilityError: no loop device is available, or a command fails.
    """
    label = f"loop volume '{name}'"
    require_loop(node, label)
    image, target = f"{home}/{name}.img", f"{home}/{name}"
    node.make_dir(target, mode=0o711)
    _run(node, ("fallocate", "--length", str(size), "--", image), f"{label}: cannot create a file of {format_bytes(size)} in {home}")
    _run(node, (*_MKFS, "--", image), f"{label}: cannot create a file system on it")
    journal.note(DetachLoop(path=image))
    # Direct I/O on the file, if its file system supports it: otherwise the page cache would hold each block twice.
    direct = node.run(Command(("losetup", "--find", "--show", "--direct-io=on", "--", image)), timeout=_COMMAND_TIMEOUT_S)
    device = direct.out.strip() if direct.code == 0 else ""
    if not device:
        device = _run(node, ("losetup", "--find", "--show", "--", image), f"{label}: no loop device is available").strip()
    journal.note(Unmount(target=target, source=device))
    _run(node, ("mount", "-t", "ext4", "-o", _MOUNT_OPTIONS, "--", device, target), f"{label} cannot be mounted at {target}")
    return target


def make_on_device(node: Node, journal: Journal, home: str, name: str, device: str) -> str:
    """Create a file system on an empty device, mount it, return the mount point.

    The device is checked again just before it is formatted.

    Raises:
        UsageError: the device is not empty, or unusable.
        CapabilityError: a command fails.
    """
    label = f"device volume '{name}' ({device})"
    require_tools(node, DEVICE_TOOLS, label)
    require_empty(node, device)
    target, mark = f"{home}/{name}", str(uuid.uuid4())
    node.make_dir(target, mode=0o711)
    journal.note(WipeFileSystem(device=device, mark=mark))
    _run(node, (*_MKFS, "-U", mark, "--", device), f"{label}: cannot create a file system on it")
    journal.note(Unmount(target=target, source=device))
    _run(node, ("mount", "-t", "ext4", "-o", _MOUNT_OPTIONS, "--", device, target), f"{label} cannot be mounted at {target}")
    return target


def still_there(node: Node, target: str) -> None:
    """Require that a volume is mounted: otherwise, writes would fill another disk.

    Raises TrialError.
    """
    if storage.mount_at(node, target) is None:
        raise TrialError(f"nothing is mounted at {posixpath.normpath(target)}: its volume was unmounted during the run")


def _run(node: Node, argv: Sequence[str], failure: str) -> str:
    result = node.run(Command(argv), timeout=_COMMAND_TIMEOUT_S)
    if result.code:
        reason = (result.err.strip().splitlines() or [f"exit code {result.code}"])[-1]
        raise CapabilityError(f"{failure}: {reason}")
    return result.out


# ---- empty devices


def require_empty(node: Node, device: str) -> int:
    """Return the size of an empty block device in bytes.

    It only reads. A doubtful device counts as not empty.

    Raises:
        UsageError: the device is missing, no block device, read-only, mounted, in use, partitioned, too small, or has data.
    """
    if not node.exists(device):
        raise UsageError(f"device {device} does not exist; 'lsblk' lists the block devices of this host")
    kind = node.run(Command(("stat", "--dereference", "--format=%F", "--", device))).out.strip()
    if kind != "block special file":
        raise UsageError(f"{device} is no block device but a {kind or 'file of unknown type'}; use one of 'lsblk', or a directory")
    number = storage.device_number(node, device)
    sysfs = f"/sys/dev/block/{number}"
    real = node.run(Command(("readlink", "--canonicalize", "--", device))).out.strip() or device
    targets = [mount.target for mount in storage.mounts(node) if mount.number == number or mount.source in (device, real)]
    if targets:
        raise UsageError(f"device {device} is mounted at {targets[0]}; use that directory, or a device that is not in use")
    if {device, real} & {area.path for area in swap_areas.areas(node)}:
        raise UsageError(f"device {device} is in use as swap; use another device")
    holders = names_in(node, f"{sysfs}/holders")
    if holders:
        raise UsageError(f"device {device} is in use by {', '.join(holders)}; use another device")
    partitions = [name for name in names_in(node, sysfs) if node.exists(f"{sysfs}/{name}/partition")]
    if partitions:
        raise UsageError(f"device {device} has partitions ({', '.join(partitions)}) and is not formatted; use an empty device")
    if text_of(node, f"{sysfs}/ro") == "1":
        raise UsageError(f"device {device} is read-only; use a writable device")
    size = int(text_of(node, f"{sysfs}/size") or 0) * 512
    if size < MIN_DEVICE_BYTES:
        raise UsageError(f"device {device} has {format_bytes(size)}, and the minimum is {format_bytes(MIN_DEVICE_BYTES)}; use a larger one")
    contents = _contents(node, device)
    if contents:
        # wipefs cannot remove data without a known signature, such as that of an interrupted mkfs.
        command = f"dd if=/dev/zero of={device} bs=1M count=1" if contents == _UNKNOWN_DATA else f"wipefs --all {device}"
        raise UsageError(
            f"device {device} holds {contents}; it is not formatted. If its data is not needed, erase it with '{command}', "
            "or use another device"
        )
    return size


def _contents(node: Node, device: str) -> str:
    """Describe the data on a device; '' if there is none.

    blkid and wipefs know different signatures. A device without any must also begin with zeros.
    """
    probe = node.run(Command(("blkid", "--probe", "--output", "export", "--", device)))
    if probe.code != 2:  # blkid(8): 0 is a known signature, 2 none, 8 an ambivalent result
        fields = dict(line.partition("=")[::2] for line in probe.out.splitlines())
        return next((f"{fields[name]}" for name in ("TYPE", "PTTYPE") if name in fields), "data that blkid cannot identify")
    signatures = node.run(Command(("wipefs", "--no-act", "--noheadings", "--output", "TYPE", "--", device)))
    if signatures.code != 0:
        return f"data that cannot be read ({signatures.err.strip()})"
    if signatures.out.strip():
        return signatures.out.split()[0]
    zeros = node.run(Command(("cmp", f"--bytes={HEAD_BYTES}", "--", device, "/dev/zero")))
    return "" if zeros.code == 0 else _UNKNOWN_DATA
