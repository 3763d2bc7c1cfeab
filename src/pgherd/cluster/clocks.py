"""Clock offsets between hosts, from round trips.

A host's clock is read between the sending of a question and the coming of its answer. So the true offset lies between two bounds,
whatever the two ways took (pgherd.model.clock_offset); several round
trips narrow it down to what all of these intervals share (Marzullo and Owicki, 1983, as in NTP, RFC 5905 section 11.2.1).
No assumption on the ways' symmetry is made: the uncertainty is a bound, not a deviation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.cluster.remote import Offset
from pgherd.model.clock_offset import bounds

SKEW = "PGHERD_TEST_CLOCK_SKEW"
"""For tests only: seconds by which an agent's clock is wrong (``time.time`` in its own process; programs that it starts keep the
true one). A clock that is measured can be tested only when it is known how wrong it is."""


@dataclass(frozen=True)
class RoundTrip:
    """One question: ``sent`` by the driver's wall clock, answered after ``took`` seconds, the host's wall clock read as ``there``."""

    sent: float
    took: float
    there: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which two offsets the true one lies, seconds."""
        return bounds(self.sent, self.there, self.there, self.sent + self.took)


def combine(trips: Sequence[RoundTrip]) -> Offset:
    """The offset that all round trips agree on; that of the shortest alone where they agree on none (a clock was set meanwhile).

    Raises ValueError without any round trip.
    """
    if not trips:
        raise ValueError("no round trip was made")
    shortest = min(trips, key=lambda trip: trip.took)
    lows, highs = zip(*(trip.bounds for trip in trips), strict=True)
    low, high = max(lows), min(highs)
    if low > high:
        low, high = shortest.bounds
    return Offset((low + high) / 2, (high - low) / 2, max(trip.sent for trip in trips), shortest.took, len(trips))


def skew_for_tests() -> float:
    """Shift this process's ``time.time`` as the environment says (see SKEW), before anything else takes hold of it; by how much."""
    skew = float(os.environ.get(SKEW, "0") or 0)
    if skew:
        true_time = time.time
        time.time = lambda: true_time() + skew
    return skew
