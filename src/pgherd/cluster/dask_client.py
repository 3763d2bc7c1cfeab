"""Engine: a client of a Dask scheduler, an actor on each host, and heartbeats that detect lost hosts.

Dask's timeouts are too long: a cut connection is noticed after 30 s, and a task pinned to a dead worker waits
forever. So every host gets a heartbeat every BEAT seconds, and calls to a host end when it is treated as lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pgherd.cluster import dask_settings, host_software, object_host
from pgherd.cluster import scheduler_address as addresses
from pgherd.cluster.interfaces import LOST_AFTER, HostClockOffset, HostLost, RemoteObject, RoundTrip, combine, named
from pgherd.cluster.scheduler_address import SchedulerAddress
from pgherd.model.errors import CapabilityError, PgherdError, TrialError, UsageError
from pgherd.model.text import clean

if TYPE_CHECKING:
    from pgherd.cluster.object_host import HostActor
if TYPE_CHECKING:
    from pathlib import Path

    from pgherd.cluster.object_host import HostActor


@dataclass
class ClusterMember:
    """Host as the driver sees it. ``why`` is the reason why it is lost, or None. ``software`` is that at its attachment."""

    host: str
    worker: str
    address: str
    post: HostActor | None = None
    seen: float = 0.0
    why: str | None = None
    generation: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    software: dict[str, str] = field(default_factory=dict)
    trips: deque[RoundTrip] = field(default_factory=lambda: deque(maxlen=2000))


async def joined_members(client: Any, *, each: bool = False) -> list[ClusterMember]:
    """Return the hosts that have joined. Several workers on one address are one host, of which the first is used.

    With ``each``, every worker is a host.
    """
    identity = await client.scheduler.identity(n_workers=-1)
    members: dict[str, ClusterMember] = {}
    for worker, details in sorted(identity["workers"].items()):
        address = str(details["host"])
        name = str(details["name"])
        if "://" in name or name.isdigit():  # Dask's default name of a worker
            name = address
        members.setdefault(worker if each else address, ClusterMember(name, worker, address))
    return list(members.values())


def in_cluster_order(members: list[ClusterMember], place: SchedulerAddress) -> list[ClusterMember]:
    """Return members in the cluster's order. Its hosts that have not joined are lost from the start. Raises UsageError
    without any.
    """
    if not place.hosts:
        if not members:
            raise UsageError(f"no worker has joined {place.address}; start one on each host: 'dask worker {place.address} --nthreads 1'")
        return sorted(members, key=lambda member: member.host)
    by_host = {member.host: member for member in members}
    in_order = []
    for host in place.hosts:
        member = by_host.get(host)
        if member is None:
            member = ClusterMember(host, "", "", why="its agent has not joined, or has ended")
            member.gone.set()
        in_order.append(member)
    return in_order


BEAT = 2.0
"""Seconds between two heartbeats."""
CONNECT = 10.0
"""Timeout of the first response of a scheduler or a host, in seconds."""
BUSY = 40.0
"""Seconds for which a new driver waits for hosts that still clean up after the previous one."""
TRIPS = range(4, 17)
"""Round trips per host in one clock measurement. It ends once the offset is known to within CLOSE."""
CLOSE = 0.001
"""Seconds: a twentieth of the skew that agreed starts may have."""
_PARALLEL_CLOCKS = 4
"""Hosts whose clocks are read at the same time. More would only delay each other."""
_MAKE_TIMEOUT_S = 120.0
_CLEAN_TIMEOUT_S = 60.0

Result = TypeVar("Result")


class DaskRemoteObject:
    """Object on a host. Implements Remote."""

    def __init__(self, engine: DaskClusterClient, member: ClusterMember, key: str) -> None:
        """Create it for the current lifetime of its host. It is useless once the host was lost, even if the host
        returns.
        """
        self._engine, self._member, self._key, self._generation = engine, member, key, member.generation
        self.host, self.address = member.host, member.address

    def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        payload = object_host.dumps(arguments)
        exchange = self._engine.exchange(self._member, self._generation, "call", (self._key, method, payload), timeout)
        return object_host.opened(self._engine.wait_for(exchange))


class DaskClusterClient:
    """Implements Engine over Dask distributed. Create it with ``connect``."""

    def __init__(self, client: Any, hosts: Sequence[ClusterMember]) -> None:
        """Take over a connected client. Hosts are not contacted yet."""
        self._client = client
        self._loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self._members = {member.host: member for member in hosts}
        self._token = uuid.uuid4().hex
        self._driver = f"{socket.gethostname()}, pid {os.getpid()}"
        self._watchers: list[asyncio.Task[None]] = []
        self._closed = False

    # ---- the driver's threads

    def hosts(self) -> tuple[str, ...]:
        return tuple(member.host for member in self._members.values() if member.why is None)

    def lost(self) -> dict[str, str]:
        return {member.host: member.why for member in self._members.values() if member.why is not None}

    def actors(self, make: Callable[..., object], *arguments: Any) -> dict[str, RemoteObject]:
        key = f"{make.__module__}.{make.__qualname__}"
        payload = object_host.dumps((make, arguments))
        present = [member for member in self._members.values() if member.why is None]

        async def make_on(member: ClusterMember) -> object_host.Answer:
            try:
                return await self.exchange(member, member.generation, "make", (key, payload), _MAKE_TIMEOUT_S)
            except TimeoutError:
                self._lose(member, f"its agent was not created within {_MAKE_TIMEOUT_S:.0f} s")
                raise HostLost(member.host, member.why or "") from None

        async def all_of_them() -> list[object_host.Answer | BaseException]:
            return await asyncio.gather(*map(make_on, present), return_exceptions=True)

        for member, answer in zip(present, self.wait_for(all_of_them()), strict=True):
            if isinstance(answer, BaseException):
                raise answer
            try:
                object_host.opened(answer)
            except (PgherdError, OSError) as error:
                raise named(error, member.host) from None
        return {member.host: DaskRemoteObject(self, member, key) for member in present}

    def offsets(self) -> dict[str, HostClockOffset]:
        return self.wait_for(self._offsets())

    def beats(self, since: float) -> dict[str, list[HostClockOffset]]:
        return {member.host: [combine([trip]) for trip in list(member.trips) if trip.sent >= since] for member in self._members.values()}

    def addresses(self) -> dict[str, str]:
        """Return host → its network address, or '' for a host that has never joined."""
        return {member.host: member.address for member in self._members.values()}

    @property
    def scheduler(self) -> str:
        return str(self._client.scheduler.address)

    def joined(self) -> dict[str, str]:
        """Return host → address of the scheduler's current workers."""
        current = self.wait_for(joined_members(self._client, each=True), timeout=CONNECT)
        return {member.host: member.address for member in current}

    def ask(self, method: str, timeout: float = 30.0) -> dict[str, Any]:
        """Call a method of each host's post (``look``, ``versions``) without taking the host. A lost host's result is
        HostLost.
        """

        async def ask_one(member: ClusterMember) -> Any:
            if member.why is not None:
                return HostLost(member.host, member.why)
            try:
                if member.post is None:
                    member.post = await self._create_post(member)
                return await asyncio.wait_for(getattr(member.post, method)(), timeout)
            except Exception as error:
                self._lose(member, _first_line(error))
                return HostLost(member.host, member.why or "")

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(ask_one(member) for member in self._members.values()))

        return dict(zip(self._members, self.wait_for(all_of_them()), strict=True))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(TimeoutError, FutureTimeout):
                self.wait_for(self._release(), timeout=_CLEAN_TIMEOUT_S + 5)
        finally:
            self._client.close(timeout=5)

    def __enter__(self) -> DaskClusterClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait_for(self, coroutine: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Run a coroutine in the client's loop from another thread, and cancel it if this thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    # ---- the client's loop

    async def attach(self) -> None:
        """Take all hosts, waiting for those that still clean up.

        Of drivers that start together, the first host decides which one may take the others. Otherwise each could hold a host that
        another one waits for, and all would be refused.

        Raises UsageError if another driver holds one, or if software that must be equal on all hosts differs.
        """
        deadline = time.monotonic() + BUSY
        first = [member for member in self._members.values() if member.why is None][:1]
        others = [member for member in self._members.values() if member not in first]
        answers: dict[str, str | None] = {}
        try:
            for members in (first, others):
                if not any(answers.values()):
                    found = await asyncio.gather(*(self._attach(member, deadline) for member in members))
                    answers |= {member.host: answer for member, answer in zip(members, found, strict=True)}
        except BaseException:
            await self._release()
            raise
        busy = [f"{host}: {answer}" for host, answer in answers.items() if answer]
        if busy:
            await self._release()
            raise UsageError(f"the cluster is in use; wait until it is free ({'; '.join(busy)})")
        software = {member.host: member.software for member in self._members.values() if member.software}
        differences = host_software.compare({"this machine": host_software.required_versions(), **software}, host_software.REFUSED)
        if differences:
            await self._release()
            text = "; ".join(f"{difference.what} is {difference.said}" for difference in differences)
            raise UsageError(f"software differs between the hosts and this machine: {text}; install the same versions everywhere")

    async def exchange(
        self, member: ClusterMember, generation: int, method: str, arguments: tuple[Any, ...], timeout: float
    ) -> object_host.Answer:
        """Send a message to a host's station and return its answer. Raises HostLost, or TimeoutError after ``timeout``
        seconds.
        """
        if member.generation != generation:
            raise HostLost(member.host, "it was lost and has joined again; its work is gone")
        if member.why is not None or member.post is None:
            raise HostLost(member.host, member.why or "it has not joined")
        gone, post = member.gone, member.post

        async def message() -> object_host.Answer:
            # If the scheduler noticed the loss first, Dask already refuses the attribute access.
            answer: object_host.Answer = await getattr(post, method)(self._token, *arguments)
            return answer

        sent = asyncio.ensure_future(message())
        end = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({sent, end}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                try:
                    answer = sent.result()
                except Exception as error:
                    self._lose(member, f"the connection to its agent broke ({_first_line(error)})")
                    raise HostLost(member.host, member.why or "") from error
                if answer[0] == "strange":
                    self._lose(member, "it treated this driver as lost and has stopped its work")
                    raise HostLost(member.host, member.why or "")
                return answer
            if end.done():
                raise HostLost(member.host, member.why or "it was lost")
            raise TimeoutError(f"{method} {arguments[1] if method == 'call' else ''} on host {member.host} takes over {timeout:.0f} s")
        finally:
            sent.cancel()
            end.cancel()

    async def _create_post(self, member: ClusterMember) -> HostActor:
        """Create the actor on the host's worker. Raises TimeoutError, OSError, or what its creation raised there."""
        from distributed import Actor
        from pgherd.cluster.object_host import HostActor

        future = self._client.submit(
            HostActor,
            member.host,
            actor=True,
            workers=[member.worker],
            allow_other_workers=False,
            pure=False,
            key=f"pgherd-{uuid.uuid4().hex}",
        )
        post: Actor = await asyncio.wait_for(future, CONNECT)
        return post  # type: ignore[return-value]  # Dask's proxy of it

    async def _attach(self, member: ClusterMember, deadline: float) -> str | None:
        """Take one host. Return None on success or if it is lost. Otherwise, return a description of its holder."""
        try:
            while True:
                post = await self._create_post(member)
                answer = await asyncio.wait_for(post.attach(self._token, self._driver), CONNECT + _CLEAN_TIMEOUT_S)
                busy: str | None = answer.get("busy")
                if busy is None:
                    member.post, member.seen, member.why, member.software = post, time.monotonic(), None, answer["software"]
                    self._start_watching(member)  # immediately, because another host may take longer than this one's lease
                    return None
                if time.monotonic() > deadline:
                    return busy
                await asyncio.sleep(1.0)
        except ModuleNotFoundError as error:
            raise CapabilityError(f"the Dask worker of host {member.host} lacks {error.name}; install this pgherd there") from error
        except Exception as error:
            self._lose(member, f"it does not respond ({_first_line(error)})")
            self._start_watching(member)
            return None

    def _start_watching(self, member: ClusterMember) -> None:
        self._watchers.append(asyncio.create_task(self._watch(member)))

    async def _watch(self, member: ClusterMember) -> None:
        """Send heartbeats to a host, or try to rejoin it if it is lost."""
        while True:
            await asyncio.sleep(BEAT)
            if member.why is None:
                await self._beat(member)
            else:
                await self._rejoin(member)

    async def _beat(self, member: ClusterMember) -> None:
        assert member.post is not None
        sent, began = time.time(), time.perf_counter()
        try:
            remaining = max(BEAT / 2, LOST_AFTER - (time.monotonic() - member.seen))
            host_time = await asyncio.wait_for(member.post.beat(self._token), remaining)
        except TimeoutError:
            if time.perf_counter() - began > remaining + BEAT / 2:
                return  # this process was delayed, and the answer may be unread
            self._lose(member, f"no heartbeat for {LOST_AFTER:.0f} s: it hangs, or is cut off")
        except Exception as error:
            scheduler_ended = self._client.status != "running"
            self._lose(member, "the scheduler has ended" if scheduler_ended else f"its agent has ended ({_first_line(error)})")
        else:
            if host_time is None:
                self._lose(member, "it treated this driver as lost and has stopped its work")
                return
            member.trips.append(RoundTrip(sent, time.perf_counter() - began, host_time))
            member.seen = time.monotonic()

    async def _rejoin(self, member: ClusterMember) -> None:
        with contextlib.suppress(Exception):
            workers = await asyncio.wait_for(joined_members(self._client), CONNECT)
            current = next((worker for worker in workers if worker.host == member.host), None)
            if current is None or not addresses.is_encrypted(current.worker):
                return
            member.worker, member.address = current.worker, current.address
            post = await self._create_post(member)
            answer = await asyncio.wait_for(post.attach(self._token, self._driver), CONNECT + _CLEAN_TIMEOUT_S)
            if "busy" not in answer and answer["software"] == host_software.required_versions():
                member.generation += 1
                member.gone = asyncio.Event()
                member.post, member.seen, member.why = post, time.monotonic(), None

    def _lose(self, member: ClusterMember, why: str) -> None:
        if member.why is None:
            member.why = why
            member.gone.set()

    async def _offsets(self) -> dict[str, HostClockOffset]:
        limit = asyncio.Semaphore(_PARALLEL_CLOCKS)

        async def measure(member: ClusterMember) -> HostClockOffset | None:
            trips = []
            async with limit:
                for number in range(1, TRIPS.stop):
                    if member.why is not None or member.post is None:
                        return None
                    sent, began = time.time(), time.perf_counter()
                    try:
                        host_time = await asyncio.wait_for(member.post.clock(), LOST_AFTER)
                    except Exception:
                        return None  # its heartbeats determine the reason
                    trips.append(RoundTrip(sent, time.perf_counter() - began, host_time))
                    if number >= TRIPS.start and combine(trips).uncertainty <= CLOSE:
                        break
            return combine(trips)

        measured = await asyncio.gather(*(measure(member) for member in self._members.values()))
        return {host: offset for host, offset in zip(self._members, measured, strict=True) if offset is not None}

    async def _release(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()

        async def detach(member: ClusterMember) -> None:
            if member.why is None and member.post is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(member.post.detach(self._token), _CLEAN_TIMEOUT_S)

        await asyncio.gather(*(detach(member) for member in self._members.values()))


def connect(cluster: str, tls: Path | None = None, *, hold: bool = True) -> DaskClusterClient:
    """Join a cluster by the address of a Dask scheduler, or by the name of one started here. ``hold`` takes its hosts
    for this driver.

    Raises:
        UsageError: no such cluster, no response, in use by another driver, or a host without TLS.
    """
    place = addresses.find(cluster, tls)
    client = _client(place)
    try:
        current = asyncio.run_coroutine_threadsafe(joined_members(client), client.loop.asyncio_loop).result(CONNECT)
        addresses.check_workers(place.address, (member.worker for member in current))
        engine = DaskClusterClient(client, in_cluster_order(current, place))
        if hold:
            engine.wait_for(engine.attach())
            if not engine.hosts():
                raise TrialError(
                    f"no host of {cluster} responds ({'; '.join(f'{host}: {reason}' for host, reason in engine.lost().items())})"
                )
    except BaseException:
        client.close(timeout=5)
        raise
    return engine


def _client(place: addresses.SchedulerAddress) -> Any:
    """Return a connected client. Raises UsageError."""
    security = addresses.security(place)
    from distributed.versions import VersionMismatchWarning

    from distributed import Client

    dask_settings.configure()
    warnings.simplefilter("ignore", VersionMismatchWarning)  # ``attach`` compares versions
    try:
        # Set as default, because an actor's proxy finds its client by that.
        return Client(place.address, security=security, timeout=CONNECT, set_as_default=True, direct_to_workers=True)
    except (OSError, TimeoutError) as error:
        raise UsageError(
            f"no Dask scheduler that accepts this certificate responds at {place.address} ({_first_line(error)}); 'pgherd cluster status' "
            "lists clusters started here, and 'pgherd cluster start' starts one again"
        ) from error


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, which may be a host's."""
    return clean(str(error).splitlines()[0]) if str(error) else type(error).__name__
