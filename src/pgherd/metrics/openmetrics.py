"""OpenMetrics names, types, units, help texts and labels of the registry's metrics. Pure.

A name is ``pgherd_SUBJECT_METRIC[_UNIT][_total]``: ``cpu.usage`` of a container is ``pgherd_container_cpu_usage_seconds_total``. The
subject is part of the name and not a label, so that a sum over a metric is meaningful: the usage of a container is part of its
host's usage. Units are base units (seconds, bytes). Other units (blocks, requests) are in the help text. Every series has the labels
``run`` and ``host``. (Prometheus documentation, "Metric and label naming"; OpenMetrics 1.0.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from pgherd.metrics.cgroup import RUN_CGROUP
from pgherd.metrics.sampler import SampledMetric, samplers

PREFIX = "pgherd"
COMMON_LABELS = ("run", "host")
"""Labels of every series."""
DATABASE_LABELS = ("container", "server", "database")
_TARGET = ("target", *DATABASE_LABELS)
_UNITS = {"s": "seconds", "bytes": "bytes"}
_RENAMED = {"cpu.online": "cpus_online"}
"""Metrics whose sampler name reads badly."""
_REFAULTS = "memory.refaults_"
"""Start of the metrics that share one family with the label ``type``."""


@dataclass(frozen=True)
class Family:
    """A metric family: ``name`` without the suffix of its type, ``labels`` without those in ``COMMON_LABELS``."""

    name: str
    kind: Literal["counter", "gauge", "info"]
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """Name of its samples in queries."""
        return self.name + {"counter": "_total", "gauge": "", "info": "_info"}[self.kind]


class Sample(NamedTuple):
    """One value of a family with all its labels and its instant (seconds since the epoch; None: now)."""

    family: Family
    labels: Mapping[str, str]
    value: float
    t: float | None = None


@dataclass(frozen=True)
class MetricSubject:
    """Subject of a metric: its part of names, the start of help texts, its labels."""

    part: str
    title: str
    labels: tuple[str, ...] = ()


_SUBJECTS = {
    "host": MetricSubject("host", "Host"),
    RUN_CGROUP: MetricSubject("run_cgroup", "Run cgroup"),
    "pgherd": MetricSubject("process", "pgherd's process"),
    "container": MetricSubject("container", "Container", ("container",)),
    "server": MetricSubject("server", "Server", ("container", "server")),
    "backend": MetricSubject("backend", "Backend of pgherd's sampling connection", ("container", "server")),
    "driver": MetricSubject("driver", "Driver of a target", _TARGET),
    "platform": MetricSubject("platform", "Named part of the platform", ("part",)),
    "disk": MetricSubject("disk", "Block device", ("device",)),
    "swap": MetricSubject("swap", "Swap area", ("area",)),
    "zram": MetricSubject("zram", "Compressed swap device", ("device",)),
    "guest": MetricSubject("guest", "Guest", ("container",)),
    "guest-container": MetricSubject("guest_container", "Processes of a container inside its guest", ("container",)),
    "guest-disk": MetricSubject("guest_disk", "Block device inside a guest", ("container", "device")),
    "guest-drive": MetricSubject("guest_drive", "Guest drive at the hypervisor", ("container", "device")),
    "guest-swap": MetricSubject("guest_swap", "Swap area inside a guest", ("container", "area")),
}
"""Kind of entity → subject."""

_WHOLE_HOST = ("host", RUN_CGROUP, "pgherd")
_CONTINUING = ("host", "disk")
"""Kinds whose counters belong to the kernel and continue from trial to trial."""
_QUALIFIED_BY_HOST = ("disk", "platform", "swap", "zram")
_ALL = ("*",)
_SERVED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "balloon": {"server": _ALL},
    "balloon_manager": {"platform": _ALL},
    "cgroup_cpu": {"container": _ALL, "platform": ("cpu.usage",)},
    "cgroup_io": {"container": _ALL},
    "cgroup_memory": {RUN_CGROUP: _ALL, "container": _ALL},
    "cpu": {"host": _ALL, "guest": _ALL},
    "database": {"server": _ALL},
    "diskstats": {"disk": _ALL, "guest-disk": _ALL},
    "guest_balloon": {"guest": _ALL},
    "guest_machine": {"guest": _ALL},
    "kernel_io": {"platform": _ALL},
    "memory": {"host": _ALL, "guest": _ALL},
    "objective_waits": {"server": _ALL},
    "pg_io": {"server": _ALL},
    "pg_wal": {"server": _ALL},
    "pressure": {"host": _ALL, "guest": _ALL, RUN_CGROUP: _ALL, "container": _ALL},
    "processes": {
        "container": ("cpu.usage", "cpu.user", "cpu.system"),
        "guest-container": ("cpu.usage", "cpu.user", "cpu.system"),
        "driver": _ALL,
        "pgherd": _ALL,
        "platform": _ALL,
        "backend": ("cpu.usage",),
    },
    "prometheus": {"container": _ALL},
    "qemu_blockstats": {"guest-drive": _ALL},
    "qemu_process": {"guest": _ALL},
    "replication": {"server": _ALL},
    "same_page_merging": {"host": ("ksm.shared", "ksm.saved", "ksm.unshared", "ksm.full_scans"), "guest": ("guest.ksm_merged",)},
    "shared_memory": {},
    "swap": {"swap": _ALL, "guest-swap": _ALL},
    "tlb": {"server": _ALL},
    "waits": {"server": _ALL},
    "wakeups": {"container": _ALL},
    "vmstat": {"host": _ALL, "guest": _ALL},
    "zram": {"zram": _ALL},
}
"""Sampler → kinds of entity that it reads → their metrics. Only the list of families needs it, because a reading is named by its entity.
A server's shared memory is read once, not sampled, so it is not served."""
_NEVER = {("container", "memory.limit")}
"""(kind, metric) that is read only for other kinds of the same sampler."""


