"""Scheduler of a cluster, on the machine where ``pgherd cluster start`` was called.

``python -I -m pgherd.cluster.scheduler_process DIRECTORY LISTEN PORT``, where DIRECTORY has the certificates. Once it
listens, it writes its address to ``DIRECTORY/address``. It ends on SIGTERM, and after ALONE seconds without agents
and drivers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

ALONE = 1800.0
"""Seconds without any agent and driver after which it ends. Agents give up earlier."""
_POLL_INTERVAL_S = 30.0

ADDRESS = "address"
"""File with its address."""


def main(directory: Path, listen: str, port: int) -> None:
    """Serve until SIGTERM, or until it was unused for ALONE seconds."""
    os.umask(os.umask(0o022) | 0o022)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    asyncio.run(_serve(directory, listen, port))


async def _serve(directory: Path, listen: str, port: int) -> None:
    from pgherd.cluster import dask_servers, dask_settings, scheduler_address

    dask_settings.configure()
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    scheduler = await dask_servers.scheduler(scheduler_address.member_security(directory), listen=listen, port=port)
    fresh = directory / f"{ADDRESS}.tmp"
    fresh.write_text(scheduler.address, encoding="utf-8")
    os.replace(fresh, directory / ADDRESS)
    await _wait_until_unused(scheduler, stop_requested)
    await scheduler.close()


async def _wait_until_unused(scheduler: Any, stop_requested: asyncio.Event) -> None:
    last_used = time.monotonic()
    while not stop_requested.is_set() and time.monotonic() - last_used < ALONE:
        if scheduler.workers or len(scheduler.clients) > 1:  # the first is internal
            last_used = time.monotonic()
        try:
            await asyncio.wait_for(stop_requested.wait(), _POLL_INTERVAL_S)
        except TimeoutError:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
