"""What a run sees of a cluster: an object of ours on each host, called from here, and what it means when a host is gone.

Written down without the engine behind it, so that a run on many hosts can be tested with objects in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

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
