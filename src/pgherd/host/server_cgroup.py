"""Cgroup of a server that pgherd did not start, named by its path, one of its processes or its container. It is only read.

The paths are those of ``/proc/PID/cgroup`` (cgroups(7)). Container engines end the path of a container with its id, in one of the
forms ``/docker/ID``, ``docker-ID.scope``, ``libpod-ID.scope``, ``cri-containerd-ID.scope``, ``crio-ID.scope``,
``…slice:cri-containerd:ID`` and ``/kubepods/burstable/podUID/ID``. Groups inside a container are below it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pgherd.host import cpus
from pgherd.host.cgroup_parent import CgroupHierarchies, Hierarchy, enclosing_limits, groups_by_controller, read_layout
from pgherd.host.kernel_files import names_in, text_of
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node

_FORM = "write it as /PATH, pid:N or container:ID"
_COUNTING = ("cpu", "cpuacct", "memory", "blkio", "cpuset")
"""Controllers of v1 that count or limit something that is read."""
_MIN_ID = 6
_CONTAINER = re.compile(r"(?:(?P<engine>.*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
"""Last part of a container's path."""
_MONITOR = "conmon"
"""Podman and CRI-O run a monitor of each container in a group of its own, which contains the same id."""


@dataclass(frozen=True)
class ServerCgroup:
    """Cgroup of a server.

    Attributes:
        path: its path below the mount point, for messages.
        groups: directory by controller ('v2' for the unified hierarchy), without those that the server shares with pgherd or with
            the whole host. 'io' is the directory in which v2 counts I/O.
        cores: cores that its processes can use at most. None: those of the host.
        memory: lowest memory limit around it in bytes. None: none.
    """

    path: str
    groups: Mapping[str, str]
    cores: float | None = None
    memory: int | None = None


def resolve(node: Node, text: str, option: str = "--server-cgroup") -> ServerCgroup:
    """Return the cgroup that a text names: ``/PATH``, ``pid:N`` or ``container:ID``, where the first digits of an id are enough.

    A path may be that of /proc/PID/cgroup or a directory below a mount point. ``option`` names the text's origin in messages.

    Raises:
        UsageError: the text has another form, there is no such cgroup here, or it contains pgherd and is not the server's alone.
    """
    layout = read_layout(node)
    if text.startswith("/"):
        path = relative_path(text, layout)
        paths, missing = dict.fromkeys((*layout.v1, ""), path), f"there is no cgroup {path} with counters; 'systemd-cgls' lists them"
    elif (process := re.fullmatch(r"pid:(\d+)", text)) is not None:
        paths = groups_by_controller(text_of(node, f"/proc/{process[1]}/cgroup"))
        missing = f"the cgroup of process {process[1]} is not visible here" if paths else f"there is no process {process[1]} here"
    elif (container := re.fullmatch(rf"container:([0-9a-f]{{{_MIN_ID},64}})", text)) is not None:
        paths = _paths_of_container(node, container[1], f"{option} {text}")
        missing = f"the cgroup of container {container[1]} is not visible here"
    else:
        raise UsageError(f"{option} {text}: {_FORM}; ID has {_MIN_ID} to 64 hexadecimal digits, as 'docker ps' or 'crictl ps' lists it")
    hierarchies = _placed(layout, paths)
    groups, shared = _groups(node, layout, hierarchies)
    if not groups:
        if shared:
            path = next(iter(shared))
            whose = "all processes of the host" if path == "/" else "pgherd and its drivers too"
            raise UsageError(
                f"{option} {text}: cgroup {path} contains {whose}, so its counters are not the server's alone; start the server in a "
                "cgroup of its own, such as a systemd service or a container"
            )
        raise UsageError(f"{option} {text}: {missing}")
    used = hierarchies.v2 if "v2" in groups and hierarchies.v2 is not None else hierarchies.v1[next(iter(groups))]
    limits = enclosing_limits(node, hierarchies)
    assigned = _assigned_cpus(node, groups)
    cores = min((value for value in (limits.cores, assigned) if value is not None), default=None)
    return ServerCgroup(used.own, groups, cores, limits.memory)


def container_of(path: str) -> str | None:
    """Return the id of the innermost container in a path of /proc/PID/cgroup. None without one."""
    return next((found for found, _ in reversed(list(_containers(path)))), None)


