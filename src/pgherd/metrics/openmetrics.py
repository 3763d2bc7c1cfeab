"""What the registry's metrics are called in OpenMetrics: names, types, units, help and labels. Pure.

A name is ``pgherd_SUBJECT_METRIC[_UNIT][_total]``: ``cpu.usage`` of a container is ``pgherd_container_cpu_usage_seconds_total``. The
subject stands in the name, not in a label, so that a sum over a metric means something: what a container uses is contained in
what its host uses. Units are base units (seconds, bytes); what is counted (blocks, requests) is said in the help. Every series has the
labels ``run`` and ``host``. (Prometheus documentation, "Metric and label naming"; OpenMetrics 1.0.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from pgherd.metrics.registry import samplers
from pgherd.metrics.sampler import Metric

PREFIX = "pgherd"
EVERYWHERE = ("run", "host")
"""Labels of every series."""
PLACE = ("container", "server", "database")
_TARGET = ("target", *PLACE)
_UNITS = {"s": "seconds", "bytes": "bytes"}
_RENAMED = {"ctxt": "context_switches", "cpu.online": "cpus_online"}
"""Metrics whose own name says too little, or reads badly."""


@dataclass(frozen=True)
class Family:
    """A metric family: ``name`` without the suffix that its type adds, ``labels`` beside those that stand everywhere."""

    name: str
    kind: Literal["counter", "gauge", "info"]
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name of its samples, as a query names them."""
        return self.name + {"counter": "_total", "gauge": "", "info": "_info"}[self.kind]


class Sample(NamedTuple):
    """One value of a family: all its labels, and the instant that it is of (seconds since the epoch; None: now)."""

    family: Family
    labels: Mapping[str, str]
    value: float
    t: float | None = None


@dataclass(frozen=True)
class Subject:
    """What a metric is of: the word in names, how help texts begin, its labels."""

    word: str
    title: str
    labels: tuple[str, ...] = ()


_SUBJECTS = {
    "host": Subject("host", "The host"),
    "budget": Subject("budget", "The group around all containers"),
    "pgherd": Subject("own", "pgherd's own process"),
    "container": Subject("container", "A container", ("container",)),
    "server": Subject("server", "A server", ("container", "server")),
    "backend": Subject("backend", "The backend that answers pgherd's samples", ("container", "server")),
    "driver": Subject("driver", "The driver that loads a target", _TARGET),
    "platform": Subject("platform", "A named part of the platform", ("part",)),
    "disk": Subject("disk", "A block device", ("device",)),
    "swap": Subject("swap", "A swap area", ("area",)),
    "zram": Subject("zram", "The compressed swap device", ("device",)),
    "guest": Subject("guest", "A container's virtual machine", ("container",)),
    "guest-container": Subject("guest_container", "The processes of a container inside its guest", ("container",)),
    "guest-disk": Subject("guest_disk", "A block device as the guest sees it", ("container", "device")),
    "guest-drive": Subject("guest_drive", "A guest's drive as its hypervisor sees it", ("container", "device")),
    "guest-swap": Subject("guest_swap", "A swap area inside a guest", ("container", "area")),
}
"""Kind of entity, as samplers name them, → subject."""

_WHOLE = ("host", "budget", "pgherd")
_LASTING = ("host", "disk")
"""Kinds whose counters are the kernel's own, and go on from trial to trial."""
_OF_ONE_HOST = ("disk", "platform", "swap", "zram")
_ALL = ("*",)
_SERVED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "balloon": {"server": _ALL},
    "balloon_manager": {"platform": _ALL},
    "cgroup_cpu": {"container": _ALL, "platform": ("cpu.usage",)},
    "cgroup_memory": {"budget": _ALL, "container": _ALL},
    "cpu": {"host": _ALL, "guest": _ALL},
    "database": {"server": _ALL},
    "diskstats": {"disk": _ALL, "guest-disk": _ALL},
    "guest_balloon": {"guest": _ALL},
    "guest_machine": {"guest": _ALL},
    "memory": {"host": _ALL, "guest": _ALL},
    "pg_io": {"server": _ALL},
    "pg_wal": {"server": _ALL},
    "pressure": {"host": _ALL, "guest": _ALL, "budget": _ALL, "container": _ALL},
    "processes": {
        "container": ("cpu.usage", "cpu.user", "cpu.system"),
        "guest-container": ("cpu.usage", "cpu.user", "cpu.system"),
        "driver": _ALL,
        "pgherd": _ALL,
        "platform": _ALL,
        "backend": ("cpu.usage",),
    },
    "qemu_blockstats": {"guest-drive": _ALL},
    "qemu_process": {"guest": _ALL},
    "same_page_merging": {"host": ("ksm.shared", "ksm.saved", "ksm.unshared", "ksm.scans"), "guest": ("guest.merged",)},
    "shared_memory": {},
    "swap": {"swap": _ALL, "guest-swap": _ALL},
    "tlb": {"server": _ALL},
    "vmstat": {"host": _ALL, "guest": _ALL},
    "zram": {"zram": _ALL},
}
"""Sampler → kinds of entity that it reads → their metrics. Only the list of names needs it; a reading is named by its entity. What is
read once of a server's shared memory is no sample, and so not served."""
_NEVER = {("container", "memory.limit")}
"""Read of the other kinds only."""


