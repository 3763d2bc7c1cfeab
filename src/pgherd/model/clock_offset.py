"""How far one clock is ahead of another: what a question and its answer say of it, and what holds between two measurements. Pure.

A guest's clock against its host's (pgherd.runtimes.vm.guest_clock) and a host's against the driver's (pgherd.cluster.remote,
pgherd.runner.hosts.clocks) are measured and used alike; all instants and offsets are in seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def bounds(asked: float, came: float, left: float, answered: float) -> tuple[float, float]:
    """Between which two values the other clock's lead over ours lies, whatever the two ways took.

    Args:
        asked: our clock when the question was sent (T1 of RFC 5905, section 8).
        came: the other clock when the question came (T2).
        left: the other clock when the answer left (T3; the same as T2 where it was read once).
        answered: our clock when the answer came (T4).

    The middle is RFC 5905's offset, ((T2 - T1) + (T3 - T4)) / 2, and half the width the most by which it can be wrong; no estimate can
    do better (F. Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989).
    """
    return left - answered, came - asked


def between(measured: Sequence[tuple[float, float]], at: float) -> float:
    """The offset at an instant, from (instant, offset) in order of time: it changes linearly between two measurements, and stays what it is
    before the first and after the last. Raises ValueError where nothing was measured."""
    if not measured:
        raise ValueError("the clock has not been measured")
    after = bisect_right([instant for instant, _ in measured], at)
    if after in (0, len(measured)):
        return measured[0 if after == 0 else -1][1]
    (begin, first), (end, second) = measured[after - 1], measured[after]
    return first + (second - first) * (at - begin) / (end - begin)
