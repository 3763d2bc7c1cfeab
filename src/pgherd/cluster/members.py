"""The hosts of a cluster as a driver sees them: which workers have joined, and in which order they stand."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgherd.cluster.address import Place
from pgherd.cluster.clocks import RoundTrip
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from pgherd.cluster.post import Post


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


async def there(client: Any, *, each: bool = False) -> list[Member]:
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


def ordered(members: list[Member], place: Place) -> list[Member]:
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
