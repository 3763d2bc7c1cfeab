"""What a runtime is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pgherd.model.deployment import Container, Host
from pgherd.node.protocol import Clock, Node


@dataclass(frozen=True)
class Capabilities:
    """What a runtime can do here. ``missing`` maps what it cannot do to what would make it possible."""

    available: bool
    cpu_quota: bool = False
    cpuset: bool = False
    memory_limit: bool = False
    accounting: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


class Recorder(Protocol):
    """Something that can write what it sees into a trial's spool."""

    def record(self, spool: Path | None) -> None:
        """Append to this spool from now on; None: to none. Raises OSError when it cannot be written."""
        ...


@dataclass(frozen=True)
class Room:
    """A container that is up: how processes enter it, and where its accounting is read.

    ``join`` are the files a process writes itself into before exec; ``cpus`` its affinity; ``groups`` the cgroup
    directories by controller ('v2' for the unified one), for samplers. ``node`` is the container's own where it is a
    machine of its own (a guest): its processes are started there, and need not join anything; ``clock`` converts its instants.
    None: the host's. ``balloons`` records what is seen of the host's guests and their balloons; None where this is none of them.
    """

    container: str
    join: tuple[str, ...] = ()
    cpus: tuple[int, ...] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    node: Node | None = None
    clock: Clock | None = None
    balloons: Recorder | None = None


class Runtime(Protocol):
    """Makes and removes containers on one node, within one host budget."""

    name: str

    def capabilities(self) -> Capabilities:
        """What works here, found by looking (and for cgroups by trying)."""
        ...

    def open(self, host: Host) -> None:
        """Make the host group with the host's budget; raises CapabilityError."""
        ...

    def create(self, container: Container) -> Room:
        """Make one container; raises CapabilityError where the runtime cannot give what the container asks."""
        ...

    def destroy(self, container: str) -> None:
        """Remove one container, killing what still runs in it."""
        ...

    def close(self) -> None:
        """Remove all containers and the host group."""
        ...

    def change_budget(self, memory: int) -> None:
        """Set the memory (bytes) that all containers have together; raises CapabilityError where the runtime cannot."""
        ...

    def empty(self) -> None:
        """Drop what containers without processes are still charged for: page cache."""
        ...

    def budget_groups(self) -> Mapping[str, str]:
        """The host group's directories by controller, as in ``Room.groups``; empty where there is none."""
        ...
