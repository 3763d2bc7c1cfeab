"""A guest's clock against the host's: measured by round trips, at least at the beginning and the end of what is to be compared.

**One measurement** asks the guest several times what time it is. With the host's instants before and after (T1, T4) and the guest's
when the question came and when the answer left (T2, T3), the guest is ahead by ((T2 - T1) + (T3 - T4)) / 2, and the time on the way was
(T4 - T1) - (T3 - T2): RFC 5905, section 8. The answer with the shortest way counts. Nothing is known of how the way splits into there and
back, so the offset is known to ± half of it, and no estimate can do better (F. Cristian, Probabilistic clock synchronization, Distributed
Computing 3, 1989).

**Between two measurements** the offset is taken to change linearly, before the first and after the last to stay. An emulated guest's clock
may run at its own pace: ``drift`` says at which.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

Ask = Callable[[], tuple[float, float]]
"""Asks the guest; returns its clock when the question came and when the answer left (seconds since the epoch)."""

TRIES = 8


@dataclass(frozen=True)
class Offset:
    """At the host's instant ``at`` the guest's clock showed ``offset`` seconds more, give or take ``uncertainty``."""

    at: float
    offset: float
    uncertainty: float


def measure(ask: Ask, tries: int = TRIES, clock: Callable[[], float] = time.time) -> Offset:
    """Ask ``tries`` times and take the answer with the shortest way; raises what ``ask`` raises."""
    best: Offset | None = None
    for _ in range(tries):
        t1 = clock()
        t2, t3 = ask()
        t4 = clock()
        found = Offset((t1 + t4) / 2, ((t2 - t1) + (t3 - t4)) / 2, abs((t4 - t1) - (t3 - t2)) / 2)
        if best is None or found.uncertainty < best.uncertainty:
            best = found
    if best is None:
        raise ValueError("a clock is measured by asking at least once")
    return best


class GuestClock:
    """Converts between the two clocks by what has been measured so far."""

    def __init__(self) -> None:
        """Nothing is measured yet; conversions raise ValueError until it is."""
        self.measured: list[Offset] = []

    def add(self, offset: Offset) -> None:
        """A further measurement; one that is older than the last is put in its place."""
        self.measured.insert(bisect_right([one.at for one in self.measured], offset.at), offset)

    def offset(self, at: float) -> float:
        """By how many seconds the guest is ahead at an instant of the host's clock."""
        if not self.measured:
            raise ValueError("the guest's clock has not been measured")
        after = bisect_right([one.at for one in self.measured], at)
        if after == 0 or after == len(self.measured):
            return self.measured[0 if after == 0 else -1].offset
        first, second = self.measured[after - 1], self.measured[after]
        return first.offset + (second.offset - first.offset) * (at - first.at) / (second.at - first.at)

    def guest(self, at: float) -> float:
        """The guest's clock at an instant of the host's."""
        return at + self.offset(at)

    def host(self, at: float) -> float:
        """The host's clock at an instant of the guest's: the inverse of ``guest``."""
        if not self.measured:
            raise ValueError("the guest's clock has not been measured")
        shown = [one.at + one.offset for one in self.measured]
        after = bisect_right(shown, at)
        if after == 0 or after == len(shown):
            return at - self.measured[0 if after == 0 else -1].offset
        first, second = self.measured[after - 1], self.measured[after]
        return first.at + (second.at - first.at) * (at - shown[after - 1]) / (shown[after] - shown[after - 1])

    @property
    def uncertainty(self) -> float:
        """Seconds by which a converted instant may be wrong: that of the worst measurement. What the clock did between two of
        them is not in it."""
        if not self.measured:
            raise ValueError("the guest's clock has not been measured")
        return max(one.uncertainty for one in self.measured)

    @property
    def drift(self) -> float | None:
        """Seconds that the guest gains per second of the host between the first and the last measurement; None where the change
        is within what is uncertain about the two."""
        if len(self.measured) < 2:
            return None
        first, last = self.measured[0], self.measured[-1]
        changed = last.offset - first.offset
        if abs(changed) <= first.uncertainty + last.uncertainty or last.at <= first.at:
            return None
        return changed / (last.at - first.at)