def families() -> Iterator[Family]:
    """Yield every family of samples of known kinds of entity, sorted by name."""
    by_name: dict[str, Family] = {}
    for name, sampler in samplers().items():
        for kind, served in _SERVED.get(name, {}).items():
            for metric in sampler.metrics:
                if (served == _ALL or metric.name in served) and (kind, metric.name) not in _NEVER:
                    family, _ = _family_of(kind, metric.name)
                    by_name.setdefault(family.name, family)
    yield from (family for _, family in sorted(by_name.items()))


def kind_of(entity: str) -> str:
    """Return the kind of an entity: 'container' for ``container:db01``."""
    return entity.partition(":")[0]


def named(entity: str, metric: str, hosts: Collection[str] = ()) -> tuple[Family, dict[str, str]] | None:
    """Return the family of an entity's metric and the labels of its series, or None for an unknown kind of entity.

    The caller adds the label of the run, and of the host unless the entity's name contains it. With several ``hosts`` the
    entities are ``host:NAME``, ``disk:NAME/DEVICE`` and so on (pgherd.distributed.merge_results).
    """
    kind, _, name = entity.partition(":")
    if kind not in _SUBJECTS:
        return None
    family, fixed = _family_of(kind, metric)
    host, local_name = _split_host(kind, name, hosts)
    return family, {**fixed, **_entity_labels(kind, local_name), **({"host": host} if host else {})}


def _split_host(kind: str, name: str, hosts: Collection[str]) -> tuple[str, str]:
    """Return the host in an entity's name, '' if there is none, and the name without it."""
    if kind in _WHOLE_HOST:
        return name, ""
    if kind == "container":
        container, _, host = name.partition(":")
        return host, container
    host, slash, local_name = name.partition("/")
    return (host, local_name) if slash and kind in _QUALIFIED_BY_HOST and host in hosts else ("", name)


def target_labels(target: str) -> dict[str, str]:
    """Return the labels of a load's target: its name; for a database its container, server and database."""
    parts = target.split("/")
    path = parts[1:] if len(parts) == 1 + len(DATABASE_LABELS) else [""] * len(DATABASE_LABELS)
    return {"target": target, **dict(zip(DATABASE_LABELS, path, strict=True))}


def _entity_labels(kind: str, name: str) -> dict[str, str]:
    labels = _SUBJECTS[kind].labels
    if kind == "driver":
        return target_labels(name)
    values = name.split("/", 1) if len(labels) == 2 else [name]
    return dict(zip(labels, [*values, ""], strict=False))


