"""What stands on each host: the objects that a driver has put there, its lease on them, and the threads that they run in.

One station belongs to one Dask worker, and outlives the drivers that come and go. A driver takes a lease, which each of its beats
renews. When a lease runs out (the driver died, hangs, or is cut off) the objects' ``lost()`` is called, and the next driver finds a
clean host. The worker's event loop never waits for our code: that runs in threads, so that a long call holds up no beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from pgherd.cluster import labels, tuning, versions
from pgherd.cluster.remote import LOST_AFTER, on_host
from pgherd.model.errors import TrialError

THREADS = 16
"""Calls that may run at the same time on one host. The threads never end: the kernel sends a child its death signal when the thread
that started it ends."""

LOOK = 1.0
"""Seconds between two looks at a lease."""

NAME = "pgherd"
"""Under which a station hangs at its worker."""

_log = logging.getLogger(__name__)

Answer = tuple[Literal["value", "error", "strange"], bytes]
"""What a call came to, pickled; 'strange' when the lease it was made under is no longer the one that holds."""


@dataclass
class Lease:
    """A driver's hold on the host: its token, who it says it is, and when (by the monotonic clock) it last gave a sign of life."""

    token: str
    driver: str
    seen: float


@dataclass
class Station:
    """The state of one host. Methods that are coroutines run in the worker's loop, and so one at a time between their awaits."""

    host: str
    loop: asyncio.AbstractEventLoop
    lease: Lease | None = None
    objects: dict[str, object] = field(default_factory=dict)
    cleaning: asyncio.Task[None] | None = None
    restore: Callable[[], object] | None = None
    """Takes back what a driver changed at the worker itself; called when its lease ends."""

    def __post_init__(self) -> None:
        """No thread is started before there is work for it."""
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="pgherd")
        self._making: dict[str, object] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._due = 0.0

    async def attach(self, token: str, driver: str) -> dict[str, Any]:
        """Take the lease. ``{"busy": who}`` when another driver's lease still holds or the host is still being cleaned up after one."""
        if self.cleaning is not None:
            return {"busy": "the host is still cleaning up after its last driver"}
        if self.lease is not None and self.lease.token != token:
            return {"busy": f"it is in the hands of another driver ({self.lease.driver})"}
        if self.lease is not None:  # the same driver, which took us for lost: what it had here is of no use to it
            await self.clean("its driver took this host for lost")
        self.lease = Lease(token, driver, time.monotonic())
        self._look_in(LOOK)
        return {"host": self.host}

    async def beat(self, token: str) -> float | None:
        """Renew the lease; this host's wall clock, or None when it is not this driver's (any more)."""
        if self.lease is None or self.lease.token != token or self.cleaning is not None:
            return None
        self.lease.seen = time.monotonic()
        return time.time()

    async def make(self, token: str, key: str, payload: bytes) -> Answer:
        """Make an object, after the ``lost()`` of the one that it replaces."""
        if not self._held(token):
            return "strange", b""
        old = self.objects.pop(key, None)
        wanted = self._making[key] = object()
        answer, made = await self.loop.run_in_executor(self._pool, _made, self.host, old, payload)
        if made is not None:
            if self._making.get(key) is not wanted:  # lost meanwhile, or another one is wanted by now
                await self.loop.run_in_executor(self._pool, _let_go, self.host, made)
                return "strange", b""
            self.objects[key] = made
        return answer

    async def call(self, token: str, key: str, method: str, payload: bytes) -> Answer:
        """Call a method of an object in a thread."""
        if not self._held(token) or key not in self.objects:
            return "strange", b""
        return await self.loop.run_in_executor(self._pool, _called, self.host, self.objects[key], method, payload)

    async def detach(self, token: str) -> bool:
        """Give the lease back; True once the objects have cleaned up. False when it was not this driver's."""
        if not self._held(token):
            return False
        await self.clean("its driver has finished", finished=True)
        return True

    async def clean(self, why: str, *, finished: bool = False) -> None:
        """Call every object's ``lost()``, and end the lease. Who comes while that goes on waits for the same end."""
        if self.cleaning is None:
            _log.log(logging.INFO if finished else logging.WARNING, "host %s: %s; stopping what it runs", self.host, why)
            self.cleaning = self.loop.create_task(self._clean())
        await asyncio.shield(self.cleaning)

    async def close(self) -> None:
        """Called by the worker when it ends, for whatever reason."""
        if self._watch is not None:
            self._watch.cancel()
        await self.clean("its worker ends", finished=self.lease is None)

    def look(self) -> dict[str, Any]:
        """Who holds the host, for ``cluster status``."""
        lease = self.lease
        return {
            "driver": lease.driver if lease else None,
            "silent": round(time.monotonic() - lease.seen, 3) if lease else None,
            "objects": len(self.objects),
            "cleaning": self.cleaning is not None,
        }

    def _held(self, token: str) -> bool:
        return self.lease is not None and self.lease.token == token and self.cleaning is None

    def _look(self) -> None:
        if self.lease is None:
            return
        silent = time.monotonic() - self.lease.seen
        if time.monotonic() - self._due > LOOK:  # this process itself was held up: what has come meanwhile is read first
            self._look_in(LOOK)
        elif silent > LOST_AFTER:
            self.loop.create_task(self.clean(f"no sign of life of its driver for {silent:.0f} s"))
        else:
            self._look_in(min(LOOK, LOST_AFTER - silent + 0.01))

    def _look_in(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds
        self._watch = self.loop.call_later(seconds, self._look)

    async def _clean(self) -> None:
        try:
            objects, self.objects, self._making = list(self.objects.values()), {}, {}
            # Threads of their own: those of the pool may all be in calls that lost() is to end.
            ended = [self.loop.create_future() for _ in objects]
            for thing, end in zip(objects, ended, strict=True):
                threading.Thread(target=self._let_go, args=(thing, end), name="pgherd-lost", daemon=True).start()
            await asyncio.gather(*ended)
            if self.restore is not None:
                self.restore()
                self.restore = None
        finally:
            self.lease, self.cleaning = None, None

    def _let_go(self, thing: object, end: asyncio.Future[None]) -> None:
        try:
            _let_go(self.host, thing)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be gone
                self.loop.call_soon_threadsafe(end.set_result, None)


def station_of(worker: Any, host: str) -> Station:
    """The station of a Dask worker; made on first use. It ends with the worker. Call it in the worker's loop or a task of it."""
    found = worker.extensions.get(NAME)
    if found is None:
        found = worker.extensions[NAME] = Station(host, worker.loop.asyncio_loop)
    assert isinstance(found, Station)
    return found


def dumps(value: Any) -> bytes:
    """Pickle anything that may go to another process."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def loads(data: bytes) -> Any:
    """The value back."""
    import pickle

    return pickle.loads(data)


def opened(answer: Answer) -> Any:
    """What a call returned; raises what it raised."""
    kind, data = answer
    if kind == "error":
        error = loads(data)
        if isinstance(error, TimeoutError):  # something there took too long: the host itself has answered
            raise TrialError(str(error))
        raise error
    return loads(data) if data else None


def _made(host: str, old: object | None, payload: bytes) -> tuple[Answer, object | None]:
    with on_host(host):
        if old is not None:
            _let_go(host, old)
        try:
            make, arguments = loads(payload)
            return ("value", b""), make(*arguments)
        except BaseException as error:
            return ("error", _pickled_error(error)), None


def _called(host: str, thing: object, method: str, payload: bytes) -> Answer:
    with on_host(host):
        try:
            return "value", dumps(getattr(thing, method)(*loads(payload)))
        except BaseException as error:
            return "error", _pickled_error(error)


def _let_go(host: str, thing: object) -> None:
    lost = getattr(thing, "lost", None)
    if lost is None:
        return
    with on_host(host):
        try:
            lost()
        except BaseException:
            _log.exception("host %s: lost() of %s failed", host, type(thing).__name__)


def _pickled_error(error: BaseException) -> bytes:
    """The error as it is, with what it says of where it happened; where it cannot travel, its text."""
    import traceback

    error.add_note("".join(traceback.format_exception(error)))
    try:
        data = dumps(error if isinstance(error, Exception) else TrialError(f"{type(error).__name__} on a host"))
        loads(data)
    except Exception:
        data = dumps(TrialError(f"{type(error).__name__}: {error}"))
    return data


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
