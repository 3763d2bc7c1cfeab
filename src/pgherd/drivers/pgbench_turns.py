"""Counting what a pgbench did in its turns, where loads take turns. Pure.

A progress line may hold any number of a pgbench's stops, so nothing can be told from it of a part of its time. The log tells when each
sampled transaction ended. How many of all the transactions lie in a span is the number of all, which the final report has
exactly, times the share of the logged ones that lie there: the sample decides about shares only, and the more of the run
a span holds, the less of chance is in its number.

A transaction that was under way when its pgbench was stopped ends as soon as it goes on, and is counted in that turn; its latency holds
the time of the stop, so of latencies only those count that begin and end within one turn. The mean is that of a
closed loop, by Little's law: clients ÷ throughput (Little, Operations Research 9, 1961).

Each turn begins with what was under way, and puts the clients in step. That is forgotten within a few transactions; where these take long
beside what counts of a turn, a count would tell more of the turns than of the load, and there is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

from pgherd.drivers import log_sample
from pgherd.drivers.driver import Span, Window
from pgherd.drivers.pgbench_output import Logged, Report
from pgherd.model.result import Latency

SHARE = 0.1
"""Of what counts of a turn, that a transaction may take on average."""


@dataclass(frozen=True)
class Counted:
    """What a pgbench did in a window: ``transactions`` and ``failed`` ones, and the logged ones among them (``sample``); ``throughput``
    per second of what counts for rates, and in how many ``seconds`` it makes so many transactions; ``per_second`` is by whole seconds."""

    transactions: float
    failed: int
    throughput: float
    seconds: float
    per_second: list[float]
    latency: Latency
    sample: Sequence[Logged]


def count(report: Report, logged: Sequence[Logged], window: Window, clients: int, target: str) -> Counted:
    """What a pgbench did in the turns of a window.

    Raises:
        ValueError: nothing was logged in them, or a transaction takes too long to be counted in them.
    """
    ordered = sorted(logged, key=lambda one: one.at)
    ends = [one.at for one in ordered]
    parts = [Span(max(turn.first + window.lead, turn.last - window.counted), turn.last) for turn in window.turns]
    parts = [part for part in parts if part.last > part.first]
    counted = sum(len(_between(ordered, ends, part.first, part.last)) for part in parts)
    each = report.transactions / len(ordered) if ordered else 0.0
    throughput = each * counted / sum(part.last - part.first for part in parts) if counted else 0.0
    if throughput * SHARE * window.counted < clients:
        took = f"takes {1000 * clients / throughput:.3g} ms" if throughput else "never ended while it counted"
        raise ValueError(
            f"a transaction of {target} {took}, too long to be counted in turns of which {1000 * window.counted:g} ms count: compare with "
            "--arms one-at-a-time"
        )
    inside = _between(ordered, ends, window.start, window.end)
    whole = [one.latency for turn in window.turns for one in _between(ordered, ends, turn.first, turn.last) if _begun(one) >= turn.first]
    borders = [window.start + second for second in range(floor(window.end - window.start + 1e-6) + 1)]
    return Counted(
        transactions=each * len(inside),
        failed=round(report.failed * len(inside) / len(ordered)),
        throughput=throughput,
        seconds=each * len(inside) / throughput,
        per_second=[each * len(_between(ordered, ends, first, last)) for first, last in pairwise(borders)],
        latency=log_sample.latency(whole, 1000 * clients / throughput),
        sample=inside,
    )


def _between(ordered: Sequence[Logged], ends: Sequence[float], first: float, last: float) -> Sequence[Logged]:
    """Those that ended after ``first``, and not after ``last``."""
    return ordered[bisect_right(ends, first) : bisect_right(ends, last)]


def _begun(one: Logged) -> float:
    return one.at - one.latency / 1000
