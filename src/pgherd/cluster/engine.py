"""The engine: a client of a Dask scheduler, an actor of ours on each host, and beats that tell which hosts are alive.

Dask's own deadlines are too long (a cut link is noticed after half a minute), and a task pinned to a dead worker waits for ever. So
every host is asked for a sign of life every BEAT seconds, and what waits for a host ends when that host is taken for lost.
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

from pgherd.cluster import address as addresses
from pgherd.cluster import station, tuning, versions
from pgherd.cluster.address import Place
from pgherd.cluster.remote import LOST_AFTER, HostLost, Offset, Remote, RoundTrip, combine, named
from pgherd.model.errors import CapabilityError, PgherdError, TrialError, UsageError

if TYPE_CHECKING:
    from pgherd.cluster.station import Post
if TYPE_CHECKING:
    from pathlib import Path

    from pgherd.cluster.station import Post


@dataclass
class Member:
    """One host as the driver sees it. ``why`` says why it is lost, None while it is not; ``software`` is what it told when it was taken."""

    host: str
    worker: str
    address: str
    post: Post | None = None
    seen: float = 0.0
    why: str | None = None
    generation: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    software: dict[str, str] = field(default_factory=dict)
    trips: deque[RoundTrip] = field(default_factory=lambda: deque(maxlen=2000))


async def joined_members(client: Any, *, each: bool = False) -> list[Member]:
    """The hosts that have joined. Several workers on one address are one host, and the first of them is used, unless ``each`` is wanted."""
    identity = await client.scheduler.identity(n_workers=-1)
    found: dict[str, Member] = {}
    for worker, known in sorted(identity["workers"].items()):
        address = str(known["host"])
        name = str(known["name"])
        if "://" in name or name.isdigit():  # what Dask calls a worker that nobody has named
            name = address
        found.setdefault(worker if each else address, Member(name, worker, address))
    return list(found.values())


def in_cluster_order(members: list[Member], place: Place) -> list[Member]:
    """In the cluster's own order; hosts of it that have not joined are lost from the beginning. Raises UsageError without any."""
    if not place.hosts:
        if not members:
            raise UsageError(f"no worker has joined {place.address}; start one on each host: 'dask worker {place.address} --nthreads 1'")
        return sorted(members, key=lambda member: member.host)
    by_host = {member.host: member for member in members}
    in_order = []
    for host in place.hosts:
        member = by_host.get(host)
        if member is None:
            member = Member(host, "", "", why="its agent has not joined, or has ended")
            member.gone.set()
        in_order.append(member)
    return in_order


BEAT = 2.0
"""Seconds between two signs of life."""
CONNECT = 10.0
"""Seconds that a scheduler, or a host, has for its first answer."""
BUSY = 40.0
"""Seconds for which a new driver waits for hosts that still clean up after the last one, or have not missed it yet."""
TRIPS = range(4, 17)
"""Round trips per host of one measurement of the clocks: no more of them once the offset is known to within CLOSE."""
CLOSE = 0.001
"""Seconds: a twentieth of the skew that agreed starts are allowed."""
_AT_ONCE = 4
"""Hosts whose clocks are asked at the same time: more would only wait for each other here."""
_MAKE = 120.0
_CLEAN = 60.0

Result = TypeVar("Result")


class DaskRemote:
    """An object on a host; implements Remote."""

    def __init__(self, engine: DaskEngine, member: Member, key: str) -> None:
        """It is of no use any more once its host was lost, even when the host comes back."""
        self._engine, self._member, self._key, self._generation = engine, member, key, member.generation
        self.host, self.address = member.host, member.address

    def call(self, method: str, *arguments: Any, timeout: float) -> Any:
        """See Remote."""
        payload = station.dumps(arguments)
        exchange = self._engine.exchange(self._member, self._generation, "call", (self._key, method, payload), timeout)
        return station.opened(self._engine.wait_for(exchange))


