"""The Dask actor: a driver's way to a host's station. One per driver and host; it holds no state of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

from pgherd.cluster import labels, tuning, versions
from pgherd.cluster.station import Answer, Station, station_of


class Post:
    """All methods are coroutines: Dask runs those of an actor in its worker's loop, one beside the other."""

    def __init__(self, host: str) -> None:
        """Made by a task on the worker, and so in one of its threads."""
        from distributed import get_worker

        self._worker = get_worker()
        self._station: Station = station_of(self._worker, host)

    async def attach(self, token: str, driver: str) -> dict[str, Any]:
        """Take the host, and slow its worker down for as long as it is held. ``software`` says what must be equal on all hosts."""
        answer = await self._station.attach(token, driver)
        if "busy" not in answer and self._station.restore is None:
            before = tuning.slow_down(self._worker, tuning.PERIODS)
            self._station.restore = partial(tuning.slow_down, self._worker, before)
        return {**answer, "software": versions.software()}

    async def beat(self, token: str) -> float | None:
        """See Station.beat."""
        tuning.slow_down(self._worker, tuning.PERIODS)  # a scheduler that is not ours sets the heartbeat anew with each one
        return await self._station.beat(token)

    async def make(self, token: str, key: str, payload: bytes) -> Answer:
        """See Station.make."""
        return await self._station.make(token, key, payload)

    async def call(self, token: str, key: str, method: str, payload: bytes) -> Answer:
        """See Station.call."""
        return await self._station.call(token, key, method, payload)

    async def detach(self, token: str) -> bool:
        """See Station.detach."""
        return await self._station.detach(token)

    async def clock(self) -> float:
        """This host's wall clock."""
        import time

        return time.time()

    async def look(self) -> dict[str, Any]:
        """Who holds the host, what its agent takes of it, and its labels."""
        import os
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        took = {"pid": os.getpid(), "cpu": usage.ru_utime + usage.ru_stime, "memory": pages * resource.getpagesize()}
        return {**self._station.look(), **took, "labels": labels.own()}

    async def versions(self) -> dict[str, Any]:
        """What the host runs on (see ``versions.here``), found in a thread: it starts programs."""
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, versions.here)
