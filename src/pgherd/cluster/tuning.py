"""Dask as quiet as can be: what it does by itself, again and again, and how rarely it may.

Left alone, a worker with one actor takes 2 % of a core for ticks, profiles, a system monitor and heartbeats; slowed down a tenth of that.
"""

from __future__ import annotations

import logging
import os
from typing import Any

PERIODS = {
    "find-missing": 30.0,
    "heartbeat": 10.0,
    "memory_monitor": 30.0,
    "monitor": 30.0,
    "profile": 60.0,
    "profile-cycle": 60.0,
    "shift_counters": 300.0,
    "tick": 10.0,
    "ticks": 60.0,
}
"""Seconds between a worker's own periodic calls, by Dask's names. An agent is watched by the driver's own beats, not by these."""

SCHEDULER_PERIODS = {**PERIODS, "idle-timeout": 60.0, "no-workers-timeout": 60.0, "worker-ttl": 60.0}

CONFIGURATION: dict[str, Any] = {
    "distributed.admin.log-length": 100,
    "distributed.admin.low-level-log-length": 50,
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.interval": "30s",
    "distributed.admin.system-monitor.log-length": 10,
    "distributed.admin.tick.cycle": "60s",
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.limit": "1h",
    "distributed.client.heartbeat": "10s",
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.comm.compression": False,
    "distributed.comm.timeouts.connect": "5s",
    "distributed.comm.timeouts.tcp": "20s",
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "5 minutes",
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
}
"""For the processes that are ours, set before a server of Dask's is made. Links are taken for dead after 20 s by the kernel itself; our
own deadlines are shorter."""


def configure() -> None:
    """Set all of it in this process, and silence Dask, which logs the traceback of every connection that breaks; PGHERD_DEBUG=1 lets it."""
    import dask

    import distributed  # noqa: F401 - it gives its loggers levels of their own when it is imported

    dask.config.set(CONFIGURATION)
    if os.environ.get("PGHERD_DEBUG") != "1":
        for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def slow_down(server: Any, periods: dict[str, float]) -> dict[str, float]:
    """Give a server's periodic calls other periods (seconds); returns those from before. What runs keeps its running wait."""
    before = {}
    for name, seconds in periods.items():
        callback = server.periodic_callbacks.get(name)
        if callback is not None:
            before[name] = callback.callback_time / 1000
            callback.callback_time = seconds * 1000
    return before
