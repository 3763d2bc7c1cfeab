"""I/O of block devices from /proc/diskstats, and series of a device's rates between two samples.

Format: Documentation/admin-guide/iostats.rst of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from pgherd.host.kernel_files import number
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView, metric
from pgherd.metrics.spool import SpoolReading
from pgherd.model.device_io import DeviceSeries
from pgherd.node.protocol import SampleSource

SECTOR = 512
"""Bytes per sector in this file, independent of the device's sector size."""
_WRAPS = 2**32 / 1000
"""Level in seconds at which durations wrap, because the kernel prints unsigned 32-bit milliseconds."""
NO_NUMBER = "0:0"
"""Number of a hidden path in kernels that do not show it."""


class DiskstatsSampler:
    """Whole devices with any I/O since boot, as ``disk:NAME``. ``major`` and ``minor`` are the stable key of a device.

    The kernel counts a request that only flushes the device's cache (an fdatasync) both as a flush and as a write
    without sectors, so flushes are subtracted from writes. If a journal flushes along with a real write, that write is
    subtracted too: ``writes`` + ``flushes`` is the kernel's number. Partitions are left out, because their device
    includes their I/O. A guest's devices are ``guest-disk:GUEST/NAME``.
    """

    name = "diskstats"
    metrics = (
        SampledMetric("reads", "requests", "counter", "reads completed"),
        SampledMetric("writes", "requests", "counter", "writes completed, without flushes"),
        SampledMetric("read_bytes", "bytes", "counter", "data read"),
        SampledMetric("write_bytes", "bytes", "counter", "data written"),
        SampledMetric("read_time", "s", "counter", "summed duration of all reads", wraps=_WRAPS),
        SampledMetric("write_time", "s", "counter", "summed duration of all writes, flush requests included", wraps=_WRAPS),
        SampledMetric("in_flight", "requests", "gauge", "requests issued and not completed"),
        SampledMetric("io_time", "s", "counter", "time with at least one request in flight", wraps=_WRAPS),
        SampledMetric("io_time_weighted", "s", "counter", "time × requests in flight; its rate is the mean queue length", wraps=_WRAPS),
        SampledMetric("discards", "requests", "counter", "discards completed"),
        SampledMetric("flushes", "requests", "counter", "flushes completed"),
        SampledMetric("flush_time", "s", "counter", "summed duration of all flushes", wraps=_WRAPS),
        SampledMetric("major", "", "gauge", "major number of the device"),
        SampledMetric("minor", "", "gauge", "minor number of the device"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [SampleSource(self.name, "disk", "file", "/proc/diskstats")]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per device. Kernels before 4.18 have no discards, before 5.5 no flushes."""
        prefix = f"{source.entity}/" if source.entity.startswith("guest-disk:") else "disk:"
        rows = [line.split() for line in raw.splitlines() if line.strip()]
        names = {row[2] for row in rows if len(row) >= 14}
        if rows and not names:
            raise ValueError(f"'{' '.join(rows[0])[:40]}' is not a line of /proc/diskstats")
        rows = [row for row in rows if len(row) >= 14]
        paths: dict[str, list[list[float]]] = {}
        for row in rows:
            if namespace := namespace_of(row[2]):
                paths.setdefault(namespace, []).append([number(text) for text in row[3:20]])
        for row in rows:
            if _is_partition(row[2], names) or namespace_of(row[2]) in names:
                continue
            counts = [number(text) for text in row[3:20]]
            if row[2] in paths and not any(counts):
                counts = [sum(column) for column in zip(*paths[row[2]], strict=True)]
            if not counts[0] and not counts[4]:
                continue
            values = {
                "major": number(row[0]),
                "minor": number(row[1]),
                "reads": counts[0],
                "read_bytes": counts[2] * SECTOR,
                "read_time": counts[3] / 1000,
                "writes": counts[4],
                "write_bytes": counts[6] * SECTOR,
                "write_time": counts[7] / 1000,
                "in_flight": counts[8],
                "io_time": counts[9] / 1000,
                "io_time_weighted": counts[10] / 1000,
            }
            if len(counts) > 11:
                values["discards"] = counts[11]
            if len(counts) > 16:
                values |= {"flushes": counts[15], "flush_time": counts[16] / 1000, "writes": max(0.0, counts[4] - counts[15])}
            yield f"{prefix}{row[2]}", values


_PATH_OF_NVME = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""One of the hidden paths to a namespace. Only they count before Linux 6.4 (nvme-multipath), and both do since."""


def namespace_of(name: str) -> str:
    """Return the NVMe namespace of a hidden path: ``nvme0n1`` for ``nvme0c0n1``. The result is '' for other devices."""
    path = _PATH_OF_NVME.fullmatch(name)
    return "" if path is None else f"{path[1]}{path[2]}"


def nvme_paths(raw: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers (``major:minor``) of each hidden path and of its namespace, from the text of /proc/diskstats.

    Traced requests have the number of a path. Some kernels show ``NO_NUMBER`` in its place.
    """
    rows = [line.split() for line in raw.splitlines()]
    numbers = {row[2]: f"{row[0]}:{row[1]}" for row in rows if len(row) >= 14}
    for name, path in numbers.items():
        if (namespace := namespace_of(name)) in numbers:
            yield path, numbers[namespace]


def _is_partition(name: str, names: set[str]) -> bool:
    """Return True for sda1 of sda, and for nvme0n1p2 of nvme0n1: after a digit, a p precedes the partition's number."""
    match = re.fullmatch(r"(.*\d)p\d+|(.*\D)\d+", name)
    return match is not None and (match[1] or match[2]) in names


SAMPLER = DiskstatsSampler()

_PREFIX = "disk:"
GUEST_VIEWS = ("guest-disk:", "guest-drive:")
"""Prefixes of entities that are a guest's devices: in the guest, and at its hypervisor."""
MIN_INTERVAL_S = 0.2
"""Seconds. Shorter intervals, such as before the last sample when sampling stops, are left out: rounding dominates their rates."""


def device_series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, DeviceSeries]:
    """Return ``major:minor`` → series over the intervals between samples within the window (seconds since the epoch).

    Rates are over the interval between two samples, not over whole seconds, so bursts keep their height. Mean sizes are
    ``…_bytes`` over requests. Response times are the growth of the kernel's summed durations over the requests
    completed. The kernel's write time includes flushes, so their time is subtracted.
    """
    samples: dict[str, list[tuple[float, dict[str, float]]]] = {}
    for t, sampler, entity, values in readings:
        if sampler == DiskstatsSampler.name and entity.startswith(_PREFIX) and "major" in values:
            samples.setdefault(f"{values['major']:.0f}:{values['minor']:.0f}", []).append((t, values))
    return {device: _series(device_samples, start, end) for device, device_samples in samples.items()}


def guest_series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, DeviceSeries]:
    """Return the same for guests' devices, seen by the guest and by its hypervisor, by entity.

    Entities are ``guest-disk:GUEST/vdb`` and ``guest-drive:GUEST/data``. A hypervisor reports neither the queue nor the
    busy time of a drive.
    """
    samples: dict[str, list[tuple[float, dict[str, float]]]] = {}
    for t, _, entity, values in readings:
        if entity.startswith(GUEST_VIEWS) and "reads" in values:
            samples.setdefault(entity, []).append((t, values))
    return {entity: _series(entity_samples, start, end) for entity, entity_samples in samples.items()}


def _series(samples: list[tuple[float, dict[str, float]]], start: float, end: float) -> DeviceSeries:
    series = DeviceSeries()
    for (t0, before), (t1, after) in pairwise(samples):
        length = t1 - t0
        if length < MIN_INTERVAL_S or t0 < start or t1 > end:
            continue
        growth = {name: max(0.0, value - metric(name).base(before.get(name, value), value)) for name, value in after.items()}
        series.at.append(t1 - start)
        series.seconds.append(length)
        series.reads.append(growth["reads"] / length)
        series.writes.append(growth["writes"] / length)
        series.flushes.append(growth.get("flushes", 0.0) / length)
        series.read_bytes.append(growth["read_bytes"] / length)
        series.write_bytes.append(growth["write_bytes"] / length)
        series.queue.append(growth["io_time_weighted"] / length if "io_time_weighted" in growth else None)
        series.busy.append(min(1.0, growth["io_time"] / length) if "io_time" in growth else None)
        flush_time = growth.get("flush_time", 0.0)
        series.read_await.append(_mean_ms(growth["read_time"], growth["reads"]))
        series.write_await.append(_mean_ms(max(0.0, growth["write_time"] - flush_time), growth["writes"]))
        series.flush_await.append(_mean_ms(flush_time, growth.get("flushes", 0.0)))
    return series


def _mean_ms(seconds: float, requests: float) -> float | None:
    return 1000 * seconds / requests if requests > 0 else None
