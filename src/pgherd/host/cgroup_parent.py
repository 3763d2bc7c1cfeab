"""Cgroup hierarchies of a machine, their limits, and a parent for new groups.

Under v1, and at the top of v2, only root can create groups. Other users need a delegated v2 subtree. There, a group that
enables controllers for its children may not contain processes itself (cgroup-v2.rst, 'No Internal Process Constraint').
Its processes, pgherd included, must first move into a leaf group.

Formats: proc(5) `/proc/PID/mountinfo`, cgroups(7) `/proc/PID/cgroup`, the kernel's admin-guide cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pgherd.host import processes
from pgherd.host.kernel_files import names_in, text_of, unescape
from pgherd.host.permissions import effective_uid, in_container
from pgherd.host.undo_actions import PREFIX
from pgherd.node.protocol import Command, Node

Kind = Literal["v1", "v2", "hybrid", "none"]

_UNLIMITED_V1 = 1 << 60
"""v1 writes 'no limit' as the largest page-aligned number of bytes. Larger values than this one are no limit."""

_V1_LIMITS = {
    "blkio": re.compile(r"blkio\.throttle\.(?:read|write)_(?:bps|iops)_device"),
    "memory": re.compile(r"memory\.memsw\.limit_in_bytes"),
    "hugetlb": re.compile(r"hugetlb\.\w+(?:\.rsvd)?\.limit_in_bytes"),
}
"""Controller of v1 → names of its files with limits of I/O, swap and huge pages. Those of v2 follow."""
_V2_LIMITS = re.compile(r"io\.max|memory\.swap\.(?:max|high)|hugetlb\.\w+(?:\.rsvd)?\.max")

LEAF = f"{PREFIX}leaf"
_V1 = ("blkio", "cpu", "cpuacct", "cpuset", "memory")
_V2 = ("cpu", "cpuset", "io", "memory")
_REQUIRED = {"cpu", "memory"}

DELEGATE = "systemd-run --user --scope -p Delegate=yes pgherd …"
"""Command that gives an ordinary user a delegated subtree."""
_USER_SERVICE = re.compile(r"/user@\d+\.service/")
"""Part of the path of a process that an ordinary user started with systemd-run."""
DELEGATE_CONTROLLERS = (
    "mkdir -p /etc/systemd/system/user@.service.d; "
    r"printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >/etc/systemd/system/user@.service.d/delegate.conf; systemctl daemon-reload"
)
"""Commands of root after which the subtree of a user who logs in again has all controllers. Some systems only give memory and pids."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: mount point, mounted group, group of this process.

    ``root`` differs from ``/`` in a container that sees only a part of the tree.
    """

    mount: str
    root: str = "/"
    own: str = "/"

    @property
    def own_dir(self) -> str:
        """Directory of this process's group.

        This is the mount point if the group is outside the mounted part.
        """
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
        """Yield the directories from this process's group up to the mount point."""
        path = self.own_dir
        yield path
        while path != self.mount:
            path = posixpath.dirname(path)
            yield path


@dataclass(frozen=True)
class CgroupHierarchies:
    """All hierarchies: v1 by controller name, and the unified one (v2)."""

    v1: Mapping[str, Hierarchy] = field(default_factory=dict)
    v2: Hierarchy | None = None

    @property
    def kind(self) -> Kind:
        """Versions in use; 'hybrid' is v2 together with v1 controllers."""
        if self.v1:
            return "hybrid" if self.v2 else "v1"
        return "v2" if self.v2 else "none"

    @property
    def manager(self) -> Literal["v1", "v2"] | None:
        """Version that has both the cpu and the memory controller, or None."""
        on_v1 = {"cpu", "memory"} & set(self.v1)
        if len(on_v1) == 2:
            return "v1"
        return "v2" if self.v2 and not on_v1 else None


@dataclass(frozen=True)
class EnclosingLimits:
    """Limits of the groups around this process: CPU quota in cores, memory in bytes.

    None means no limit.

    ``memory_dir`` is the group with the lowest memory limit. ``others`` describes each limit of I/O, swap and huge pages.
    """

    cores: float | None = None
    memory: int | None = None
    memory_dir: str | None = None
    others: tuple[str, ...] = ()

    @property
    def exist(self) -> bool:
        """Whether there is a limit, which groups elsewhere may evade."""
        return self.cores is not None or self.memory is not None or bool(self.others)


