"""Samples of exporters that a Prometheus server has of an external server's host and container.

A query for a range returns the samples as they were scraped, at their own instants. Values at equal steps (query_range) would repeat
each sample until the next scrape, and a rate over a short window would be zero or too high. (Prometheus, "HTTP API" and "Querying
basics"; node_exporter, cAdvisor and postgres_exporter for the names.)

The host is the entity ``server-host:CONTAINER`` and its disks are ``server-disk:CONTAINER/DEVICE``, so that they are never taken for
this host's. The container and the server have their usual entities.
"""

from __future__ import annotations

import http.client
import json
import math
import statistics
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from pgherd.metrics.diskstats import namespace_of
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.errors import TrialError
from pgherd.model.prometheus import CONTAINER_CPU, CONTAINER_OOM, NODE_CPU, NODE_READS, PrometheusSource, PrometheusView
from pgherd.node.protocol import SampleSource

NAME = "prometheus"
"""Name of the sampler."""
_TIMEOUT_S = 10.0
_RANGE_TIMEOUT_S = 120.0
_MARGIN_S = 120.0
"""Seconds before and after the phases that are queried, for samples next to their borders."""
_MAX_BYTES = 64 * 2**20
_LOOK_BACK_S = 300.0
_MIN_SAMPLES = 2

_Exporter = Literal["node_exporter", "cAdvisor", "postgres_exporter"]


class _Series(NamedTuple):
    exporter: _Exporter
    metric: str
    label: str = ""
    """Label whose value ends the metric's name (CPU modes), or which names the disk."""


_USAGE, _WORKING_SET = "container_memory_usage_bytes", "container_memory_working_set_bytes"
"""cAdvisor's working set is the memory in use without the inactive page cache, so their difference is that cache."""
_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_SERIES: Mapping[str, _Series] = {
    NODE_CPU: _Series("node_exporter", "cpu.", "mode"),
    "node_memory_MemTotal_bytes": _Series("node_exporter", "memory.total"),
    "node_memory_MemAvailable_bytes": _Series("node_exporter", "memory.available"),
    NODE_READS: _Series("node_exporter", "reads", "device"),
    "node_disk_writes_completed_total": _Series("node_exporter", "writes", "device"),
    "node_disk_read_bytes_total": _Series("node_exporter", "read_bytes", "device"),
    "node_disk_written_bytes_total": _Series("node_exporter", "write_bytes", "device"),
    "node_disk_io_time_seconds_total": _Series("node_exporter", "io_time", "device"),
    "node_pressure_cpu_waiting_seconds_total": _Series("node_exporter", "psi.cpu.some"),
    "node_pressure_memory_waiting_seconds_total": _Series("node_exporter", "psi.memory.some"),
    "node_pressure_io_waiting_seconds_total": _Series("node_exporter", "psi.io.some"),
    CONTAINER_CPU: _Series("cAdvisor", "cpu.usage"),
    "container_cpu_cfs_throttled_seconds_total": _Series("cAdvisor", "cpu.throttled"),
    "container_cpu_cfs_periods_total": _Series("cAdvisor", "cpu.periods"),
    "container_cpu_cfs_throttled_periods_total": _Series("cAdvisor", "cpu.throttled_periods"),
    _USAGE: _Series("cAdvisor", "memory.usage"),
    _WORKING_SET: _Series("cAdvisor", "memory.inactive_file"),
    "container_spec_memory_limit_bytes": _Series("cAdvisor", "memory.limit"),
    "container_spec_cpu_quota": _Series("cAdvisor", "cpu.limit"),
    CONTAINER_OOM: _Series("cAdvisor", "memory.oom_kills"),
    "pg_stat_database_blks_hit": _Series("postgres_exporter", "db.blks_hit"),
    "pg_stat_database_blks_read": _Series("postgres_exporter", "db.blks_read"),
    "pg_stat_database_xact_commit": _Series("postgres_exporter", "db.xact_commit"),
}
_PERIOD = 100_000.0
"""Microseconds of the CPU quota's period, which container engines do not change."""


