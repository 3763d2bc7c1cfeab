"""Statistics that a server reports: its pg_stat views, the status of its pg_balloon, and the checkpoints in its log.

pg_stat: backends report their statistics about once a second and when they become idle, so the counters lag by up to a second.
Every sample adds one transaction to ``db.xact_commit`` of the database to which it connects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite

from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.device_io import Checkpoint
from pgherd.node.protocol import SampleSource

# ---- pg_stat views


IO_TICKS = 5
"""Ticks between two readings of pg_stat_io and pg_stat_wal, because pg_stat_io is expensive to query."""


def row_values(raw: str, metrics: Sequence[SampledMetric]) -> dict[str, float]:
    """Parse the only row of a spooled query result into metric name → value. NULL is left out.

    The cells are JSON numbers, or numbers as text, which is what the server sends.

    Raises:
        ValueError: the text is not a JSON list with one list of numbers, one for each metric.
    """
    rows = json.loads(raw)
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], list):
        raise ValueError(f"a sampling statement returns one row, not '{raw[:40]}'")
    cells = [None if cell is None else _finite(cell) for cell in rows[0]]
    if len(cells) != len(metrics):
        raise ValueError(f"the statement returns {len(metrics)} columns, not {len(cells)}")
    return {metric.name: value for metric, value in zip(metrics, cells, strict=True) if value is not None}


def _finite(cell: object) -> float:
    if isinstance(cell, str | int | float) and not isinstance(cell, bool):
        value = float(str(cell))
        if isfinite(value):
            return value
    raise ValueError(f"a sampling statement returns numbers, not {str(cell)[:40]!r}")


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


def database_statement(major: int) -> str:
    """Return the statement for a major version. Its columns are the metrics of ``DatabaseSampler`` in order."""
    checkpoints = _BGWRITER if major < 17 else _CHECKPOINTER
    return "\nCROSS JOIN ".join((_DATABASES, checkpoints, _WAL if major >= 14 else _NO_WAL, _VACUUM))


def _counter(name: str, unit: str, meaning: str) -> SampledMetric:
    return SampledMetric(name, unit, "counter", meaning, resets=True)


class DatabaseSampler:
    """Sums over all databases of a server except the templates: one cheap statement per tick."""

    name = "database"
    metrics = (
        _counter("db.xact_commit", "transactions", "transactions committed"),
        _counter("db.xact_rollback", "transactions", "transactions rolled back"),
        _counter("db.blks_read", "blocks", "blocks not found in shared buffers"),
        _counter("db.blks_hit", "blocks", "blocks found in shared buffers"),
        _counter("db.tup_returned", "rows", "live rows fetched by sequential scans and index entries returned by index scans"),
        _counter("db.tup_fetched", "rows", "live rows fetched by index scans"),
        _counter("db.tup_inserted", "rows", "rows inserted"),
        _counter("db.tup_updated", "rows", "rows updated"),
        _counter("db.tup_deleted", "rows", "rows deleted"),
        _counter("db.temp_bytes", "bytes", "data written to temporary files"),
        _counter("db.deadlocks", "deadlocks", "deadlocks detected"),
        _counter("checkpoint.timed", "checkpoints", "checkpoints due by time (17 and later: including those skipped on an idle server)"),
        _counter("checkpoint.requested", "checkpoints", "checkpoints requested, by WAL volume or by command"),
        _counter("checkpoint.write_time", "s", "time in the write phase of checkpoints"),
        _counter("checkpoint.sync_time", "s", "time in the sync phase of checkpoints"),
        _counter("checkpoint.buffers_written", "blocks", "buffers written by checkpoints"),
        _counter("wal.bytes", "bytes", "WAL generated"),
        _counter("wal.records", "records", "WAL records generated"),
        _counter("wal.fpi", "pages", "full-page images in the WAL"),
        SampledMetric(
            "vacuum.workers", "processes", "gauge", "active autovacuum worker processes (visible to superusers and pg_read_all_stats)"
        ),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, database_statement(server.major))
            for server in view.servers
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        # PostgreSQL counts milliseconds, but the metrics are seconds.
        scales = {metric.name: 0.001 if metric.unit == "s" else 1.0 for metric in self.metrics}
        yield source.entity, {name: value * scales[name] for name, value in row_values(raw, self.metrics).items()}


IO_STATEMENT = """SELECT sum(reads)::bigint, sum(writes)::bigint, sum(extends)::bigint, sum(fsyncs)::bigint, sum(evictions)::bigint,
       sum(reads) FILTER (WHERE client)::bigint, sum(writes) FILTER (WHERE client)::bigint,
       sum(extends) FILTER (WHERE client)::bigint, sum(fsyncs) FILTER (WHERE client)::bigint,
       sum(evictions) FILTER (WHERE client)::bigint
