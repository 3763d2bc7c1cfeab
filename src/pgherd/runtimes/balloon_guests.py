"""The balloons of a run's guests: one manager over all that run, for as long as any do, within the run's budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pgherd.metrics import accounting
from pgherd.metrics.keyed import flat_keyed
from pgherd.model.deployment import Container, GuestMemory
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Node
from pgherd.runtimes import balloon_law, balloon_manager
from pgherd.runtimes.balloon_device import Machine
from pgherd.runtimes.balloon_manager import BalloonManager
from pgherd.runtimes.balloon_policy import moves, reports

_USED = {"v1": "memory.usage_in_bytes", "v2": "memory.current"}
_DROPPED_FIRST = {"v1": "total_inactive_file", "v2": "inactive_file"}
_HELD = {"v1": ("total_rss", "total_cache"), "v2": ("anon", "file", "kernel", "sock")}
"""What of a group's memory.stat is in use; version 1 has the kernel's own in a file beside it."""
_KERNEL = "memory.kmem.usage_in_bytes"


class GuestBalloons:
    """What a runtime of guests holds of the manager. Nothing runs before the first guest has come up."""

    def __init__(self, node: Node, groups: Callable[[], Mapping[str, str]]) -> None:
        """``groups`` gives the control group around all guests, directory by controller, whose use says what the host has left."""
        self._node, self._groups = node, groups
        self._policy = GuestMemory()
        self._budget: int | None = None
        self._withheld = 0
        self._manager: BalloonManager | None = None
        self._spool: Path | None = None
        self._promised: dict[str, Container] = {}

    def share(self, policy: GuestMemory | None, budget: int | None) -> None:
        """How guests share memory, and how many bytes of it they have together; before the first one is there."""
        self._policy, self._budget = policy or GuestMemory(), budget

    @property
    def reporting(self) -> bool:
        """Whether guests are to report their free pages."""
        return reports(self._policy.policy)

    def promise(self, container: Container) -> None:
        """A guest is to come; to be called for all before the first one is booted.

        Raises:
            UsageError: with it the guaranteed minima are more than guests can have.
        """
        promised = {**self._promised, container.name: container}
        guests = [balloon_manager.law_guest(one, self._policy.overhead) for one in promised.values() if one.memory is not None]
        balloon_law.check(guests, self._shared if moves(self._policy.policy) else None, self._policy.reserve)
        self._promised = promised

    def withdraw(self, container: str) -> None:
        """A guest is to come no more."""
        self._promised.pop(container, None)

    def entered(self, container: Container, machine: Machine) -> None:
        """A guest has come up; raises UsageError as ``promise``."""
        if self._manager is None:
            self._manager = BalloonManager(self._policy, self._shared, self._free)
            self._manager.record(self._spool)
            self._manager.start()
        self._manager.remove(container.name)
        self._manager.add(balloon_manager.managed(container, machine, self._policy.overhead))

    def left(self, container: str) -> None:
        """A guest is about to be ended."""
        if self._manager is not None:
            self._manager.remove(container)

    def change_budget(self, budget: int) -> None:
        """Another budget from now on; raises UsageError where the minima of the guests that are up are more."""
        before, self._budget = self._budget, budget
        try:
            self._announce()
        except UsageError:
            self._budget = before
            raise

    def withhold(self, memory: int) -> None:
        """So many bytes of the budget are held by what is no guest from now on; raises as ``change_budget``."""
        before, self._withheld = self._withheld, memory
        try:
            self._announce()
        except UsageError:
            self._withheld = before
            raise

    def record(self, spool: Path | None) -> None:
        """Append what is seen to this spool from now on; None: to none. Raises as ``BalloonManager.record``."""
        self._spool = spool
        if self._manager is not None:
            self._manager.record(spool)

    def close(self) -> None:
        """End the manager; the guests that still run get their memory back."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop()

    @property
    def _shared(self) -> int | None:
        """What guests and their hypervisors have together, bytes."""
        return None if self._budget is None else max(self._budget - self._withheld, 0)

    def _announce(self) -> None:
        if self._manager is not None:
            self._manager.change_budget(self._shared)

    def _free(self) -> int | None:
        """What the group around the guests could still be charged with, bytes, its least used file pages and what is left over of split
        huge pages included; None: nobody counts."""
        place = accounting.memory(self._groups())
        if place is None or self._budget is None:
            return None
        used = int(self._node.read(f"{place.directory}/{_USED[place.version]}"))
        stat = self._node.read(f"{place.directory}/memory.stat").decode(errors="replace")
        dropped = flat_keyed(stat, {_DROPPED_FIRST[place.version]: "file"}).get("file", 0.0)
        return self._budget - used + int(dropped + self._split(place, used, stat))

    def _split(self, place: accounting.Accounting, used: int, stat: str) -> float:
        """Bytes that the group is charged with and nobody has: QEMU lays guests on transparent huge pages, and one of which a balloon has
        taken a part stays charged as a whole until the kernel looks for memory (deferred split, mm/huge_memory.c). 0 where the kernel
        does not tell all that is in use."""
        held = flat_keyed(stat, {key: key for key in _HELD[place.version]})
        if place.version == "v1" and self._node.exists(f"{place.directory}/{_KERNEL}"):
            held[_KERNEL] = float(self._node.read(f"{place.directory}/{_KERNEL}"))
        told = len(held) == (3 if place.version == "v1" else len(_HELD["v2"]))
        return max(used - sum(held.values()), 0.0) if told else 0.0
