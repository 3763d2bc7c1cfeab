"""What runs on a host of a cluster that ``pgherd cluster start`` made: a Dask worker of ours, until it is told to end.

``python -I -m pgherd.cluster.agent_process DIRECTORY``, where DIRECTORY holds ``agent.json`` (see Orders) and the certificates. It
joins the scheduler, and joins again when it was cut off, for as long as REJOIN says. When its worker ends, or the lease of its driver
runs out, what runs here is stopped and cleaned up; on SIGTERM, too. What a killed predecessor left is taken back first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REJOIN = 900.0
"""Seconds for which an agent looks for a scheduler that is gone before it ends by itself."""
_PAUSE = 1.0

_log = logging.getLogger("pgherd.agent")


@dataclass(frozen=True)
class Orders:
    """``agent.json``: the scheduler's address, this host's name in the cluster, the address to listen on (None: that of the way
    to the scheduler), and labels of this host beside those that its environment gives it."""

    scheduler: str
    host: str
    listen: str | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Orders:
        """From the agent's directory."""
        return cls(**json.loads((directory / "agent.json").read_text(encoding="utf-8")))


def main(directory: Path) -> None:
    """Serve until SIGTERM, or until the scheduler has been gone for too long. Does not return: threads may still be in calls."""
    from pgherd.cluster import labels, remote

    skew = remote.skew_for_tests()  # before anything takes hold of time.time
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    if skew:
        _log.warning("the clock of this process is shifted by %g s, as %s says: this is a test", skew, remote.SKEW)
    code = 1
    try:
        _take_back()
        orders = Orders.read(directory)
        labels.know(orders.labels)
        asyncio.run(_serve(directory, orders))
        code = 0
    except Exception:
        _log.exception("the agent ends")
    finally:
        shutil.rmtree(directory / "scratch", ignore_errors=True)
        logging.shutdown()
        os._exit(code)


async def _serve(directory: Path, orders: Orders) -> None:
    from pgherd.cluster import address, servers, tuning

    tuning.configure()
    security = address.member_security(directory)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    last = time.monotonic()
    while not asked.is_set() and time.monotonic() - last < REJOIN:
        worker: Any = servers.worker(orders.scheduler, orders.host, security, str(directory / "scratch"), listen=orders.listen)
        if await _joined(worker, asked):
            _log.warning("joined %s as %s, listening at %s", orders.scheduler, orders.host, worker.address)
            await _either(worker.finished(), asked.wait())
            last = time.monotonic()
        with contextlib.suppress(Exception):
            await worker.close(timeout=5, executor_wait=False, reason="the agent ends" if asked.is_set() else "the scheduler is gone")
        await _either(asked.wait(), asyncio.sleep(_PAUSE))
    if not asked.is_set():
        _log.warning("no scheduler for %.0f s: the agent ends by itself", REJOIN)


async def _joined(worker: Any, asked: asyncio.Event) -> bool:
    """Whether the worker has joined its scheduler within its time."""
    starting = asyncio.ensure_future(worker.start())
    await _either(starting, asked.wait())
    if not starting.done():
        starting.cancel()
        return False
    error = starting.exception()
    if error is not None:
        _log.warning("could not join: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
    return error is None


async def _either(*awaitables: Any) -> None:
    """Wait for the first of them; the others are dropped, but a future that was given stays."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, given in zip(tasks, awaitables, strict=True):
        if task is not given and not task.done():
            task.cancel()


def _take_back() -> None:
    """What an agent that was killed left on this host."""
    from pgherd.host import journal, paths
    from pgherd.model.errors import PgherdError
    from pgherd.node.local import LocalNode

    try:
        for sentence in journal.clean(LocalNode(), paths.state_dir()):
            _log.warning("%s", sentence)
    except (OSError, PgherdError) as error:
        _log.warning("what an earlier agent may have left was not looked for: %s", error)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