FROM (SELECT reads, writes, extends, fsyncs, evictions, backend_type = 'client backend' AS client
      FROM pg_stat_io WHERE object <> 'wal') io"""

_IO_COUNTS = (
    ("reads", "operations", "read operations of relation files"),
    ("writes", "operations", "write operations of relation files"),
    ("extends", "operations", "extend operations of relation files"),
    ("fsyncs", "calls", "fsync calls for relation files"),
    ("evictions", "blocks", "blocks evicted from shared or local buffers to make room"),
)


class PgIoSampler:
    """I/O operations by pg_stat_io (PostgreSQL 16 and later): of all processes, and of client backends.

    Operations are not blocks: 17 and later read several blocks in one. WAL is left out so that versions compare,
    because only 18 counts it in this view (see ``wal.*`` of ``PgWalSampler``).
    """

    name = "pg_io"
    metrics = tuple(
        SampledMetric(f"{prefix}.{name}", unit, "counter", f"{meaning} by {processes}", resets=True)
        for prefix, processes in (("io", "all processes"), ("io.client", "client backends"))
        for name, unit, meaning in _IO_COUNTS
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, IO_STATEMENT, every=IO_TICKS)
            for server in view.servers
            if server.major >= 16
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, row_values(raw, self.metrics)


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


def wal_statement(major: int) -> str:
    """Return the statement for a major version. Its columns are the metrics of ``PgWalSampler`` in order."""
    wal = _WAL_18 if major >= 18 else _WAL_14
    io = _IO_18 if major >= 18 else _IO_16 if major >= 16 else _IO_NONE
    return "\nCROSS JOIN ".join((_ALL + wal, io))


class PgWalSampler:
    """WAL writes and syncs, and bytes of relation files read and written. A value that a version does not count is absent.

    PostgreSQL 14 to 17 count WAL writes and syncs in pg_stat_wal, 18 in pg_stat_io, which also counts bytes. Relation
    bytes are from pg_stat_io: 16 and 17 count blocks of ``op_bytes``, 18 counts bytes.
    """

    name = "pg_wal"
    metrics = (
        _counter("wal.writes", "operations", "writes of WAL buffers to the WAL files"),
        _counter("wal.syncs", "calls", "syncs of WAL files"),
        _counter("wal.write_bytes", "bytes", "data written to the WAL files (18 and later)"),
        _counter("wal.buffers_full", "times", "times WAL was written because the WAL buffers were full"),
        _counter("io.read_bytes", "bytes", "data read from relation files (16 and later)"),
        _counter("io.write_bytes", "bytes", "data written to relation files, extensions included (16 and later)"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, wal_statement(server.major), every=IO_TICKS)
            for server in view.servers
            if server.major >= 14
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, row_values(raw, self.metrics)


# ---- what sessions wait for, and replication


WAIT_CLASSES = ("cpu", "lock", "lwlock", "io", "ipc", "client", "other")
"""Classes of wait events (pg_stat_activity.wait_event_type) in the order of charts. 'cpu' is no wait event: running, or waiting for a
CPU. 'other' is BufferPin, Timeout, Extension and Activity."""
WAITS_HZ = 10
_MAX_READINGS = 40
"""Readings per second of all servers together, so that many servers cost no more than a few."""

WAITS_STATEMENT = """SELECT count(*) FILTER (WHERE active AND type IS NULL), count(*) FILTER (WHERE active AND type = 'Lock'),
       count(*) FILTER (WHERE active AND type = 'LWLock'), count(*) FILTER (WHERE active AND type = 'IO'),
       count(*) FILTER (WHERE active AND type = 'IPC'), count(*) FILTER (WHERE active AND type = 'Client'),
       count(*) FILTER (WHERE active AND type NOT IN ('Lock', 'LWLock', 'IO', 'IPC', 'Client')),
       count(*) FILTER (WHERE state LIKE 'idle in transaction%'), count(*) FILTER (WHERE state IS NULL)
