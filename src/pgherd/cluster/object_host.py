"""State of a host between drivers: objects that a driver has created, its lease on them, and the threads in which they
run.

A station belongs to one Dask worker, and outlives the drivers. A driver takes a lease, which each heartbeat renews.
When a lease expires (the driver died, hangs, or is cut off), the objects' ``lost()`` is called, so the next driver
finds a clean host. The worker's event loop never waits for pgherd's code. That runs in threads, so a long call delays
no heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from pgherd.cluster import dask_settings, host_software, labels
from pgherd.cluster.interfaces import LOST_AFTER, on_host
from pgherd.model.errors import TrialError

THREADS = 16
"""Calls that may run at the same time on one host. The threads never end, because the kernel sends a child its death
signal when the thread that started it ends.
"""

LOOK = 1.0
"""Seconds between two checks of a lease."""

NAME = "pgherd"
"""Key of the station in its worker's extensions."""

_log = logging.getLogger(__name__)

Answer = tuple[Literal["value", "error", "strange"], bytes]
"""Pickled result of a call. 'strange' means that the caller's lease is no longer valid."""


@dataclass
class Lease:
    """Driver's hold on the host: its token, its description, and its last heartbeat (monotonic clock)."""

    token: str
    driver: str
    seen: float


@dataclass
class ObjectHost:
    """State of one host. Its coroutines run in the worker's loop, and so one at a time between their awaits."""

    host: str
    loop: asyncio.AbstractEventLoop
    lease: Lease | None = None
    objects: dict[str, object] = field(default_factory=dict)
    cleaning: asyncio.Task[None] | None = None
    restore: Callable[[], object] | None = None
    """Undoes a driver's changes of the worker when its lease ends."""

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="pgherd")
        self._making: dict[str, object] = {}
        self._releases: set[asyncio.Future[None]] = set()
        """Ends of the objects' ``lost()`` that still run."""
        self._watch: asyncio.TimerHandle | None = None
        self._check_due = 0.0

    async def attach(self, token: str, driver: str) -> dict[str, Any]:
        """Take the lease. Return ``{"busy": reason}`` if another driver holds it or the host is cleaning up."""
        if self.cleaning is not None:
            return {"busy": "the host is still cleaning up after its previous driver"}
        if self.lease is not None and self.lease.token != token:
            return {"busy": f"another driver holds it ({self.lease.driver})"}
        if self.lease is not None:  # the same driver, which treated this host as lost: its objects here are useless
            await self.clean("its driver treated this host as lost")
        self.lease = Lease(token, driver, time.monotonic())
        self._schedule_check(LOOK)
        return {"host": self.host}

    async def beat(self, token: str) -> float | None:
        """Renew the lease and return this host's wall clock, or None if this driver does not hold the lease."""
        if self.lease is None or self.lease.token != token or self.cleaning is not None:
            return None
        self.lease.seen = time.monotonic()
        return time.time()

    async def make(self, token: str, key: str, payload: bytes) -> Answer:
        """Create an object, after the ``lost()`` of the one that it replaces, and of those that were replaced before."""
        if not self._holds_lease(token):
            return "strange", b""
        previous = self.objects.pop(key, None)
        marker = self._making[key] = object()
        await self._release_all([] if previous is None else [previous])
        if self._making.get(key) is not marker:  # lost or replaced meanwhile
            return "strange", b""
        answer, created = await self.loop.run_in_executor(self._pool, _create_object, self.host, payload)
        if created is not None:
            if self._making.get(key) is not marker:
                await self._release_all([created])
                return "strange", b""
            self.objects[key] = created
        return answer

    async def call(self, token: str, key: str, method: str, payload: bytes) -> Answer:
        """Call a method of an object in a thread."""
        if not self._holds_lease(token) or key not in self.objects:
            return "strange", b""
        return await self.loop.run_in_executor(self._pool, _call_method, self.host, self.objects[key], method, payload)

    async def detach(self, token: str) -> bool:
        """Return the lease. The result is True once the objects have cleaned up, False if the driver did not hold it."""
        if not self._holds_lease(token):
            return False
        await self.clean("its driver has finished", finished=True)
        return True

    async def clean(self, why: str, *, finished: bool = False) -> None:
        """Call every object's ``lost()``, and end the lease. Concurrent callers wait for the same end."""
        if self.cleaning is None:
            _log.log(logging.INFO if finished else logging.WARNING, "host %s: %s; stopping what it runs", self.host, why)
            self.cleaning = self.loop.create_task(self._clean())
        await asyncio.shield(self.cleaning)

    async def close(self) -> None:
        """Clean up when the worker ends, for any reason."""
        if self._watch is not None:
            self._watch.cancel()
        await self.clean("its worker ends", finished=self.lease is None)

    def look(self) -> dict[str, Any]:
        """Return the host's holder, for ``cluster status``."""
        lease = self.lease
        return {
            "driver": lease.driver if lease else None,
            "silent": round(time.monotonic() - lease.seen, 3) if lease else None,
            "objects": len(self.objects),
            "cleaning": self.cleaning is not None,
        }

    def _holds_lease(self, token: str) -> bool:
        return self.lease is not None and self.lease.token == token and self.cleaning is None

    def _check_lease(self) -> None:
        if self.lease is None:
            return
        silent = time.monotonic() - self.lease.seen
        if time.monotonic() - self._check_due > LOOK:  # this process was delayed, so process pending messages first
            self._schedule_check(LOOK)
        elif silent > LOST_AFTER:
            self.loop.create_task(self.clean(f"no heartbeat of its driver for {silent:.0f} s"))
        else:
            self._schedule_check(min(LOOK, LOST_AFTER - silent + 0.01))

    def _schedule_check(self, seconds: float) -> None:
        self._check_due = time.monotonic() + seconds
        self._watch = self.loop.call_later(seconds, self._check_lease)

    async def _clean(self) -> None:
        try:
            objects, self.objects, self._making = list(self.objects.values()), {}, {}
            await self._release_all(objects)
            if self.restore is not None:
                self.restore()
                self.restore = None
        finally:
            self.lease, self.cleaning = None, None

    async def _release_all(self, objects: Sequence[object]) -> None:
        """Call ``lost()`` of these objects, and wait until no ``lost()`` runs on this host, also those that began before."""
        for thing in objects:
            end = self.loop.create_future()
            self._releases.add(end)
            # Separate threads, because all threads of the pool may be in calls that lost() ends.
            threading.Thread(target=self._release, args=(thing, end), name="pgherd-lost", daemon=True).start()
        while self._releases:
            ended, _ = await asyncio.wait(self._releases)
            self._releases -= ended

    def _release(self, thing: object, end: asyncio.Future[None]) -> None:
        try:
            _release(self.host, thing)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be gone
                self.loop.call_soon_threadsafe(end.set_result, None)


