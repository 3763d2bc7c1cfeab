"""Samples of a trial for the samples page: trials, metrics, and one metric over time (DuckDB).

**Rates.** A counter is shown as its increase per second between neighbouring readings. Readings closer together than ``SHORTEST`` are
skipped, because their rates are rounding errors. A counter that falls was reset.

**Thinning.** The time shown is split into at most ``BUCKETS`` equal buckets, none shorter than the sampling period. The mean, the minimum
and the maximum of each bucket and entity are kept, so no peak is lost. A point has the mean instant of its bucket's readings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgherd.metrics.sampler import SampledMetric, metrics
from pgherd.model.errors import RunDirectoryError, UsageError
from pgherd.model.result import TrialResult
from pgherd.model.text import clean
from pgherd.node.files import UnsafeFileError, read_head
from pgherd.report.formatting import point_text
from pgherd.store.run_directory import RunDirectory
from pgherd.store.samples import check_files, escape, open_database, read_relation
from pgherd.store.version_1 import METRICS

if TYPE_CHECKING:
    import duckdb

SHORTEST = 0.2
PERIOD = 1.0
"""Seconds between samples."""
BUCKETS = 600
_MAX_POINTS = 6_000
"""Maximum number of points of all series. Many series get fewer buckets."""
_HEAD_BYTES = 4096
_DECODER = json.JSONDecoder()

_KINDS = """
SELECT parse_filename(filename, true) AS sampler, split_part(entity, ':', 1) AS kind, list_sort(list(DISTINCT entity)) AS entities
FROM sampled GROUP BY ALL ORDER BY ALL
"""
_COLUMNS = "SELECT parse_filename(file_name, true) AS sampler, name FROM parquet_schema($patterns) WHERE name NOT IN ('t', 'entity')"

_RATES = """
CREATE TEMP TABLE shown AS
WITH spaced AS (
    SELECT t, entity, value FROM chosen
    WHERE value IS NOT NULL AND split_part(entity, ':', 1) = $kind AND (len($entities) = 0 OR list_contains($entities, entity))
    QUALIFY NOT $counter OR coalesce(t - lag(t) OVER (PARTITION BY entity ORDER BY t) >= $shortest, true)
), stepped AS (
    SELECT t, entity, value, lag(t) OVER before AS t0, lag(value) OVER before AS value0 FROM spaced
    WINDOW before AS (PARTITION BY entity ORDER BY t)
)
SELECT t, entity, CASE WHEN $counter THEN (value - value0) / (t - t0) ELSE value END AS v
FROM stepped WHERE NOT $counter OR (t0 IS NOT NULL AND value >= value0)
"""
_SPAN = "SELECT min(t), max(t), count(DISTINCT entity) FROM shown WHERE t BETWEEN $first AND $last"
_BUCKETS = """
SELECT entity, avg(t), avg(v), min(v), max(v) FROM shown WHERE t BETWEEN $first AND $last
GROUP BY entity, floor((t - $origin) / $width) ORDER BY entity, avg(t)
"""
_SUMMARY = """
SELECT entity, count(v), avg(v), min(v), quantile_cont(v, 0.5), max(v) FROM shown WHERE t BETWEEN $first AND $last
GROUP BY entity ORDER BY entity
"""


@dataclass(frozen=True)
class MetricChoice:
    """Metric of one kind of entity (``container``, ``server``, ``host`` …) in the file of one sampler.

    ``entities`` are all entities of this kind in the file.
    """

    sampler: str
    kind: str
    name: str
    entities: tuple[str, ...]

    @property
    def key(self) -> str:
        """Name in a query string."""
        return f"{self.kind}/{self.sampler}/{self.name}"

    @property
    def metric(self) -> SampledMetric | None:
        """Description of the metric, or None if this version has none."""
        return metrics().get(self.name)

    @property
    def counter(self) -> bool:
        """True if the metric is shown as a rate."""
        return self.metric is not None and self.metric.kind == "counter"

    @property
    def unit(self) -> str:
        """Unit of the plot: for a counter per second, for CPU seconds cores."""
        if self.metric is None:
            return ""
        if not self.counter:
            return self.metric.unit
        return "cores" if self.name.startswith("cpu.") and self.metric.unit == "s" else f"{self.metric.unit}/s"

    @property
    def help(self) -> str:
        """Short description."""
        return self.metric.help if self.metric else "unknown to this version"


@dataclass(frozen=True)
class EntitySummary:
    """One entity over the time shown: number of readings and their statistics."""

    entity: str
    n: int
    mean: float
    minimum: float
    median: float
    maximum: float


@dataclass(frozen=True)
class PlotSeries:
    """Data of a plot: (entity, seconds since the epoch, mean, minimum, maximum) of each bucket, and a row for each entity.

    ``first`` and ``last`` bound the time shown. ``width`` is that of a bucket in seconds.
    """

    points: tuple[tuple[str, float, float, float, float], ...]
    rows: tuple[EntitySummary, ...]
    first: float
    last: float
    width: float

    @property
    def thinned(self) -> bool:
        """True if a bucket contains several readings. Readings at the ends of a phase are closer together than usual."""
        return sum(row.n for row in self.rows) > len(self.points)


@dataclass(frozen=True)
class TrialLine:
    """Finished trial: id, text of its point (empty if pgherd did not write the file) and directory.

    ``size`` is the sum of the point's numbers. It finds the largest point of a run.
    """

    id: str
    point: str
    directory: Path
    size: float = 0.0

    @property
    def label(self) -> str:
        """Text such as ``0007: databases 4``."""
        return f"{self.id}: {self.point}" if self.point else self.id


def trial_lines(directory: RunDirectory) -> list[TrialLine]:
    """Return all finished trials in run order. Only the head of each file is read."""
    lines = []
    for name in directory.trial_names():
        if name.isdecimal():
            trial = directory.path / "trials" / name
            point = _point(trial / "trial.json")
            size = sum(value for value in point.values() if isinstance(value, int | float) and math.isfinite(value))
            lines.append(TrialLine(name, clean(point_text(point)), trial, size))
    return lines


def trial_line(directory: RunDirectory, trial: str) -> TrialLine:
    """Return one trial.

    Raises:
        UsageError: the run has no such trial.
    """
    line = next((line for line in trial_lines(directory) if line.id == trial), None)
    if line is None:
        raise UsageError(f"run {directory.name} has no finished trial '{clean(trial)[:40]}'")
    return line


def read_trial(line: TrialLine) -> TrialResult:
    """Read a trial's complete result.

    Raises:
        UsageError: its file cannot be read.
    """
    try:
        return RunDirectory(line.directory.parent.parent).result(line.id)
    except RunDirectoryError as error:
        raise UsageError(f"trial {line.id} cannot be read: {clean(str(error).splitlines()[0])}") from None


def _point(file: Path) -> dict[str, int | float | str]:
    """Read the point from the head of the file. The rest, which may be long, is not read."""
    try:
        head = read_head(file, _HEAD_BYTES).decode(errors="replace")
        begin = head.index('"point"')
        point, _ = _DECODER.raw_decode(head, head.index("{", begin))
        return {str(name): value for name, value in point.items() if isinstance(value, int | float | str)}
    except (OSError, ValueError, AttributeError, RecursionError, UnsafeFileError):
        return {}


def make_ready() -> None:
    """Open DuckDB and load the descriptions of metrics, so that the first plot does not wait."""
    metrics()
    with _database().cursor() as database:
        database.execute("SELECT 1").fetchall()


def files(trial: Path) -> list[Path]:
    """Return the sample files of a trial, one for each sampler."""
    return sorted(file for file in (trial / "samples").glob("*.parquet") if file.is_file() and not file.is_symlink())


def choices(trial: Path) -> list[MetricChoice]:
    """Return the metrics that a trial has.

    Raises:
        UsageError: pgherd did not write its files.
    """
    names = [str(file) for file in files(trial)]
    if not names:
        return []
    with _database().cursor() as database:
        try:
            check_files(database, names)
            patterns = [escape(name) for name in names]
            columns = database.execute(_COLUMNS, {"patterns": patterns}).fetchall()
            sampled = read_relation(database, names)
            kinds = database.execute(_KINDS).fetchall()  # DuckDB resolves "sampled" to the local variable
            del sampled
        except Exception as error:
            raise _unreadable(error) from None
    by_sampler: dict[str, list[str]] = {}
    for sampler, name in columns:
        by_sampler.setdefault(str(sampler), []).append(METRICS.get(str(name), str(name)))
    return [
        MetricChoice(str(sampler), str(kind), name, tuple(map(str, entities)))
        for sampler, kind, entities in kinds
        for name in sorted(by_sampler.get(str(sampler), ()))
        if name in metrics()
    ]


def series(
    trial: Path,
    choice: MetricChoice,
    entities: Sequence[str] = (),
    first: float | None = None,
    last: float | None = None,
    buckets: int = BUCKETS,
) -> PlotSeries:
    """Return one metric over time. Without ``entities`` it covers all of the kind. ``first`` and ``last`` bound the time shown.

    Raises:
        UsageError: the trial has no such metric, or its file cannot be read.
    """
    import duckdb

    file = next((file for file in files(trial) if file.stem == choice.sampler), None)
    if file is None:
        raise UsageError(f"trial {trial.name} has no samples of {choice.sampler}")
    with _database().cursor() as database:
        try:
            check_files(database, [str(file)])
            relation = read_relation(database, [str(file)])
            if choice.name not in relation.columns:
                raise UsageError(f"trial {trial.name} has no samples of {choice.name}")
            value = duckdb.ColumnExpression(choice.name).alias("value")
            chosen = relation.select(duckdb.ColumnExpression("t"), duckdb.ColumnExpression("entity"), value)
            parameters = {"kind": choice.kind, "entities": list(entities), "counter": choice.counter, "shortest": SHORTEST}
            database.execute(_RATES, parameters)  # DuckDB resolves "chosen" to the local variable
            del chosen
            return _read(database, first, last, buckets)
        except duckdb.Error as error:
            raise _unreadable(error) from None


def _read(database: duckdb.DuckDBPyConnection, first: float | None, last: float | None, buckets: int) -> PlotSeries:
    within: dict[str, Any] = {"first": -1e18 if first is None else first, "last": 1e18 if last is None else last}
    low, high, count = _fetch_row(database, _SPAN, within)
    if not count:
        return PlotSeries((), (), first or 0.0, last or 0.0, PERIOD)
    begin, end = float(low if first is None else first), float(high if last is None else last)
    width = max(PERIOD, (end - begin) / max(1, min(buckets, _MAX_POINTS // int(count))))
    # The origin puts ticks into the middle of their buckets, so that no bucket gets two and its neighbour none.
    points = database.execute(_BUCKETS, {**within, "origin": float(low) - min(width, PERIOD) / 2, "width": width}).fetchall()
    rows = database.execute(_SUMMARY, within).fetchall()
    return PlotSeries(
        tuple((str(entity), float(t), float(mean), float(minimum), float(maximum)) for entity, t, mean, minimum, maximum in points),
        tuple(EntitySummary(str(entity), int(n), *map(float, values)) for entity, n, *values in rows),
        begin,
        end,
        width,
    )


def _fetch_row(database: duckdb.DuckDBPyConnection, statement: str, parameters: dict[str, Any]) -> tuple[Any, ...]:
    row = database.execute(statement, parameters).fetchone()
    assert row is not None
    return row


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return the in-memory database. It stays open, because opening takes longer than a query. Each request uses a separate cursor.

    It uses two threads at most.
    """
    return open_database(threads=2)


def _unreadable(error: Exception) -> UsageError:
    return UsageError(f"the samples cannot be read: {str(error).splitlines()[0][:200]}")
