"""Cumulative count over time: a piecewise linear curve that never decreases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from math import floor


class CumulativeCurve:
    """A count over wall-clock time, linear between its points, flat before the first and after the last.

    Tools report counts by interval, and the intervals of two tools never coincide. The curve gives the count of any
    window, and the parts of a window always add up to the window's count.
    """

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        """Build the curve from points ``(instant, count so far)`` in order of time.

        A point that is not later than its predecessor replaces it. A count below its predecessor is raised to it, so
        that the curve never decreases.

        Raises:
            ValueError: there are no points.
        """
        self.times: list[float] = []
        self.counts: list[float] = []
        for time, count in points:
            level = max(count, self.counts[-1]) if self.counts else count
            if self.times and time <= self.times[-1]:
                self.counts[-1] = level
            else:
                self.times.append(time)
                self.counts.append(level)
        if not self.times:
            raise ValueError("a cumulative curve needs at least one point")

    def value_at(self, time: float) -> float:
        """Return the count at an instant."""
        i = bisect_right(self.times, time)
        if i == 0:
            return self.counts[0]
        if i == len(self.times):
            return self.counts[-1]
        t0, t1 = self.times[i - 1], self.times[i]
        c0, c1 = self.counts[i - 1], self.counts[i]
        return min(c1, c0 + (c1 - c0) * ((time - t0) / (t1 - t0)))

    def between(self, start: float, end: float) -> float:
        """Return the increase from start to end."""
        return self.value_at(end) - self.value_at(start)

    def per_second(self, start: float, end: float) -> list[float]:
        """Return the increase in each whole second from start on. An incomplete last second is left out."""
        levels = [self.value_at(start + i) for i in range(floor(end - start + 1e-6) + 1)]
        return [after - before for before, after in pairwise(levels)]
