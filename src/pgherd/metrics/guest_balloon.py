"""A guest's balloon and what the guest tells of its memory, from the lines that the host's balloon manager writes.

There is nothing that a node could read: the manager asks the hypervisor, and spools what it saw and set (pgherd.runtimes.balloon_manager).
The guest's own statistics are those of virtio 1.2, section 5.5.6.4. What a database balloon inside the guest has given up is memory
that the guest has free, and later a part of what is in the guest's balloon: never add the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_OWN = {"memory": "guest.memory", "minimum": "guest.minimum", "actual": "guest.actual", "target": "guest.target"}
_OWN |= {"working_set": "guest.working_set"}
_TOLD = {
    "stat-free-memory": "guest.free",
    "stat-available-memory": "guest.available",
    "stat-total-memory": "guest.total",
    "stat-disk-caches": "guest.caches",
    "stat-swap-in": "guest.swap_in",
    "stat-swap-out": "guest.swap_out",
    "stat-major-faults": "guest.major_faults",
    "stat-minor-faults": "guest.minor_faults",
}
_MOST = 2**63
"""From here on a value means that the guest does not tell it."""


class GuestBalloonSampler:
    """Readings of ``guest:NAME``. What a guest does not tell is absent."""

    name = "guest_balloon"
    metrics = (
        Metric("guest.memory", "bytes", "gauge", "memory that the guest was configured with"),
        Metric("guest.minimum", "bytes", "gauge", "memory that it always keeps"),
        Metric("guest.actual", "bytes", "gauge", "memory that it has: configured less what is in its balloon"),
        Metric("guest.target", "bytes", "gauge", "memory that the host last asked it to keep"),
        Metric("guest.ballooned", "bytes", "gauge", "in the balloon of its kernel; what its databases gave up is a part of it"),
        Metric("guest.working_set", "bytes", "gauge", "memory that the balloon manager believes it to use"),
        Metric("guest.free", "bytes", "gauge", "unused memory, as the guest tells"),
        Metric("guest.available", "bytes", "gauge", "memory that the guest could use without swapping, as it tells"),
        Metric("guest.total", "bytes", "gauge", "memory that its kernel manages"),
        Metric("guest.caches", "bytes", "gauge", "its page cache"),
        Metric("guest.swap_in", "bytes", "counter", "swapped in by the guest itself", resets=True),
        Metric("guest.swap_out", "bytes", "counter", "swapped out by the guest itself", resets=True),
        Metric("guest.major_faults", "faults", "counter", "page faults inside it that needed I/O", resets=True),
        Metric("guest.minor_faults", "faults", "counter", "page faults inside it that needed none", resets=True),
        Metric("guest.statistics_age", "s", "gauge", "for how long the guest has told nothing new"),
    )

    def sources(self, view: View) -> list[Source]:
        """None: the manager writes its lines itself."""
        return []

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading."""
        try:
            document = json.loads(raw)
            told = document["stats"]
            values = {metric: float(document[key]) for key, metric in _OWN.items() if key in document}
            values["guest.ballooned"] = max(float(document["memory"]) - float(document["actual"]), 0.0)
            values |= {metric: float(told[key]) for key, metric in _TOLD.items() if 0 <= int(told.get(key, -1)) < _MOST}
            if float(document["last_update"]) > 0 and "at" in document:
                values["guest.statistics_age"] = max(float(document["at"]) - float(document["last_update"]), 0.0)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"'{raw[:40]}' is not what the balloon manager writes ({error})") from None
        yield source.entity, values


SAMPLER = GuestBalloonSampler()
