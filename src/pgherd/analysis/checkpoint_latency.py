"""Transactions' latency inside and outside of checkpoints. Pure.

A transaction is inside when any part of it lies between a checkpoint's start and its end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pgherd.analysis.histogram import bucket
from pgherd.model.io_view import Checkpoint


def split(transactions: Iterable[tuple[float, float]], start: float, end: float, checkpoints: Sequence[Checkpoint]) -> dict[str, Any]:
    """The fields ``latency`` and ``latency_by_second`` of an IoView.

    Args:
        transactions: (when it ended in seconds since the epoch, latency in ms) of each logged one.
        start: of the window, seconds since the epoch.
        end: of the window.
        checkpoints: of all servers concerned, in seconds from the window's start.
    """
    spans = sorted((one.start, end - start if one.end is None else one.end) for one in checkpoints)
    begins = [first for first, _ in spans]
    latest: list[float] = []
    for _, last in spans:  # the latest end of all that have begun so far
        latest.append(max(last, latest[-1]) if latest else last)
    inside: Counter[int] = Counter()
    outside: Counter[int] = Counter()
    length = max(0, int(end - start))
    sums, counts = [0.0] * length, [0] * length
    for at, latency in transactions:
        if not start < at <= end:
            continue
        ended = at - start
        place = bisect_right(begins, ended) - 1
        within = place >= 0 and latest[place] >= ended - latency / 1000
        (inside if within else outside)[bucket(1000 * latency)] += 1
        if int(ended) < length:
            sums[int(ended)] += latency
            counts[int(ended)] += 1
    found = {"inside": dict(sorted(inside.items())), "outside": dict(sorted(outside.items()))}
    means = [total / count if count else None for total, count in zip(sums, counts, strict=True)]
    any_ = bool(inside or outside)
    return {"latency": found if any_ else {}, "latency_by_second": means if any_ else []}
