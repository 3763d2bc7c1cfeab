"""Transactions' latency inside and outside of checkpoints. Pure.

A transaction is inside when any part of it lies between a checkpoint's start and its end.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.analysis.histogram import bucket
from pgherd.model.io_view import Checkpoint


def latency_fields(
    transactions: Iterable[tuple[float, float]], start: float, end: float, checkpoints: Sequence[Checkpoint]
) -> dict[str, Any]:
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


DROP = 0.5
"""Share of the median."""
LASTING = 1.5
"""Seconds: of samples each second, two in a row."""
AFTER = 2.0
LEAST = 10
"""Intervals below which nothing is said."""
RULE = (
    f"WAL bytes written and transactions committed both below {100 * DROP:.0f} % of their medians outside of checkpoints, for "
    f"{LASTING:g} s at least; tied to a checkpoint when it begins from the checkpoint's start to {AFTER:g} s past its end"
)


@dataclass(frozen=True)
class Stall:
    """``start`` and ``end`` in seconds from the window's start; ``wal`` and ``transactions`` are the least shares of their
    medians; ``checkpoint`` is the one it belongs to, None where there is none."""

    start: float
    end: float
    wal: float
    transactions: float
    checkpoint: Checkpoint | None

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


def aligned(at: Sequence[float], seconds: Sequence[float], per_second: Sequence[float]) -> list[float | None]:
    """A series by whole seconds (from 0) as rates over other intervals, which end at ``at`` and are ``seconds`` long: each whole
    second counts for the part of it that lies in the interval. None where the series does not cover the interval."""
    found: list[float | None] = []
    for end, length in zip(at, seconds, strict=True):
        start = end - length
        if start < -1e-6 or end > len(per_second) + 1e-6 or length <= 0:
            found.append(None)
            continue
        total, place = 0.0, max(0, int(start))
        while place < min(end, len(per_second)):
            total += per_second[place] * (min(place + 1.0, end) - max(float(place), start))
            place += 1
        found.append(total / length)
    return found


def stalls(
    at: Sequence[float],
    seconds: Sequence[float],
    wal: Sequence[float],
    transactions: Sequence[float | None],
    checkpoints: Sequence[Checkpoint],
) -> list[Stall] | None:
    """The stalls of one window by the rule above, in order of time.

    Args:
        at: ends of the intervals, seconds from the window's start.
        seconds: their lengths.
        wal: bytes per second written to the WAL in each.
        transactions: committed per second in each; None where that is not known, which is never a stall.
        checkpoints: of the servers concerned.

    Returns:
        None where there are too few intervals, or usually no WAL or no transactions: then nothing can be said.
    """
    known = [value for value in transactions if value is not None]
    if len(at) < LEAST or len(known) < LEAST:
        return None
    calm = [i for i in range(len(at)) if not inside(at[i], seconds[i], checkpoints)]
    if len([i for i in calm if transactions[i] is not None]) < LEAST // 2:
        calm = list(range(len(at)))
    usual_wal = statistics.median(wal[i] for i in calm)
    usual = statistics.median(value for i in calm if (value := transactions[i]) is not None)
    if usual_wal <= 0 or usual <= 0:
        return None
    shares = [(w / usual_wal, None if t is None else t / usual) for w, t in zip(wal, transactions, strict=True)]
    found: list[Stall] = []
    run: list[int] = []
    for place in range(len(shares) + 1):
        if place < len(shares) and _stalled(*shares[place]):
            run.append(place)
        elif run:
            start, end = at[run[0]] - seconds[run[0]], at[run[-1]]
            if end - start >= LASTING:
                least = min(share for i in run if (share := shares[i][1]) is not None)
                found.append(Stall(start, end, min(shares[i][0] for i in run), least, _blamed(start, end, checkpoints)))
            run = []
    return found


def _stalled(wal: float, transactions: float | None) -> bool:
    return transactions is not None and wal < DROP and transactions < DROP


def _blamed(start: float, end: float, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The checkpoint that a stall belongs to. Its start is known to the interval only, so the stall's end counts for that side."""
    for one in checkpoints:
        if end > one.start and (one.end is None or start <= one.end + AFTER):
            return one
    return None


def inside(at: float, seconds: float, checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the middle of an interval lies in a checkpoint."""
    middle = at - seconds / 2
    return any(one.start <= middle and (one.end is None or middle <= one.end) for one in checkpoints)
