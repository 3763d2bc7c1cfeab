"""I/O of a server by pg_stat_io (PostgreSQL 16 and later): of all backends, and of client backends alone.

WAL is left out (only 18 counts it there; see wal.* of the database sampler), so that versions compare.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.database import first_row
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

STATEMENT = """SELECT sum(reads)::bigint, sum(writes)::bigint, sum(extends)::bigint, sum(fsyncs)::bigint, sum(evictions)::bigint,
       sum(reads) FILTER (WHERE client)::bigint, sum(writes) FILTER (WHERE client)::bigint,
       sum(extends) FILTER (WHERE client)::bigint, sum(fsyncs) FILTER (WHERE client)::bigint,
       sum(evictions) FILTER (WHERE client)::bigint
FROM (SELECT reads, writes, extends, fsyncs, evictions, backend_type = 'client backend' AS client
      FROM pg_stat_io WHERE object <> 'wal') io"""

_WHAT = (
    ("reads", "operations", "read operations of relation files"),
    ("writes", "operations", "write operations of relation files"),
    ("extends", "operations", "extensions of relation files"),
    ("fsyncs", "calls", "fsync calls for relation files"),
    ("evictions", "blocks", "blocks evicted from shared or local buffers to make room"),
)


class PgIoSampler:
    """Operations, not bytes: 17 and later read several blocks in one. Every fifth tick, since the view is dear."""

    name = "pg_io"
    metrics = tuple(
        Metric(f"{prefix}.{name}", unit, "counter", f"{meaning} by {who}", resets=True)
        for prefix, who in (("io", "all processes"), ("io.client", "client backends"))
        for name, unit, meaning in _WHAT
    )

    def sources(self, view: View) -> list[Source]:
        """One statement per server that has the view."""
        return [
            Source(self.name, f"server:{server.name}", "sql", server.conninfo, STATEMENT, every=5)
            for server in view.servers
            if server.major >= 16
        ]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading."""
        row = first_row(raw)
        if len(row) != len(self.metrics):
            raise ValueError(f"the statement returns {len(self.metrics)} columns, not {len(row)}")
        yield source.entity, {metric.name: value for metric, value in zip(self.metrics, row, strict=True) if value is not None}


SAMPLER = PgIoSampler()
