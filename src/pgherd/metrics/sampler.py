"""Samplers: their protocol, their metrics, the view of a deployment that they get, and all of them by name.

A new sampler needs no registration: its module exports ``SAMPLER`` or ``SAMPLERS``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, Protocol

import pgherd.metrics
from pgherd.model.deployment import Role
from pgherd.node.protocol import SampleSource

MANY_CONTAINERS = 10
"""With more containers than this, slowly changing files are read on every fifth tick, to keep sampling cheap."""


@dataclass(frozen=True)
class SampledMetric:
    """One metric: name (``cpu.user``), unit of a *reading*, kind and meaning.

    A counter only grows. Over a window it becomes a rate per second, so CPU seconds become cores. A gauge becomes its
    mean over the window. A counter with ``resets`` may restart from zero, such as a server's statistics after a crash. A
    counter with ``wraps`` restarts from zero at this level. A smaller reading of any other counter is a torn read and is
    bridged.
    """

    name: str
    unit: str
    kind: Literal["counter", "gauge"]
    help: str
    resets: bool = False
    wraps: float = 0.0

    def base(self, before: float, after: float) -> float:
        """Return the level to subtract from ``after`` for the increase since ``before``: negative if the counter has wrapped."""
        return before - self.wraps if self.wraps and before - after > self.wraps / 2 else before


@dataclass(frozen=True)
class ContainerView:
    """A container: name, cgroup directories by controller, and pids of its postmasters and drivers.

    Keys are v1 controllers ('memory', 'cpu', 'cpuacct', …) or 'v2' for the unified group. Without cgroups it is empty.
    ``quiet``: its servers should be idle, so how often they wake up is sampled.
    """

    name: str
    groups: Mapping[str, str] = field(default_factory=dict)
    pids: Sequence[int] = ()
    quiet: bool = False


@dataclass(frozen=True)
class ServerView:
    """A server: entity (``container/server``), conninfo, major version, postmaster pid, and whether it has pg_balloon.

    The pid is 0 if the processes are not on this node or not visible. ``waits`` is True for external servers, of which
    what the sessions wait for is sampled often. ``quiet``: it should be idle, so no statement runs on it.
    """

    name: str
    conninfo: str
    major: int
    pid: int
    balloon: bool = False
    waits: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class ProcessView:
    """A process to watch: entity (``driver:TARGET``, ``pgherd``) and pid."""

    entity: str
    pid: int


@dataclass(frozen=True)
class CgroupView:
    """A cgroup outside the containers whose CPU time is counted: entity (``platform:NAME``), directories by controller."""

    entity: str
    groups: Mapping[str, str]


@dataclass(frozen=True)
class SwapView:
    """Swap area that a run has created: path of the device or file, and the number of its zram device, if it is one."""

    path: str
    zram: int | None = None


@dataclass(frozen=True)
class GuestDrive:
    """A drive of a virtual machine.

    Attributes:
        name: its name at the hypervisor.
        device: its name in the guest, '' if unknown.
        path: path of its image.
        role: the kind of files on it.
        server: the server (``container/server``) that the files belong to.
    """

    name: str
    device: str
    path: str
    role: Role
    server: str


@dataclass(frozen=True)
class GuestView:
    """A virtual machine.

    Attributes:
        name: its container's name.
        pid: its hypervisor's pid.
        memory: configured memory in bytes.
        drives: its drives without the system drive.
        merging: True if the host may merge its memory (KSM).
    """

    name: str
    pid: int
    memory: int
    drives: Sequence[GuestDrive] = ()
    merging: bool = False


@dataclass(frozen=True)
class SamplingView:
    """Everything that runs at the start of a phase and can be sampled.

    Attributes:
        run_cgroup: the run cgroup, directory by controller. Empty if there is none.
        trace: True if block requests are traced.
        volumes: volumes that are a driver's target: target → working directory of the driver.
        waits: True to also sample what the sessions of pgherd's servers wait for.
        cpus: CPUs that pgherd may use, if they are not all CPUs of the host and no server can use others.
    """

    containers: Sequence[ContainerView] = ()
    servers: Sequence[ServerView] = ()
    processes: Sequence[ProcessView] = ()
    groups: Sequence[CgroupView] = ()
    run_cgroup: Mapping[str, str] = field(default_factory=dict)
    swap: SwapView | None = None
    trace: bool = False
    guests: Sequence[GuestView] = ()
    volumes: Mapping[str, str] = field(default_factory=dict)
    waits: bool = False
    cpus: Sequence[int] = ()


Reading = tuple[str, dict[str, float]]
"""(entity, metric name → value) of one reading."""


class Sampler(Protocol):
    """Sources and a pure parser of their text."""

    name: str
    metrics: Sequence[SampledMetric]

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return the sources to read for everything in view."""
        ...

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield the readings in one text of a source.

        Unknown parts are skipped, because kernels differ. Raises ValueError for text of another kind.
        """
        ...


def cadence(containers: int) -> int:
    """Return ``every`` for a source that exists once per container and need not be read each second."""
    return 1 if containers <= MANY_CONTAINERS else 5


# ---- all samplers


@cache
def samplers() -> dict[str, Sampler]:
    """Return name → sampler, sorted by name. The mapping is shared: do not change it."""
    by_name: dict[str, Sampler] = {}
    for info in pkgutil.iter_modules(pgherd.metrics.__path__, "pgherd.metrics."):
        module = importlib.import_module(info.name)
        instances = (module.SAMPLER,) if hasattr(module, "SAMPLER") else getattr(module, "SAMPLERS", ())
        by_name |= {instance.name: instance for instance in instances}
    return dict(sorted(by_name.items()))


@cache
def metrics() -> dict[str, SampledMetric]:
    """Return metric name → metric. Samplers that share a name agree in unit, kind and resets.

    Raises:
        ValueError: two samplers define one name differently, which is a mistake in a new sampler.
    """
    by_name: dict[str, SampledMetric] = {}
    for sampler in samplers().values():
        for metric in sampler.metrics:
            first = by_name.setdefault(metric.name, metric)
            if (first.unit, first.kind, first.resets) != (metric.unit, metric.kind, metric.resets):
                raise ValueError(f"sampler '{sampler.name}' defines {metric.name} as {metric}, another sampler as {first}")
    return by_name


def metric(name: str) -> SampledMetric:
    """Return the metric of that name. Raises KeyError if no sampler has it."""
    return metrics()[name]


def sources(view: SamplingView) -> list[SampleSource]:
    """Return the sources of all samplers for everything in view, without statements on servers that should be idle."""
    quiet = {server.conninfo for server in view.servers if server.quiet}
    found = [source for sampler in samplers().values() for source in sampler.sources(view)]
    return [source for source in found if source.kind != "sql" or source.where not in quiet]
