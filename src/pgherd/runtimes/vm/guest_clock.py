"""A guest's clock against the host's: measured by round trips, at least at the beginning and the end of what is to be compared.

**One measurement** asks the guest several times what time it is; the answer with the shortest way counts, and says between which bounds
the guest's lead lies. **Between two measurements** it is taken to change linearly (both: pgherd.model.clock_offset). An emulated guest's
clock may run at its own pace: ``drift`` says at which.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from pgherd.model.clock_offset import between, bounds

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
        low, high = bounds(t1, t2, t3, t4)
        found = Offset((t1 + t4) / 2, (low + high) / 2, abs(high - low) / 2)
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
        return between([(one.at, one.offset) for one in self.measured], at)

    def guest(self, at: float) -> float:
        """The guest's clock at an instant of the host's."""
        return at + self.offset(at)

    def host(self, at: float) -> float:
        """The host's clock at an instant of the guest's: the inverse of ``guest``."""
        return at - between([(one.at + one.offset, one.offset) for one in self.measured], at)

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
