"""Which cgroup hierarchies a machine has, where our own process stands in them, and which limits surround it.

Formats: proc(5) `/proc/PID/mountinfo`, cgroups(7) `/proc/PID/cgroup`, the kernel's admin-guide cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pgherd.node.protocol import Node

Kind = Literal["v1", "v2", "hybrid", "none"]

_UNLIMITED_V1 = 1 << 60
"""v1 writes 'no limit' as the largest page-aligned count; anything near it is no limit."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: ``mount`` is where, ``root`` the group mounted there, ``own`` our process's group.

    ``root`` is not ``/`` where a container sees only its own part of the tree.
    """

    mount: str
    root: str = "/"
    own: str = "/"

    @property
    def own_dir(self) -> str:
        """The directory of our own group; the mount point where our group lies outside what is mounted."""
        if self.root == "/":
            relative = self.own
        elif self.own == self.root or self.own.startswith(self.root + "/"):
            relative = self.own[len(self.root) :]
        else:
            relative = "/"
        if ".." in relative.split("/"):
            relative = "/"
        return posixpath.join(self.mount, relative.strip("/")).rstrip("/")

    def chain(self) -> Iterator[str]:
        """The directories from our own group up to the mount point."""
        path = self.own_dir
        yield path
        while path != self.mount:
            path = posixpath.dirname(path)
            yield path


@dataclass(frozen=True)
class Layout:
    """All hierarchies: v1 by controller name, and the unified (v2) one."""

    v1: Mapping[str, Hierarchy] = field(default_factory=dict)
    v2: Hierarchy | None = None

    @property
    def kind(self) -> Kind:
        """'hybrid' is v2 mounted beside v1 controllers."""
        if self.v1:
            return "hybrid" if self.v2 else "v1"
        return "v2" if self.v2 else "none"

    @property
    def manager(self) -> Literal["v1", "v2"] | None:
        """The version that holds both the cpu and the memory controller; None where neither does."""
        on_v1 = {"cpu", "memory"} & set(self.v1)
        if len(on_v1) == 2:
            return "v1"
        return "v2" if self.v2 and not on_v1 else None


@dataclass(frozen=True)
class Surrounding:
    """Limits that the groups around our own process set: CPU quota in cores, memory in bytes; None is no limit.

    ``memory_dir`` is the group whose memory limit is the lowest.
    """

    cores: float | None = None
    memory: int | None = None
    memory_dir: str | None = None


def read_layout(node: Node) -> Layout:
    """The node's layout as seen by our own process; an empty one where /proc is not to be read."""
    try:
        mountinfo = node.read("/proc/self/mountinfo").decode(errors="replace")
        own = node.read("/proc/self/cgroup").decode(errors="replace")
    except OSError:
        return Layout()
    return parse_layout(mountinfo, own)


def parse_layout(mountinfo: str, own: str) -> Layout:
    """Layout from the texts of ``/proc/self/mountinfo`` and ``/proc/self/cgroup``."""
    groups = _own_groups(own)
    v1: dict[str, Hierarchy] = {}
    v2: Hierarchy | None = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if not separator or len(left) < 6 or not right:
            continue
        root, mount, kind = _unescape(left[3]), _unescape(left[4]), right[0]
        if kind == "cgroup2" and v2 is None:
            v2 = Hierarchy(mount, root, groups.get("", "/"))
        elif kind == "cgroup":
            for option in right[-1].split(","):
                if option in groups and option not in v1 and not option.startswith("name="):
                    v1[option] = Hierarchy(mount, root, groups[option])
    return Layout(v1, v2)


def _own_groups(text: str) -> dict[str, str]:
    """Controller → path of our group; the unified hierarchy under ''."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number.isdigit() and path.startswith("/"):
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def _unescape(path: str) -> str:
    r"""mountinfo writes blanks and the like as octal escapes (``\040``)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def surrounding(node: Node, layout: Layout) -> Surrounding:
    """The tightest CPU quota and memory limit between our own group and the top of what is mounted."""
    quotas: list[float] = []
    limits: list[tuple[int, str]] = []
    for directory in layout.v1["cpu"].chain() if "cpu" in layout.v1 else ():
        quota, period = (_number(node, f"{directory}/cpu.cfs_{x}_us") for x in ("quota", "period"))
        if quota is not None and quota > 0 and period:
            quotas.append(quota / period)
    for directory in layout.v1["memory"].chain() if "memory" in layout.v1 else ():
        limit = _number(node, f"{directory}/memory.limit_in_bytes")
        if limit is not None and 0 < limit < _UNLIMITED_V1:
            limits.append((limit, directory))
    for directory in layout.v2.chain() if layout.v2 else ():
        words = text_of(node, f"{directory}/cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
        limit = _number(node, f"{directory}/memory.max")
        if limit is not None:
            limits.append((limit, directory))
    memory, memory_dir = min(limits, default=(None, None))
    return Surrounding(min(quotas, default=None), memory, memory_dir)


def text_of(node: Node, path: str) -> str:
    """A file's text without surrounding blanks; '' where it is missing or not to be read."""
    try:
        return node.read(path).decode(errors="replace").strip()
    except OSError:
        return ""


def _number(node: Node, path: str) -> int | None:
    text = text_of(node, path)
    return int(text) if re.fullmatch(r"-?\d+", text) else None
