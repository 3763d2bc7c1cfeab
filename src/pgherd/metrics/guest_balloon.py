"""Guests' memory balloons and the balloon manager's CPU time, from the lines that the manager writes into the spool.

A node has no file to read for them. The balloon manager queries the hypervisor, and spools what it reads and sets
(pgherd.runtimes.balloon_manager).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

_MANAGER_VALUES = {
    "memory": "guest.memory_configured",
    "minimum": "guest.minimum",
    "actual": "guest.memory_balloon_actual",
    "target": "guest.target",
    "working_set": "guest.working_set",
}
_GUEST_STATISTICS = {
    "stat-free-memory": "guest.free",
    "stat-available-memory": "guest.available",
    "stat-total-memory": "guest.memory_managed",
    "stat-disk-caches": "guest.disk_caches",
    "stat-swap-in": "guest.swap_in",
    "stat-swap-out": "guest.swap_out",
    "stat-major-faults": "guest.major_faults",
    "stat-minor-faults": "guest.minor_faults",
}
_NOT_REPORTED = 2**63
"""Values from here on mean that the guest does not report the statistic."""


class GuestBalloonSampler:
    """Readings of ``guest:NAME``. The guest's statistics are those of virtio 1.2, section 5.5.6.4. A missing one is absent.

    Memory that a database balloon inside the guest returns is first free memory of the guest, and later part of the
    guest's balloon. Never add the two.
    """

    name = "guest_balloon"
    metrics = (
        SampledMetric("guest.memory_configured", "bytes", "gauge", "configured memory"),
        SampledMetric("guest.minimum", "bytes", "gauge", "memory that the guest always keeps"),
        SampledMetric("guest.memory_balloon_actual", "bytes", "gauge", "memory that the guest has: configured memory minus its balloon"),
        SampledMetric("guest.target", "bytes", "gauge", "memory size that the host requested last"),
        SampledMetric("guest.ballooned", "bytes", "gauge", "memory in the guest's balloon, including memory returned by its databases"),
        SampledMetric("guest.working_set", "bytes", "gauge", "the balloon manager's estimate of used memory"),
        SampledMetric("guest.free", "bytes", "gauge", "unused memory, reported by the guest"),
        SampledMetric("guest.available", "bytes", "gauge", "memory usable without swapping, reported by the guest"),
        SampledMetric("guest.memory_managed", "bytes", "gauge", "memory managed by the guest's kernel"),
        SampledMetric("guest.disk_caches", "bytes", "gauge", "page cache inside the guest"),
        SampledMetric("guest.swap_in", "bytes", "counter", "memory swapped in inside the guest", resets=True),
        SampledMetric("guest.swap_out", "bytes", "counter", "memory swapped out inside the guest", resets=True),
        SampledMetric("guest.major_faults", "faults", "counter", "page faults inside the guest that needed I/O", resets=True),
        SampledMetric("guest.minor_faults", "faults", "counter", "page faults inside the guest without I/O", resets=True),
        SampledMetric("guest.statistics_age", "s", "gauge", "age of the guest's statistics"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: the balloon manager writes the lines itself."""
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        try:
            document = json.loads(raw)
            statistics = document["stats"]
            values = {metric: float(document[key]) for key, metric in _MANAGER_VALUES.items() if key in document}
            values["guest.ballooned"] = max(float(document["memory"]) - float(document["actual"]), 0.0)
            values |= {
                metric: float(statistics[key])
                for key, metric in _GUEST_STATISTICS.items()
                if 0 <= int(statistics.get(key, -1)) < _NOT_REPORTED
            }
            if float(document["last_update"]) > 0 and "at" in document:
                values["guest.statistics_age"] = max(float(document["at"]) - float(document["last_update"]), 0.0)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise _foreign(raw, error) from None
        yield source.entity, values


class BalloonManagerSampler:
    """CPU time of all threads of the balloon manager, as ``platform:balloon-manager``.

    The manager runs in pgherd's process. Its CPU time still counts as platform overhead, because a platform of virtual
    machines needs such a manager also without a benchmark (E2).
    """

    name = "balloon_manager"
    metrics = (SampledMetric("cpu.usage", "s", "counter", "CPU time used"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return nothing: the balloon manager writes the lines itself."""
        return []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        try:
            yield source.entity, {"cpu.usage": float(json.loads(raw)["cpu"])}
        except (KeyError, TypeError, OverflowError) as error:
            raise _foreign(raw, error) from None


def _foreign(raw: str, error: Exception) -> ValueError:
    return ValueError(f"'{raw[:40]}' is not a line of the balloon manager ({error})")


GUEST_BALLOON, BALLOON_MANAGER = GuestBalloonSampler(), BalloonManagerSampler()
SAMPLERS = (GUEST_BALLOON, BALLOON_MANAGER)