def relative_path(path: str, layout: CgroupHierarchies) -> str:
    """Return a cgroup's path as in /proc/PID/cgroup. It may be given as a directory below a mount point."""
    mounts = [hierarchy.mount for hierarchy in (*layout.v1.values(), *([layout.v2] if layout.v2 else []))]
    absolute = posixpath.normpath("/" + path.lstrip("/"))
    for mount in sorted(mounts, key=len, reverse=True):
        if absolute == mount or absolute.startswith(mount + "/"):
            return absolute[len(mount) :] or "/"
    return absolute


def _containers(path: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the path of each container in a path, the outermost first."""
    parts = path.split("/")
    for index, part in enumerate(parts):
        match = _CONTAINER.fullmatch(part)
        if match is not None and not (match["engine"] or "").endswith(_MONITOR):
            yield match["id"], "/".join(parts[: index + 1])


def _paths_of_container(node: Node, digits: str, label: str) -> dict[str, str]:
    """Return the paths of a running container by controller, from the cgroups of all processes."""
    found: dict[str, dict[str, str]] = {}
    for pid in names_in(node, "/proc"):
        text = text_of(node, f"/proc/{pid}/cgroup") if pid.isdigit() else ""
        if digits in text:
            for controller, path in groups_by_controller(text).items():
                for container, group in _containers(path):
                    if container.startswith(digits):
                        found.setdefault(container, {}).setdefault(controller, group)
    if not found:
        raise UsageError(f"{label}: no process of such a container runs on this host; 'docker ps' or 'crictl ps' lists the ids")
    if len(found) > 1:
        raise UsageError(f"{label}: {len(found)} containers have ids that begin with it, such as {min(found)}; give more digits")
    return next(iter(found.values()))


def _placed(layout: CgroupHierarchies, paths: Mapping[str, str]) -> CgroupHierarchies:
    """Return the hierarchies with the server's groups instead of pgherd's. A group that is not visible here is left out."""

    def placed(hierarchy: Hierarchy, path: str | None) -> Hierarchy | None:
        visible = path is not None and ".." not in path.split("/")
        if not visible or path is None or not (hierarchy.root == "/" or path == hierarchy.root or path.startswith(f"{hierarchy.root}/")):
            return None
        return replace(hierarchy, own=path)

    v1 = {name: placed(layout.v1[name], paths.get(name)) for name in _COUNTING if name in layout.v1}
    v2 = None if layout.v2 is None else placed(layout.v2, paths.get(""))
    return CgroupHierarchies({name: hierarchy for name, hierarchy in v1.items() if hierarchy is not None}, v2)


def _groups(node: Node, layout: CgroupHierarchies, server: CgroupHierarchies) -> tuple[dict[str, str], list[str]]:
    """Return the directories of the server's own groups by controller, and the paths of groups that it shares with pgherd."""
    groups: dict[str, str] = {}
    shared: list[str] = []
    pairs = [(name, hierarchy, layout.v1[name]) for name, hierarchy in server.v1.items()]
    if server.v2 is not None and layout.v2 is not None:
        pairs.append(("v2", server.v2, layout.v2))
    for name, hierarchy, ours in pairs:
        if not node.exists(f"{hierarchy.own_dir}/cgroup.procs"):
            continue
        if hierarchy.own in ("/", ours.own) or ours.own.startswith(f"{hierarchy.own}/"):
            shared.append(hierarchy.own)
        else:
            groups[name] = hierarchy.own_dir
    if "v2" in groups and node.exists(f"{groups['v2']}/io.stat"):
        groups["io"] = groups["v2"]
    return groups, shared


def _assigned_cpus(node: Node, groups: Mapping[str, str]) -> float | None:
    """Return the number of CPUs that a cpuset allows the group. None without one."""
    files = [f"{groups['v2']}/cpuset.cpus.effective"] if "v2" in groups else []
    files += [f"{groups['cpuset']}/{name}" for name in ("cpuset.effective_cpus", "cpuset.cpus") if "cpuset" in groups]
    for file in files:
        if (text := text_of(node, file)) != "":
            return float(len(cpus.parse_list(text)))
    return None
