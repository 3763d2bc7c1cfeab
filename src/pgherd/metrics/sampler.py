"""What a sampler is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pgherd.model.deployment import Role
from pgherd.node.protocol import Source


@dataclass(frozen=True)
class Metric:
    """One metric: its name (``cpu.user``), unit of a *reading*, kind, and what it means.

    A counter only grows; over a window it becomes a rate per second (a counter of CPU seconds becomes cores). A gauge
    becomes its mean over the window. ``resets`` counters may start from zero again (a server's statistics after a
    crash); a smaller reading of any other counter is a torn one and is bridged.
    """

    name: str
    unit: str
    kind: Literal["counter", "gauge"]
    help: str
    resets: bool = False


@dataclass(frozen=True)
class ContainerView:
    """What a sampler may know of a container: its name, the cgroup directories by controller (empty: none), and the
    pids of the postmasters and drivers in it.

    Keys are v1 controller names ('memory', 'cpu', 'cpuacct', …) or 'v2' for the unified group.
    """

    name: str
    groups: Mapping[str, str] = field(default_factory=dict)
    pids: Sequence[int] = ()


@dataclass(frozen=True)
class ServerView:
    """What a sampler may know of a server: entity (``container/server``), conninfo, major version, postmaster pid (0: its
    processes are not on this node, or not ours to see), and whether extension pg_balloon is there to be asked."""

    name: str
    conninfo: str
    major: int
    pid: int
    balloon: bool = False


@dataclass(frozen=True)
class ProcessView:
    """A process to be watched: entity (``driver:TARGET``, ``pgherd``) and pid."""

    entity: str
    pid: int


@dataclass(frozen=True)
class GroupView:
    """A control group beside the containers whose CPU is to be watched: entity (``platform:NAME``) and directory by
    controller, as in ``ContainerView``."""

    entity: str
    groups: Mapping[str, str]


@dataclass(frozen=True)
class SwapView:
    """The swap that a run has made: path of the device or file, and the number of the zram device if it is one."""

    path: str
    zram: int | None = None


@dataclass(frozen=True)
class GuestDrive:
    """A drive of a virtual machine: its ``name`` at the hypervisor, the ``device`` that it is in the guest ('' where that is not known),
    the ``path`` of its image, and what of which server (``container/server``) lies on it."""

    name: str
    device: str
    path: str
    role: Role
    server: str


@dataclass(frozen=True)
class GuestView:
    """A virtual machine: its container's name, its hypervisor's pid, the memory (bytes) that it was configured with, its drives but for
    that of its system, and whether the host may merge equal pages of its memory (KSM)."""

    name: str
    pid: int
    memory: int
    drives: Sequence[GuestDrive] = ()
    merging: bool = False


@dataclass(frozen=True)
class View:
    """Everything that is up and may be watched at the start of a phase. ``budget`` is the group around all containers, directory by
    controller, which holds the host's budget (empty: there is none)."""

    containers: Sequence[ContainerView] = ()
    servers: Sequence[ServerView] = ()
    processes: Sequence[ProcessView] = ()
    groups: Sequence[GroupView] = ()
    budget: Mapping[str, str] = field(default_factory=dict)
    swap: SwapView | None = None
    trace: bool = False
    """Block requests are to be traced."""
    guests: Sequence[GuestView] = ()
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Volumes that are loaded themselves: target → the directory in which its driver works."""


Reading = tuple[str, dict[str, float]]
"""(entity, metric name → value) of one reading."""


class Sampler(Protocol):
    """Source plus pure parse. ``parse`` gets the raw text and the source it came from, and yields readings; it skips
    what it does not know (kernels differ) and raises ValueError only for text of another kind."""

    name: str
    metrics: Sequence[Metric]

    def sources(self, view: View) -> list[Source]:
        """What to read, for everything in view."""
        ...

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """Readings in one raw text."""
        ...
