"""Offset between two clocks: bounds from one exchange, and interpolation between measurements.

Used for guests against their host (pgherd.runtimes.vm.guest_spool) and for hosts against the driver (pgherd.cluster.interfaces,
pgherd.distributed.clock_alignment). Instants and offsets are in seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def bounds(asked: float, came: float, left: float, answered: float) -> tuple[float, float]:
    """Return the lowest and highest possible lead of the remote clock.

    The bounds hold for any split of the delay between the two directions.

    Args:
        asked: local clock when the request was sent (T1 of RFC 5905, section 8).
        came: remote clock when the request arrived (T2).
        left: remote clock when the reply was sent (T3). Equal to T2 if the clock was read once.
        answered: local clock when the reply arrived (T4).

    The midpoint is the offset of RFC 5905, ((T2 - T1) + (T3 - T4)) / 2, and half the width its largest error. No estimate can
    do better (F. Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989).
    """
    return left - answered, came - asked


def between(measured: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate the offset at an instant.

    Args:
        measured: (instant, offset) in order of time.
        at: the instant. Before the first and after the last measurement the nearest offset applies.

    Raises:
        ValueError: there are no measurements.
    """
    if not measured:
        raise ValueError("no measurement of the clock")
    after = bisect_right([instant for instant, _ in measured], at)
    if after in (0, len(measured)):
        return measured[0 if after == 0 else -1][1]
    (begin, first), (end, second) = measured[after - 1], measured[after]
    return first + (second - first) * (at - begin) / (end - begin)
