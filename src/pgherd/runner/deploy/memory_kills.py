"""Processes that the kernel ended for want of memory, by container: who, and when it was seen."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Literal

from pgherd.host import cgroup_memory
from pgherd.host.cgroup_memory import Victim
from pgherd.model.result import MemoryKill
from pgherd.node.protocol import Node

_CLOCKS_APART = 2.0
"""Seconds by which the clock of the kernel's log may be behind or ahead of the wall clock."""


class MemoryKills:
    """Counts of a run's containers. A group's own count never goes down, so what is new is what has been added since."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._began = 0.0
        self._counted: dict[str, int] = {}
        self._seen: list[MemoryKill] = []

    def begin(self) -> None:
        """A trial begins: what was seen belongs to the one before."""
        self._began = self._node.now()
        self._seen = []

    def look(self, container: str, groups: Mapping[str, str]) -> int:
        """How many processes were ended in a container since it was last looked at; they are noted."""
        total = cgroup_memory.oom_kills(self._node, groups)
        new = total - self._counted.get(container, 0)
        self._counted[container] = total
        if new > 0:
            self._seen.append(MemoryKill(container=container, processes=new, at=self._node.now()))
        return max(new, 0)

    def seen(self, containers: Mapping[str, Mapping[str, str]]) -> tuple[MemoryKill, ...]:
        """All of this trial, after one more look at these containers (name → groups)."""
        for name, groups in containers.items():
            self.look(name, groups)
        victims = cgroup_memory.victims(self._node, self._began - _CLOCKS_APART) if self._seen else []
        return tuple(told(kill, victims) for kill in self._seen)

    def forget(self, container: str) -> None:
        """The container is gone, and its count with it."""
        self._counted.pop(container, None)


def told(kill: MemoryKill, victims: Sequence[Victim]) -> MemoryKill:
    """What was counted, with what the kernel's log says of it: who, when, and at whose limit."""
    own = [one for one in victims if posixpath.basename(one.group) == kill.container and one.at <= kill.at + _CLOCKS_APART]
    if not own:
        return kill
    by_container = any(one.limited == one.group for one in own)
    names = tuple(f"{one.process} ({one.pid})" for one in own[: kill.processes])
    limit: Literal["container", "budget"] = "container" if by_container else "budget"
    return kill.model_copy(update={"at": min(own[0].at, kill.at), "names": names, "limit": limit})
