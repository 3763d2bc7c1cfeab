"""The scheduler of a cluster that ``pgherd cluster start`` made, on the machine where that was said.

``python -I -m pgherd.cluster.scheduler_process DIRECTORY LISTEN PORT``: DIRECTORY holds the certificates. Once it listens, its address
is in ``DIRECTORY/address``. It ends on SIGTERM, and by itself when it has had neither agent nor driver for as long as ALONE says.
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
"""Seconds without any agent and driver after which it ends: agents give up earlier."""
_LOOK = 30.0

ADDRESS = "address"
"""The file with its address."""


def main(directory: Path, listen: str, port: int) -> None:
    """Serve until SIGTERM, or until nobody has needed it for long."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    asyncio.run(_serve(directory, listen, port))


async def _serve(directory: Path, listen: str, port: int) -> None:
    from pgherd.cluster import address, servers, tuning

    tuning.configure()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    scheduler = await servers.scheduler(address.member_security(directory), listen=listen, port=port)
    fresh = directory / f"{ADDRESS}.tmp"
    fresh.write_text(scheduler.address, encoding="utf-8")
    os.replace(fresh, directory / ADDRESS)
    await _until_asked_or_alone(scheduler, asked)
    await scheduler.close()


async def _until_asked_or_alone(scheduler: Any, asked: asyncio.Event) -> None:
    needed = time.monotonic()
    while not asked.is_set() and time.monotonic() - needed < ALONE:
        if scheduler.workers or len(scheduler.clients) > 1:  # one stands for what needs no client
            needed = time.monotonic()
        try:
            await asyncio.wait_for(asked.wait(), _LOOK)
        except TimeoutError:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
