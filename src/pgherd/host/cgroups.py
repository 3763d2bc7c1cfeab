"""Cgroups of one run: a run cgroup, and in it one group per container.

v1 needs a directory per controller. v2 has one tree, in which each parent enables controllers for its children. The
files of the limits are documented in the kernel's admin-guide (cgroup-v1/memory.rst, sched-bwc.rst, cgroup-v2.rst).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgherd.host import cgroup_memory
from pgherd.host.cgroup_parent import LEAF, CgroupParent
from pgherd.host.journal import Journal
from pgherd.host.kernel_files import text_of
from pgherd.host.undo_actions import PREFIX, RemoveCgroup, RestoreSubtree, UndoContext
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Node

PERIOD = 0.1
"""Default CFS period of the kernel, in seconds."""
_MIN_QUOTA_US = 1_000
"""Smallest quota that the kernel accepts (min_cfs_quota_period)."""
LEAST_CORES = _MIN_QUOTA_US / 1e6 / PERIOD


@dataclass(frozen=True)
class CgroupLimits:
    """Limits of a group; None means unlimited.

    Attributes:
        cores: CFS quota per ``period`` (seconds).
        memory: bytes of memory.
        swap: bytes of swap space in addition to ``memory``.
        weight: CPU weight as in v2: 1 to 10000, default 100.
    """

    cores: float | None = None
    period: float = PERIOD
    cpus: tuple[int, ...] | None = None
    memory: int | None = None
    swap: int | None = None
    weight: int | None = None


@dataclass(frozen=True)
class IoLimit:
    """Limit of I/O on each of some block devices (``major:minor``), the same for reads and for writes. None means unlimited.

    Attributes:
        iops: operations per second.
        bandwidth: bytes per second.
    """

    devices: tuple[str, ...]
    iops: int | None = None
    bandwidth: int | None = None


class HostGroup:
    """The groups of one run. ``name`` is 'pgherd-' followed by the run's suffix."""

    def __init__(self, node: Node, journal: Journal, base: CgroupParent, suffix: str) -> None:
        self._node, self._journal, self._base = node, journal, base
        self.name = f"{PREFIX}{suffix}"
        self._undos: list[int] = []
        self._children: set[str] = set()
        self._cores = base.cores
        self._swap: dict[str | None, int] = {}

    def groups(self, child: str | None = None) -> dict[str, str]:
        """Return the directories of a child or of the run cgroup, by controller."""
        relative = f"{self.name}/{child}" if child else self.name
        return {controller: f"{parent}/{relative}" for controller, parent in self._base.parents.items()}

    def join(self, child: str | None = None) -> tuple[str, ...]:
        """Return the ``cgroup.procs`` files with which a process joins the group."""
        return tuple(f"{path}/cgroup.procs" for path in dict.fromkeys(self.groups(child).values()))

    def make(self, limits: CgroupLimits) -> None:
        """Create the run cgroup. Raises CapabilityError after undoing its changes."""
        undo = self._undo_of(None)
        existing = next((path for path in undo.paths if self._node.exists(path)), None)
        if existing:
            raise CapabilityError(f"cgroup {existing} exists already; run 'pgherd clean' to remove the leftovers of a killed run")
        try:
            self._prepare()
            self._undos.append(self._journal.note(undo))
            self._create(None, limits)
            if self._base.version == "v2":
                controllers = " ".join(f"+{name}" for name in sorted(self._base.controllers))
                self._node.write(f"{self.groups()['v2']}/cgroup.subtree_control", controllers.encode())
        except OSError as error:
            self.close()
            raise CapabilityError(f"the run cgroup can't be created: {_reason(error)}; see 'pgherd doctor'") from error
        except CapabilityError:
            self.close()
            raise

    def add(self, child: str, limits: CgroupLimits) -> dict[str, str]:
        """Create one container's group in the run cgroup and return its directories.

        Raises CapabilityError.

        The journal has no entry for it, because the removal of the run cgroup includes its children.
        """
        if child in self._children:
            raise CapabilityError(f"container {child} has a cgroup already; containers of one host need different names")
        self._children.add(child)
        try:
            self._create(child, limits)
        except OSError as error:
            self.remove(child)
            raise CapabilityError(f"the cgroup of container {child} can't be created: {_reason(error)}") from error
        except CapabilityError:
            self.remove(child)
            raise
        return self.groups(child)

    def change(self, child: str | None, limits: CgroupLimits) -> None:
        """Set the limits that are not None, of a child or of the run cgroup.

        Raises CapabilityError.

        A memory limit below the current usage makes the kernel reclaim memory, which may take seconds under v1.
        """
        groups = self.groups(child)
        if child is not None and limits.swap is None and limits.memory is not None and self._swap.get(None) == 0:
            limits = replace(limits, swap=0)  # v1 limits the run's sum, in which a container below its memory could swap
        if limits.swap is not None:
            self._swap[child] = limits.swap
        elif limits.memory is not None and child in self._swap:
            limits = replace(limits, swap=self._swap[child])  # v1 limits the sum, which depends on the memory limit
        if child is None and limits.cores is not None:
            self._cores = min(limits.cores, self._base.cores or limits.cores)
        if self._base.version == "v1":
            self._limit_v1(groups, limits, self._base.cores if child is None else self._cores)
        else:
            self._limit_v2(groups["v2"], limits)

    def try_memory(self, child: str, memory: int) -> bool:
        """Attempt to set a child's memory limit (bytes) while its processes run; see ``cgroup_memory.try_limit``."""
        v2 = self._base.version != "v1"
        return cgroup_memory.try_limit(self._node, self.groups(child)["v2" if v2 else "memory"], memory, self._swap.get(child), v2=v2)

    def limit_io(self, child: str, limit: IoLimit) -> None:
        """Set or remove the I/O limits of a child.

        v1 limits reads, direct writes, and buffered writes that the process itself flushes. The kernel writes other dirty pages on
        behalf of the root group, without a limit. Sources: the kernel's admin-guide cgroup-v1/blkio-controller.rst, and
        cgroup-v2.rst, "Writeback".

        Raises CapabilityError.
        """
        if not self._base.limits_io:
            raise CapabilityError(f"no I/O limit can be set for container {child}: {io_limit_missing(self._base)}")
        groups, iops, bandwidth = self.groups(child), limit.iops, limit.bandwidth
        for device in limit.devices:
            if self._base.version == "v1":
                for unit, value in (("iops", iops), ("bps", bandwidth)):
                    for direction in ("read", "write"):
                        self._write(f"{groups['blkio']}/blkio.throttle.{direction}_{unit}_device", f"{device} {value or 0}")
            else:
                bps, count = bandwidth or "max", iops or "max"
                self._write(f"{groups['v2']}/io.max", f"{device} rbps={bps} wbps={bps} riops={count} wiops={count}")

    def remove(self, child: str) -> None:
        """Kill the processes of one container's group and remove it.

        Raises OSError if that fails.
        """
        if child in self._children:
            self._undo_of(child).play(UndoContext(self._node, self._journal.id))
            self._children.discard(child)
            self._swap.pop(child, None)

    def empty(self) -> None:
        """Drop the page cache of the groups without processes, children first."""
        for child in (*self._children, None):
            groups = self.groups(child)
            cgroup_memory.empty(self._node, groups["v2" if self._base.version == "v2" else "memory"], v2=self._base.version == "v2")

    def close(self) -> list[str]:
        """Kill all processes of the run, remove its groups, and describe failures.

        A group that cannot be removed stays in the journal for 'pgherd clean'.
        """
        failures = []
        for number in reversed(self._undos):
            try:
                self._journal.undo(number)
            except OSError as error:
                failures.append(str(error))
        self._children.clear()
        self._undos.clear()
        return failures

    def _undo_of(self, child: str | None) -> RemoveCgroup:
        return RemoveCgroup(paths=tuple(dict.fromkeys(self.groups(child).values())))

    def _prepare(self) -> None:
        """Under v2, enable controllers in the parent; first move its processes to a leaf."""
        base = self._base
        if not base.enable:
            return
        parent = base.parents["v2"]
        leaf = f"{parent}/{LEAF}" if base.move else None
        self._undos.append(self._journal.note(RestoreSubtree(group=parent, controllers=base.enable, leaf=leaf)))
        if leaf:
            self._node.make_dir(leaf, mode=0o755)
            # Read again, because processes (the other end of a pipe, a child) may have joined in the meantime.
            for pid in text_of(self._node, f"{parent}/cgroup.procs").split():
                try:
                    self._node.write(f"{leaf}/cgroup.procs", pid.encode())
                except ProcessLookupError:
                    continue
        self._node.write(f"{parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in base.enable).encode())

    def _create(self, child: str | None, limits: CgroupLimits) -> None:
        groups = self.groups(child)
        for path in dict.fromkeys(groups.values()):
            self._node.make_dir(path, mode=0o755)
        if "cpuset" in groups:
            # A v1 cpuset group takes no process until it has CPUs and memory nodes: copy the parent's.
            parent = groups["cpuset"].rpartition("/")[0]
            for file in ("cpuset.cpus", "cpuset.mems"):
                self._node.write(f"{groups['cpuset']}/{file}", self._node.read(f"{parent}/{file}"))
        if self._base.version == "v1":
            hierarchical = f"{groups['memory']}/memory.use_hierarchy"
            if text_of(self._node, hierarchical) == "0":  # before Linux 5.11: otherwise the run's limit does not apply to children
                self._node.write(hierarchical, b"1")
        self.change(child, limits)

    def _limit_v1(self, groups: Mapping[str, str], limits: CgroupLimits, max_cores: float | None) -> None:
        if limits.cores is not None:
            # v1 refuses a quota above the enclosing one. The enclosing quota has the same effect.
            cores = limits.cores if max_cores is None else min(limits.cores, max_cores)
            self._write(f"{groups['cpu']}/cpu.cfs_period_us", round(1e6 * limits.period))
            self._write(f"{groups['cpu']}/cpu.cfs_quota_us", quota_us(cores, limits.period))
        if limits.weight is not None:
            self._write(f"{groups['cpu']}/cpu.shares", max(2, limits.weight * 1024 // 100))
        cgroup_memory.limit_v1(self._node, groups["memory"], limits.memory, limits.swap)
        if limits.cpus is not None:
            if "cpuset" not in groups:
                raise CapabilityError("the cpuset controller is not mounted, so no CPUs can be assigned; use a CPU quota instead")
            self._write(f"{groups['cpuset']}/cpuset.cpus", ",".join(map(str, limits.cpus)))

    def _limit_v2(self, group: str, limits: CgroupLimits) -> None:
        if limits.cores is not None:
            self._write(f"{group}/cpu.max", f"{quota_us(limits.cores, limits.period)} {round(1e6 * limits.period)}")
        if limits.weight is not None:
            self._write(f"{group}/cpu.weight", limits.weight)
        cgroup_memory.limit_v2(self._node, group, limits.memory, limits.swap)
        if limits.cpus is not None:
            if "cpuset" not in self._base.controllers:
                raise CapabilityError(
                    f"the cpuset controller is not available in {self._base.where}; use a CPU quota, or delegate it (Delegate=cpuset)"
                )
            self._write(f"{group}/cpuset.cpus", ",".join(map(str, limits.cpus)))

    def _write(self, path: str, value: int | str) -> None:
        cgroup_memory.write(self._node, path, value)


def io_limit_missing(parent: CgroupParent) -> str:
    """Return what a machine lacks whose groups have no I/O limits, and the remedy."""
    if parent.version == "v1":
        return "the blkio controller is not mounted; mount it (mount -t cgroup -o blkio blkio /sys/fs/cgroup/blkio)"
    return f"the io controller is not available in {parent.where}; delegate it (Delegate=io), or run pgherd as root"


def quota_us(cores: float, period: float = PERIOD) -> int:
    """Return microseconds of CPU per period.

    Raises CapabilityError below the kernel's minimum (0.01 cores by default).
    """
    quota = math.floor(cores * period * 1e6 + 1e-3)  # rounded up, it could exceed the quota of the enclosing group
    if quota < _MIN_QUOTA_US:
        minimum = _MIN_QUOTA_US / 1e6 / period
        raise CapabilityError(f"a CPU quota of {cores:g} cores is below the minimum of the kernel, {minimum:g}; increase it")
    return quota


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
