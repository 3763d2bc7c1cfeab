"""The control groups of one run: a host group with the run's budget, and one group in it per container.

v1 needs a directory per controller; v2 has one tree, in which each parent hands controllers to its children. Limits
are written where the kernel documents them (admin-guide cgroup-v1/memory.rst, sched-bwc.rst; cgroup-v2.rst).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from pgherd.host import memory_limits
from pgherd.host.cgroup_base import LEAF, Base
from pgherd.host.cgroup_layout import text_of
from pgherd.host.journal import Journal
from pgherd.host.undo import PREFIX, RemoveCgroup, RestoreSubtree, Scene
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Node

PERIOD = 0.1
"""Seconds of a CFS period, the kernel's own."""
_LEAST_QUOTA_US = 1_000
"""The kernel refuses a smaller quota (min_cfs_quota_period)."""
LEAST_CORES = _LEAST_QUOTA_US / 1e6 / PERIOD


@dataclass(frozen=True)
class Limits:
    """What a group is given; None leaves it unlimited. ``cores`` by CFS quota in periods of so many seconds, ``memory`` in bytes,
    ``weight`` as in v2 (1 to 10000, 100 is normal), ``swap`` bytes swapped out beside ``memory``."""

    cores: float | None = None
    period: float = PERIOD
    cpus: tuple[int, ...] | None = None
    memory: int | None = None
    swap: int | None = None
    weight: int | None = None


