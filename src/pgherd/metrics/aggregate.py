"""Aggregation of readings over a window to one number per metric: a counter's rate per second, a gauge's mean.

**Borders.** Samples never fall on a window's borders. The value there is interpolated linearly between the adjacent samples. If a border
is outside a source's samples, the nearest sample inside replaces it, and the rate is per second of the covered time.

**Decreasing counters.** A counter that may reset (``SampledMetric.resets``) restarts from zero: the new value is added. A value of at least
half of the previous one is no restart: one of the databases in a sum was dropped or reset, and nothing is added. A counter that wraps
(``SampledMetric.wraps``) continues. Any other counter cannot decrease. A smaller reading of it is torn: a child process ended while its
tree was read, or iowait was corrected. The previous value is kept until a reading exceeds it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

from pgherd.metrics.sampler import SampledMetric, metric
from pgherd.metrics.spool import SpoolReading

Part = tuple[float, float, float]
"""(from, to, sum): a counter's increase or a gauge's integral over the time that the samples cover."""

Series = tuple[list[float], list[float]]
"""Instants and values of one metric in order of time."""

MARGIN_S = 120.0
"""Seconds before and after a window in which every source has a reading. The slowest sources are read once a minute."""


def aggregate(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, dict[str, float]]:
    """Return entity → metric → rate per second or mean over the window (seconds since the epoch).

    The readings of one metric must be in order of time, as in a spool. A reading older than its predecessor is left
    out, because the clock was set back. A metric without two readings in or around the window is absent.
    """
    result: dict[str, dict[str, float]] = {}
    for (_, entity), metrics in _series(readings, start, end).items():
        for name, (times, values) in metrics.items():
            description = metric(name)
            if description.kind == "counter":
                part = window_sum(times, _unwrap(values, description), start, end, integral=False)
            else:
                part = window_sum(times, values, start, end, integral=True)
            if part is not None:
                result.setdefault(entity, {})[name] = part[2] / (part[1] - part[0])
    return {entity: dict(sorted(metrics.items())) for entity, metrics in sorted(result.items())}


def near(readings: Sequence[SpoolReading], start: float, end: float) -> Sequence[SpoolReading]:
    """Select the readings that can affect a window. The readings must be in order of time.

    A soak has hours of readings, and each of its phases needs only a few minutes of them.
    """
    first = bisect_left(readings, start - MARGIN_S, key=itemgetter(0))
    return readings[first : bisect_right(readings, end + MARGIN_S, key=itemgetter(0))]


def window_sum(times: Sequence[float], levels: Sequence[float], start: float, end: float, *, integral: bool) -> Part | None:
    """Return a series' increase, or its integral, between the borders, with the covered time.

    The series is linear between its samples. Returns None if the samples cover no part of the window.
    """
    if not times:
        return None
    low, high = max(start, times[0]), min(end, times[-1])
    if high <= low:
        return None
    first, last = _value_at(times, levels, low), _value_at(times, levels, high)
    if not integral:
        return low, high, last - first
    inner = slice(bisect_right(times, low), bisect_left(times, high))
    points = zip([low, *times[inner], high], [first, *levels[inner], last], strict=True)
    return low, high, sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(points))


def _series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[tuple[str, str], dict[str, Series]]:
    """Return (sampler, entity) → metric → the samples in the window and the nearest one before and after it."""
    series: dict[tuple[str, str], dict[str, Series]] = {}
    for t, sampler, entity, reading in readings:
        metrics = series.setdefault((sampler, entity), {})
        for name, value in reading.items():
            times, values = metrics.setdefault(name, ([], []))
            if times and (t < times[-1] or t > times[-1] >= end):
                continue
            if t <= start or (times and t == times[-1]):
                del times[-1:], values[-1:]
            times.append(t)
            values.append(value)
    return series


def _unwrap(levels: Sequence[float], description: SampledMetric) -> list[float]:
    """Return a counter without its decreases."""
    total, before = 0.0, levels[0]
    unwrapped = [0.0]
    for level in levels[1:]:
        before = description.base(before, level)
        if level >= before:
            total += level - before
            before = level
        elif description.resets:
            total += level if level < before / 2 else 0.0
            before = level
        unwrapped.append(total)
    return unwrapped


def _value_at(times: Sequence[float], levels: Sequence[float], t: float) -> float:
    i = min(max(bisect_right(times, t), 1), len(times) - 1)
    t0, t1, level0, level1 = times[i - 1], times[i], levels[i - 1], levels[i]
    return level0 + (level1 - level0) * ((t - t0) / (t1 - t0))
