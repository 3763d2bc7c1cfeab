"""Where on this machine a control group with the cpu and memory controllers can be made, found by trying.

Under v1 and at the top of v2 that takes root. Otherwise it takes a delegated v2 subtree, in which a group that hands
controllers to its children may hold no processes itself (the kernel's cgroup-v2, 'No Internal Process Constraint'): what
runs there, pgherd among it, must first move into a leaf.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pgherd.host import processes
from pgherd.host.cgroup_layout import Layout, read_layout, surrounding, text_of
from pgherd.host.undo import PREFIX
from pgherd.node.protocol import Command, Node

LEAF = f"{PREFIX}leaf"
_V1 = ("cpu", "cpuacct", "cpuset", "memory")
_V2 = ("cpu", "cpuset", "memory")
_NEEDED = {"cpu", "memory"}

DELEGATE = "systemd-run --user --scope -p Delegate=yes pgherd …"
"""What makes a delegated subtree for an ordinary user."""


@dataclass(frozen=True)
class Base:
    """Where groups can be made: the parent directory by controller (v1 names, and 'v2' for the unified hierarchy).

    ``controllers`` are those that groups made here have. Under v2, ``enable`` are the controllers that the parent must
    yet hand to its children, and ``move`` the processes that must move into a leaf before it can. Under v1, ``cores`` is
    the CPU quota that surrounds it, above which the kernel takes none.
    """

    version: Literal["v1", "v2"]
    parents: Mapping[str, str]
    enable: tuple[str, ...] = ()
    move: tuple[int, ...] = ()
    controllers: frozenset[str] = field(default_factory=frozenset)
    cores: float | None = None

    @property
    def where(self) -> str:
        """The directory to be shown for it."""
        return self.parents["memory" if self.version == "v1" else "v2"]


class NoBase(Exception):
    """No group can be made here; the message says why, and what would make it possible."""


def find(node: Node, layout: Layout | None = None) -> Base:
    """The best place for groups, tried out with a probe group that is removed again; raises NoBase."""
    layout = layout or read_layout(node)
    if layout.manager == "v1":
        return _find_v1(node, layout)
    if layout.manager == "v2" and layout.v2 is not None:
        return _find_v2(node, layout)
    if layout.kind == "none":
        raise NoBase("no control groups are mounted; mount cgroup2 at /sys/fs/cgroup")
    missing = " and ".join(sorted(_NEEDED - set(layout.v1)))
    raise NoBase(f"the {missing} controller is not mounted beside the other control groups; boot with systemd.unified_cgroup_hierarchy=1")


def _find_v1(node: Node, layout: Layout) -> Base:
    # Below our own group where that is limited, so that the limits hold for what we start; else at the top, where
    # nothing but the host's own groups competes.
    limits = surrounding(node, layout)
    limited = limits.cores is not None or limits.memory is not None
    why = ""
    for own in (True,) if limited else (False, True):
        parents = {name: layout.v1[name].own_dir if own else layout.v1[name].mount for name in _V1 if name in layout.v1}
        try:
            for directory in dict.fromkeys(parents[name] for name in sorted(_NEEDED)):
                _probe(node, directory)
        except OSError as error:
            why = _reason(error)
            continue
        if layout.v2:
            # Pressure figures need no controller.
            parents["v2"] = layout.v2.own_dir if own else layout.v2.mount
        for name in set(parents) - _NEEDED:
            # Without these we do. A cpuset takes no process before it has CPUs: whether one could join is not tried.
            if not _can_make(node, parents[name], join=name != "cpuset"):
                del parents[name]
        return Base("v1", parents, controllers=frozenset(set(parents) - {"v2"}), cores=limits.cores if own else None)
    raise NoBase(f"no group can be made under cgroup v1 ({why}); run pgherd as root, or boot with cgroup v2 and delegate a subtree")


def _find_v2(node: Node, layout: Layout) -> Base:
    assert layout.v2 is not None
    top, own = layout.v2.mount, layout.v2.own_dir
    if posixpath.basename(own) == LEAF:
        own = posixpath.dirname(own)  # a pgherd that shares this scope has moved us; the scope itself is the base
    limits = surrounding(node, layout)
    candidates = [own]
    is_root_group = not node.exists(f"{top}/cgroup.type")  # only the root of the whole tree has none
    if is_root_group and limits.cores is None and limits.memory is None:
        candidates = list(dict.fromkeys([top, own]))
    reasons: list[str] = []
    for directory in candidates:
        try:
            return _try_v2(node, directory)
        except NoBase as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(_reason(error))
    raise NoBase(f"no group can be made under cgroup v2 ({'; '.join(reasons)}); start it with `{DELEGATE}`, or run pgherd as root")


def _try_v2(node: Node, directory: str) -> Base:
    available = set(text_of(node, f"{directory}/cgroup.controllers").split())
    if not available >= _NEEDED:
        missing = " and ".join(sorted(_NEEDED - available))
        raise NoBase(f"{directory} was not given the {missing} controller")
    enabled = set(text_of(node, f"{directory}/cgroup.subtree_control").split())
    enable = tuple(name for name in _V2 if name in available - enabled)
    move: tuple[int, ...] = ()
    if enable and node.exists(f"{directory}/cgroup.type"):
        move = tuple(int(word) for word in text_of(node, f"{directory}/cgroup.procs").split())
        strangers = _strangers(node, move)
        if strangers:
            shown = ", ".join(map(str, strangers[:3])) + (" …" if len(strangers) > 3 else "")
            raise NoBase(f"{directory} also holds processes of others (pid {shown}), which pgherd does not move")
    if enable:
        node.write(f"{directory}/cgroup.subtree_control", b"\n")  # asks for nothing: tells whether we may
    _probe(node, directory)
    # The io controller is passed on where it costs nothing: it gives figures per group, but no limit that we set.
    return Base("v2", {"v2": directory}, enable, move, frozenset((enabled & {"io"}) | available & set(_V2)))


def _strangers(node: Node, pids: tuple[int, ...]) -> list[int]:
    """Those that are not of the session (login shell, pipeline) that pgherd was started in."""
    ours = _session(node, "self")
    return [pid for pid in pids if _session(node, pid) != ours]


def _session(node: Node, pid: int | str) -> str | None:
    fields = processes.stat_fields(node, pid)
    return fields[3] if fields else None


def _can_make(node: Node, parent: str, *, join: bool) -> bool:
    try:
        _probe(node, parent, join=join)
    except OSError:
        return False
    return True


def _probe(node: Node, parent: str, *, join: bool = True) -> None:
    """Make a group, let a process join it, remove it; raises OSError."""
    path = f"{parent}/{PREFIX}probe-{os.getpid()}"
    try:
        node.make_dir(path, mode=0o755)
    except OSError as error:
        raise OSError(error.errno or errno.EACCES, error.strerror or str(error), parent) from error
    try:
        if join and node.run(Command(("true",), join=(f"{path}/cgroup.procs",))).code:
            raise OSError(errno.EACCES, "a process can't join a group made there", parent)
    finally:
        if not processes.wait_until(lambda: _removed(node, path), 5):
            raise OSError(errno.EBUSY, "the probe group can't be removed", path)


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def _removed(node: Node, path: str) -> bool:
    try:
        node.remove_dir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep(node: Node) -> list[str]:
    """Remove probe groups that a killed pgherd left behind; sentences on what was removed."""
    layout = read_layout(node)
    hierarchies = [*layout.v1.values(), *([layout.v2] if layout.v2 else [])]
    said = []
    for directory in dict.fromkeys(path for x in hierarchies for path in (x.mount, x.own_dir)):
        try:
            names = [name for name in node.listdir(directory) if name.startswith(f"{PREFIX}probe-")]
        except OSError:
            continue
        for name in names:
            pid = name.rpartition("-")[2]
            if processes.start_time(node, pid) is None and _removed(node, f"{directory}/{name}"):
                said.append(f"removed probe group {directory}/{name}")
    return said