def read_layout(node: Node) -> CgroupHierarchies:
    """Return the hierarchies visible to this process.

    The layout is empty if /proc is unreadable.
    """
    try:
        mountinfo = node.read("/proc/self/mountinfo").decode(errors="replace")
        groups = node.read("/proc/self/cgroup").decode(errors="replace")
    except OSError:
        return CgroupHierarchies()
    return parse_layout(mountinfo, groups)


def parse_layout(mountinfo: str, process_groups: str) -> CgroupHierarchies:
    """Parse the texts of ``/proc/self/mountinfo`` and ``/proc/self/cgroup``."""
    groups = groups_by_controller(process_groups)
    v1: dict[str, Hierarchy] = {}
    v2: Hierarchy | None = None
    for line in mountinfo.split("\n"):  # the kernel escapes blanks and newlines of ASCII only
        mount_fields, separator, type_fields = line.partition(" - ")
        left, right = mount_fields.split(" "), type_fields.split(" ")
        if not separator or len(left) < 6:
            continue
        root, mount, kind = unescape(left[3]), unescape(left[4]), right[0]
        if kind == "cgroup2" and v2 is None:
            v2 = Hierarchy(mount, root, groups.get("", "/"))
        elif kind == "cgroup":
            for option in right[-1].split(","):
                if option in groups and option not in v1 and not option.startswith("name="):
                    v1[option] = Hierarchy(mount, root, groups[option])
    return CgroupHierarchies(v1, v2)


def groups_by_controller(text: str) -> dict[str, str]:
    """Map each controller to the path of this process's group.

    The unified hierarchy has the key ''.
    """
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, _, remainder = line.partition(":")
        controllers, _, path = remainder.partition(":")
        if number.isdigit() and path.startswith("/"):
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def enclosing_limits(node: Node, layout: CgroupHierarchies) -> EnclosingLimits:
    """Return the tightest limits between this process's group and the mount point."""
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
        fields = text_of(node, f"{directory}/cpu.max").split()
        if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit() and int(fields[1]):
            quotas.append(int(fields[0]) / int(fields[1]))
        for file in ("memory.max", "memory.high"):  # above memory.high the kernel throttles
            limit = _number(node, f"{directory}/{file}")
            if limit is not None:
                limits.append((limit, directory))
    memory, memory_dir = min(limits, default=(None, None))
    return EnclosingLimits(min(quotas, default=None), memory, memory_dir, tuple(_other_limits(node, layout)))


def _other_limits(node: Node, layout: CgroupHierarchies) -> Iterator[str]:
    """Describe each limit of I/O, swap and huge pages around this process."""
    for hierarchy, names in [*((layout.v1.get(name), files) for name, files in _V1_LIMITS.items()), (layout.v2, _V2_LIMITS)]:
        for directory in hierarchy.chain() if hierarchy is not None else ():
            for name in filter(names.fullmatch, names_in(node, directory)):
                value = "; ".join(text_of(node, f"{directory}/{name}").splitlines())
                if value and value != "max" and not (value.isdigit() and int(value) >= _UNLIMITED_V1):
                    yield f"{name} of {directory} is {value}"


def _number(node: Node, path: str) -> int | None:
    text = text_of(node, path)
    return int(text) if re.fullmatch(r"-?\d+", text) else None


@dataclass(frozen=True)
class CgroupParent:
    """Parent directories for new groups, by controller ('v2' for the unified one).

    New groups have the ``controllers``. v2: ``enable`` are the controllers that the parent must still enable for its
    children, and ``move`` the processes that must first move into a leaf. v1: ``cores`` is the enclosing CPU quota,
    because the kernel refuses a larger one.
    """

    version: Literal["v1", "v2"]
    parents: Mapping[str, str]
    enable: tuple[str, ...] = ()
    move: tuple[int, ...] = ()
    controllers: frozenset[str] = field(default_factory=frozenset)
    cores: float | None = None

    @property
    def where(self) -> str:
        """Parent directory for display."""
        return self.parents["memory" if self.version == "v1" else "v2"]

    @property
    def limits_io(self) -> bool:
        """Whether the I/O of groups can be limited."""
        return not self.controllers.isdisjoint(("blkio", "io"))


class CgroupUnavailable(Exception):
    """No group can be created on this machine.

    The message has the reason and a remedy.
    """


class _ControllersMissing(CgroupUnavailable):
    """The group of this process was not given the required controllers."""


