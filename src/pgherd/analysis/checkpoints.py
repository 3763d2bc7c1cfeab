"""Effects of checkpoints: latency of transactions inside and outside of them, and stalls of WAL writing.

A transaction is inside a checkpoint if any part of it is between the checkpoint's start and end.

**The stall rule.** An interval is stalled if both the WAL bytes written and the committed transactions are below ``STALL_SHARE`` of
their medians. The medians are over intervals outside of checkpoints, or over all intervals if hardly any are outside.
Consecutive stalled intervals are one stall if they last ``MIN_STALL_S`` seconds in total, because a single slow second is noise. A
stall belongs to a checkpoint if it starts between the checkpoint's start and ``AFTER_CHECKPOINT_S`` seconds past its end, when the device
still processes the requests of its sync.

A slow second of WAL only is not a stall (there may have been no need for WAL), nor is one of transactions only (readers,
locks).
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pgherd.analysis.histogram import bucket
from pgherd.model.device_io import Checkpoint


def latency_fields(
    transactions: Iterable[tuple[float, float]], start: float, end: float, checkpoints: Sequence[Checkpoint]
) -> dict[str, Any]:
    """Return the fields ``latency`` and ``latency_by_second`` of an IoView.

    Args:
        transactions: (end in seconds since the epoch, latency in ms) of each logged transaction.
        start: start of the window, in seconds since the epoch.
        end: end of the window.
        checkpoints: of all servers concerned, in seconds from the window's start.
    """
    spans = sorted((checkpoint.start, end - start if checkpoint.end is None else checkpoint.end) for checkpoint in checkpoints)
    starts = [first for first, _ in spans]
    latest_ends: list[float] = []
    for _, last in spans:  # the latest end of all checkpoints that have started
        latest_ends.append(max(last, latest_ends[-1]) if latest_ends else last)
    inside: Counter[int] = Counter()
    outside: Counter[int] = Counter()
    length = max(0, int(end - start))
    totals, counts = [0.0] * length, [0] * length
    for ended_at, latency in transactions:
        if not start < ended_at <= end:
            continue
        ended = ended_at - start
        index = bisect_right(starts, ended) - 1
        is_inside = index >= 0 and latest_ends[index] >= ended - latency / 1000
        (inside if is_inside else outside)[bucket(1000 * latency)] += 1
        if int(ended) < length:
            totals[int(ended)] += latency
            counts[int(ended)] += 1
    histograms = {"inside": dict(sorted(inside.items())), "outside": dict(sorted(outside.items()))}
    means = [total / count if count else None for total, count in zip(totals, counts, strict=True)]
    any_logged = bool(inside or outside)
    return {"latency": histograms if any_logged else {}, "latency_by_second": means if any_logged else []}


STALL_SHARE = 0.5
"""Share of the median below which an interval is stalled."""
MIN_STALL_S = 1.5
"""With one sample per second these are two in a row."""
AFTER_CHECKPOINT_S = 2.0
MIN_INTERVALS = 10
"""Minimum number of intervals."""
RULE = (
    f"WAL bytes written and transactions committed both below {100 * STALL_SHARE:.0f} % of their medians outside of checkpoints, for "
    f"{MIN_STALL_S:g} s at least; tied to a checkpoint if it starts from the checkpoint's start to {AFTER_CHECKPOINT_S:g} s past its end"
)


@dataclass(frozen=True)
class Stall:
    """One stall. ``start`` and ``end`` are seconds from the window's start.

    ``wal`` and ``transactions`` are the smallest shares of their medians. ``checkpoint`` is the cause, None without one.
    """

    start: float
    end: float
    wal: float
    transactions: float
    checkpoint: Checkpoint | None

    @property
    def seconds(self) -> float:
        return self.end - self.start


def aligned(at: Sequence[float], seconds: Sequence[float], per_second: Sequence[float]) -> list[float | None]:
    """Convert a series by whole seconds (from 0) to rates over other intervals.

    Each second counts in proportion to its overlap with the interval. None for an interval that the series does not cover.

    Args:
        at: ends of the intervals.
        seconds: their lengths.
        per_second: the series.
    """
    rates: list[float | None] = []
    for end, length in zip(at, seconds, strict=True):
        start = end - length
        if start < -1e-6 or end > len(per_second) + 1e-6 or length <= 0:
            rates.append(None)
            continue
        total, second = 0.0, max(0, int(start))
        while second < min(end, len(per_second)):
            total += per_second[second] * (min(second + 1.0, end) - max(float(second), start))
            second += 1
        rates.append(total / length)
    return rates


def stalls(
    at: Sequence[float],
    seconds: Sequence[float],
    wal: Sequence[float],
    transactions: Sequence[float | None],
    checkpoints: Sequence[Checkpoint],
) -> list[Stall] | None:
    """Find the stalls of one window by the rule above, in order of time.

    Args:
        at: ends of the intervals, in seconds from the window's start.
        seconds: their lengths.
        wal: bytes per second written to the WAL in each.
        transactions: committed per second in each. An interval with None is never stalled.
        checkpoints: of the servers concerned.

    Returns:
        None if there are too few intervals, or if the median of WAL or transactions is zero.
    """
    committed = [value for value in transactions if value is not None]
    if len(at) < MIN_INTERVALS or len(committed) < MIN_INTERVALS:
        return None
    outside = [i for i in range(len(at)) if not inside(at[i], seconds[i], checkpoints)]
    if len([i for i in outside if transactions[i] is not None]) < MIN_INTERVALS // 2:
        outside = list(range(len(at)))
    median_wal = statistics.median(wal[i] for i in outside)
    median_transactions = statistics.median(value for i in outside if (value := transactions[i]) is not None)
    if median_wal <= 0 or median_transactions <= 0:
        return None
    shares = [(written / median_wal, None if t is None else t / median_transactions) for written, t in zip(wal, transactions, strict=True)]
    result: list[Stall] = []
    run: list[int] = []
    for index in range(len(shares) + 1):
        if index < len(shares) and _stalled(*shares[index]):
            run.append(index)
        elif run:
            start, end = at[run[0]] - seconds[run[0]], at[run[-1]]
            if end - start >= MIN_STALL_S:
                lowest = min(share for i in run if (share := shares[i][1]) is not None)
                result.append(Stall(start, end, min(shares[i][0] for i in run), lowest, _cause_of(start, end, checkpoints)))
            run = []
    return result


def _stalled(wal: float, transactions: float | None) -> bool:
    return transactions is not None and wal < STALL_SHARE and transactions < STALL_SHARE


def _cause_of(start: float, end: float, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint that a stall belongs to.

    The start of a stall is known to within one interval, so its end is compared with the checkpoint's start.
    """
    for checkpoint in checkpoints:
        if end > checkpoint.start and (checkpoint.end is None or start <= checkpoint.end + AFTER_CHECKPOINT_S):
            return checkpoint
    return None


def inside(at: float, seconds: float, checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the middle of an interval is in a checkpoint."""
    middle = at - seconds / 2
    return any(checkpoint.start <= middle and (checkpoint.end is None or middle <= checkpoint.end) for checkpoint in checkpoints)