@cache
def _family_of(kind: str, name: str) -> tuple[Family, Mapping[str, str]]:
    """Return the family, and the labels that come from the metric and not from the entity."""
    subject, metric = _SUBJECTS[kind], _metric_of(kind, name)
    if kind in ("host", "guest") and metric.unit == "s" and name.startswith("cpu."):
        text = f"{subject.title}: CPU time of the usable CPUs by mode; user includes guests, nice does not"
        mode = {"mode": name.removeprefix("cpu.")}
        return Family(f"{PREFIX}_{kind}_cpu_seconds", "counter", text, "seconds", (*subject.labels, "mode")), mode
    if name.startswith(_REFAULTS):
        text = f"{subject.title}: evicted pages that were read or swapped in again, by type"
        family = Family(f"{PREFIX}_{subject.part}_memory_refaults", "counter", text, "", (*subject.labels, "type"))
        return family, {"type": name.removeprefix(_REFAULTS)}
    metric_part = _RENAMED.get(name, name).removeprefix(f"{subject.part.rpartition('_')[2]}.").replace(".", "_")
    unit = _UNITS.get(metric.unit, "")
    suffix = f"_{unit}" if unit and metric_part != unit and not metric_part.endswith(f"_{unit}") else ""
    other_unit = f" ({metric.unit})" if metric.unit and not unit and metric.unit not in metric.help else ""
    text = f"{subject.title}: {metric.help}{other_unit}"
    return Family(f"{PREFIX}_{subject.part}_{metric_part}{suffix}", metric.kind, text, unit, subject.labels), {}


def _metric_of(kind: str, name: str) -> SampledMetric:
    """Return the metric as described by a sampler that reads such entities, otherwise by the first sampler that has it."""
    fallback: SampledMetric | None = None
    for sampler in samplers().values():
        for metric in sampler.metrics:
            if metric.name == name:
                if kind in _SERVED.get(sampler.name, {}):
                    return metric
                fallback = fallback or metric
    if fallback is None:
        raise KeyError(name)
    return fallback


class CounterTotals:
    """Counters for Prometheus, where a smaller value means a reset and never a torn reading.

    A counter that cannot decrease keeps its level until a reading exceeds it, as in pgherd.metrics.aggregate. A new trial
    may have new containers and servers with new counters. The counters of the host and of its devices continue, unless the
    first reading of a trial is below half of the former level: the host was rebooted.
    """

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], float] = {}
        self._former: dict[tuple[str, str], float] = {}

    def total(self, entity: str, metric: SampledMetric, value: float) -> float:
        """Return the total to serve for a reading."""
        if metric.kind == "gauge" or metric.resets:
            return value
        key = (entity, metric.name)
        former = self._former.pop(key, value)
        highest = self._highest.get(key, value if value < former / 2 else former)
        self._highest[key] = max(value, metric.base(highest, value))
        return self._highest[key]

    def begin_trial(self) -> None:
        """Forget the counters that a new trial may reset."""
        levels = self._former | self._highest
        self._former = {key: level for key, level in levels.items() if kind_of(key[0]) in _CONTINUING}
        self._highest = {}


def text_of(family: Family, samples: Sequence[Sample] | Iterator[Sample]) -> Iterator[str]:
    """Yield the family in the OpenMetrics text format, line by line, without the final line of an exposition.

    prometheus_client builds a complete exposition in memory, which does not suit millions of samples. The samples of one
    series must be adjacent and in order of time.
    """
    yield f"# HELP {family.name} {_escaped(family.help)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}\n"
    series: Mapping[str, str] | None = None
    prefix = ""
    for _, labels, value, t in samples:
        if labels is not series:  # all samples of a series share one mapping
            label_text = ",".join(f'{name}="{_escaped(text)}"' for name, text in sorted(labels.items()))
            series, prefix = labels, f"{family.sample}{{{label_text}}} "
        yield f"{prefix}{value!r}\n" if t is None else f"{prefix}{value!r} {t:.3f}\n"


END = "# EOF\n"
"""Final line of an exposition."""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
