"""Drivers: their protocol with the values that they get and return, counts over time, and all drivers by name.

A new driver needs no registration: its module exports ``DRIVER``. Some drivers report their rate while they run.
"""

from __future__ import annotations

import importlib
import pkgutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import floor, inf
from typing import Any, Protocol

import pgherd.drivers
from pgherd.drivers.pgbench_output import moved_progress, read_progress
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import TargetResult

# ---- protocol


@dataclass(frozen=True)
class Endpoint:
    """Address of a driver's target. Fields that do not apply to the target are empty.

    Attributes:
        target: the target's name.
        bin: directory of the PostgreSQL programs.
        host: socket directory or host of a database; remote host of a link.
        port: port of a database, or of the remote end of a link.
        database: name of a database.
        user: user for the database.
        output: directory for output files, writable by the driver.
        scale: scale factor of a database.
        directory: directory of a volume.
    """

    target: str
    bin: str
    host: str
    port: int
    database: str
    user: str
    output: str
    scale: int = 1
    directory: str = ""


@dataclass(frozen=True)
class DriverSpan:
    """Interval in which a driver ran, or ran in one slice, in seconds since the epoch."""

    first: float
    last: float


@dataclass(frozen=True)
class MeasuredWindow:
    """The measured window, seconds since the epoch.

    Attributes:
        start: its start.
        end: its end.
        stop: the instant at which the driver was stopped.
        turns: slices of the window in which the driver ran, if loads run in interleaved time slices.
        counted: seconds at the end of each slice that count for rates.
        lead: seconds at the start of each slice that never count, even if the slice is short.
    """

    start: float
    end: float
    stop: float
    turns: tuple[DriverSpan, ...] = ()
    counted: float = 0.0
    lead: float = 0.0


class Driver(Protocol):
    """A load generator: its command line, the signal that ends it early with a full report, and the parser of its output.

    Output files are in ``endpoint.output``: ``stdout``, ``stderr`` and the tool's files. ``span`` and ``result`` get their
    texts by file name. A missing or truncated text raises ValueError with the tool's last messages. ``exit_codes`` are
    those of a successful run, stopped by the signal or not.
    """

    name: str
    stop_signal: int
    exit_codes: tuple[int, ...]

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """Return the command line that runs this load for at most ``seconds``. Raises UsageError for an invalid load."""
        ...

    def span(self, files: Mapping[str, str], started: float, stop: float) -> DriverSpan:
        """Return the interval in which the driver generated load."""
        ...

    def result(self, load: Load, files: Mapping[str, str], started: float, window: MeasuredWindow, target: str) -> TargetResult:
        """Return the target's result over the common window. The caller adds ``client_cpu`` and ``raw``."""
        ...


# ---- counts over time


class CumulativeCurve:
    """A count over wall-clock time, linear between its points, flat before the first and after the last.

    Tools report counts by interval, and the intervals of two tools never coincide. The curve gives the count of any
    window, and the parts of a window always add up to the window's count.
    """

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        """Build the curve from points ``(instant, count so far)`` in order of time.

        A point that is not later than its predecessor replaces it. A count below its predecessor is raised to it, so
        that the curve never decreases.

        Raises:
            ValueError: there are no points.
        """
        self.times: list[float] = []
        self.counts: list[float] = []
        for time, count in points:
            level = max(count, self.counts[-1]) if self.counts else count
            if self.times and time <= self.times[-1]:
                self.counts[-1] = level
            else:
                self.times.append(time)
                self.counts.append(level)
        if not self.times:
            raise ValueError("a cumulative curve needs at least one point")

    def value_at(self, time: float) -> float:
        """Return the count at an instant."""
        i = bisect_right(self.times, time)
        if i == 0:
            return self.counts[0]
        if i == len(self.times):
            return self.counts[-1]
        t0, t1 = self.times[i - 1], self.times[i]
        c0, c1 = self.counts[i - 1], self.counts[i]
        return min(c1, c0 + (c1 - c0) * ((time - t0) / (t1 - t0)))

    def between(self, start: float, end: float) -> float:
        """Return the increase from start to end."""
        return self.value_at(end) - self.value_at(start)

    def per_second(self, start: float, end: float) -> list[float]:
        """Return the increase in each whole second from start on. An incomplete last second is left out."""
        levels = [self.value_at(start + i) for i in range(floor(end - start + 1e-6) + 1)]
        return [after - before for before, after in pairwise(levels)]


def amount(value: Any) -> float:
    """Return a number of another program's report. Raises ValueError or TypeError if it is negative, infinite or no number."""
    try:
        number = float(value)
    except OverflowError:
        number = inf
    if not 0 <= number < inf:
        raise ValueError(f"{str(value)[:20]} is no finite number of at least 0")
    return number


# ---- all drivers


@cache
def drivers() -> dict[str, Driver]:
    """Return name → driver, sorted by name. The mapping is shared: do not change it."""
    by_name: dict[str, Driver] = {}
    for module in pkgutil.iter_modules(pgherd.drivers.__path__, "pgherd.drivers."):
        instance: Driver | None = getattr(importlib.import_module(module.name), "DRIVER", None)
        if instance is not None:
            by_name[instance.name] = instance
    return dict(sorted(by_name.items()))


def driver_named(name: str) -> Driver:
    """Return the driver of that name.

    Raises:
        UsageError: there is none. 'idle' is no driver: a target without a load is idle.
    """
    by_name = drivers()
    if name not in by_name:
        raise UsageError(f"there is no driver '{name}'; known: {', '.join(by_name)}")
    return by_name[name]


Told = tuple[float, float]
"""(seconds since the epoch, transactions per second over the previous second)."""


def _pgbench_rates(stderr: str) -> list[Told]:
    return [(line.at, line.tps) for line in read_progress(stderr)]


_READERS: Mapping[str, Callable[[str], list[Told]]] = {"pgbench": _pgbench_rates}
_MOVERS: Mapping[str, Callable[[str, float], str]] = {"pgbench": moved_progress}


def tells(driver_named: str) -> bool:
    """Return True if the driver reports its rate while it runs. Most drivers report only at their end."""
    return driver_named in _READERS


def read_rates(driver_named: str, stderr: str) -> list[Told]:
    """Return the rates in lines of a driver's stderr, in order, or nothing for a driver that reports only at its end."""
    return _READERS[driver_named](stderr) if driver_named in _READERS else []


def on_clock(driver_named: str, stderr: str, ahead: float) -> str:
    """Return the lines with a rate, their instants moved to another clock.

    Args:
        driver: its name.
        stderr: lines of its stderr.
        ahead: seconds by which the driver's clock is ahead of the other one.
    """
    return _MOVERS[driver_named](stderr, ahead) if driver_named in _MOVERS else ""
