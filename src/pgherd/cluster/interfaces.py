"""Interface between a run and its cluster: objects on each host, called from the driver, lost hosts, and clock offsets.

It does not depend on the engine, so a run on many hosts can be tested with objects in one process.

Clock offsets come from round trips. A host's clock is read between a request and its answer, so the true offset is
between two bounds, for any delay in each direction (pgherd.model.clock_offset). Several round trips narrow it down
to the intersection of their intervals (Marzullo and Owicki, 1983, as in NTP, RFC 5905 section 11.2.1). Symmetry is
not assumed: the uncertainty is a bound, not a deviation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from pgherd.model.clock_offset import bounds
from pgherd.model.errors import PgherdError, TrialError

LOST_AFTER = 8.0
"""Seconds without a heartbeat after which a driver treats a host as lost, and an agent its driver."""


class HostLost(TrialError):
    """Error: a host died, hangs, or is cut off, and all that ran on it is lost. ``why`` is the symptom."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"host {host} is lost: {why}")
        self.host, self.why = host, why

    def __reduce__(self) -> tuple[type[HostLost], tuple[str, str]]:
        """Pickle it as its two parts."""
        return type(self), (self.host, self.why)


def named(error: PgherdError | OSError, host: str) -> PgherdError | OSError:
    """Return the same error, of the same kind, with the name of its host."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, f"{error.filename or 'a file'} on host {host}")
    if type(error) is TrialError:
        return TrialError(f"on host {host}: {error}")
    error.args = (f"on host {host}: {error}",)
    return error


@dataclass(frozen=True)
class HostClockOffset:
    """Host's clock against the driver's: host time − driver time, in seconds.

    The true offset is within ``seconds`` ± ``uncertainty`` for any delays (half the shortest round trip). ``at`` is
    the driver's wall clock at the measurement, ``round_trip`` the shortest one in seconds, and ``n`` their number.
    """

    seconds: float
    uncertainty: float
    at: float
    round_trip: float
    n: int


_current_host: ContextVar[str] = ContextVar("pgherd host")


def this_host() -> str:
    """Return the name of the host on which an actor's code runs. Raises LookupError elsewhere."""
    return _current_host.get()


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Run the block as code of that host."""
    token = _current_host.set(name)
    try:
        yield
    finally:
        _current_host.reset(token)


class RemoteObject(Protocol):
    """Object that an agent created on its host, and that this process calls."""

    host: str
    """Name in the cluster: that in ``--hosts``, or the name under which its worker joined."""
    address: str
    """Network address without a port, by which other hosts reach its servers."""

    def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Run ``actor.method(*arguments)`` on that host, in a separate thread, and return its result.

        Several calls to one actor may run at the same time, from any threads.

        Raises:
            PgherdError, OSError: as raised by the method.
            HostLost: the host died, hangs or is cut off; at most LOST_AFTER seconds plus one heartbeat later.
            TimeoutError: the host responds, but the method has not returned after ``timeout`` seconds; it continues
                there.
        """
        ...


class ClusterClient(Protocol):
    """Hosts of a cluster, from the driver's side. Threads may share it."""

    def hosts(self) -> tuple[str, ...]:
        """Return the names of hosts that have joined and are not lost, in the cluster's order."""
        ...

    def lost(self) -> dict[str, str]:
        """Return lost host → reason. A host that has joined again is not included."""
        ...

    def actors(self, make: Callable[..., object], *arguments: Any) -> dict[str, RemoteObject]:
        """Create one object on each host by ``make(*arguments)``, an importable function, and return them by host.

        An object lives until ``close``, until the next ``actors`` with the same ``make``, or until its host loses the
        driver. Then its method ``lost()`` is called, if it has one, which stops servers and cleans up.

        Raises HostLost, also if creating it takes too long (a late object is released there), and what ``make``
        raised, with the host's name.
        """
        ...

    def offsets(self) -> dict[str, HostClockOffset]:
        """Measure the clock offset of each host now (4 to 16 round trips each, some hosts at a time)."""
        ...

    def beats(self, since: float) -> dict[str, list[HostClockOffset]]:
        """Return clock offsets from the heartbeats since an instant (driver's wall clock), with one round trip each."""
        ...

    def close(self) -> None:
        """Release the objects (their ``lost()`` is called) and the hosts. The agents wait for the next driver."""
        ...


SKEW = "PGHERD_TEST_CLOCK_SKEW"
"""For tests only: seconds by which an agent's clock is shifted (``time.time`` in its process, not in its children).

A clock measurement can be tested only with a known error.
"""


@dataclass(frozen=True)
class RoundTrip:
    """One request: ``sent`` by the driver's wall clock, answered after ``took`` seconds with the host's wall clock
    ``there``.
    """

    sent: float
    took: float
    there: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the true offset, seconds."""
        return bounds(self.sent, self.there, self.there, self.sent + self.took)


def combine(trips: Sequence[RoundTrip]) -> HostClockOffset:
    """Return the offset on which all round trips agree. If they do not agree, a clock was set meanwhile, and the
    shortest one counts.

    Raises ValueError without any round trip.
    """
    if not trips:
        raise ValueError("no round trip")
    shortest = min(trips, key=lambda trip: trip.took)
    lows, highs = zip(*(trip.bounds for trip in trips), strict=True)
    low, high = max(lows), min(highs)
    if low > high:
        low, high = shortest.bounds
    return HostClockOffset((low + high) / 2, (high - low) / 2, max(trip.sent for trip in trips), shortest.took, len(trips))


def skew_for_tests() -> float:
    """Shift this process's ``time.time`` by SKEW, before other imports keep a reference to it. Return the shift."""
    skew = float(os.environ.get(SKEW, "0") or 0)
    if skew:
        true_time = time.time
        time.time = lambda: true_time() + skew
    return skew