class HostGroup:
    """The groups of one run. ``name`` is 'pgherd-' and the run's suffix."""

    def __init__(self, node: Node, journal: Journal, base: Base, suffix: str) -> None:
        """Nothing is made before ``make``."""
        self._node, self._journal, self._base = node, journal, base
        self.name = f"{PREFIX}{suffix}"
        self._undos: list[int] = []
        self._children: set[str] = set()
        self._cores = base.cores
        self._swap: dict[str | None, int] = {}

    def groups(self, child: str | None = None) -> dict[str, str]:
        """Directories by controller ('v2' for the unified one), of a child or of the host group itself."""
        below = f"{self.name}/{child}" if child else self.name
        return {controller: f"{parent}/{below}" for controller, parent in self._base.parents.items()}

    def join(self, child: str | None = None) -> tuple[str, ...]:
        """The files that a process writes itself into to be in the group, in every hierarchy."""
        return tuple(f"{path}/cgroup.procs" for path in dict.fromkeys(self.groups(child).values()))

    def make(self, limits: Limits) -> None:
        """Make the host group. Raises CapabilityError, and takes back what it had done."""
        undo = self._undo_of(None)
        taken = next((path for path in undo.paths if self._node.exists(path)), None)
        if taken:
            raise CapabilityError(f"control group {taken} exists already; run 'pgherd clean' to remove what a killed run left")
        try:
            self._prepare()
            self._undos.append(self._journal.note(undo))
            self._make(None, limits)
            if self._base.version == "v2":
                wanted = " ".join(f"+{name}" for name in sorted(self._base.controllers))
                self._node.write(f"{self.groups()['v2']}/cgroup.subtree_control", wanted.encode())
        except OSError as error:
            self.close()
            raise CapabilityError(f"the host's control group can't be made: {_reason(error)}; see 'pgherd doctor'") from error
        except CapabilityError:
            self.close()
            raise

    def add(self, child: str, limits: Limits) -> dict[str, str]:
        """Make one container's group within the host group and return its directories; raises CapabilityError.

        The journal needs no entry of its own for it: the host group is removed with all that is in it.
        """
        if child in self._children:
            raise CapabilityError(f"container {child} has its control group already; containers of one host need different names")
        self._children.add(child)
        try:
            self._make(child, limits)
        except OSError as error:
            self.remove(child)
            raise CapabilityError(f"the control group of container {child} can't be made: {_reason(error)}") from error
        except CapabilityError:
            self.remove(child)
            raise
        return self.groups(child)

    def change(self, child: str | None, limits: Limits) -> None:
        """Set the limits that are not None, of a child or of the host group; raises CapabilityError.

        Lowering memory below what is in use makes the kernel reclaim: under v1 it may take seconds.
        """
        groups = self.groups(child)
        if limits.swap is not None:
            self._swap[child] = limits.swap
        elif limits.memory is not None and child in self._swap:
            limits = replace(limits, swap=self._swap[child])  # v1 limits the sum: it moves with the memory
        if child is None and limits.cores is not None:
            self._cores = min(limits.cores, self._base.cores or limits.cores)
        if self._base.version == "v1":
            self._limit_v1(groups, limits, self._base.cores if child is None else self._cores)
        else:
            self._limit_v2(groups["v2"], limits)

    def remove(self, child: str) -> None:
        """Remove one container's group, killing what runs in it; raises OSError where it can't be."""
        if child in self._children:
            self._undo_of(child).play(Scene(self._node, self._journal.id))
            self._children.discard(child)
            self._swap.pop(child, None)

    def empty(self) -> None:
        """Have the kernel drop what the groups are still charged for, after their processes have ended; children first."""
        for child in (*self._children, None):
            groups = self.groups(child)
            memory_limits.empty(self._node, groups["v2" if self._base.version == "v2" else "memory"], v2=self._base.version == "v2")

    def close(self) -> list[str]:
        """Remove all groups of the run, killing what runs in them; sentences on what could not be removed.

        What could not be stays in the journal for 'pgherd clean'.
        """
        failed = []
        for number in reversed(self._undos):
            try:
                self._journal.undo(number)
            except OSError as error:
                failed.append(str(error))
        self._children.clear()
        self._undos.clear()
        return failed

    def _undo_of(self, child: str | None) -> RemoveCgroup:
        return RemoveCgroup(paths=tuple(dict.fromkeys(self.groups(child).values())))

    def _prepare(self) -> None:
        """v2: have the parent hand out the controllers, after moving our processes from it into a leaf."""
        base = self._base
        if not base.enable:
            return
        parent = base.parents["v2"]
        leaf = f"{parent}/{LEAF}" if base.move else None
        self._undos.append(self._journal.note(RestoreSubtree(group=parent, controllers=base.enable, leaf=leaf)))
        if leaf:
            self._node.make_dir(leaf, mode=0o755)
            # Read again: processes (a pipe's other end, a child) may have come since the base was found.
            for pid in text_of(self._node, f"{parent}/cgroup.procs").split():
                try:
                    self._node.write(f"{leaf}/cgroup.procs", pid.encode())
                except ProcessLookupError:
                    continue
        self._node.write(f"{parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in base.enable).encode())

    def _make(self, child: str | None, limits: Limits) -> None:
        groups = self.groups(child)
        for path in dict.fromkeys(groups.values()):
            self._node.make_dir(path, mode=0o755)
        if "cpuset" in groups:
            # A v1 cpuset group takes no process until it has CPUs and memory nodes: inherit the parent's.
            parent = groups["cpuset"].rpartition("/")[0]
            for file in ("cpuset.cpus", "cpuset.mems"):
                self._node.write(f"{groups['cpuset']}/{file}", self._node.read(f"{parent}/{file}"))
        if self._base.version == "v1":
            hierarchical = f"{groups['memory']}/memory.use_hierarchy"
            if text_of(self._node, hierarchical) == "0":  # kernels before 5.11: else children escape the host's limit
                self._node.write(hierarchical, b"1")
        self.change(child, limits)

    def _limit_v1(self, groups: Mapping[str, str], limits: Limits, outer: float | None) -> None:
        if limits.cores is not None:
            # v1 refuses a group more than the quota around it; to be given that quota is the same in effect.
            cores = limits.cores if outer is None else min(limits.cores, outer)
            self._write(f"{groups['cpu']}/cpu.cfs_period_us", round(1e6 * limits.period))
            self._write(f"{groups['cpu']}/cpu.cfs_quota_us", quota_us(cores, limits.period))
        if limits.weight is not None:
            self._write(f"{groups['cpu']}/cpu.shares", max(2, limits.weight * 1024 // 100))
        memory_limits.limit_v1(self._node, groups["memory"], limits.memory, limits.swap)
        if limits.cpus is not None:
            if "cpuset" not in groups:
                raise CapabilityError("the cpuset controller is not mounted, so no CPUs can be assigned; use a CPU quota")
            self._write(f"{groups['cpuset']}/cpuset.cpus", ",".join(map(str, limits.cpus)))

    def _limit_v2(self, group: str, limits: Limits) -> None:
        if limits.cores is not None:
            self._write(f"{group}/cpu.max", f"{quota_us(limits.cores, limits.period)} {round(1e6 * limits.period)}")
        if limits.weight is not None:
            self._write(f"{group}/cpu.weight", limits.weight)
        memory_limits.limit_v2(self._node, group, limits.memory, limits.swap)
        if limits.cpus is not None:
            if "cpuset" not in self._base.controllers:
                raise CapabilityError(
                    f"the cpuset controller was not given to {self._base.where}; use a CPU quota, or delegate it (Delegate=cpuset)"
                )
            self._write(f"{group}/cpuset.cpus", ",".join(map(str, limits.cpus)))

    def _write(self, path: str, value: int | str) -> None:
        memory_limits.write(self._node, path, value)


def quota_us(cores: float, period: float = PERIOD) -> int:
    """Microseconds of CPU per period; raises CapabilityError below what the kernel takes (0.01 cores at its own period)."""
    quota = math.floor(cores * period * 1e6 + 1e-3)  # rounded up it could be more than what the group around it has
    if quota < _LEAST_QUOTA_US:
        least = _LEAST_QUOTA_US / 1e6 / period
        raise CapabilityError(f"a CPU quota of {cores:g} cores is below the least that the kernel takes, {least:g}; give more")
    return quota


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def oom_kills(node: Node, groups: Mapping[str, str]) -> int:
    """Processes that the kernel has ended in a group because its memory limit was reached; 0 where it does not say.

    v1: ``memory.oom_control``, since Linux 4.13; v2: ``memory.events``.
    """
    file = f"{groups['memory']}/memory.oom_control" if "memory" in groups else f"{groups.get('v2', '')}/memory.events"
    words = text_of(node, file).split()
    return next((int(value) for name, value in pairwise(words) if name == "oom_kill" and value.isdigit()), 0)
