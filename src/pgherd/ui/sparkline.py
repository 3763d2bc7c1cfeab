"""A small curve as the path of an SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 600, 96
_ROUNDING = 1.05
"""As far beyond the top a value may lie by the clocks that it was measured with."""


@dataclass(frozen=True)
class Sparkline:
    """``line`` and ``area`` are SVG paths in a box of WIDTH × HEIGHT; the axis goes from 0 to ``top``; ``last`` is the latest value."""

    line: str
    area: str
    top: float
    last: float
    seconds: float


def sparkline(series: Sequence[tuple[float, float]], now: float, seconds: float, top: float | None = None) -> Sparkline | None:
    """The last ``seconds`` of a series of (seconds since the epoch, value); None where it has not two points.

    The axis ends at ``top``, or where that is not given or exceeded, a little above the largest value. A series that has not lasted so
    long yet begins at the left.
    """
    shown = sorted({t: value for t, value in series if t >= now - seconds}.items())  # of one instant the latest word
    if len(shown) < 2:
        return None
    begin = max(now - seconds, shown[0][0])
    span = max(now - begin, 10.0)
    largest = max(value for _, value in shown)
    ceiling = top if top is not None and largest <= top * _ROUNDING else largest * 1.1 or 1.0
    places = [((t - begin) / span * WIDTH, HEIGHT - min(max(value, 0.0) / ceiling, 1.0) * (HEIGHT - 4)) for t, value in shown]
    line = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    area = f"{line}L{places[-1][0]:.1f},{HEIGHT}L{places[0][0]:.1f},{HEIGHT}Z"
    return Sparkline(line, area, ceiling, shown[-1][1], span)
