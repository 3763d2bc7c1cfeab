"""What drivers tell while they run. Most tell nothing before their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pgherd.drivers.pgbench_output import moved_progress, read_progress

Told = tuple[float, float]
"""(seconds since the epoch, transactions per second over the second before)."""


def _pgbench(stderr: str) -> list[Told]:
    return [(line.at, line.tps) for line in read_progress(stderr)]


_READERS: Mapping[str, Callable[[str], list[Told]]] = {"pgbench": _pgbench}
_MOVED: Mapping[str, Callable[[str, float], str]] = {"pgbench": moved_progress}


def tells(driver: str) -> bool:
    """Whether a driver tells its rate while it runs."""
    return driver in _READERS


def read_rates(driver: str, stderr: str) -> list[Told]:
    """The rates that some lines of a driver's stderr tell, in order; none of a driver that tells nothing."""
    return _READERS[driver](stderr) if driver in _READERS else []


def on_clock(driver: str, stderr: str, ahead: float) -> str:
    """Of these lines those that tell a rate, with their instants on another clock: the driver's own is ``ahead`` of it, in seconds."""
    return _MOVED[driver](stderr, ahead) if driver in _MOVED else ""
