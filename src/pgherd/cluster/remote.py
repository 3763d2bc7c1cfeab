"""What a run sees of a cluster: an object of ours on each host, called from here, and what it means when a host is gone.

Written down without the engine behind it, so that a run on many hosts can be tested with objects in one process.
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
"""Seconds without a sign of life after which either side takes the other for lost: a driver a host, an agent its driver."""


class HostLost(TrialError):
    """A host died, hangs, or is cut off; whatever ran on it is of no use. ``host`` names it, ``why`` says how it showed."""

    def __init__(self, host: str, why: str) -> None:
        """Both are kept as they are; the message is made of them."""
        super().__init__(f"host {host} is lost: {why}")
        self.host, self.why = host, why

    def __reduce__(self) -> tuple[type[HostLost], tuple[str, str]]:
        """Pickled as its two parts."""
        return type(self), (self.host, self.why)


def named(error: PgherdError | OSError, host: str) -> PgherdError | OSError:
    """The same error, of the same kind, saying on which host it happened."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, f"{error.filename or 'a file'} on host {host}")
    if type(error) is TrialError:
        return TrialError(f"on host {host}: {error}")
    error.args = (f"on host {host}: {error}",)
    return error


@dataclass(frozen=True)
class Offset:
    """A host's clock against the driver's: host time − driver time, in seconds.

    The true offset lies in ``seconds`` ± ``uncertainty`` whatever the two ways took (half the shortest round trip). ``at`` is the
    driver's wall clock when it was measured; ``round_trip`` the shortest one seen, in seconds; ``n`` how many were made.
    """

    seconds: float
    uncertainty: float
    at: float
    round_trip: float
    n: int


_here: ContextVar[str] = ContextVar("pgherd host")


def this_host() -> str:
    """Name of the host on which an actor's code runs, to be asked inside of it; raises LookupError elsewhere."""
    return _here.get()


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Run the block as code of that host."""
    token = _here.set(name)
    try:
        yield
    finally:
        _here.reset(token)


class Remote(Protocol):
    """An object of ours on one host."""

    host: str
    """Its name in the cluster: what ``--hosts`` said, or the name under which its worker joined."""
    address: str
    """Its own network address, without a port: where another host reaches its servers."""

    def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Run ``actor.method(*arguments)`` on that host, in a thread of its own, and return what it returned.

        Several calls to one actor may run at the same time. Call it from any thread. Raises what the method raised (PgherdError and
        OSError intact); HostLost when the host died, hangs or is cut off, at the latest LOST_AFTER seconds (and a beat) after it did;
        TimeoutError when the host answers but the method has not returned after ``timeout`` seconds (it goes on there).
        """
        ...


class Engine(Protocol):
    """The hosts of a cluster, from the driver's side. Threads may share it."""

    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that are joined and not lost, in the cluster's order."""
        ...

    def lost(self) -> dict[str, str]:
        """Host → why, for those that were once there and are gone. One that has joined again is no longer in it."""
        ...

    def actors(self, make: Callable[..., object], *arguments: Any) -> dict[str, Remote]:
        """One object on each host, made there by ``make(*arguments)``, an importable function.

        The object lives until ``close``, the next ``actors`` with the same ``make``, or until its host loses the driver: then its
        method ``lost()`` is called, if it has one, which stops servers and cleans up; the same before it is replaced. Raises HostLost,
        also where making it takes too long (what is made after all is let go of there), and what ``make`` raised, with the host's name.
        """
        ...

    def offsets(self) -> dict[str, Offset]:
        """Clock offset of each host against the driver's, measured now (4 to 16 round trips each, some hosts at a time)."""
        ...

    def beats(self, since: float) -> dict[str, list[Offset]]:
        """What the signs of life since an instant (the driver's wall clock) showed of each host's clock: one round trip each."""
        ...

    def close(self) -> None:
        """Let go of the objects (their ``lost()`` is called) and of the hosts; the agents go on and wait for the next driver."""
        ...


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
