"""From readings to one number per metric over a window: a counter's rate per second, a gauge's mean.

**Borders.** Samples never fall on a window's borders. A value there is interpolated linearly between the neighbouring
samples. Where a border lies outside a source's samples, the nearest sample inside takes its place, and the rate is per
second of the time that was really covered.

**Counters that fall.** A counter that may reset (``Metric.resets``) starts anew from zero: what it shows then is added.
Any other counter cannot fall; a smaller reading is torn (a child process ended while its tree was read, iowait was
corrected) and the former value stands until it is passed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

from pgherd.metrics.registry import metric
from pgherd.metrics.spool import SpoolReading

Part = tuple[float, float, float]
"""(from, to, sum): a counter's increase, or a gauge's integral, over the time that the samples cover."""

Series = tuple[list[float], list[float]]
"""Instants and values of one metric, in order of time."""

AROUND = 120.0
"""Seconds on either side of a window in which every source has a reading: the rarest are read once a minute."""


def aggregate(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, dict[str, float]]:
    """Entity → metric → rate per second or mean over the window from start to end (seconds since the epoch).

    The readings of one metric must be in order of time, as a spool holds them; one from before the reading that it
    follows (the clock was set back) is left out. A metric needs two readings in or around the window; without them it
    is absent.
    """
    result: dict[str, dict[str, float]] = {}
    for (_, entity), metrics in _series(readings, start, end).items():
        for name, (times, values) in metrics.items():
            what = metric(name)
            if what.kind == "counter":
                part = window_sum(times, _unwrap(values, what.resets), start, end, integral=False)
            else:
                part = window_sum(times, values, start, end, integral=True)
            if part is not None:
                result.setdefault(entity, {})[name] = part[2] / (part[1] - part[0])
    return {entity: dict(sorted(metrics.items())) for entity, metrics in sorted(result.items())}


def near(readings: Sequence[SpoolReading], start: float, end: float) -> Sequence[SpoolReading]:
    """Those of many readings, in order of time, that can tell something of a window: of hours (a soak), each phase looks at its own
    minutes only."""
    first = bisect_left(readings, start - AROUND, key=itemgetter(0))
    return readings[first : bisect_right(readings, end + AROUND, key=itemgetter(0))]


def window_sum(times: Sequence[float], levels: Sequence[float], start: float, end: float, *, integral: bool) -> Part | None:
    """A series' increase (or the integral below it) between the borders, with the time covered.

    The series is linear between its samples. None where it has not two samples to speak for the window.
    """
    if not times:
        return None
    low, high = max(start, times[0]), min(end, times[-1])
    if high <= low:
        return None
    first, last = _at(times, levels, low), _at(times, levels, high)
    if not integral:
        return low, high, last - first
    inner = slice(bisect_right(times, low), bisect_left(times, high))
    points = zip([low, *times[inner], high], [first, *levels[inner], last], strict=True)
    return low, high, sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(points))


def _series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[tuple[str, str], dict[str, Series]]:
    """(sampler, entity) → metric → the samples inside the window and the nearest one on either side."""
    series: dict[tuple[str, str], dict[str, Series]] = {}
    for t, sampler, entity, found in readings:
        metrics = series.setdefault((sampler, entity), {})
        for name, value in found.items():
            times, values = metrics.setdefault(name, ([], []))
            if times and (t < times[-1] or t > times[-1] >= end):
                continue
            if t <= start or (times and t == times[-1]):
                del times[-1:], values[-1:]
            times.append(t)
            values.append(value)
    return series


def _unwrap(levels: Sequence[float], resets: bool) -> list[float]:
    """A counter without its falls."""
    total, before = 0.0, levels[0]
    unwrapped = [0.0]
    for level in levels[1:]:
        if level >= before:
            total += level - before
            before = level
        elif resets:
            total += level
            before = level
        unwrapped.append(total)
    return unwrapped


def _at(times: Sequence[float], levels: Sequence[float], t: float) -> float:
    """The level at an instant within the samples."""
    i = min(max(bisect_right(times, t), 1), len(times) - 1)
    t0, t1, level0, level1 = times[i - 1], times[i], levels[i - 1], levels[i]
    return level0 + (level1 - level0) * ((t - t0) / (t1 - t0))
