"""Dask's worker and scheduler without what we do not use: no web server, no dashboard, periodic calls that come rarely.

Imported only by the processes that they run in.
"""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Security, Worker
from pgherd.cluster import tuning


class QuietWorker(Worker):
    """A worker for one agent. Its scheduler would speed its heartbeat up to one each half second; it keeps its own pace."""

    def start_http_server(self, *arguments: Any, **named: Any) -> None:
        """None: it would listen beside TLS, to anybody."""

    async def start_unsafe(self) -> Any:
        """As Dask starts it, and then more slowly."""
        tuning.slow_down(self, tuning.PERIODS)
        return await super().start_unsafe()  # type: ignore[no-untyped-call]

    async def heartbeat(self) -> None:
        """As Dask does it, at our pace."""
        await super().heartbeat()
        tuning.slow_down(self, tuning.PERIODS)

    def trigger_profile(self) -> None:
        """None is taken."""


class QuietScheduler(Scheduler):
    """A scheduler that only introduces drivers to agents."""

    def start_http_server(self, *arguments: Any, **named: Any) -> None:
        """None: it would listen beside TLS, to anybody."""

    async def start_unsafe(self) -> Any:
        """As Dask starts it, and then more slowly."""
        tuning.slow_down(self, tuning.SCHEDULER_PERIODS)
        return await super().start_unsafe()


def worker(scheduler: str, host: str, security: Security, scratch: str, *, listen: str | None = None) -> QuietWorker:
    """The worker of one host, to be awaited; it ends (``finished()``) when its scheduler is gone."""
    return QuietWorker(
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


def scheduler(security: Security, *, listen: str, port: int = 0, protocol: str = "tls") -> QuietScheduler:
    """A scheduler, to be awaited."""
    return QuietScheduler(host=listen, port=port, protocol=protocol, security=security, dashboard=False)