FROM (SELECT state, state = 'active' AS active, wait_event_type AS type FROM pg_stat_activity
      WHERE pid <> pg_backend_pid() AND (backend_type = 'client backend' OR (backend_type IS NULL AND datid IS NOT NULL))) s"""
"""A session of which nothing is visible has no backend_type, and processes without a database are no clients."""


class WaitsSampler:
    """Sessions of client backends by what they wait for, several times a second, of external servers.

    Sessions of other users are hidden from a user without pg_read_all_stats, but those of the load are the user's own.
    """

    name = "waits"
    metrics = (
        SampledMetric("waits.cpu", "sessions", "gauge", "active sessions that wait for no event: on a CPU, or ready to run"),
        SampledMetric("waits.lock", "sessions", "gauge", "active sessions that wait for a heavyweight lock"),
        SampledMetric("waits.lwlock", "sessions", "gauge", "active sessions that wait for a lightweight lock"),
        SampledMetric("waits.io", "sessions", "gauge", "active sessions that wait for I/O"),
        SampledMetric("waits.ipc", "sessions", "gauge", "active sessions that wait for another process of the server"),
        SampledMetric("waits.client", "sessions", "gauge", "active sessions that wait for their client"),
        SampledMetric("waits.other", "sessions", "gauge", "active sessions that wait for another event"),
        SampledMetric("waits.idle_in_transaction", "sessions", "gauge", "sessions that wait for their client in a transaction"),
        SampledMetric("waits.hidden", "sessions", "gauge", "sessions of other users, of which nothing is visible"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        servers = [server for server in view.servers if server.waits]
        times = max(1, min(WAITS_HZ, _MAX_READINGS // max(len(servers), 1)))
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, WAITS_STATEMENT, times=times) for server in servers
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, row_values(raw, self.metrics)


class ObjectiveWaitsSampler(WaitsSampler):
    """The same of pgherd's servers, once a second, in trials that ask for it or have a latency objective."""

    name = "objective_waits"

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, WAITS_STATEMENT)
            for server in view.servers
            if view.waits and not server.waits
        ]


def wait_series(readings: Iterable[SpoolReading], start: float, end: float) -> dict[str, dict[str, list[float]]]:
    """Return external server → class → mean number of sessions in each whole second of the window.

    A second without a reading repeats the last.
    """
    sampled: dict[str, list[list[dict[str, float]]]] = {}
    length = int(end - start)
    for t, sampler, entity, reading in readings:
        if sampler == WAITS.name and start <= t < start + length:
            sampled.setdefault(entity.removeprefix("server:"), [[] for _ in range(length)])[int(t - start)].append(reading)
    series: dict[str, dict[str, list[float]]] = {}
    for server, seconds in sampled.items():
        by_class = series[server] = {name: [] for name in WAIT_CLASSES}
        for second in seconds:
            for name, means in by_class.items():
                found = [reading[f"waits.{name}"] for reading in second]
                means.append(sum(found) / len(found) if found else means[-1] if means else 0.0)
    return series


REPLICATION_STATEMENT = """SELECT (SELECT count(*) FROM pg_stat_replication),
       (SELECT max(extract(epoch FROM replay_lag)) FROM pg_stat_replication),
       CASE WHEN NOT pg_is_in_recovery()
            THEN (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint FROM pg_stat_replication)
            ELSE pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::bigint END"""


