"""All drivers by name: every module of this package that has a ``DRIVER``. A new driver is one file."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import pgherd.drivers
from pgherd.drivers.driver import Driver
from pgherd.model.errors import UsageError


@cache
def drivers() -> dict[str, Driver]:
    """Name → driver, sorted by name. The mapping is shared: do not change it."""
    found: dict[str, Driver] = {}
    for module in pkgutil.iter_modules(pgherd.drivers.__path__, "pgherd.drivers."):
        instance: Driver | None = getattr(importlib.import_module(module.name), "DRIVER", None)
        if instance is not None:
            found[instance.name] = instance
    return dict(sorted(found.items()))


def driver(name: str) -> Driver:
    """The driver of that name.

    Raises:
        UsageError: there is none. ('idle' is no driver: a target without a load is idle.)
    """
    known = drivers()
    if name not in known:
        raise UsageError(f"there is no driver '{name}'; known: {', '.join(known)}")
    return known[name]
