"""Which size to measure next, to know a knee better. Pure Python: it is asked between trials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pgherd.analysis.knee import Knee
from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.options import LEAST_BUFFERS, WorkingSetOptions

GROW, SHRINK = 1.35, 0.75
"""How far beyond the sizes measured the next one lies, where the knee lies beyond them."""
ENOUGH = 9
"""Measurements below which a narrow interval is not believed: a few of them may lie close to a line by luck, and who stops at the first
narrow interval stops at the lucky ones."""
FINE = 0.02
"""Sizes closer together than this share of the knee are one size: measuring one of them again says as much."""


def next_size(options: WorkingSetOptions, measured: Measured, turn: int, beyond: int) -> int | None:
    """The next size in MB; None where the knee is known well enough, or nothing that can be measured would say more.

    Args:
        options: of the run.
        measured: what is known of the curve.
        turn: how often the curve has been asked before; new sizes and repeats take turns.
        beyond: a container's memory beyond its shared buffers, where these are varied.
    """
    knee, lived = measured.knee, measured.lived
    if not lived:
        return None
    if knee.kind == "cliff" or (measured.dead and knee.kind in ("flat", "unknown")):
        return _between(measured.dead[-1], lived[0], options.precision)
    if knee.kind == "rising":
        top = options.most - beyond
        grown = min(top, max(lived[-1] + 1, round(lived[-1] * GROW)))
        return grown if grown > lived[-1] * (1 + FINE) else None
    if knee.kind == "flat":
        least = max(options.buffers, options.least) if measured.curve.sweep == "memory" else max(LEAST_BUFFERS, options.least - beyond)
        shrunk = max(least, round(lived[0] * SHRINK))
        return shrunk if shrunk < lived[0] * (1 - FINE) else None
    if knee.kind == "unclear":
        # Both ends by turns: if they differ after all, there is a knee between them.
        return min((lived[0], lived[-1]), key=lambda size: len(measured.at(size)))
    if knee.kind == "unknown":
        return _widest(lived, lived[0], lived[-1], lived[-1])
    if knee.half_width is not None and knee.half_width <= options.precision and knee.n >= ENOUGH:
        return None
    return _near(measured, knee, turn)


def _between(dead: int, lives: int, precision: float) -> int | None:
    """Halfway between what does not live and what does, until they are close enough."""
    if lives - dead <= max(1, 2 * precision * lives):
        return None
    return (dead + lives) // 2


def _near(measured: Measured, knee: Knee, turn: int) -> int:
    """By turns a new size in the interval's widest gap, and one beside the interval once more: the first says where the bend is, the
    second how the two lines go."""
    lived = measured.lived
    at = knee.at or 0.0
    low = max(knee.low or 0.0, lived[0])
    high = min(knee.high or float("inf"), lived[-1])
    beside = [max((s for s in lived if s <= low), default=lived[0]), min((s for s in lived if s >= high), default=lived[-1])]
    if knee.high is None:
        beside.reverse()
    if turn % 3 == 2:
        return min(beside, key=lambda size: len(measured.at(size)))
    found = _widest(lived, low, high, at)
    if found is not None:
        return found
    return min([size for size in lived if low <= size <= high] or beside, key=lambda size: (len(measured.at(size)), abs(size - at)))


def _widest(sizes: Sequence[int], low: float, high: float, at: float) -> int | None:
    """A size in the middle of the widest gap between sizes within ``low`` … ``high``; None where all gaps are too small to matter."""
    gaps = [(min(b, high) - max(a, low), round((max(a, low) + min(b, high)) / 2)) for a, b in pairwise(sizes) if b > low and a < high]
    new = [(width, middle) for width, middle in gaps if middle not in sizes and width > max(1.0, FINE * at)]
    return max(new)[1] if new else None
