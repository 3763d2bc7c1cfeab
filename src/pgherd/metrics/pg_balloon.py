"""Balloon of a server with the pg_balloon extension, from the extension's status functions.

Memory in the balloon has been returned by the server. The container's shared memory is smaller by that amount, so never add the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.pg_stat import row_values
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.node.protocol import SampleSource

STATEMENT = """SELECT shared_buffers_bytes, ballooned_bytes, resident_bytes, balloon_resident_bytes, working_set_bytes, floor_bytes,
       ceiling_bytes, available_bytes, c.inflations, c.deflations
FROM pg_balloon_status(), pg_stat_balloon c"""

THERE = "SELECT to_regprocedure('pg_balloon_status()') IS NOT NULL"
"""Returns true if a database has the extension's functions. They report on the whole server."""


class PgBalloonSampler:
    """One statement per server with the extension. It walks the page table of all shared buffers: milliseconds per gigabyte."""

    name = "balloon"
    metrics = (
        SampledMetric("balloon.shared_buffers", "bytes", "gauge", "shared_buffers as configured"),
        SampledMetric("balloon.bytes", "bytes", "gauge", "shared buffers in the balloon: memory returned by the server"),
        SampledMetric("balloon.resident", "bytes", "gauge", "shared buffers in memory"),
        SampledMetric("balloon.resident_in_balloon", "bytes", "gauge", "balloon pages that are still in memory"),
        SampledMetric("balloon.working_set", "bytes", "gauge", "the balloon's estimate of recently used shared buffers"),
        SampledMetric("balloon.floor", "bytes", "gauge", "shared buffers that must stay outside the balloon"),
        SampledMetric("balloon.ceiling", "bytes", "gauge", "upper limit of the balloon"),
        SampledMetric("balloon.available", "bytes", "gauge", "the balloon's estimate of memory available without swapping"),
        SampledMetric("balloon.inflations", "times", "counter", "times that the balloon was inflated", resets=True),
        SampledMetric("balloon.deflations", "times", "counter", "times that the balloon was deflated", resets=True),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, STATEMENT) for server in view.servers if server.balloon
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, row_values(raw, self.metrics)


SAMPLER = PgBalloonSampler()