class DaskEngine:
    """Implements Engine over Dask distributed. Make it with ``connect``."""

    def __init__(self, client: Any, hosts: Sequence[Member]) -> None:
        """Takes over a connected client; nothing is asked of the hosts yet."""
        self._client = client
        self._loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self._members = {member.host: member for member in hosts}
        self._token = uuid.uuid4().hex
        self._driver = f"{socket.gethostname()}, pid {os.getpid()}"
        self._watchers: list[asyncio.Task[None]] = []
        self._closed = False

    # ---- the driver's threads

    def hosts(self) -> tuple[str, ...]:
        """See Engine."""
        return tuple(member.host for member in self._members.values() if member.why is None)

    def lost(self) -> dict[str, str]:
        """See Engine."""
        return {member.host: member.why for member in self._members.values() if member.why is not None}

    def actors(self, make: Callable[..., object], *arguments: Any) -> dict[str, Remote]:
        """See Engine."""
        key = f"{make.__module__}.{make.__qualname__}"
        payload = station.dumps((make, arguments))
        here = [member for member in self._members.values() if member.why is None]

        async def one(member: Member) -> station.Answer:
            try:
                return await self.exchange(member, member.generation, "make", (key, payload), _MAKE)
            except TimeoutError:
                self._lose(member, f"what was to run there was not made within {_MAKE:.0f} s")
                raise HostLost(member.host, member.why or "") from None

        async def all_of_them() -> list[station.Answer | BaseException]:
            return await asyncio.gather(*map(one, here), return_exceptions=True)

        for member, answer in zip(here, self.wait_for(all_of_them()), strict=True):
            if isinstance(answer, BaseException):
                raise answer
            try:
                station.opened(answer)
            except (PgherdError, OSError) as error:
                raise named(error, member.host) from None
        return {member.host: DaskRemote(self, member, key) for member in here}

    def offsets(self) -> dict[str, Offset]:
        """See Engine."""
        return self.wait_for(self._offsets())

    def beats(self, since: float) -> dict[str, list[Offset]]:
        """See Engine."""
        return {member.host: [combine([trip]) for trip in list(member.trips) if trip.sent >= since] for member in self._members.values()}

    def addresses(self) -> dict[str, str]:
        """Host → its network address; empty for one that has never joined."""
        return {member.host: member.address for member in self._members.values()}

    @property
    def scheduler(self) -> str:
        """The scheduler's address."""
        return str(self._client.scheduler.address)

    def joined(self) -> dict[str, str]:
        """Host → its address, for the workers that the scheduler has right now."""
        found = self.wait_for(joined_members(self._client, each=True), timeout=CONNECT)
        return {member.host: member.address for member in found}

    def ask(self, method: str, timeout: float = 30.0) -> dict[str, Any]:
        """What a method of each host's post returns (``look``, ``versions``), asked without holding the host; HostLost in its place."""

        async def one(member: Member) -> Any:
            if member.why is not None:
                return HostLost(member.host, member.why)
            try:
                if member.post is None:
                    member.post = await self._placed(member)
                return await asyncio.wait_for(getattr(member.post, method)(), timeout)
            except Exception as error:
                self._lose(member, _said(error))
                return HostLost(member.host, member.why or "")

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(one(member) for member in self._members.values()))

        return dict(zip(self._members, self.wait_for(all_of_them()), strict=True))

    def close(self) -> None:
        """See Engine."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(TimeoutError, FutureTimeout):
                self.wait_for(self._let_go(), timeout=_CLEAN + 5)
        finally:
            self._client.close(timeout=5)

    def __enter__(self) -> DaskEngine:
        """Closed at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """See ``close``."""
        self.close()

    def wait_for(self, coroutine: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Run a coroutine in the client's loop from another thread, and cancel it when this thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    # ---- the client's loop

    async def attach(self) -> None:
        """Take all hosts, waiting for those that are still with the last driver. Raises UsageError when another driver holds one, or
        when what must be equal on all hosts is not."""
        deadline = time.monotonic() + BUSY
        try:
            answers = await asyncio.gather(*(self._attach(member, deadline) for member in self._members.values()))
        except BaseException:
            await self._let_go()
            raise
        busy = [f"{member.host}: {answer}" for member, answer in zip(self._members.values(), answers, strict=True) if answer]
        if busy:
            await self._let_go()
            raise UsageError(f"the cluster is in use; wait until that has ended ({'; '.join(busy)})")
        told = {member.host: member.software for member in self._members.values() if member.software}
        differences = versions.compare({"this machine": versions.software(), **told}, versions.REFUSED)
        if differences:
            await self._let_go()
            said = "; ".join(f"{difference.what} is {difference.said}" for difference in differences)
            raise UsageError(f"the hosts and this machine must have the same: {said}; install the same pgherd[cluster] everywhere")

    async def exchange(self, member: Member, generation: int, method: str, arguments: tuple[Any, ...], timeout: float) -> station.Answer:
        """One message to a host's station and its answer; raises HostLost, or TimeoutError after ``timeout`` seconds."""
        if member.generation != generation:
            raise HostLost(member.host, "it was lost and has joined again; what ran there is gone")
        if member.why is not None or member.post is None:
            raise HostLost(member.host, member.why or "it has not joined")
        gone, post = member.gone, member.post

        async def message() -> station.Answer:
            # Where the scheduler has missed the host before us, Dask already refuses to name the method.
            answer: station.Answer = await getattr(post, method)(self._token, *arguments)
            return answer

        sent = asyncio.ensure_future(message())
        end = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait({sent, end}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                try:
                    answer = sent.result()
                except Exception as error:
                    self._lose(member, f"the connection to its agent broke ({_said(error)})")
                    raise HostLost(member.host, member.why or "") from error
                if answer[0] == "strange":
                    self._lose(member, "it took this driver for lost and has stopped what it ran")
                    raise HostLost(member.host, member.why or "")
                return answer
            if end.done():
                raise HostLost(member.host, member.why or "it was lost")
            raise TimeoutError(f"{method} {arguments[1] if method == 'call' else ''} on host {member.host} takes over {timeout:.0f} s")
        finally:
            sent.cancel()
            end.cancel()

    async def _placed(self, member: Member) -> Post:
        """Put our actor on the host's worker. Raises TimeoutError, OSError, or what its making raised there."""
        from distributed import Actor

        from pgherd.cluster.station import Post

        future = self._client.submit(
            Post, member.host, actor=True, workers=[member.worker], allow_other_workers=False, pure=False, key=f"pgherd-{uuid.uuid4().hex}"
        )
        made: Actor = await asyncio.wait_for(future, CONNECT)
        return made  # type: ignore[return-value]  # Dask's stand-in for it

    async def _attach(self, member: Member, deadline: float) -> str | None:
        """Take one host; None when it is ours, or lost; else in whose hands it is."""
        try:
            while True:
                post = await self._placed(member)
                answer = await asyncio.wait_for(post.attach(self._token, self._driver), CONNECT + _CLEAN)
                busy: str | None = answer.get("busy")
                if busy is None:
                    member.post, member.seen, member.why, member.software = post, time.monotonic(), None, answer["software"]
                    self._begin_watching(member)  # at once: another host may take longer than this one's patience
                    return None
                if time.monotonic() > deadline:
                    return busy
                await asyncio.sleep(1.0)
        except ModuleNotFoundError as error:
            raise CapabilityError(
                f"the Dask worker of host {member.host} has no {error.name}; install this pgherd there, with its extra [cluster]"
            ) from error
        except Exception as error:
            self._lose(member, f"it does not answer ({_said(error)})")
            self._begin_watching(member)
            return None

    def _begin_watching(self, member: Member) -> None:
        self._watchers.append(asyncio.create_task(self._watch(member)))

    async def _watch(self, member: Member) -> None:
        """One host's beats; for a lost one, attempts to find it again."""
        while True:
            await asyncio.sleep(BEAT)
            if member.why is None:
                await self._beat(member)
            else:
                await self._find_again(member)

    async def _beat(self, member: Member) -> None:
        assert member.post is not None
        sent, began = time.time(), time.perf_counter()
        try:
            left = max(BEAT / 2, LOST_AFTER - (time.monotonic() - member.seen))
            there = await asyncio.wait_for(member.post.beat(self._token), left)
        except TimeoutError:
            if time.perf_counter() - began > left + BEAT / 2:
                return  # this process itself was held up: the answer may be there, unread
            self._lose(member, f"no sign of life for {LOST_AFTER:.0f} s: it hangs, or is cut off")
        except Exception as error:
            gone = self._client.status != "running"
            self._lose(member, "the scheduler has ended" if gone else f"its agent has ended ({_said(error)})")
        else:
            if there is None:
                self._lose(member, "it took this driver for lost and has stopped what it ran")
                return
            member.trips.append(RoundTrip(sent, time.perf_counter() - began, there))
            member.seen = time.monotonic()

    async def _find_again(self, member: Member) -> None:
        with contextlib.suppress(Exception):
            workers = await asyncio.wait_for(joined_members(self._client), CONNECT)
            found = next((one for one in workers if one.host == member.host), None)
            if found is None or not addresses.is_private(found.worker):
                return
            member.worker, member.address = found.worker, found.address
            post = await self._placed(member)
            answer = await asyncio.wait_for(post.attach(self._token, self._driver), CONNECT + _CLEAN)
            if "busy" not in answer and answer["software"] == versions.software():
                member.generation += 1
                member.gone = asyncio.Event()
                member.post, member.seen, member.why = post, time.monotonic(), None

    def _lose(self, member: Member, why: str) -> None:
        if member.why is None:
            member.why = why
            member.gone.set()

    async def _offsets(self) -> dict[str, Offset]:
        few = asyncio.Semaphore(_AT_ONCE)

        async def one(member: Member) -> Offset | None:
            trips = []
            async with few:
                for number in range(1, TRIPS.stop):
                    if member.why is not None or member.post is None:
                        return None
                    sent, began = time.time(), time.perf_counter()
                    try:
                        there = await asyncio.wait_for(member.post.clock(), LOST_AFTER)
                    except Exception:
                        return None  # its beats will tell why
                    trips.append(RoundTrip(sent, time.perf_counter() - began, there))
                    if number >= TRIPS.start and combine(trips).uncertainty <= CLOSE:
                        break
            return combine(trips)

        found = await asyncio.gather(*(one(member) for member in self._members.values()))
        return {host: offset for host, offset in zip(self._members, found, strict=True) if offset is not None}

    async def _let_go(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()

        async def one(member: Member) -> None:
            if member.why is None and member.post is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(member.post.detach(self._token), _CLEAN)

        await asyncio.gather(*(one(member) for member in self._members.values()))


def connect(cluster: str, tls: Path | None = None, *, hold: bool = True) -> DaskEngine:
    """Join a cluster: the address of a Dask scheduler, or the name of one started here. ``hold`` takes its hosts for this driver.

    Raises UsageError (no such cluster, it does not answer, somebody else is using it, a host of it has no TLS), CapabilityError (the
    extra is missing).
    """
    versions.require_extra()
    place = addresses.find(cluster, tls)
    client = _client(place)
    try:
        found = asyncio.run_coroutine_threadsafe(joined_members(client), client.loop.asyncio_loop).result(CONNECT)
        addresses.check_workers(place.address, (member.worker for member in found))
        engine = DaskEngine(client, in_cluster_order(found, place))
        if hold:
            engine.wait_for(engine.attach())
            if not engine.hosts():
                raise TrialError(f"no host of {cluster} answers ({'; '.join(f'{host}: {why}' for host, why in engine.lost().items())})")
    except BaseException:
        client.close(timeout=5)
        raise
    return engine


def _client(place: addresses.Place) -> Any:
    """A connected client; raises UsageError."""
    security = addresses.security(place)
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    tuning.configure()
    warnings.simplefilter("ignore", VersionMismatchWarning)  # what must be equal we compare ourselves
    try:
        # As the default one: an actor's stand-in finds its client by that.
        return Client(place.address, security=security, timeout=CONNECT, set_as_default=True, direct_to_workers=True)
    except (OSError, TimeoutError) as error:
        raise UsageError(
            f"no Dask scheduler that takes our certificate answers at {place.address} ({_said(error)}); 'pgherd cluster status' tells what "
            "was started here, and 'pgherd cluster start' starts it again"
        ) from error


def _said(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
