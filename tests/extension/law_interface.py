"""The control law of pg_balloon as Python calls it: law.h's structures, in their order, and its answers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

STAY, GIVE, TAKE, CLEAN = range(4)
CALM, EMPTY, FLOOR, PINNED, IDLE, SWAPPED, EXHAUSTED, NEED, NO_MEMORY, HELD, TIDY, BOTTOM = range(12)
CEILING = 15
BLOCK = 8192
MB = 1024 * 1024


class View(ctypes.Structure):
    _fields_ = [
        ("dt", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("pool", "ballooned", "unused", "floor", "ceiling", "block")),
        *((name, ctypes.c_double) for name in ("hot", "pinned", "misses", "filled", "miss_cost", "waiting", "dirty")),
        *((name, ctypes.c_int64) for name in ("limit", "available", "reachable", "unclaimed")),
        *((name, ctypes.c_double) for name in ("refaults", "own_refaults", "swapping", "stall")),
    ]


class Tuning(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("reserve_low", "reserve_high", "yield_rate", "growth_rate", "clean_rate")]


class Mind(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("pressed", "need", "waiting", "needed", "hold", "exhausted", "nothing_left", "quiet")),
        *((name, ctypes.c_double) for name in ("refaults", "own_refaults", "strain", "since_given", "patience")),
        ("gave", ctypes.c_bool),
    ]


class Verdict(ctypes.Structure):
    _fields_ = [
        ("act", ctypes.c_int),
        ("why", ctypes.c_int),
        ("buffers", ctypes.c_int64),
        ("write", ctypes.c_bool),
        ("prefetch", ctypes.c_bool),
    ]


Law = Callable[[Tuning, View, Mind], Verdict]


def tuning_for(limit: int, low: float = 0.03, high: float = 0.08) -> Tuning:
    return Tuning(int(limit * low), int(limit * high), 2048 * MB, 1024 * MB, 16 * MB)
