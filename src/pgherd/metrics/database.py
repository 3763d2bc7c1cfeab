"""What a server says of itself: transactions, buffers, checkpoints, WAL, vacuum; one cheap statement per tick.

Backends report their statistics about once a second and when they fall idle, so the counters lag by up to a second.
Every sample adds a transaction of its own to ``db.xact_commit`` of the database that it connects to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite

from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_DATABASES = """SELECT * FROM (
SELECT sum(xact_commit)::bigint, sum(xact_rollback)::bigint, sum(blks_read)::bigint, sum(blks_hit)::bigint,
       sum(tup_returned)::bigint, sum(tup_fetched)::bigint, sum(tup_inserted)::bigint, sum(tup_updated)::bigint,
       sum(tup_deleted)::bigint, sum(temp_bytes)::bigint, sum(deadlocks)::bigint
FROM pg_stat_database WHERE datname NOT IN ('template0', 'template1')) d"""
_BGWRITER = """(SELECT checkpoints_timed, checkpoints_req, checkpoint_write_time, checkpoint_sync_time, buffers_checkpoint
FROM pg_stat_bgwriter) k"""
_CHECKPOINTER = "(SELECT num_timed, num_requested, write_time, sync_time, buffers_written FROM pg_stat_checkpointer) k"
_WAL = "(SELECT wal_bytes::bigint, wal_records, wal_fpi FROM pg_stat_wal) w"
_NO_WAL = "(SELECT NULL::bigint, NULL::bigint, NULL::bigint) w"
_VACUUM = "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker') v"


def statement(major: int) -> str:
    """The statement for a server of that major version; its columns are those of ``METRICS``, in order."""
    checkpoints = _BGWRITER if major < 17 else _CHECKPOINTER
    return "\nCROSS JOIN ".join((_DATABASES, checkpoints, _WAL if major >= 14 else _NO_WAL, _VACUUM))


def _counter(name: str, unit: str, meaning: str) -> Metric:
    return Metric(name, unit, "counter", meaning, resets=True)


METRICS = (
    _counter("db.xact_commit", "transactions", "transactions committed"),
    _counter("db.xact_rollback", "transactions", "transactions rolled back"),
    _counter("db.blks_read", "blocks", "blocks not found in shared buffers"),
    _counter("db.blks_hit", "blocks", "blocks found in shared buffers"),
    _counter("db.tup_returned", "rows", "live rows fetched by sequential scans and index entries returned by index scans"),
    _counter("db.tup_fetched", "rows", "live rows fetched by index scans"),
    _counter("db.tup_inserted", "rows", "rows inserted"),
    _counter("db.tup_updated", "rows", "rows updated"),
    _counter("db.tup_deleted", "rows", "rows deleted"),
    _counter("db.temp_bytes", "bytes", "written to temporary files"),
    _counter("db.deadlocks", "deadlocks", "deadlocks detected"),
    _counter("ckpt.timed", "checkpoints", "checkpoints due by time (from 17 on: also those skipped as the server was idle)"),
    _counter("ckpt.requested", "checkpoints", "checkpoints requested, by WAL volume or by command"),
    _counter("ckpt.write_time", "s", "time in checkpoints' writing"),
    _counter("ckpt.sync_time", "s", "time in checkpoints' syncing"),
    _counter("ckpt.buffers", "blocks", "buffers written by checkpoints"),
    _counter("wal.bytes", "bytes", "WAL generated"),
    _counter("wal.records", "records", "WAL records generated"),
    _counter("wal.fpi", "pages", "full-page images in the WAL"),
    Metric("vacuum.workers", "processes", "gauge", "autovacuum workers at work (visible to superusers and pg_read_all_stats)"),
)

_SCALES = tuple(0.001 if metric.unit == "s" else 1.0 for metric in METRICS)


def first_row(raw: str) -> list[float | None]:
    """The only row of a spooled SQL answer; its cells are numbers, as text (as the server sends them) or not.

    Raises:
        ValueError: the text is not a JSON list with one list of numbers.
    """
    rows = json.loads(raw)
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], list):
        raise ValueError(f"not the one row that a sampling statement returns: '{raw[:40]}'")
    return [None if cell is None else _finite(cell) for cell in rows[0]]


def _finite(cell: object) -> float:
    if isinstance(cell, str | int | float) and not isinstance(cell, bool):
        value = float(str(cell))
        if isfinite(value):
            return value
    raise ValueError(f"a sampling statement returns numbers, not {str(cell)[:40]!r}")


class DatabaseSampler:
    """Sums over all databases of a server but the templates."""

    name = "database"
    metrics = METRICS

    def sources(self, view: View) -> list[Source]:
        """One statement per server."""
        return [Source(self.name, f"server:{server.name}", "sql", server.conninfo, statement(server.major)) for server in view.servers]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading; what the server could not say is absent. PostgreSQL counts milliseconds, these are seconds."""
        row = first_row(raw)
        if len(row) != len(METRICS):
            raise ValueError(f"the statement returns {len(METRICS)} columns, not {len(row)}")
        cells = zip(METRICS, _SCALES, row, strict=True)
        yield source.entity, {metric.name: value * scale for metric, scale, value in cells if value is not None}


SAMPLER = DatabaseSampler()
