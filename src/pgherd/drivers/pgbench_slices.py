"""Counts of a pgbench that runs in interleaved time slices (``MeasuredWindow.turns``). Pure.

pgbench is paused between its slices, and a progress line may span any number of pauses, so progress lines cannot be assigned to a slice.
The log has the end of each sampled transaction. The number of transactions in a span is the total of the final report, which is exact,
times the fraction of logged transactions in the span. So the sample only determines fractions, and the larger the span, the
smaller their random error.

A transaction in progress at a pause ends soon after the start of the next slice, and is counted there. Its latency includes the pause, so
only latencies that start and end within one slice are used. The mean is that of a closed loop by Little's law: clients ÷
throughput (Little, Operations Research 9, 1961).

Each slice starts with the transactions in progress, which synchronizes the clients. The effect lasts for a few transactions. If these take
long compared with the counted part of a slice, the count would reflect the slices more than the load, so there is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

from pgherd.drivers.driver import DriverSpan, MeasuredWindow
from pgherd.drivers.pgbench_output import LoggedTransaction, PgbenchReport, latency
from pgherd.model.result import Latency

MAX_TRANSACTION_SHARE = 0.1
"""Largest mean duration of a transaction as a fraction of the counted part of a slice."""


@dataclass(frozen=True)
class SliceCounts:
    """Counts of a pgbench in a window.

    Attributes:
        transactions: committed transactions.
        failed: failed transactions.
        throughput: transactions per second of the time that counts for rates.
        seconds: time for ``transactions`` at that throughput.
        per_second: transactions in each whole second.
        latency: latency of the sampled transactions.
        sample: logged transactions.
    """

    transactions: float
    failed: int
    throughput: float
    seconds: float
    per_second: list[float]
    latency: Latency
    sample: Sequence[LoggedTransaction]


def count(report: PgbenchReport, logged: Sequence[LoggedTransaction], window: MeasuredWindow, clients: int, target: str) -> SliceCounts:
    """Count the transactions of a pgbench in the slices of a window.

    Raises:
        ValueError: no transaction was logged in them, or a transaction takes too long for slices.
    """
    ordered = sorted(logged, key=lambda transaction: transaction.at)
    ends = [transaction.at for transaction in ordered]
    parts = [DriverSpan(max(turn.first + window.lead, turn.last - window.counted), turn.last) for turn in window.turns]
    parts = [part for part in parts if part.last > part.first]
    counted = sum(len(_between(ordered, ends, part.first, part.last)) for part in parts)
    per_logged = report.transactions / len(ordered) if ordered else 0.0
    throughput = per_logged * counted / sum(part.last - part.first for part in parts) if counted else 0.0
    if throughput * MAX_TRANSACTION_SHARE * window.counted < clients:
        duration = f"takes {1000 * clients / throughput:.3g} ms" if throughput else "never ended in the counted time"
        raise ValueError(
            f"a transaction of {target} {duration}, too long for time slices of which {1000 * window.counted:g} ms count: compare with "
            "--interleave trials"
        )
    inside = _between(ordered, ends, window.start, window.end)
    within_slice = [
        transaction.latency
        for turn in window.turns
        for transaction in _between(ordered, ends, turn.first, turn.last)
        if _start(transaction) >= turn.first
    ]
    borders = [window.start + second for second in range(floor(window.end - window.start + 1e-6) + 1)]
    return SliceCounts(
        transactions=per_logged * len(inside),
        failed=round(report.failed * len(inside) / len(ordered)),
        throughput=throughput,
        seconds=per_logged * len(inside) / throughput,
        per_second=[per_logged * len(_between(ordered, ends, first, last)) for first, last in pairwise(borders)],
        latency=latency(within_slice, 1000 * clients / throughput),
        sample=inside,
    )


def _between(ordered: Sequence[LoggedTransaction], ends: Sequence[float], first: float, last: float) -> Sequence[LoggedTransaction]:
    """Return the transactions that ended after ``first`` and not after ``last``."""
    return ordered[bisect_right(ends, first) : bisect_right(ends, last)]


def _start(transaction: LoggedTransaction) -> float:
    return transaction.at - transaction.latency / 1000
