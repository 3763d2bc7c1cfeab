"""Balloons of a run's guests: one manager for all guests, within the run's memory budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pgherd.host.kernel_files import flat_keyed
from pgherd.metrics import cgroup
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node
from pgherd.runtimes import balloon_controller, balloon_manager
from pgherd.runtimes.balloon_controller import moves, reports
from pgherd.runtimes.balloon_device import QmpTarget
from pgherd.runtimes.balloon_manager import BalloonManager

_USAGE_FILE = {"v1": "memory.usage_in_bytes", "v2": "memory.current"}
_INACTIVE_FILE = {"v1": "total_inactive_file", "v2": "inactive_file"}
_IN_USE = {"v1": ("total_rss", "total_cache"), "v2": ("anon", "file", "kernel", "sock")}
"""Keys of memory.stat that are in use. In version 1 kernel memory is in a separate file."""
_KERNEL = "memory.kmem.usage_in_bytes"


class GuestBalloons:
    """Owner of the balloon manager. The manager starts with the first guest."""

    def __init__(self, node: Node, groups: Callable[[], Mapping[str, str]]) -> None:
        """``groups`` returns the cgroup around all guests, directory by controller. Its use shows the free memory of the host."""
        self._node, self._groups = node, groups
        self._policy = VmMemoryPolicy()
        self._budget: int | None = None
        self._withheld = 0
        self._manager: BalloonManager | None = None
        self._spool: Path | None = None
        self._promised: dict[str, Container] = {}

    def share(self, policy: VmMemoryPolicy | None, budget: int | None) -> None:
        """Set the policy and the budget (bytes) of all guests. Call it before the first guest starts."""
        self._policy, self._budget = policy or VmMemoryPolicy(), budget

    @property
    def reporting(self) -> bool:
        """Whether guests report their free pages."""
        return reports(self._policy.policy)

    def promise(self, container: Container) -> None:
        """Register a guest before it starts. Call it for all guests before the first one boots.

        Raises:
            UsageError: the sum of the guaranteed minima exceeds the memory for guests.
        """
        promised = {**self._promised, container.name: container}
        guests = [
            balloon_manager.entitlement_of(guest_container, self._policy.overhead)
            for guest_container in promised.values()
            if guest_container.memory is not None
        ]
        balloon_controller.check(guests, self._shared if moves(self._policy.policy) else None, self._policy.reserve)
        self._promised = promised

    def withdraw(self, container: str) -> None:
        """Undo ``promise``."""
        self._promised.pop(container, None)

    def entered(self, container: Container, machine: QmpTarget) -> None:
        """Add a guest that has booted. Raises UsageError as ``promise``."""
        if self._manager is None:
            self._manager = BalloonManager(self._policy, self._shared, self._free)
            self._manager.record(self._spool)
            self._manager.start()
        self._manager.remove(container.name)
        self._manager.add(balloon_manager.managed(container, machine, self._policy.overhead))

    def left(self, container: str) -> None:
        """Remove a guest before it ends."""
        if self._manager is not None:
            self._manager.remove(container)

    def change_budget(self, budget: int) -> None:
        """Change the budget. Raises UsageError where the minima of the running guests exceed it."""
        before, self._budget = self._budget, budget
        try:
            self._announce()
        except UsageError:
            self._budget = before
            raise

    def withhold(self, memory: int) -> None:
        """Reserve this many bytes of the budget for something that is not a guest. Raises as ``change_budget``."""
        before, self._withheld = self._withheld, memory
        try:
            self._announce()
        except UsageError:
            self._withheld = before
            raise

    def record(self, spool: Path | None) -> None:
        """Append readings to this spool from now on. None stops recording. Raises as ``BalloonManager.record``."""
        self._spool = spool
        if self._manager is not None:
            self._manager.record(spool)

    def close(self) -> None:
        """Stop the manager. Guests that still run get their memory back."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop()

    @property
    def _shared(self) -> int | None:
        """Memory of all guests and their hypervisors, bytes."""
        return None if self._budget is None else max(self._budget - self._withheld, 0)

    def _announce(self) -> None:
        if self._manager is not None:
            self._manager.change_budget(self._shared)

    def _free(self) -> int | None:
        """Return the bytes that the cgroup around the guests can still be charged with. None: it is not counted.

        Inactive file pages and the remains of split huge pages count as free.
        """
        group = cgroup.memory(self._groups())
        if group is None or self._budget is None:
            return None
        used = int(self._node.read(f"{group.directory}/{_USAGE_FILE[group.version]}"))
        stat = self._node.read(f"{group.directory}/memory.stat").decode(errors="replace")
        droppable = flat_keyed(stat, {_INACTIVE_FILE[group.version]: "file"}).get("file", 0.0)
        return self._budget - used + int(droppable + self._split(group, used, stat))

    def _split(self, group: cgroup.Accounting, used: int, stat: str) -> float:
        """Return the bytes that the cgroup is charged with but that nothing uses.

        QEMU puts guest memory on transparent huge pages. After a balloon has taken a part of one, the full page stays charged until the
        kernel reclaims memory (deferred split, mm/huge_memory.c). The result is 0 where memory.stat lacks one of the values.
        """
        in_use = flat_keyed(stat, {key: key for key in _IN_USE[group.version]})
        if group.version == "v1" and self._node.exists(f"{group.directory}/{_KERNEL}"):
            in_use[_KERNEL] = float(self._node.read(f"{group.directory}/{_KERNEL}"))
        complete = len(in_use) == (3 if group.version == "v1" else len(_IN_USE["v2"]))
        return max(used - sum(in_use.values()), 0.0) if complete else 0.0