def object_host_of(worker: Any, host: str) -> ObjectHost:
    """Return the station of a Dask worker, created at first use. It ends with the worker. Call it in the worker's loop
    or a task of it.
    """
    station = worker.extensions.get(NAME)
    if station is None:
        station = worker.extensions[NAME] = ObjectHost(host, worker.loop.asyncio_loop)
    assert isinstance(station, ObjectHost)
    return station


def dumps(value: Any) -> bytes:
    """Pickle a value for another process."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def loads(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)  # noqa: S301 (from a member of the cluster, by TLS)


def opened(answer: Answer) -> Any:
    """Return the result of a call, or raise its error."""
    kind, data = answer
    if kind == "error":
        error = loads(data)
        if isinstance(error, TimeoutError):  # a timeout within the call; the host has responded
            raise TrialError(str(error))
        raise error
    return loads(data) if data else None


def _create_object(host: str, payload: bytes) -> tuple[Answer, object | None]:
    with on_host(host):
        try:
            make, arguments = loads(payload)
            return ("value", b""), make(*arguments)
        except BaseException as error:
            return ("error", _pickled_error(error)), None


def _call_method(host: str, thing: object, method: str, payload: bytes) -> Answer:
    with on_host(host):
        try:
            return "value", dumps(getattr(thing, method)(*loads(payload)))
        except BaseException as error:
            return "error", _pickled_error(error)


def _release(host: str, thing: object) -> None:
    lost = getattr(thing, "lost", None)
    if lost is None:
        return
    with on_host(host):
        try:
            lost()
        except BaseException:
            _log.exception("host %s: lost() of %s failed", host, type(thing).__name__)


def _pickled_error(error: BaseException) -> bytes:
    """Pickle the error with its traceback as a note, or its text if it cannot be pickled."""
    import traceback

    error.add_note("".join(traceback.format_exception(error)))
    try:
        data = dumps(error if isinstance(error, Exception) else TrialError(f"{type(error).__name__} on a host"))
        loads(data)
    except Exception:
        data = dumps(TrialError(f"{type(error).__name__}: {error}"))
    return data


class HostActor:
    """Dask actor by which a driver reaches a host's station. One per driver and host; it has no state.

    All methods are coroutines, because Dask runs those of an actor in its worker's loop, concurrently.
    """

    def __init__(self, host: str) -> None:
        """Create it in a task on the worker, and so in one of its threads."""
        from distributed import get_worker

        self._worker = get_worker()
        self._station: ObjectHost = object_host_of(self._worker, host)

    async def attach(self, token: str, driver: str) -> dict[str, Any]:
        """Take the host, and slow its worker down while it is held. ``software`` must be equal on all hosts."""
        answer = await self._station.attach(token, driver)
        if "busy" not in answer and self._station.restore is None:
            before = dask_settings.slow_down(self._worker, dask_settings.PERIODS)
            self._station.restore = partial(dask_settings.slow_down, self._worker, before)
        return {**answer, "software": host_software.required_versions()}

    async def beat(self, token: str) -> float | None:
        dask_settings.slow_down(self._worker, dask_settings.PERIODS)  # Dask's scheduler sets the interval again with each heartbeat
        return await self._station.beat(token)

    async def make(self, token: str, key: str, payload: bytes) -> Answer:
        return await self._station.make(token, key, payload)

    async def call(self, token: str, key: str, method: str, payload: bytes) -> Answer:
        return await self._station.call(token, key, method, payload)

    async def detach(self, token: str) -> bool:
        return await self._station.detach(token)

    async def clock(self) -> float:
        """Return this host's wall clock."""
        import time

        return time.time()

    async def look(self) -> dict[str, Any]:
        """Return the host's holder, its agent's resources, and its labels."""
        import os
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        resources = {"pid": os.getpid(), "cpu": usage.ru_utime + usage.ru_stime, "memory": pages * resource.getpagesize()}
        return {**self._station.look(), **resources, "labels": labels.local_labels()}

    async def versions(self) -> dict[str, Any]:
        """Return the host's software (see ``versions.here``), found in a thread because it runs programs."""
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, host_software.here)