def find(node: Node, layout: CgroupHierarchies | None = None) -> CgroupParent:
    """Return the best parent for groups, tested with a temporary probe group.

    Raises CgroupUnavailable.
    """
    layout = layout or read_layout(node)
    if layout.manager == "v1":
        return _find_v1(node, layout)
    commands = _mount_commands(node, layout)
    if commands:
        raise CgroupUnavailable(f"controllers of cgroup v1 are not mounted; mount them as root ({commands})")
    if layout.manager == "v2" and layout.v2 is not None:
        return _find_v2(node, layout)
    if layout.kind == "none":
        raise CgroupUnavailable("no cgroups are mounted; mount them as root (mount -t cgroup2 cgroup2 /sys/fs/cgroup)")
    missing = " and ".join(sorted(_REQUIRED - set(layout.v1)))
    raise CgroupUnavailable(
        f"the {missing} controller is not mounted, unlike other cgroup controllers; boot with systemd.unified_cgroup_hierarchy=1"
    )


def _mount_commands(node: Node, layout: CgroupHierarchies) -> str:
    """Return the commands that mount required controllers which the kernel has given to v1; '' if there are none."""
    by_hierarchy: dict[str, list[str]] = {}
    for line in text_of(node, "/proc/cgroups").splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[1].isdigit() and fields[1] != "0":
            by_hierarchy.setdefault(fields[1], []).append(fields[0])
    commands = [
        f"mkdir -p /sys/fs/cgroup/{names[0]}; mount -t cgroup -o {','.join(names)} cgroup /sys/fs/cgroup/{names[0]}"
        for names in by_hierarchy.values()
        if _REQUIRED.intersection(names) - set(layout.v1)
    ]
    if commands and layout.kind == "none":
        commands.insert(0, "mount -t tmpfs cgroup /sys/fs/cgroup")
    return "; ".join(commands)


def _find_v1(node: Node, layout: CgroupHierarchies) -> CgroupParent:
    # Below this process's group if that is limited, so that its limits also apply to the servers. Otherwise at the
    # top, where only the host's groups compete.
    limits = enclosing_limits(node, layout)
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for nested in (True,) if limits.exist else (False, True):
        parents = {name: layout.v1[name].own_dir if nested else layout.v1[name].mount for name in _V1 if name in layout.v1}
        try:
            for directory in dict.fromkeys(parents[name] for name in sorted(_REQUIRED)):
                _probe(node, directory)
        except OSError as error:
            failure = error
            continue
        if layout.v2:
            # Pressure files (PSI) need no controller.
            parents["v2"] = layout.v2.own_dir if nested else layout.v2.mount
        for name in set(parents) - _REQUIRED:
            # These are optional. A cpuset group takes no process before it has CPUs, so no process joins its probe.
            if not _can_create(node, parents[name], join=name != "cpuset"):
                del parents[name]
        return CgroupParent("v1", parents, controllers=frozenset(set(parents) - {"v2"}), cores=limits.cores if nested else None)
    raise CgroupUnavailable(
        f"no group can be created under cgroup v1 ({_reason(failure)}); "
        + remedy(failure.errno, uid=effective_uid(node), container=in_container(node), version="v1")
    )


def _find_v2(node: Node, layout: CgroupHierarchies) -> CgroupParent:
    assert layout.v2 is not None
    top, current = layout.v2.mount, layout.v2.own_dir
    if posixpath.basename(current) == LEAF:
        current = posixpath.dirname(current)  # another pgherd of this scope moved this process into its leaf
    limits = enclosing_limits(node, layout)
    candidates = [current]
    is_root_group = not node.exists(f"{top}/cgroup.type")  # only the root of the complete tree has no cgroup.type
    if is_root_group and not limits.exist:
        candidates = list(dict.fromkeys([top, current]))
    reasons: list[str] = []
    failure: OSError | CgroupUnavailable | None = None
    for directory in candidates:
        try:
            return _try_v2(node, directory)
        except CgroupUnavailable as error:
            reasons.append(str(error))
            failure = error
        except OSError as error:
            reasons.append(_reason(error))
            failure = error
    number, delegated = getattr(failure, "errno", None), not (isinstance(failure, _ControllersMissing) and _USER_SERVICE.search(current))
    raise CgroupUnavailable(
        f"no group can be created under cgroup v2 ({'; '.join(reasons)}); "
        + remedy(number, uid=effective_uid(node), container=in_container(node), version="v2", delegated=delegated)
    )


