"""Platform overhead: named processes and cgroups whose CPU is reported separately (E2), as ``process=NAME`` or
``cgroup=PATH``.

A process part is every process of that name (its command name, or the base name of its program) that runs when a
trial begins. A process that starts later counts from the next trial on, and its children count only if they have the
same name. A cgroup part is the cgroup's CPU counter, and therefore complete. pgherd's processes, and all that it
starts, are never part of the platform.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pgherd.host import processes, server_cgroup
from pgherd.host.cgroup_parent import CgroupHierarchies, Hierarchy, read_layout
from pgherd.host.kernel_files import text_of
from pgherd.metrics.sampler import CgroupView, ProcessView
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node

_FORM = "write it as process=NAME or cgroup=PATH"


@dataclass(frozen=True)
class TrackedGroup:
    """Named part: a process name, or a cgroup's path below the mount point of its hierarchy."""

    kind: Literal["process", "cgroup"]
    name: str

    @property
    def entity(self) -> str:
        """Return the entity of its samples."""
        return f"platform:{self.name}"


@dataclass(frozen=True)
class TrackedSources:
    """Processes and cgroups to sample."""

    processes: list[ProcessView] = field(default_factory=list)
    groups: list[CgroupView] = field(default_factory=list)


def parse(texts: Sequence[str], layout: CgroupHierarchies) -> tuple[TrackedGroup, ...]:
    """Parse ``--track`` options. A cgroup may be given as in /proc/PID/cgroup, or by its directory.

    Raises:
        UsageError: invalid form, no name, the root cgroup, or two parts that overlap.
    """
    parts: list[TrackedGroup] = []
    for text in texts:
        kind, equals, name = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"--track {text}: {_FORM}")
        if kind == "process":
            if "/" in name:
                raise UsageError(f"--track {text}: give the process name without its directory: process={name.rpartition('/')[2]}")
            part = TrackedGroup("process", name)
        elif kind == "cgroup":
            part = TrackedGroup("cgroup", _relative_path(name, layout))
            if not part.name:
                raise UsageError(f"--track {text}: the root group contains all processes; give one below it, such as cgroup=/system.slice")
        else:
            raise UsageError(f"--track {text}: unknown kind '{kind}'; {_FORM}")
        for other in parts:
            if part.name == other.name or (
                part.kind == other.kind == "cgroup" and (_contains(part.name, other.name) or _contains(other.name, part.name))
            ):
                raise UsageError(f"--track {text}: {other.kind}={other.name} overlaps and would be counted twice; give only one of them")
        parts.append(part)
    return tuple(parts)


def check(node: Node, texts: Sequence[str], base: str | None = None) -> None:
    """Require that all parts exist now. ``base`` is the parent of the run's cgroups, if it creates any.

    Raises:
        UsageError: as ``parse``, or a process or cgroup does not exist, or it contains the experiment.
    """
    layout = read_layout(node)
    for part in parse(texts, layout):
        if part.kind == "process":
            if not _pids_named(node, part.name):
                raise UsageError(
                    f"--track process={part.name}: no process outside pgherd has this name now; 'ps -e -o comm=,args=' lists all names"
                )
            continue
        if _group(node, part.name, layout) is None:
            raise UsageError(f"--track cgroup={part.name}: no such cgroup with a CPU counter; 'systemd-cgls' lists them")
        experiment = [hierarchy.own.strip("/") for hierarchy in _hierarchies(layout)] + ([_relative_path(base, layout)] if base else [])
        if any(path == part.name or _contains(part.name, path) for path in experiment):
            raise UsageError(f"--track cgroup={part.name}: this cgroup contains pgherd and what it measures; give a different one")


def watch(node: Node, texts: Sequence[str]) -> TrackedSources:
    """Return the existing processes and cgroups of each part. A part of which none exists is omitted."""
    if not texts:
        return TrackedSources()
    layout = read_layout(node)
    parts = parse(texts, layout)
    watched = TrackedSources()
    group_names = [part.name for part in parts if part.kind == "cgroup"]
    for part in parts:
        if part.kind == "process":
            pids = [pid for pid in _pids_named(node, part.name) if not _in_one_of(node, pid, group_names)]
            watched.processes.extend(ProcessView(part.entity, pid) for pid in pids)
        elif (group := _group(node, part.name, layout)) is not None:
            watched.groups.append(CgroupView(part.entity, group))
    return watched


def _hierarchies(layout: CgroupHierarchies) -> Iterator[Hierarchy]:
    """Yield the hierarchies in which CPU is counted. That of version 1 comes first, because it is finer."""
    if "cpuacct" in layout.v1:
        yield layout.v1["cpuacct"]
    if layout.v2 is not None:
        yield layout.v2


def _relative_path(path: str, layout: CgroupHierarchies) -> str:
    """Return the path relative to the mount point of its hierarchy."""
    return server_cgroup.relative_path(path, layout).strip("/")


def _contains(outer: str, inner: str) -> bool:
    return inner.startswith(outer + "/")


def _group(node: Node, name: str, layout: CgroupHierarchies) -> dict[str, str] | None:
    """Return the directory of a cgroup's CPU counter, by controller."""
    for hierarchy in _hierarchies(layout):
        key, file = ("v2", "cpu.stat") if hierarchy is layout.v2 else ("cpuacct", "cpuacct.usage")
        directory = posixpath.join(hierarchy.mount, name)
        if node.exists(f"{directory}/{file}"):
            return {key: directory}
    return None


def _pids_named(node: Node, name: str) -> list[int]:
    """Return processes of that name outside pgherd."""
    own_pid = os.getpid()
    pids = []
    for entry in node.listdir("/proc"):
        if not entry.isdigit():
            continue
        program = text_of(node, f"/proc/{entry}/cmdline").partition("\0")[0].strip()
        if name in (text_of(node, f"/proc/{entry}/comm"), posixpath.basename(program)) and not _descends(node, int(entry), own_pid):
            pids.append(int(entry))
    return pids


def _descends(node: Node, pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        fields = processes.stat_fields(node, pid)
        pid = int(fields[1]) if fields else 0
    return False


def _in_one_of(node: Node, pid: int, groups: Sequence[str]) -> bool:
    """Return whether the process is in one of these cgroups, whose counters already include its time."""
    if not groups:
        return False
    paths = [line.split(":", 2)[-1].strip("/") for line in text_of(node, f"/proc/{pid}/cgroup").splitlines()]
    return any(path == group or _contains(group, path) for path in paths for group in groups)
