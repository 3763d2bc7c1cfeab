"""Demand from Prometheus in the slots of several days: CPU, memory and I/O of the databases' containers, as cAdvisor measured them, and
WAL, connections and disk of their servers by postgres_exporter.

A label names the database of a container. A name that is not unique has the namespace in front, or the target without one. A container
may replace another one of its database, as when a pod moves. Several at once, such as replicas, are an error. Series of
postgres_exporter have the same label, and the same namespace or host. Rates over 5 minutes are averaged over a slot, so that a gap in the
samples does not lower its mean. Of the memory (the working set of Kubernetes: without inactive page cache), connections and disk the
highest value in a slot counts. Days are in UTC.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pgherd.metrics import prometheus
from pgherd.metrics.prometheus import PrometheusError
from pgherd.model.errors import UsageError
from pgherd.model.prometheus import CONTAINER_CPU, checked_url
from pgherd.model.text import clean
from pgherd.model.units import MB_PER_SECOND
from pgherd.prepare.fleet_files import MAX_CELLS, folded
from pgherd.study.kernel_io import STACKED

if TYPE_CHECKING:
    from pgherd.analysis.demand import Array, Demand

_DATABASE = "database"
_DAY, _STEP = 86400, 300
_MB = 2**20
_SHOWN = 3
_RECENT = 3600
"""Seconds at the end, without a sample in which a database is gone. So long may a container run next to the one that replaces it."""
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MATCHER = re.compile(r"""\s*([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)\s*(?:,|$)""")
_OF_CONTAINERS = frozenset({"container", "id", "image", "job", "metrics_path", "name"})
"""Labels that cAdvisor's series of a database do not share with those of postgres_exporter."""


class _DemandSeries(NamedTuple):
    """Series of a resource.

    Attributes:
        inner: PromQL over 5 minutes, with {} for the selector. A container that restarts has two series for 5 minutes.
        over: PromQL function over series.
        outer: the same over a slot.
        unit: as a part of the resource's.
        exporter: postgres_exporter has it.
        every: seconds between the values in a slot.
    """

    metric: str
    inner: str
    over: str
    outer: str
    unit: float = 1.0
    by_device: bool = False
    exporter: bool = False
    every: int = _STEP


class _Key(NamedTuple):
    """Database: the value of its label, and its namespace or target."""

    name: str
    place: str


class _Container(NamedTuple):
    """Container of a database: its labels. It has a pod with a namespace, and a name without one: that of Docker survives a restart."""

    container: str
    pod: str
    name: str
    job: str


_RATE = f"rate({{}}[{_STEP}s])"
_HIGHEST = f"max_over_time({{}}[{_STEP - 1}s])"
"""The window is a second shorter, so that it has no value of the slot before."""
_GROWTH = f"delta({{}}[{_STEP}s]) / {_STEP} >= 0"
"""Of a position in the WAL, which each standby repeats. After a restore it is lower."""
_SERIES: Mapping[str, tuple[_DemandSeries, ...]] = {
    "cpu_cores": (_DemandSeries(CONTAINER_CPU, _RATE, "sum", "avg_over_time"),),
    "memory_mb": (_DemandSeries("container_memory_working_set_bytes", _HIGHEST, "max", "max_over_time", 1 / _MB),),
    "read_iops": (_DemandSeries("container_fs_reads_total", _RATE, "sum", "avg_over_time", by_device=True),),
    "write_iops": (_DemandSeries("container_fs_writes_total", _RATE, "sum", "avg_over_time", by_device=True),),
    "wal_mb_s": (
        _DemandSeries("pg_stat_wal_wal_bytes", _RATE, "sum", "avg_over_time", 1 / MB_PER_SECOND, exporter=True),
        _DemandSeries("pg_stat_replication_pg_current_wal_lsn_bytes", _GROWTH, "max", "avg_over_time", 1 / MB_PER_SECOND, exporter=True),
    ),
    "connections": (
        _DemandSeries("pg_stat_database_numbackends", "{}", "sum", "max_over_time", exporter=True, every=60),
        _DemandSeries("pg_stat_activity_count", "{}", "sum", "max_over_time", exporter=True, every=60),
    ),
    "disk_mb": (_DemandSeries("pg_database_size_bytes", "{}", "sum", "max_over_time", 1 / _MB, exporter=True),),
}
"""Resource → its series. Of several, the first that a database has counts. The databases are those of cAdvisor, which come first."""


@dataclass(frozen=True)
class PrometheusRequest:
    """Prometheus server, and which of its containers are databases.

    Attributes:
        match: ``database=LABEL``. The value of the label is the name of the database.
        select: further matchers in PromQL, such as ``container="postgres"``.
        days: days up to now.
        slots: of a day.
    """

    url: str
    match: str = "database=pod"
    select: str = ""
    days: int = 7
    slots: int = 24

    @property
    def step(self) -> int:
        """Length of a slot in seconds."""
        return _DAY // self.slots

    @property
    def label(self) -> str:
        """Label with the name of the database."""
        return self.match.partition("=")[2]

    def check(self) -> None:
        """Raise UsageError for a field of another form."""
        try:
            checked_url(self.url)
        except ValueError as error:
            raise UsageError(f"{self.url}: {error}") from None
        ours, _, theirs = self.match.partition("=")
        if ours != _DATABASE or not _LABEL.fullmatch(theirs):
            raise UsageError(f"--prometheus-match {self.match}: write it as database=LABEL, such as database=pod")
        if _DAY // _STEP % self.slots:
            raise UsageError(f"--slots {self.slots} do not divide a day into multiples of 5 minutes; use a divisor of 288, such as 24")


def read_prometheus(request: PrometheusRequest, percentile: float, capacities: Collection[str] = tuple(_SERIES)) -> Demand:
    """Read the demand of all databases, and fold the days into one by this percentile.

    ``capacities`` are the resources of which hosts have a capacity. Of the others only the CPU is read.

    Raises:
        UsageError: Prometheus does not answer or refuses a query, or there are no databases, less than a day, or several containers of one.
    """
    import numpy as np

    request.check()
    try:
        start = int(prometheus.clock(request.url)) // request.step * request.step - request.days * _DAY
        found: dict[str, dict[_Key, Array]] = {}
        for resource in (name for name in _SERIES if name in capacities or name == "cpu_cores"):
            found[resource] = _databases(request, resource, start, {key for databases in found.values() for key in databases})
    except PrometheusError as error:
        raise UsageError(str(error)) from None
    if not found["cpu_cores"]:
        raise UsageError(
            f"Prometheus at {request.url} has no {CONTAINER_CPU} with a label {request.label} in the last {request.days} days; "
            "name the label of a database with --prometheus-match database=LABEL"
        )
    keys = sorted({key for databases in found.values() for key in databases})
    values = np.full((len(keys), len(found), request.days * request.slots), np.nan, np.float32)
    for i, databases in enumerate(found.values()):
        for d, key in enumerate(keys):
            if key in databases:
                values[d, i] = databases[key]
    keys, values, notes = _present(request, keys, values)
    values, more = _observed_days(request, values)
    known = np.flatnonzero(~np.isnan(values).all(axis=(0, 2)))
    resources = [list(found)[i] for i in known]
    notes += more
    notes += _limits(resources, set(_SERIES) - set(found))
    slot_of = [(start + time * request.step) % _DAY // request.step for time in range(values.shape[2])]
    origin, values = f"Prometheus at {request.url}", values[:, known]
    return folded(origin, _names(keys), resources, values, slot_of, request.slots, percentile, notes=notes)


def _names(keys: Sequence[_Key]) -> list[str]:
    """Return the names of databases, with the place of those whose name is not unique."""
    count = Counter(key.name for key in keys)
    return [key.name if count[key.name] == 1 else f"{key.place}/{key.name}" for key in keys]


def _present(request: PrometheusRequest, keys: Sequence[_Key], values: Array) -> tuple[list[_Key], Array, list[str]]:
    """Leave out databases without a sample at the end: their pods were replaced, or removed. Return the notes too."""
    import numpy as np

    last = np.flatnonzero(~np.isnan(values[:, 0]).all(axis=0))[-max(1, _RECENT // request.step) :]
    gone = set(np.flatnonzero(np.isnan(values[:, :, last]).all(axis=(1, 2))).tolist())
    kept = [d for d in range(len(keys)) if d not in gone]
    names = [name for d, name in enumerate(_names(keys)) if d in gone]
    more = ", …" if len(names) > _SHOWN else ""
    notes = [f"Without a recent sample, and left out: {', '.join(names[:_SHOWN])}{more} ({len(names)} of {len(keys)})"] if names else []
    return [keys[d] for d in kept], values[kept], notes


def _observed_days(request: PrometheusRequest, values: Array) -> tuple[Array, list[str]]:
    """Leave out days in which a slot has no CPU of any database: Prometheus did not run, or keeps fewer days. Return the notes too.

    Raises:
        UsageError: no day is left.
    """
    import numpy as np

    known = ~np.isnan(values[:, 0]).all(axis=0)
    kept = known.reshape(request.days, request.slots).all(axis=1)
    if not kept.any():
        raise UsageError(f"Prometheus at {request.url} has no day with samples in all {request.slots} slots; a plan needs a whole day")
    notes = [] if kept.all() else [f"Prometheus has samples of {int(kept.sum())} whole days of {request.days}"]
    return values[:, :, np.repeat(kept, request.slots)], notes


def _limits(resources: Collection[str], unlimited: Collection[str]) -> list[str]:
    """Return notes on the resources that the plan is without. The hosts have no capacity of those in ``unlimited``."""
    lacking = [(name, series) for name, series in _SERIES.items() if name not in resources and name not in unlimited]
    notes = [
        f"Prometheus has no {' or '.join(one.metric for one in series)} of the databases, so the plan is without {name}"
        for name, series in lacking
    ]
    if unlimited:
        notes.append(f"No class of hosts has a capacity of {', '.join(name for name in _SERIES if name in unlimited)}, so none is planned")
    if "memory_mb" in resources:
        notes.append("The memory is without huge pages, which cAdvisor does not count in it")
    if "disk_mb" in resources:
        notes.append("The disk is that of the databases, without WAL and temporary files")
    return notes


def _databases(request: PrometheusRequest, resource: str, start: int, known: Collection[_Key]) -> dict[_Key, Array]:
    """Return database → values of a resource, NaN without a sample. ``known`` are the databases with containers.

    Raises:
        UsageError: a database has several containers.
        PrometheusError: a query fails.
    """
    found: dict[_Key, Array] = {}
    for series in reversed(_SERIES[resource]):
        found |= _of_servers(request, series, start, known) if series.exporter else _of_containers(request, series, start)
    return found


def _of_servers(request: PrometheusRequest, series: _DemandSeries, start: int, known: Collection[_Key]) -> dict[_Key, Array]:
    """Return database → values of a series of postgres_exporter. Of several targets of a database, the highest value counts."""
    import numpy as np

    by_host = {(key.name, _host(key)): key for key in known}
    found: dict[_Key, Array] = {}
    for (key, *_), values in _fetch(request, series, start).items():
        database = by_host.get((key.name, _host(key)))
        if database is not None:
            found[database] = np.fmax(found[database], values) if database in found else values
    return found


def _host(key: _Key) -> str:
    """Return the namespace, or the host of a target without its port."""
    return key.place.rpartition(":")[0] or key.place


def _of_containers(request: PrometheusRequest, series: _DemandSeries, start: int) -> dict[_Key, Array]:
    """Return database → values of a series of cAdvisor. Raises UsageError or PrometheusError."""
    import numpy as np

    containers: dict[_Key, dict[_Container, dict[str, Array]]] = {}
    for (key, container, device), values in _fetch(request, series, start).items():
        containers.setdefault(key, {}).setdefault(container, {})[device] = values
    found: dict[_Key, Array] = {}
    for key, of_one in sorted(containers.items()):
        values_of = {container: _sum(devices) for container, devices in sorted(of_one.items())}
        if _at_once(request, values_of):
            raise UsageError(_several(key, series, list(values_of)))
        found[key] = functools.reduce(np.fmax, values_of.values())
    return found


def _at_once(request: PrometheusRequest, containers: Mapping[_Container, Array]) -> bool:
    """Return True if containers of a database do not replace each other: they are of other kinds, or have samples in the same slots."""
    import numpy as np

    if len({(container.container, container.job) for container in containers}) > 1:
        return True
    shared = min(1 + _RECENT // request.step, request.days * request.slots - 1)
    pairs = itertools.combinations(containers.values(), 2)
    return any(np.count_nonzero(~np.isnan(one) & ~np.isnan(other)) > shared for one, other in pairs)


def _several(key: _Key, series: _DemandSeries, containers: Sequence[_Container]) -> str:
    """Return the message about several containers of a database."""
    differing = [name for name in _Container._fields if len({getattr(container, name) for container in containers}) > 1]
    shown, label = dict.fromkeys(["container", "job", *differing]), differing[0]
    texts = [", ".join(f'{name}="{clean(getattr(container, name))}"' for name in shown) for container in containers]
    return (
        f"database {key.name} has {len(texts)} series of {series.metric} ({'; '.join(texts[:_SHOWN])}); select one of "
        f"them, such as with --prometheus-select '{label}=\"{clean(getattr(containers[-1], label))}\"'"
    )


def _sum(devices: Mapping[str, Array]) -> Array:
    """Return the sum over devices. A device made of others counts only if there are no others, because both have its requests."""
    import numpy as np

    plain = [values for device, values in devices.items() if not device.rpartition("/")[2].startswith(STACKED)]
    rows = np.array(plain or list(devices.values()))
    return np.where(np.isnan(rows).all(axis=0), np.nan, np.nansum(rows, axis=0)).astype(np.float32)


def _fetch(request: PrometheusRequest, series: _DemandSeries, start: int) -> dict[tuple[_Key, _Container, str], Array]:
    """Return database, container and device → values. Each day is a query. Raises PrometheusError or UsageError."""
    import numpy as np

    from pgherd.analysis.demand import MOST

    times = request.days * request.slots
    query, most = _promql(request, series), MAX_CELLS // (times * len(_SERIES))
    found: dict[tuple[_Key, _Container, str], Array] = {}
    for day in range(start, start + request.days * _DAY, _DAY):
        matrix = prometheus.query_range(request.url, query, day + request.step, day + _DAY, request.step)
        try:
            for item in matrix:
                database, place, instance, device, *labels = (
                    str(item["metric"].get(label, "")) for label in (request.label, "namespace", "instance", "device", *_Container._fields)
                )
                key = _Key(clean(database), clean(place or instance)), _Container(*labels), device
                if key not in found:
                    if len(found) == most:
                        raise UsageError(
                            f"Prometheus has more than {most:,} series of {series.metric} with {request.label}; select fewer with "
                            "--prometheus-select, or give fewer --days or --slots"
                        )
                    found[key] = np.full(times, np.nan, np.float32)
                for t, text in item["values"]:
                    slot = round((float(t) - start) / request.step) - 1
                    if math.isfinite(value := float(text) * series.unit):
                        if not (0 <= slot < times and 0 <= value <= MOST):
                            raise ValueError(f"{text} at {t}")
                        found[key][slot] = value
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PrometheusError(f"Prometheus' answer has another form than its API's: {error!r}") from None
    return found


def _promql(request: PrometheusRequest, series: _DemandSeries) -> str:
    """Return the query of a slot's value at its end."""
    parts, select = [], request.select
    if series.exporter:
        select = ",".join(match[0].strip(" ,") for match in _MATCHER.finditer(select) if match[1] not in _OF_CONTAINERS)
    # A pod keeps its namespace on another host. A container without a namespace is of its host.
    for place, matcher, one in (("namespace", 'namespace!=""', "pod"), ("instance", 'namespace=""', "name")):
        matchers = ",".join(filter(None, [f'{request.label}!=""', matcher, select]))
        of_containers = [] if series.exporter else ["container", one]
        labels = dict.fromkeys([request.label, place, *of_containers, "job", *(["device"] if series.by_device else [])])
        inner = series.inner.format(f"{series.metric}{{{matchers}}}")
        parts.append(f"{series.over} by ({', '.join(labels)}) ({inner})")
    return f"{series.outer}(({' or '.join(parts)})[{request.step - 1}s:{series.every}s])"
