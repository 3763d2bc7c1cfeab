"""Mounted file systems (proc_pid_mountinfo(5)). Read only."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pgherd.host.kernel_files import unescape
from pgherd.node.protocol import Command, Node


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
    for line in text.splitlines():
        mount_fields, dash, source_fields = line.partition(" - ")
        left, right = mount_fields.split(), source_fields.split()
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


def at(node: Node, target: str) -> Mount | None:
    """Return the mount at exactly this path of this machine, the newest of several.

    Links are followed, because the kernel lists mount points without them.
    """
    path = os.path.realpath(target)
    matches = [mount for mount in mounts(node) if mount.target == path]
    return matches[-1] if matches else None


def number_of(node: Node, device: str) -> str:
    """Return the number (major:minor) of a device file, following links.

    The result is '' if there is none.
    """
    result = node.run(Command(("stat", "--dereference", "--format=%t:%T", "--", device)))  # hex: decimal needs coreutils 9
    match = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+)", result.out.strip()) if result.code == 0 else None
    return "" if match is None else f"{int(match[1], 16)}:{int(match[2], 16)}"


def of_device(node: Node, device: str) -> list[Mount]:
    """Return the mounts of a block device under any of its names.

    The source in mountinfo may differ from ``device``: a link (below /dev/disk, of a logical volume) has another name.
    """
    number = number_of(node, device)
    return [mount for mount in mounts(node) if mount.source == device or mount.number == number]


def below(node: Node, path: str) -> list[str]:
    """Return the mount points at or below a directory, following links."""
    directory = os.path.realpath(path)
    return [mount.target for mount in mounts(node) if mount.target == directory or mount.target.startswith(f"{directory}/")]
