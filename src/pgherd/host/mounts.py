"""What is mounted where (proc_pid_mountinfo(5)). Reads only."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pgherd.node.protocol import Command, Node


@dataclass(frozen=True)
class Mount:
    """One mount: ``number`` (major:minor) of its file system, where it is, its kind, what it was mounted from, and whether it is
    read-only."""

    number: str
    target: str
    kind: str
    source: str
    read_only: bool


def mounts(node: Node) -> list[Mount]:
    """All mounts that this process sees, in the order in which they were made."""
    return parse_mounts(node.read("/proc/self/mountinfo").decode(errors="replace"))


def parse_mounts(text: str) -> list[Mount]:
    """The mounts in the text of /proc/PID/mountinfo, which writes blanks in names as octal escapes."""
    found = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if not dash or len(left) < 6 or len(right) < 2:
            continue
        options = {*left[5].split(","), *(right[2].split(",") if len(right) > 2 else ())}
        found.append(Mount(left[2], _plain(left[4]), right[0], _plain(right[1]), "ro" in options))
    return found


def mount_of(node: Node, path: str) -> Mount | None:
    """The mount that a path lies on; None where none is seen. Symbolic links are not followed."""
    found = None
    for mount in mounts(node):
        target = mount.target.rstrip("/")
        if (path == mount.target or path.startswith(f"{target}/")) and (found is None or len(mount.target) >= len(found.target)):
            found = mount
    return found


def at(node: Node, target: str) -> Mount | None:
    """What is mounted at this very place of this machine, the last where several are; links are followed, since the kernel names
    places without them."""
    place = os.path.realpath(target)
    found = [mount for mount in mounts(node) if mount.target == place]
    return found[-1] if found else None


def number_of(node: Node, device: str) -> str:
    """The number (major:minor) of a device file, links followed; '' where there is none."""
    told = node.run(Command(("stat", "--dereference", "--format=%t:%T", "--", device)))  # in hex; decimal ones are of coreutils 9
    found = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+)", told.out.strip()) if told.code == 0 else None
    return "" if found is None else f"{int(found[1], 16)}:{int(found[2], 16)}"


def of_device(node: Node, device: str) -> list[Mount]:
    """The mounts of a block device under whichever name: a link to it (below /dev/disk, of a logical volume) is not what the kernel
    says it was mounted from."""
    number = number_of(node, device)
    return [mount for mount in mounts(node) if mount.source == device or mount.number == number]


def below(node: Node, path: str) -> list[str]:
    """Where in a directory of this machine, or on it, something is mounted; links are followed."""
    whole = os.path.realpath(path)
    return [mount.target for mount in mounts(node) if mount.target == whole or mount.target.startswith(f"{whole}/")]


def _plain(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)
