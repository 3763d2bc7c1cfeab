"""The database memory balloon of a server, from pg_balloon's own status (extension/pg_balloon); where the extension is there.

What the balloon holds is memory that the server has given back: it shows as less shared memory of its container, and must never be added
to that.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.database import first_row
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

STATEMENT = """SELECT shared_buffers_bytes, ballooned_bytes, resident_bytes, balloon_resident_bytes, working_set_bytes, floor_bytes,
       ceiling_bytes, available_bytes, c.inflations, c.deflations
FROM pg_balloon_status(), pg_stat_balloon c"""

THERE = "SELECT to_regprocedure('pg_balloon_status()') IS NOT NULL"
"""Whether a database has the extension's functions; they tell of the whole server."""


class BalloonSampler:
    """One statement per server that has it; it looks at the page table of the whole pool: milliseconds per gigabyte."""

    name = "balloon"
    metrics = (
        Metric("balloon.pool", "bytes", "gauge", "shared_buffers as configured"),
        Metric("balloon.bytes", "bytes", "gauge", "of the pool, in the balloon: given back by the database"),
        Metric("balloon.resident", "bytes", "gauge", "of the pool, in memory"),
        Metric("balloon.stuck", "bytes", "gauge", "of the balloon, in memory all the same"),
        Metric("balloon.working_set", "bytes", "gauge", "of the pool, touched of late, as the balloon estimates it"),
        Metric("balloon.floor", "bytes", "gauge", "of the pool, what must stay outside the balloon"),
        Metric("balloon.ceiling", "bytes", "gauge", "of the pool, what may be in the balloon at most"),
        Metric("balloon.available", "bytes", "gauge", "memory that the balloon believes could be had without swapping"),
        Metric("balloon.inflations", "times", "counter", "times that memory was given back", resets=True),
        Metric("balloon.deflations", "times", "counter", "times that memory was taken again", resets=True),
    )

    def sources(self, view: View) -> list[Source]:
        """One per server that has the extension."""
        return [Source(self.name, f"server:{one.name}", "sql", one.conninfo, STATEMENT) for one in view.servers if one.balloon]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading; what a server without a usable balloon leaves empty is absent."""
        row = first_row(raw)
        if len(row) != len(self.metrics):
            raise ValueError(f"the statement returns {len(self.metrics)} columns, not {len(row)}")
        yield source.entity, {metric.name: value for metric, value in zip(self.metrics, row, strict=True) if value is not None}


SAMPLER = BalloonSampler()