def families() -> Iterator[Family]:
    """Every family that samples of known kinds of entity can be of, sorted by name."""
    found: dict[str, Family] = {}
    for name, sampler in samplers().items():
        for kind, served in _SERVED.get(name, {}).items():
            for metric in sampler.metrics:
                if (served == _ALL or metric.name in served) and (kind, metric.name) not in _NEVER:
                    family, _ = _named(kind, metric.name)
                    found.setdefault(family.name, family)
    yield from (family for _, family in sorted(found.items()))


def kind_of(entity: str) -> str:
    """Which kind of entity it is: 'container' of ``container:db01``."""
    return entity.partition(":")[0]


def named(entity: str, metric: str, hosts: Collection[str] = ()) -> tuple[Family, dict[str, str]] | None:
    """The family of an entity's metric and the labels of its series; None for an entity of an unknown kind.

    The run's label is the caller's to add; so is the host's, unless the entity's name tells it: of several ``hosts`` the entities are
    ``host:NAME``, ``disk:NAME/DEVICE`` and so on (pgherd.runner.hosts.merging).
    """
    kind, _, rest = entity.partition(":")
    if kind not in _SUBJECTS:
        return None
    family, fixed = _named(kind, metric)
    host, of_host = _host_in(kind, rest, hosts)
    return family, {**fixed, **_entity_labels(kind, of_host), **({"host": host} if host else {})}


def _host_in(kind: str, rest: str, hosts: Collection[str]) -> tuple[str, str]:
    """The host that the name tells, if it does, and the name without it."""
    if kind in _WHOLE:
        return rest, ""
    if kind == "container":
        name, _, host = rest.partition(":")
        return host, name
    host, slash, name = rest.partition("/")
    return (host, name) if slash and kind in _OF_ONE_HOST and host in hosts else ("", rest)


def target_labels(target: str) -> dict[str, str]:
    """The labels of a load's target: its name, and the container, server and database that it is, if it is one."""
    parts = target.split("/")
    place = parts[1:] if len(parts) == 1 + len(PLACE) else [""] * len(PLACE)
    return {"target": target, **dict(zip(PLACE, place, strict=True))}


def _entity_labels(kind: str, rest: str) -> dict[str, str]:
    labels = _SUBJECTS[kind].labels
    if kind == "driver":
        return target_labels(rest)
    values = rest.split("/", 1) if len(labels) == 2 else [rest]
    return dict(zip(labels, [*values, ""], strict=False))


@cache
def _named(kind: str, name: str) -> tuple[Family, Mapping[str, str]]:
    """The family, and labels that belong to the metric rather than to the entity."""
    subject, metric = _SUBJECTS[kind], _described(kind, name)
    if kind in ("host", "guest") and metric.unit == "s" and name.startswith("cpu."):
        text = f"{subject.title}: CPU time of all CPUs by mode; user contains guests, nice does not"
        mode = {"mode": name.removeprefix("cpu.")}
        return Family(f"{PREFIX}_{kind}_cpu_seconds", "counter", text, "seconds", (*subject.labels, "mode")), mode
    words = _RENAMED.get(name, name).removeprefix(f"{subject.word.rpartition('_')[2]}.").replace(".", "_")
    unit = _UNITS.get(metric.unit, "")
    suffix = f"_{unit}" if unit and words != unit and not words.endswith(f"_{unit}") else ""
    counted = f" ({metric.unit})" if metric.unit and not unit and metric.unit not in metric.help else ""
    text = f"{subject.title}: {metric.help}{counted}"
    return Family(f"{PREFIX}_{subject.word}_{words}{suffix}", metric.kind, text, unit, subject.labels), {}


def _described(kind: str, name: str) -> Metric:
    """The metric as a sampler describes it that reads such entities, else as any does."""
    found: Metric | None = None
    for sampler in samplers().values():
        for metric in sampler.metrics:
            if metric.name == name:
                if kind in _SERVED.get(sampler.name, {}):
                    return metric
                found = found or metric
    if found is None:
        raise KeyError(name)
    return found


class Levels:
    """Counters as Prometheus wants them: a smaller value means that the counter began anew, and never a torn reading.

    A counter that cannot fall keeps its level until it is passed (as pgherd.metrics.aggregate has it). With a new trial containers
    and servers may be new, and their counters with them; the host's and its devices' go on.
    """

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._highest: dict[tuple[str, str], float] = {}

    def level(self, entity: str, metric: Metric, value: float) -> float:
        """What to show of a reading."""
        if metric.kind == "gauge" or metric.resets:
            return value
        key = (entity, metric.name)
        self._highest[key] = max(value, self._highest.get(key, value))
        return self._highest[key]

    def begin_trial(self) -> None:
        """Forget what a new trial may begin anew."""
        self._highest = {key: level for key, level in self._highest.items() if kind_of(key[0]) in _LASTING}


def text_of(family: Family, samples: Sequence[Sample] | Iterator[Sample]) -> Iterator[str]:
    """The family in the OpenMetrics text format, line by line (without the line that ends a whole exposition).

    prometheus_client writes whole expositions; this is for samples by the million. The samples of one series must follow each
    other in order of time.
    """
    yield f"# HELP {family.name} {_escaped(family.help)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}\n"
    known: Mapping[str, str] | None = None
    begin = ""
    for _, labels, value, t in samples:
        if labels is not known:  # a series hands out the same mapping again and again
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in sorted(labels.items()))
            known, begin = labels, f"{family.sample}{{{inside}}} "
        yield f"{begin}{value!r}\n" if t is None else f"{begin}{value!r} {t:.3f}\n"


END = "# EOF\n"
"""The last line of an exposition."""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