def remedy(number: int | None, *, uid: int, container: bool, version: Literal["v1", "v2"], delegated: bool = True) -> str:
    """Return what makes the creation of groups possible.

    ``number`` is the errno of the attempt, None if the place of the process is the reason. ``delegated`` is False if its group lacks the
    controllers.
    """
    if number in (errno.EROFS, errno.ENOENT):
        if container:
            return "start the container with writable cgroups (docker or podman run --privileged, in Kubernetes privileged: true)"
        hidden = "unmount what hides the cgroups (findmnt -R /sys/fs/cgroup)"
        return hidden if number == errno.ENOENT else "mount it writable as root (mount -o remount,rw,bind DIRECTORY)"
    if uid != 0 and version == "v1":
        return "run pgherd as root, or boot with cgroup v2 and delegate a subtree"
    if uid != 0 and not delegated:
        return f"as root: `{DELEGATE_CONTROLLERS}`; then log in again and start it with `{DELEGATE}`"
    if uid != 0:
        return f"start it with `{DELEGATE}`, or run pgherd as root"
    if container:
        return "start the container with a cgroup of its own (docker or podman run --privileged --cgroupns=private)"
    if number is None:
        return f"start it with `{DELEGATE.replace(' --user', '')}`"
    return "this root may not create groups, as in a user namespace; run pgherd as root of the host"


def _try_v2(node: Node, directory: str) -> CgroupParent:
    available = set(text_of(node, f"{directory}/cgroup.controllers").split())
    if not available >= _REQUIRED:
        missing = " and ".join(sorted(_REQUIRED - available))
        raise _ControllersMissing(f"{directory} was not given the {missing} controller")
    enabled = set(text_of(node, f"{directory}/cgroup.subtree_control").split())
    enable = tuple(name for name in _V2 if name in available - enabled)
    move: tuple[int, ...] = ()
    if enable and node.exists(f"{directory}/cgroup.type"):
        move = tuple(int(pid) for pid in text_of(node, f"{directory}/cgroup.procs").split())
        foreign = _foreign_processes(node, move)
        if foreign:
            pids = ", ".join(map(str, foreign[:3])) + (" …" if len(foreign) > 3 else "")
            raise CgroupUnavailable(f"{directory} contains processes of other sessions (pid {pids}), which pgherd does not move")
    if enable:
        node.write(f"{directory}/cgroup.subtree_control", b"\n")  # changes nothing, but fails without permission
    _probe(node, directory)
    return CgroupParent("v2", {"v2": directory}, enable, move, frozenset(available & set(_V2)))


def _foreign_processes(node: Node, pids: tuple[int, ...]) -> list[int]:
    """Return the processes outside pgherd's session (login shell, pipeline)."""
    session = _session(node, "self")
    return [pid for pid in pids if _session(node, pid) != session]


def _session(node: Node, pid: int | str) -> str | None:
    fields = processes.stat_fields(node, pid)
    return fields[3] if fields else None


def _can_create(node: Node, parent: str, *, join: bool) -> bool:
    try:
        _probe(node, parent, join=join)
    except OSError:
        return False
    return True


def _probe(node: Node, parent: str, *, join: bool = True) -> None:
    """Create a group, start a process in it, and remove the group; raises OSError."""
    path = f"{parent}/{PREFIX}probe-{os.getpid()}"
    try:
        node.make_dir(path, mode=0o755)
    except OSError as error:
        raise OSError(error.errno or errno.EACCES, error.strerror or str(error), parent) from error
    try:
        if join and node.run(Command(("true",), join=(f"{path}/cgroup.procs",))).code:
            raise OSError(errno.EACCES, "a process can't join a new group there", parent)
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
    """Remove probe groups of killed pgherd processes, and describe each removal."""
    layout = read_layout(node)
    hierarchies = [*layout.v1.values(), *([layout.v2] if layout.v2 else [])]
    messages = []
    for directory in dict.fromkeys(path for hierarchy in hierarchies for path in (hierarchy.mount, hierarchy.own_dir)):
        for name in names_in(node, directory):
            if not name.startswith(f"{PREFIX}probe-"):
                continue
            pid = name.rpartition("-")[2]
            if processes.start_time(node, pid) is None and _removed(node, f"{directory}/{name}"):
                messages.append(f"removed probe group {directory}/{name}")
    return messages
