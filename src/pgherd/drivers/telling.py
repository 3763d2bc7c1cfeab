"""What drivers tell while they run. Most tell nothing before their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pgherd.drivers.pgbench_output import read_progress

Told = tuple[float, float]
"""(seconds since the epoch, transactions per second over the second before)."""


def _pgbench(stderr: str) -> list[Told]:
    return [(line.at, line.tps) for line in read_progress(stderr)]


_READERS: Mapping[str, Callable[[str], list[Told]]] = {"pgbench": _pgbench}


def tells(driver: str) -> bool:
    """Whether a driver tells its rate while it runs."""
    return driver in _READERS


def read_rates(driver: str, stderr: str) -> list[Told]:
    """The rates that some lines of a driver's stderr tell, in order; none of a driver that tells nothing."""
    return _READERS[driver](stderr) if driver in _READERS else []
