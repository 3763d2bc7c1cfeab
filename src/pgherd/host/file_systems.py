"""File systems that pgherd makes for a run and takes away again: on a file through a loop device, or on an empty block device.

Each change is in the journal before it is made. What is taken away is known by what the journal names: the loop device by the file
behind it, the mount by its place and what is mounted there, the file system on a block device by its UUID.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Sequence

from pgherd.host import mounts
from pgherd.host.empty_device import insist_empty
from pgherd.host.journal import Journal
from pgherd.host.undo import DetachLoop, Unmount, WipeFileSystem
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node

LOOP_TOOLS = {"losetup": "mount", "mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount", "fallocate": "util-linux"}
"""What a loop volume needs, and the Debian package of each."""
DEVICE_TOOLS = {"mkfs.ext4": "e2fsprogs", "mount": "mount", "umount": "mount", "blkid": "util-linux", "wipefs": "util-linux"}
"""What a block device needs."""

_PATIENCE = 600.0
_MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")


def insist_tools(node: Node, tools: dict[str, str], what: str) -> None:
    """Raise CapabilityError, naming the package, where a tool is missing or we may not mount."""
    if os.geteuid() != 0:
        raise CapabilityError(f"{what} must be mounted, which needs root; run this as root, or name a directory")
    for tool, package in tools.items():
        if not any(node.exists(f"{directory}/{tool}") for directory in ("/usr/sbin", "/sbin", "/usr/bin", "/bin")):
            raise CapabilityError(f"{what} needs {tool}, which is not installed; install the package {package} (apt-get install {package})")


def make_loop(node: Node, journal: Journal, home: str, name: str, size: int) -> str:
    """A file system of ``size`` bytes on a file in ``home`` (a directory of this journal's), mounted there; returns where.

    Raises:
        CapabilityError: there is no loop device to be had, or something fails.
    """
    what = f"loop volume '{name}'"
    insist_tools(node, LOOP_TOOLS, what)
    image, target = f"{home}/{name}.img", f"{home}/{name}"
    node.make_dir(target, mode=0o711)
    _do(node, ("fallocate", "--length", str(size), "--", image), f"{what}: no file of {format_bytes(size)} can be made in {home}")
    _do(node, (*_MKFS, "--", image), f"{what}: no file system can be made on it")
    journal.note(DetachLoop(path=image))
    # Direct I/O on the file, where its file system has it: else every block would lie in the page cache twice.
    direct = node.run(Command(("losetup", "--find", "--show", "--direct-io=on", "--", image)), timeout=_PATIENCE)
    device = direct.out.strip() if direct.code == 0 else ""
    if not device:
        device = _do(node, ("losetup", "--find", "--show", "--", image), f"{what}: no loop device can be had").strip()
    journal.note(Unmount(target=target, source=device))
    _do(node, ("mount", "-t", "ext4", "-o", "noatime", "--", device, target), f"{what} cannot be mounted at {target}")
    return target


def make_on_device(node: Node, journal: Journal, home: str, name: str, device: str) -> str:
    """A file system on an empty block device, mounted below ``home``; returns where. It is looked at again before it is formatted.

    Raises:
        UsageError: the device is not empty, or cannot be used.
        CapabilityError: something fails.
    """
    what = f"device volume '{name}' ({device})"
    insist_tools(node, DEVICE_TOOLS, what)
    insist_empty(node, device)
    target, mark = f"{home}/{name}", str(uuid.uuid4())
    node.make_dir(target, mode=0o711)
    journal.note(WipeFileSystem(device=device, mark=mark))
    _do(node, (*_MKFS, "-U", mark, "--", device), f"{what}: no file system can be made on it")
    journal.note(Unmount(target=target, source=device))
    _do(node, ("mount", "-t", "ext4", "-o", "noatime", "--", device, target), f"{what} cannot be mounted at {target}")
    return target


def still_there(node: Node, target: str) -> None:
    """Raise TrialError where nothing is mounted at a place of ours any more: what is written there would fill another disk."""
    if mounts.at(node, target) is None:
        raise TrialError(f"nothing is mounted at {posixpath.normpath(target)} any more, where a volume was; somebody has unmounted it")


def _do(node: Node, argv: Sequence[str], failed: str) -> str:
    done = node.run(Command(argv), timeout=_PATIENCE)
    if done.code:
        words = (done.err.strip().splitlines() or [f"exit code {done.code}"])[-1]
        raise CapabilityError(f"{failed}: {words}")
    return done.out