class PrometheusSampler:
    """Metrics that no other sampler has. Nothing is read in the sampling loop: Prometheus is asked after the phases."""

    name = NAME
    metrics = (SampledMetric("cpu.limit", "cores", "gauge", "CPU limit of an external server's container"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        raise ValueError("Prometheus is not read in the sampling loop")


SAMPLER = PrometheusSampler()


@dataclass(frozen=True)
class FetchedSeries:
    """Samples of one server: series name → entity and metric → instants and values, and the requests' cost in seconds."""

    samples: Mapping[str, Mapping[tuple[str, str], list[tuple[float, float]]]]
    seconds: float


class PrometheusError(Exception):
    """Prometheus does not answer, or refuses a query. The message has its reason."""


def available(source: PrometheusSource) -> dict[str, list[str]]:
    """Return the exporters of which there are recent samples of a server, with the names of their series.

    Raises PrometheusError.
    """
    now = _now(source.url)[0]
    found: dict[str, list[str]] = {}
    for name in _fetch(source, "", "", now - _LOOK_BACK_S, now).samples:
        found.setdefault(_SERIES[name].exporter, []).append(name)
    return found


def observe(
    source: PrometheusSource, container: str, server: str, windows: Sequence[tuple[float, float]]
) -> tuple[list[SpoolReading], list[PrometheusView]]:
    """Return the samples in and around the phases of a trial, and what there was in each phase's window.

    A series with fewer than two samples in a window is left out, because its rate there would be of another time.

    Args:
        container: container of the server, for entities.
        server: ``container/server``.
        windows: start and end of each phase on this host's clock. Prometheus' clock is compared with it.

    Raises:
        TrialError: Prometheus does not answer, or refuses a query.
    """
    began = time.monotonic()
    try:
        theirs, ours = _now(source.url)
        ahead = theirs - ours
        first, last = windows[0][0] + ahead - _MARGIN_S, min(windows[-1][1] + ahead + _MARGIN_S, theirs)
        fetched = _fetch(source, container, server, first, last)
    except PrometheusError as error:
        raise TrialError(str(error)) from None
    cost = time.monotonic() - began
    at = {name: sorted({t - ahead for samples in series.values() for t, _ in samples}) for name, series in fetched.samples.items()}
    sparse = {name for name, times in at.items() if any(sum(a <= t <= b for t in times) < _MIN_SAMPLES for a, b in windows)}
    readings = [
        (t - ahead, NAME, entity, {metric: value})
        for name, series in fetched.samples.items()
        if name not in sparse
        for (entity, metric), samples in series.items()
        for t, value in samples
    ]
    views = []
    for start, end in windows:
        used = {name: [t for t in times if start <= t <= end] for name, times in at.items() if name not in sparse}
        intervals = [b - a for times in used.values() for a, b in pairwise(times)]
        step = statistics.median(intervals) if intervals else _step(at)
        borders = ([start, *times, end] for times in used.values())
        gaps = [b - a for times in borders for a, b in pairwise(times) if step is not None and b - a > 1.5 * step]
        views.append(
            PrometheusView(
                container=container,
                url=source.url,
                match=source.text,
                step=step,
                gaps=len(gaps),
                longest_gap=max(gaps, default=None),
                series=sorted(used),
                sparse=sorted(sparse),
                missing=sorted(set(_SERIES) - set(at)),
                clock_ahead=ahead,
                seconds=cost,
            )
        )
    return readings, views


def _step(at: Mapping[str, Sequence[float]]) -> float | None:
    intervals = [b - a for times in at.values() for a, b in pairwise(times)]
    return statistics.median(intervals) if intervals else None


def _fetch(source: PrometheusSource, container: str, server: str, start: float, end: float) -> FetchedSeries:
    """Return the samples between two instants of Prometheus' clock. The container's are another query. Raises PrometheusError."""
    began = time.monotonic()
    matrices = [_query(source.url, f"{_selector(source, ('node_exporter', 'postgres_exporter'))}[{_range(start, end)}]", end)]
    if source.container_id is not None:
        matrices.append(_query(source.url, f"{_selector(source, ('cAdvisor',), source.container_id)}[{_range(start, end)}]", end))
    samples: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for name, keyed in parse(matrices, container, server).items():
        samples[name] = keyed
    return FetchedSeries(samples, time.monotonic() - began)


def _range(start: float, end: float) -> str:
    return f"{round(1000 * (end - start))}ms"


def _selector(source: PrometheusSource, exporters: Sequence[_Exporter], container: str | None = None) -> str:
    names = "|".join(name for name, series in _SERIES.items() if series.exporter in exporters)
    # Every container of a host has the host's label. Some setups scrape cAdvisor by another name, so the id alone selects it.
    matcher = f"{source.label}=~{json.dumps(source.values)}" if container is None else f"id=~{json.dumps(container)}"
    return f'{{__name__=~"{names}",{matcher}}}'


def parse(matrices: Sequence[Any], container: str, server: str) -> dict[str, dict[tuple[str, str], list[tuple[float, float]]]]:
    """Return series name → (entity, metric) → samples in order of time, from the ``result`` of range queries.

    Series of one metric are added up (CPUs, databases), at instants at which all of them have a finite sample. The paths of
    an NVMe namespace that counts itself are left out, because both have the same requests.

    Raises:
        PrometheusError: the answer has another form.
    """
    sums: dict[str, dict[tuple[str, str], dict[float, list[float]]]] = {}
    counts: dict[tuple[str, tuple[str, str]], int] = {}
    try:
        for item in (item for matrix in matrices for item in matrix):
            labels = item["metric"]
            name = labels["__name__"]
            for key, share in _keys(name, labels, container, server):
                counts[name, key] = counts.get((name, key), 0) + 1
                by_time = sums.setdefault(name, {}).setdefault(key, {})
                for t, text in item["values"]:
                    value = float(text)
                    if math.isfinite(value) and math.isfinite(t):
                        by_time.setdefault(float(t), []).append(value if share is None else share)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PrometheusError(f"Prometheus' answer has another form than its API's: {error!r}") from None
    found = {
        name: {
            key: [
                (t, _scaled(key[1], sum(values)))
                for t, values in sorted(by_time.items())
                if len(values) == counts[name, key] and not (key[1] == "memory.limit" and sum(values) == 0)  # cAdvisor's "no limit"
            ]
            for key, by_time in keyed.items()
        }
        for name, keyed in sums.items()
    }
    for (entity, metric), samples in found.get(_WORKING_SET, {}).items():
        usage = dict(found.get(_USAGE, {}).get((entity, "memory.usage"), []))
        found[_WORKING_SET][entity, metric] = [(t, usage[t] - value) for t, value in samples if t in usage]
    return {name: {key: samples for key, samples in keyed.items() if not _is_counted_twice(key, keyed)} for name, keyed in found.items()}


def _is_counted_twice(key: tuple[str, str], keyed: Mapping[tuple[str, str], list[tuple[float, float]]]) -> bool:
    """Return True for a path of an NVMe namespace that has requests itself. Before Linux 6.4 only the paths have them."""
    entity, metric = key
    host, _, device = entity.rpartition("/")
    return any(value for _, value in keyed.get((f"{host}/{namespace_of(device)}", metric), []))


def _scaled(metric: str, value: float) -> float:
    return value / _PERIOD if metric == "cpu.limit" else value


def _keys(name: str, labels: Mapping[str, str], container: str, server: str) -> Iterator[tuple[tuple[str, str], float | None]]:
    """Yield (entity, metric) of a series. The second value replaces the samples' values: a CPU counts as one that is online."""
    series = _SERIES[name]
    if series.exporter == "cAdvisor":
        yield (f"container:{container}", series.metric), None
    elif series.exporter == "postgres_exporter":
        if labels.get("datname") not in ("template0", "template1"):
            yield (f"server:{server}", series.metric), None
    elif series.label == "device":
        yield (f"server-disk:{container}/{labels['device']}", series.metric), None
    elif series.label == "mode":
        if labels["mode"] in _CPU_MODES:
            yield (f"server-host:{container}", f"cpu.{labels['mode']}"), None
        if labels["mode"] == "idle":
            yield (f"server-host:{container}", "cpu.online"), 1.0
    else:
        yield (f"server-host:{container}", series.metric), None


def _now(url: str) -> tuple[float, float]:
    """Return Prometheus' clock, and this host's at the middle of the request. Raises PrometheusError."""
    before = time.time()
    result = _query(url, "time()", None)
    after = time.time()
    try:
        theirs = float(result[1])
    except (TypeError, ValueError, LookupError, OverflowError):
        theirs = math.nan
    if not math.isfinite(theirs):
        raise PrometheusError(f"{url} answers, but not as Prometheus' API")
    return theirs, (before + after) / 2


def clock(url: str) -> float:
    """Return Prometheus' clock. Raises PrometheusError."""
    return _now(url)[0]


def query_range(url: str, promql: str, start: float, end: float, step: float) -> Any:
    """Return the ``result`` of a query at equal steps from ``start`` to ``end``. Raises PrometheusError."""
    fields = {"query": promql, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
    return _ask(url, "query_range", fields, _RANGE_TIMEOUT_S)


def _query(url: str, promql: str, at: float | None) -> Any:
    """Return the ``result`` of an instant query. Raises PrometheusError."""
    return _ask(url, "query", {"query": promql} | ({} if at is None else {"time": f"{at:.3f}"}), _TIMEOUT_S)


def _ask(url: str, endpoint: str, fields: Mapping[str, str], timeout: float) -> Any:
    """Return the ``result`` of a query. Raises PrometheusError."""
    body = urllib.parse.urlencode(fields).encode()
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/api/v1/{endpoint}", body, timeout=timeout) as answer:  # noqa: S310 (checked)
            text = answer.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            advice = "select fewer series" + (", or give fewer --slots" if endpoint == "query_range" else "")
            raise PrometheusError(f"Prometheus at {url} answered with more than {_MAX_BYTES // 2**20} MB; {advice}")
        return json.loads(text)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise PrometheusError(f"Prometheus at {url} refused a query: {error.code} {_reason(error)}") from None
    except OSError as error:
        raise PrometheusError(f"Prometheus at {url} does not answer: {getattr(error, 'reason', error)}") from None
    except (ValueError, KeyError, TypeError, RecursionError, http.client.HTTPException):
        raise PrometheusError(f"{url} answers, but not as Prometheus' API") from None


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["error"])[:300]
    except (ValueError, KeyError, TypeError, OSError, RecursionError, http.client.HTTPException):
        return str(error.reason)