class ReplicationSampler:
    """Replicas of external servers and their lag, which a user without pg_read_all_stats does not see."""

    name = "replication"
    metrics = (
        SampledMetric("replication.standbys", "servers", "gauge", "replicas that receive WAL from this server"),
        SampledMetric("replication.replay_lag", "s", "gauge", "largest time until a replica has replayed recent WAL"),
        SampledMetric("replication.replay_lag_bytes", "bytes", "gauge", "largest amount of WAL that a replica has not replayed yet"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, REPLICATION_STATEMENT, every=IO_TICKS)
            for server in view.servers
            if server.waits
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, row_values(raw, self.metrics)


DATABASE, PG_IO, PG_WAL, REPLICATION = DatabaseSampler(), PgIoSampler(), PgWalSampler(), ReplicationSampler()
WAITS, OBJECTIVE_WAITS = WaitsSampler(), ObjectiveWaitsSampler()


# ---- pg_balloon


BALLOON_STATEMENT = """SELECT shared_buffers_bytes, ballooned_bytes, resident_bytes, balloon_resident_bytes, working_set_bytes, floor_bytes,
       ceiling_bytes, available_bytes, c.inflations, c.deflations
FROM pg_balloon_status(), pg_stat_balloon c"""

HAS_BALLOON = "SELECT to_regprocedure('pg_balloon_status()') IS NOT NULL"
"""Returns true if a database has the extension's functions. They report on the whole server."""


class PgBalloonSampler:
    """One statement per server with the extension. It walks the page table of all shared buffers: milliseconds per gigabyte.

    Memory in the balloon has been returned by the server. The container's shared memory is smaller by that amount, so never
    add the two.
    """

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
            SampleSource(self.name, f"server:{server.name}", "sql", server.conninfo, BALLOON_STATEMENT)
            for server in view.servers
            if server.balloon
        ]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, row_values(raw, self.metrics)


PG_BALLOON = PgBalloonSampler()


# ---- checkpoints in the log


_CHECKPOINT_STARTING = re.compile(r"checkpoint starting: (?P<cause>.+)$")
_CHECKPOINT_COMPLETE = re.compile(
    r"checkpoint complete: wrote (?P<buffers>\d+) buffers.*?write=(?P<write>[\d.]+) s, sync=(?P<sync>[\d.]+) s, total=(?P<total>[\d.]+) s"
    r"(?:.*?distance=(?P<distance>\d+) kB)?"
)
_LOG_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) (?:UTC|GMT|Etc/UTC)\b")


def checkpoints(lines: Iterable[str], server: str, start: float, end: float) -> list[Checkpoint]:
    """Return the checkpoints that overlap the window from start to end (seconds since the epoch).

    The lines are those of log_checkpoints, which is on by default since PostgreSQL 15. Lines whose prefix does not start with a
    time in UTC are left out. The servers of pgherd log in UTC with PostgreSQL's default prefix.
    """
    results: list[Checkpoint] = []
    running: Checkpoint | None = None
    for line in lines:
        starting, complete = _CHECKPOINT_STARTING.search(line), _CHECKPOINT_COMPLETE.search(line)
        if not starting and not complete:
            continue
        at = _timestamp(line)
        if at is None:
            continue
        if starting:
            if running is not None:  # the server was killed, so there is no line for its end
                results.append(running.model_copy(update={"end": at - start}))
            running = Checkpoint(server=server, start=at - start, cause=starting["cause"].strip())
        elif complete:
            distance = complete["distance"]
            fields = {
                "end": at - start,
                "buffers": int(complete["buffers"]),
                "write_seconds": float(complete["write"]),
                "sync_seconds": float(complete["sync"]),
                "distance_bytes": int(distance) * 1024 if distance else None,
            }
            checkpoint = running or Checkpoint(server=server, start=at - float(complete["total"]) - start)
            results.append(checkpoint.model_copy(update=fields))
            running = None
    if running is not None:
        results.append(running)
    return [checkpoint for checkpoint in results if checkpoint.start < end - start and (checkpoint.end is None or checkpoint.end > 0)]


def _timestamp(line: str) -> float | None:
    match = _LOG_TIME.match(line)
    if match is None:
        return None
    text = match[1] if "." in match[1] else f"{match[1]}.0"
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()


SAMPLERS = (DATABASE, PG_IO, PG_WAL, WAITS, OBJECTIVE_WAITS, REPLICATION, PG_BALLOON)
