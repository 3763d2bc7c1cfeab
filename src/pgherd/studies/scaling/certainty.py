"""Where a curve of throughput against clients is least certain, from few points. Pure Python: it is asked between trials.

Throughput of more and more clients is taken to be concave: each further client adds no more than the one before. Then
between two neighbours the curve lies above their chord, and below the lines through the points on either side, drawn on.
The height of that triangle is how much the curve may still differ from what is known; the next point is best taken where
it is largest, which is around the knee and the peak (the sandwich algorithm: G. Rote, The convergence rate of the sandwich
algorithm for approximating convex functions, Computing 48, 1992).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from pgherd.model.result import TrialResult
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.study.trial_schedule import throughput

LEAST = 0.02
"""Uncertainty, as a share of the highest throughput, below which no further point is worth its time."""
STEP = 1.5
"""A curve that is highest at its last point is measured at so many times its clients next."""
FLAT = 0.02
"""A last point that is higher than the one before by less than this share is no rise."""


def next_clients(options: ScalingOptions, results: Sequence[TrialResult]) -> int | None:
    """The number of clients at which to measure next, of all variants alike; None: no point is worth it."""
    wanted: list[tuple[float, int]] = []
    tried = {result.trial.point.get("clients") for result in results}
    for variant in options.servers():
        curve = medians(results, variant)
        beyond = _beyond(curve, options.most)
        if beyond is not None and beyond not in tried:
            wanted.append((math.inf, beyond))
        wanted += [(doubt, n) for n, doubt in doubts(curve) if n not in tried and n <= options.most]
    best = max(wanted, default=(0.0, 0), key=lambda each: (each[0], -each[1]))
    return best[1] if best[0] >= LEAST else None


def medians(results: Sequence[TrialResult], variant: str) -> list[tuple[int, float]]:
    """(clients, median throughput) of a variant's points, ascending; of tainted trials only where there is no clean one."""
    trials: dict[int, list[TrialResult]] = {}
    for result in results:
        if result.trial.point.get("variant", "") == variant and result.error is None and throughput(result) > 0:
            trials.setdefault(int(result.trial.point["clients"]), []).append(result)
    found = []
    for clients, group in sorted(trials.items()):
        used = [result for result in group if not result.tainted] or group
        found.append((clients, statistics.median(throughput(result) for result in used)))
    return found


def doubts(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """(clients, uncertainty as a share of the peak) of the most uncertain whole number in each gap of the curve."""
    if len(curve) < 2:
        return []
    points = [(0, 0.0), *curve]
    peak = max(x for _, x in curve)
    found = []
    for i in range(1, len(points) - 1):
        (n0, x0), (n1, x1) = points[i], points[i + 1]
        left = _line(points[i - 1], points[i])
        right = _line(points[i + 1], points[i + 2]) if i + 2 < len(points) else None
        heights = []
        for n in range(n0 + 1, n1):
            chord = x0 + (x1 - x0) * (n - n0) / (n1 - n0)
            # Past the last point nothing bounds the curve from the right: the far half of the gap is then taken to be like the near.
            bound = left(n) if right is None else min(left(n), right(n))
            if right is None and n > (n0 + n1) / 2:
                continue
            heights.append(((bound - chord) / peak, n))
        if heights:
            height, n = max(heights, key=lambda each: (each[0], -each[1]))
            found.append((n, height))
    return found


def _beyond(curve: Sequence[tuple[int, float]], most: int) -> int | None:
    """A number of clients past the last, where the curve still rises there; None where it does not, or may not go on."""
    if len(curve) < 2 or curve[-1][0] >= most:
        return None
    last, before = curve[-1], curve[-2]
    if last[1] < max(x for _, x in curve) or last[1] < (1 + FLAT) * before[1]:
        return None
    return min(most, max(last[0] + 1, math.ceil(STEP * last[0])))


def _line(one: tuple[int, float], other: tuple[int, float]) -> Callable[[int], float]:
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return lambda n: other[1] + slope * (n - other[0])
