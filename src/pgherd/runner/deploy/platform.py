"""Named parts of the platform, accounted for beside the databases (E2): ``process=NAME`` and ``cgroup=PATH``.

A process part is every process of that name (its command name, or the base name of the program it was started as) that
runs when a trial begins; one that starts later is seen from the next trial on, and what its children use counts only
where they have the same name. A control group part is the group's own CPU counter, and so complete. pgherd's own
processes, and all that it starts, are never part of the platform.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pgherd.host import processes
from pgherd.host.cgroup_base import Hierarchy, Layout, read_layout
from pgherd.host.kernel_files import text_of
from pgherd.metrics.sampler import GroupView, ProcessView
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node

_FORM = "write it as process=NAME or cgroup=PATH"


@dataclass(frozen=True)
class Part:
    """One named part: a process' name, or a control group's path below where its hierarchy is mounted."""

    kind: Literal["process", "cgroup"]
    name: str

    @property
    def entity(self) -> str:
        """What its samples are called."""
        return f"platform:{self.name}"


@dataclass(frozen=True)
class Watched:
    """What to sample of all parts."""

    processes: list[ProcessView] = field(default_factory=list)
    groups: list[GroupView] = field(default_factory=list)


def parse(texts: Sequence[str], layout: Layout) -> tuple[Part, ...]:
    """Read ``--platform`` options. A group may be given as /proc/PID/cgroup shows it, or by its directory.

    Raises:
        UsageError: another form, no name, the root group, or two parts of which one would be counted twice.
    """
    parts: list[Part] = []
    for text in texts:
        kind, equals, name = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--platform {text}: {_FORM}")
        if kind == "process":
            if "/" in name:
                raise UsageError(f"--platform {text}: a process is named without its directory; write process={name.rpartition('/')[2]}")
            part = Part("process", name)
        elif kind == "cgroup":
            part = Part("cgroup", _below(name, layout))
            if not part.name:
                raise UsageError(f"--platform {text}: name a group below the root, which holds everything, such as cgroup=/system.slice")
        else:
            raise UsageError(f"--platform {text}: there is no kind '{kind}' of part; {_FORM}")
        for other in parts:
            if part.name == other.name or (
                part.kind == other.kind == "cgroup" and (_holds(part.name, other.name) or _holds(other.name, part.name))
            ):
                raise UsageError(
                    f"--platform {text}: {other.kind}={other.name} is named too, and one would be counted twice; leave one out"
                )
        parts.append(part)
    return tuple(parts)


def check(node: Node, texts: Sequence[str], base: str | None = None) -> None:
    """Insist that all parts are there now. ``base`` is where the run's own control groups will be made, if it makes any.

    Raises:
        UsageError: as ``parse``; or there is no such process or group, or the experiment itself would be in it.
    """
    layout = read_layout(node)
    for part in parse(texts, layout):
        if part.kind == "process":
            if not _named(node, part.name):
                raise UsageError(
                    f"--platform process={part.name}: no process has this name now, but for pgherd's own; "
                    "'ps -e -o comm=,args=' shows the names that there are"
                )
            continue
        if _group(node, part.name, layout) is None:
            raise UsageError(f"--platform cgroup={part.name}: there is no such control group with a CPU counter; 'systemd-cgls' shows them")
        ours = [hierarchy.own.strip("/") for hierarchy in _hierarchies(layout)] + ([_below(base, layout)] if base else [])
        if any(one == part.name or _holds(part.name, one) for one in ours):
            raise UsageError(f"--platform cgroup={part.name}: pgherd and what it measures run in this group; name one that they are not in")


def watch(node: Node, texts: Sequence[str]) -> Watched:
    """What there is now of each part; a part of which nothing is there is left out."""
    if not texts:
        return Watched()
    layout = read_layout(node)
    parts = parse(texts, layout)
    found = Watched()
    grouped = [part.name for part in parts if part.kind == "cgroup"]
    for part in parts:
        if part.kind == "process":
            pids = [pid for pid in _named(node, part.name) if not _in_one_of(node, pid, grouped)]
            found.processes.extend(ProcessView(part.entity, pid) for pid in pids)
        elif (group := _group(node, part.name, layout)) is not None:
            found.groups.append(GroupView(part.entity, group))
    return found


def _hierarchies(layout: Layout) -> Iterator[Hierarchy]:
    """Those in which CPU is counted: version 1's is the finer where there are both."""
    if "cpuacct" in layout.v1:
        yield layout.v1["cpuacct"]
    if layout.v2 is not None:
        yield layout.v2


def _below(path: str, layout: Layout) -> str:
    """The path relative to where its hierarchy is mounted, whichever that is."""
    mounts = [hierarchy.mount for hierarchy in (*layout.v1.values(), *([layout.v2] if layout.v2 else []))]
    whole = posixpath.normpath("/" + path.lstrip("/"))
    for mount in sorted(mounts, key=len, reverse=True):
        if whole == mount or whole.startswith(mount + "/"):
            return whole[len(mount) :].strip("/")
    return whole.strip("/")


def _holds(outer: str, inner: str) -> bool:
    return inner.startswith(outer + "/")


def _group(node: Node, name: str, layout: Layout) -> dict[str, str] | None:
    """The directory of a group's CPU counter, by controller."""
    for hierarchy in _hierarchies(layout):
        key, file = ("v2", "cpu.stat") if hierarchy is layout.v2 else ("cpuacct", "cpuacct.usage")
        directory = posixpath.join(hierarchy.mount, name)
        if node.exists(f"{directory}/{file}"):
            return {key: directory}
    return None


def _named(node: Node, name: str) -> list[int]:
    """Processes of that name that are not ours."""
    ours = os.getpid()
    found = []
    for word in node.listdir("/proc"):
        if not word.isdigit():
            continue
        program = text_of(node, f"/proc/{word}/cmdline").partition("\0")[0].strip()
        if name in (text_of(node, f"/proc/{word}/comm"), posixpath.basename(program)) and not _descends(node, int(word), ours):
            found.append(int(word))
    return found


def _descends(node: Node, pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        fields = processes.stat_fields(node, pid)
        pid = int(fields[1]) if fields else 0
    return False


def _in_one_of(node: Node, pid: int, groups: Sequence[str]) -> bool:
    """Whether the process is in one of the named groups, whose counter has its time already."""
    if not groups:
        return False
    paths = [line.split(":", 2)[-1].strip("/") for line in text_of(node, f"/proc/{pid}/cgroup").splitlines()]
    return any(path == group or _holds(group, path) for path in paths for group in groups)
