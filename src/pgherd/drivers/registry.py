"""All drivers by name, and their progress while they run. A new driver needs no registration: its module exports ``DRIVER``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache

import pgherd.drivers
from pgherd.drivers.driver import Driver
from pgherd.drivers.pgbench_output import moved_progress, read_progress
from pgherd.model.errors import UsageError


@cache
def drivers() -> dict[str, Driver]:
    """Return name → driver, sorted by name. The mapping is shared: do not change it."""
    by_name: dict[str, Driver] = {}
    for module in pkgutil.iter_modules(pgherd.drivers.__path__, "pgherd.drivers."):
        instance: Driver | None = getattr(importlib.import_module(module.name), "DRIVER", None)
        if instance is not None:
            by_name[instance.name] = instance
    return dict(sorted(by_name.items()))


def driver(name: str) -> Driver:
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


def tells(driver: str) -> bool:
    """Return True if the driver reports its rate while it runs. Most drivers report only at their end."""
    return driver in _READERS


def read_rates(driver: str, stderr: str) -> list[Told]:
    """Return the rates in lines of a driver's stderr, in order, or nothing for a driver that reports only at its end."""
    return _READERS[driver](stderr) if driver in _READERS else []


def on_clock(driver: str, stderr: str, ahead: float) -> str:
    """Return the lines with a rate, their instants moved to another clock.

    Args:
        driver: its name.
        stderr: lines of its stderr.
        ahead: seconds by which the driver's clock is ahead of the other one.
    """
    return _MOVERS[driver](stderr, ahead) if driver in _MOVERS else ""
