"""Dask's worker and scheduler without web servers and dashboards, and with rare periodic calls.

Imported only by the processes in which they run.
"""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Security, Worker
from pgherd.cluster import dask_settings


class MinimalWorker(Worker):
    """Worker for one agent. Its scheduler would set its heartbeat interval to 0.5 s; it keeps its configured interval."""

    def start_http_server(self, *arguments: Any, **named: Any) -> None:
        """Start no server, because it would listen without TLS."""

    async def start_unsafe(self) -> Any:
        dask_settings.slow_down(self, dask_settings.PERIODS)
        return await super().start_unsafe()  # type: ignore[no-untyped-call]

    async def heartbeat(self) -> None:
        await super().heartbeat()
        dask_settings.slow_down(self, dask_settings.PERIODS)

    def trigger_profile(self) -> None:
        """Take no profile."""


class MinimalScheduler(Scheduler):
    """Scheduler that only connects drivers to agents."""

    def start_http_server(self, *arguments: Any, **named: Any) -> None:
        """Start no server, because it would listen without TLS."""

    async def start_unsafe(self) -> Any:
        dask_settings.slow_down(self, dask_settings.SCHEDULER_PERIODS)
        return await super().start_unsafe()


def worker(scheduler: str, host: str, security: Security, scratch: str, *, listen: str | None = None) -> MinimalWorker:
    """Return the worker of one host, to be awaited. It ends (``finished()``) when its scheduler is gone."""
    return MinimalWorker(
        scheduler,
        name=host,
        host=listen,
        nthreads=1,
        memory_limit=0,
        security=security,
        local_directory=scratch,
        heartbeat_interval="10s",
        death_timeout="15s",
        dashboard=False,
    )


def scheduler(security: Security, *, listen: str, port: int = 0, protocol: str = "tls") -> MinimalScheduler:
    """Return a scheduler, to be awaited."""
    return MinimalScheduler(host=listen, port=port, protocol=protocol, security=security, dashboard=False)
