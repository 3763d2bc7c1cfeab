"""A device's series between samples, from readings of /proc/diskstats: IOPS, throughput, queue, response times. Pure.

Rates are over the intervals between two samples, not over whole seconds: nothing is smeared, and a burst keeps its height.
Mean sizes are ``…_bytes`` over requests; response times are the growth of the kernel's summed durations over the requests
completed. The time of flushes is in the kernel's write time, and is taken out of it as the flushes are out of the writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from pgherd.metrics.spool import SpoolReading
from pgherd.model.io_view import DeviceSeries

_SAMPLER = "diskstats"
_PREFIX = "disk:"
GUEST_VIEWS = ("guest-disk:", "guest-drive:")
"""How entities begin that are a guest's devices: in the guest, and at its hypervisor."""
SHORTEST = 0.2
"""Seconds; an interval shorter than this (the last sample, taken when sampling stops) is left out: its rates are rounding."""


def device_series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, DeviceSeries]:
    """``major:minor`` → series over the intervals that lie in the window from start to end (seconds since the epoch)."""
    samples: dict[str, list[tuple[float, dict[str, float]]]] = {}
    for t, sampler, entity, values in readings:
        if sampler == _SAMPLER and entity.startswith(_PREFIX) and "major" in values:
            samples.setdefault(f"{values['major']:.0f}:{values['minor']:.0f}", []).append((t, values))
    return {number: _series(found, start, end) for number, found in samples.items()}


def guest_series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, DeviceSeries]:
    """The same of guests' devices, both as the guest sees them and as its hypervisor does, by entity: ``guest-disk:GUEST/vdb``,
    ``guest-drive:GUEST/data``. A hypervisor does not tell the queue, nor for how long a drive was busy."""
    samples: dict[str, list[tuple[float, dict[str, float]]]] = {}
    for t, _, entity, values in readings:
        if entity.startswith(GUEST_VIEWS) and "reads" in values:
            samples.setdefault(entity, []).append((t, values))
    return {entity: _series(found, start, end) for entity, found in samples.items()}


def _series(samples: list[tuple[float, dict[str, float]]], start: float, end: float) -> DeviceSeries:
    series = DeviceSeries()
    for (t0, before), (t1, after) in pairwise(samples):
        length = t1 - t0
        if length < SHORTEST or t0 < start or t1 > end:
            continue
        grown = {name: max(0.0, value - before.get(name, value)) for name, value in after.items()}
        series.at.append(t1 - start)
        series.seconds.append(length)
        series.reads.append(grown["reads"] / length)
        series.writes.append(grown["writes"] / length)
        series.flushes.append(grown.get("flushes", 0.0) / length)
        series.read_bytes.append(grown["read_bytes"] / length)
        series.write_bytes.append(grown["write_bytes"] / length)
        series.queue.append(grown["weighted_io_time"] / length if "weighted_io_time" in grown else None)
        series.busy.append(min(1.0, grown["io_time"] / length) if "io_time" in grown else None)
        flush_time = grown.get("flush_time", 0.0)
        series.read_await.append(_mean_ms(grown["read_time"], grown["reads"]))
        series.write_await.append(_mean_ms(max(0.0, grown["write_time"] - flush_time), grown["writes"]))
        series.flush_await.append(_mean_ms(flush_time, grown.get("flushes", 0.0)))
    return series


def _mean_ms(seconds: float, requests: float) -> float | None:
    return 1000 * seconds / requests if requests > 0 else None
