"""How a server writes its WAL, and how many bytes of relations it reads and writes, as PostgreSQL itself counts them.

PostgreSQL 14 to 17 count WAL writes and syncs in pg_stat_wal, 18 in pg_stat_io (which counts bytes too); relation bytes are
in pg_stat_io: 16 and 17 in blocks of ``op_bytes``, 18 in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.database import first_row
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_WAL_14 = "(SELECT wal_write, wal_sync, NULL::bigint, wal_buffers_full FROM pg_stat_wal) w"
_WAL_18 = """(SELECT (SELECT sum(writes)::bigint FROM pg_stat_io WHERE object = 'wal'),
       (SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'),
       (SELECT sum(write_bytes)::bigint FROM pg_stat_io WHERE object = 'wal'), wal_buffers_full FROM pg_stat_wal) w"""
_ALL = "SELECT * FROM "
_IO_NONE = "(SELECT NULL::bigint, NULL::bigint) r"
_IO_16 = """(SELECT sum(reads * op_bytes)::bigint, sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes)::bigint
FROM pg_stat_io) r"""
_IO_18 = """(SELECT sum(read_bytes)::bigint, sum(coalesce(write_bytes, 0) + coalesce(extend_bytes, 0))::bigint
FROM pg_stat_io WHERE object <> 'wal') r"""


def statement(major: int) -> str:
    """The statement for a server of that major version; its columns are those of the sampler's metrics, in order."""
    wal = _WAL_18 if major >= 18 else _WAL_14
    io = _IO_18 if major >= 18 else _IO_16 if major >= 16 else _IO_NONE
    return "\nCROSS JOIN ".join((_ALL + wal, io))


class PgWalSampler:
    """Every fifth tick, as pg_stat_io is dear."""

    name = "pg_wal"
    metrics = (
        Metric("wal.writes", "operations", "counter", "writes of WAL buffers to the WAL files", resets=True),
        Metric("wal.syncs", "calls", "counter", "syncs of WAL files", resets=True),
        Metric("wal.write_bytes", "bytes", "counter", "written to the WAL files (18 and later)", resets=True),
        Metric("wal.buffers_full", "times", "counter", "WAL written since the WAL buffers were full", resets=True),
        Metric("io.read_bytes", "bytes", "counter", "read from relation files (16 and later)", resets=True),
        Metric("io.write_bytes", "bytes", "counter", "written to relation files, extensions included (16 and later)", resets=True),
    )

    def sources(self, view: View) -> list[Source]:
        """One statement per server."""
        return [
            Source(self.name, f"server:{server.name}", "sql", server.conninfo, statement(server.major), every=5)
            for server in view.servers
            if server.major >= 14
        ]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading; what this version does not count is absent."""
        row = first_row(raw)
        if len(row) != len(self.metrics):
            raise ValueError(f"the statement returns {len(self.metrics)} columns, not {len(row)}")
        yield source.entity, {metric.name: value for metric, value in zip(self.metrics, row, strict=True) if value is not None}


SAMPLER = PgWalSampler()
