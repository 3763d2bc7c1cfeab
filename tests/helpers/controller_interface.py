"""Structures, actions and reasons of pg_balloon's controller.h, in the same order, for calls by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

HOLD, INFLATE, DEFLATE, WRITEBACK = range(4)
STEADY, POOL_NOT_FULL, FLOOR, PINNED, IDLE, POOL_SWAPPED, LIMIT_FELL, EXHAUSTED = range(8)
MISSES, NO_MEMORY, ON_HOLD, WRITE_AHEAD, AT_LIMIT = range(8, 13)
CEILING = 16
BLOCK = 8192
PAGE = 4096
MB = 1024 * 1024


class Input(ctypes.Structure):
    _fields_ = [
        ("dt", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("pool", "ballooned", "unused", "floor", "ceiling", "block", "page")),
        *((name, ctypes.c_double) for name in ("hot", "pinned", "misses", "filled", "miss_cost", "waiting", "dirty")),
        ("limit", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("limit_fall", "available", "reachable", "reachable_high", "unclaimed")),
        *((name, ctypes.c_double) for name in ("refaults", "own_refaults", "swapping", "stall")),
    ]


class Limits(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("low_watermark", "high_watermark", "max_inflate_rate", "max_deflate_rate", "max_writeback_rate")
    ]


class State(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("shortage_s", "need", "waiting", "need_s", "hold_s")),
        *(
            (name, ctypes.c_double)
            for name in ("limit_fallen", "making_room_s", "exhausted_s", "idle_s", "refaulted", "own_refaulted", "swap_debt")
        ),
        *((name, ctypes.c_double) for name in ("since_inflated_s", "extra_quiet_s")),
        ("falls_again", ctypes.c_bool),
        ("inflated_idle", ctypes.c_bool),
        ("room_made", ctypes.c_bool),
    ]


class Decision(ctypes.Structure):
    _fields_ = [
        ("action", ctypes.c_int),
        ("reason", ctypes.c_int),
        ("buffers", ctypes.c_int64),
        ("write", ctypes.c_bool),
        ("prefetch", ctypes.c_bool),
    ]


Controller = Callable[[Limits, Input, State], Decision]


def step_of(library: ctypes.CDLL) -> Controller:
    """Return the step of a library with controller.c as a function."""
    library.balloon_controller_step.restype = None
    library.balloon_controller_step.argtypes = [ctypes.POINTER(kind) for kind in (Limits, Input, State, Decision)]

    def step(limits: Limits, measured: Input, state: State) -> Decision:
        decision = Decision()
        library.balloon_controller_step(limits, measured, state, decision)
        return decision

    return step


def limits_for(limit: int, low: float = 0.03, high: float = 0.08) -> Limits:
    return Limits(int(limit * low), int(limit * high), 2048 * MB, 1024 * MB, 16 * MB)
