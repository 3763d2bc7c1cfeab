"""Process on a host of a cluster started by ``pgherd cluster start``: a Dask worker that runs until it is stopped.

``python -I -m pgherd.cluster.agent_process DIRECTORY``, where DIRECTORY has ``agent.json`` (see Orders) and the
certificates. It joins the scheduler, and joins again after a disconnection, for up to REJOIN seconds. When its worker
ends, the lease of its driver expires, or SIGTERM arrives, it stops and cleans up what it runs. At its start it cleans
up after a killed predecessor.
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
"""Seconds for which an agent tries to rejoin a lost scheduler before it ends."""
_RETRY_PAUSE_S = 1.0

_log = logging.getLogger("pgherd.agent")


@dataclass(frozen=True)
class AgentConfig:
    """Contents of ``agent.json``: the scheduler's address, this host's name in the cluster, the address to listen on,
    and labels.

    ``listen`` None means the address on the route to the scheduler. The labels add to those in its environment.
    """

    scheduler: str
    host: str
    listen: str | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> AgentConfig:
        return cls(**json.loads((directory / "agent.json").read_text(encoding="utf-8")))


def main(directory: Path) -> None:
    """Serve until SIGTERM, or until the scheduler has been lost for too long. Does not return, since threads may still
    be in calls.
    """
    from pgherd.cluster import interfaces, labels

    skew = interfaces.skew_for_tests()  # before any import keeps a reference to time.time
    os.umask(os.umask(0o022) | 0o022)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    if skew:
        _log.warning("the clock of this process is shifted by %g s, as set in %s: this is a test", skew, interfaces.SKEW)
    code = 1
    try:
        _clean_up()
        orders = AgentConfig.read(directory)
        labels.set_local_labels(orders.labels)
        asyncio.run(_serve(directory, orders))
        code = 0
    except Exception:
        _log.exception("the agent ends")
    finally:
        shutil.rmtree(directory / "scratch", ignore_errors=True)
        logging.shutdown()
        os._exit(code)


async def _serve(directory: Path, orders: AgentConfig) -> None:
    from pgherd.cluster import dask_servers, dask_settings, scheduler_address

    dask_settings.configure()
    security = scheduler_address.member_security(directory)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    connected_at = time.monotonic()
    while not stop_requested.is_set() and time.monotonic() - connected_at < REJOIN:
        worker: Any = dask_servers.worker(orders.scheduler, orders.host, security, str(directory / "scratch"), listen=orders.listen)
        if await _join(worker, stop_requested):
            _log.warning("joined %s as %s, listening at %s", orders.scheduler, orders.host, worker.address)
            await _wait_for_first(worker.finished(), stop_requested.wait())
            connected_at = time.monotonic()
        reason = "the agent ends" if stop_requested.is_set() else "the scheduler is gone"
        with contextlib.suppress(Exception):
            await worker.close(timeout=5, executor_wait=False, reason=reason)
        await _wait_for_first(stop_requested.wait(), asyncio.sleep(_RETRY_PAUSE_S))
    if not stop_requested.is_set():
        _log.warning("no scheduler for %.0f s: the agent ends", REJOIN)


async def _join(worker: Any, stop_requested: asyncio.Event) -> bool:
    """Return whether the worker has joined its scheduler in time."""
    starting = asyncio.ensure_future(worker.start())
    await _wait_for_first(starting, stop_requested.wait())
    if not starting.done():
        starting.cancel()
        return False
    error = starting.exception()
    if error is not None:
        _log.warning("could not join: %s", str(error).splitlines()[0] if str(error) else type(error).__name__)
    return error is None


async def _wait_for_first(*awaitables: Any) -> None:
    """Wait for the first of them and cancel the others, except futures passed in."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, original in zip(tasks, awaitables, strict=True):
        if task is not original and not task.done():
            task.cancel()


def _clean_up() -> None:
    """Clean up after a killed agent on this host."""
    from pgherd.host import journal, paths
    from pgherd.model.errors import PgherdError
    from pgherd.node.local import LocalNode

    try:
        for sentence in journal.clean(LocalNode(), paths.state_dir()):
            _log.warning("%s", sentence)
    except (OSError, PgherdError) as error:
        _log.warning("cannot clean up after earlier agents: %s", error)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
