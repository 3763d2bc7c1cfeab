"""Settings that reduce Dask's periodic work.

By default, a worker with one actor takes 2 % of a core for ticks, profiles, a system monitor and heartbeats. With
these settings it takes a tenth of that.
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
"""Seconds between a worker's periodic calls, by Dask's names. An agent is monitored by the driver's heartbeats instead."""

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
"""Settings for pgherd's processes, applied before a Dask server is created.

The kernel drops dead connections after 20 s; pgherd's timeouts are shorter.
"""


def configure() -> None:
    """Apply the settings in this process, and silence Dask's log of broken connections. PGHERD_DEBUG=1 keeps it."""
    import dask

    import distributed  # noqa: F401 - importing it sets the levels of its loggers

    dask.config.set(CONFIGURATION)
    if os.environ.get("PGHERD_DEBUG") != "1":
        for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def slow_down(server: Any, periods: dict[str, float]) -> dict[str, float]:
    """Set other periods (seconds) of a server's periodic calls and return the previous ones. A wait in progress is not
    changed.
    """
    before = {}
    for name, seconds in periods.items():
        callback = server.periodic_callbacks.get(name)
        if callback is not None:
            before[name] = callback.callback_time / 1000
            callback.callback_time = seconds * 1000
    return before
