"""Workers and schedulers that keep quiet."""

from __future__ import annotations

import asyncio

from distributed import Security
from pgherd.cluster import dask_servers, dask_settings


def test_nothing_listens_but_the_one_port_and_periodic_calls_are_rare(tmp_path):
    async def scenario() -> None:
        scheduler = await dask_servers.scheduler(Security(), listen="127.0.0.1", protocol="tcp")
        worker = await dask_servers.worker(scheduler.address, "a", Security(), str(tmp_path), listen="127.0.0.2")
        try:
            assert not hasattr(scheduler, "http_server") and not hasattr(worker, "http_server") and not worker.services
            await worker.heartbeat()
            for server in (scheduler, worker):
                for name, callback in server.periodic_callbacks.items():
                    assert callback.callback_time >= 5_000 or not callback.is_running() or name in ("keep-alive",), name
            assert worker.periodic_callbacks["heartbeat"].callback_time == dask_settings.PERIODS["heartbeat"] * 1000
            assert worker.address.startswith("tcp://127.0.0.2:") and worker.memory_manager.memory_limit is None
        finally:
            await worker.close(timeout=2)
            await scheduler.close()

    dask_settings.configure()
    asyncio.run(scenario())
