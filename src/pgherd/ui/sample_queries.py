"""The sample explorer's queries: which metrics a trial has, and one of them as it was over time, thinned out for a plot (DuckDB).

**Rates.** A counter is shown as its increase per second between neighbouring readings; readings nearer to each other than
``SHORTEST`` are passed over, since their rates are rounding. A counter that falls is begun anew.

**Thinning.** The time shown is cut into equal buckets, at most ``BUCKETS`` of them and none shorter than the sampling period. Of each
bucket and entity the mean, the least and the largest reading are kept, so that no peak is lost; a point lies at the mean instant of its
bucket's readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgherd.metrics.registry import metrics
from pgherd.metrics.sampler import Metric
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    import duckdb

SHORTEST = 0.2
PERIOD = 1.0
"""Seconds between samples."""
BUCKETS = 600
_CELLS = 6_000
"""Points of all series together: fewer buckets where there are many series."""

_KINDS = """
SELECT parse_filename(filename, true) AS sampler, split_part(entity, ':', 1) AS kind, count(DISTINCT entity) AS entities
FROM read_parquet($files, filename = true, union_by_name = true) GROUP BY ALL ORDER BY ALL
"""
_COLUMNS = "SELECT parse_filename(file_name, true) AS sampler, name FROM parquet_schema($files) WHERE name NOT IN ('t', 'entity')"

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
    """A metric of a kind of entity (``container``, ``server``, ``host`` …) in one sampler's file."""

    sampler: str
    kind: str
    name: str
    entities: int

    @property
    def key(self) -> str:
        """How a query string names it."""
        return f"{self.kind}/{self.sampler}/{self.name}"

    @property
    def metric(self) -> Metric | None:
        """What it means; None where this version does not know it."""
        return metrics().get(self.name)

    @property
    def counter(self) -> bool:
        """Whether it is shown as a rate."""
        return self.metric is not None and self.metric.kind == "counter"

    @property
    def unit(self) -> str:
        """The unit of what is shown: a counter's per second; of CPU seconds that is cores."""
        if self.metric is None:
            return ""
        if not self.counter:
            return self.metric.unit
        return "cores" if self.name.startswith("cpu.") and self.metric.unit == "s" else f"{self.metric.unit}/s"

    @property
    def help(self) -> str:
        """What it is, in a few words."""
        return self.metric.help if self.metric else "not known to this version"


@dataclass(frozen=True)
class EntitySummary:
    """One entity over the time shown: readings, their mean, least, median and largest."""

    entity: str
    n: int
    mean: float
    least: float
    median: float
    most: float


@dataclass(frozen=True)
class PlotSeries:
    """What is plotted: (entity, seconds since the epoch, mean, least, largest) of each bucket; the time that it spans, the width of a
    bucket in seconds, and a row for each entity."""

    points: tuple[tuple[str, float, float, float, float], ...]
    rows: tuple[EntitySummary, ...]
    first: float
    last: float
    width: float

    @property
    def thinned(self) -> bool:
        """Whether a bucket holds more than one reading: at the ends of a phase they are closer together than usual."""
        return sum(row.n for row in self.rows) > len(self.points)


def make_ready() -> None:
    """Open the engine and read what the metrics mean, so that the first plot need not wait for it."""
    metrics()
    with _database().cursor() as database:
        database.execute("SELECT 1").fetchall()


def files(trial: Path) -> list[Path]:
    """The samples of a trial, one file for each sampler."""
    return sorted(file for file in (trial / "samples").glob("*.parquet") if file.is_file() and not file.is_symlink())


def choices(trial: Path) -> list[MetricChoice]:
    """What can be shown of a trial.

    Raises:
        UsageError: its files are not what pgherd writes.
    """
    names = [str(file) for file in files(trial)]
    if not names:
        return []
    with _database().cursor() as database:
        try:
            columns = database.execute(_COLUMNS, {"files": names}).fetchall()
            kinds = database.execute(_KINDS, {"files": names}).fetchall()
        except Exception as error:
            raise _unreadable(error) from None
    by_sampler: dict[str, list[str]] = {}
    for sampler, name in columns:
        by_sampler.setdefault(str(sampler), []).append(str(name))
    return [
        MetricChoice(str(sampler), str(kind), name, int(entities))
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
    most: int = BUCKETS,
) -> PlotSeries:
    """One metric over time. ``entities``: only these (none: all of the kind); ``first`` and ``last`` bound the time shown.

    Raises:
        UsageError: the trial does not have it, or its file cannot be read.
    """
    import duckdb

    file = next((one for one in files(trial) if one.stem == choice.sampler), None)
    if file is None:
        raise UsageError(f"trial {trial.name} has no samples of {choice.sampler}")
    with _database().cursor() as database:
        try:
            relation = database.read_parquet(str(file))
            if choice.name not in relation.columns:
                raise UsageError(f"trial {trial.name} has no samples of {choice.name}")
            value = duckdb.ColumnExpression(choice.name).alias("value")
            chosen = relation.select(duckdb.ColumnExpression("t"), duckdb.ColumnExpression("entity"), value)
            asked = {"kind": choice.kind, "entities": list(entities), "counter": choice.counter, "shortest": SHORTEST}
            database.execute(_RATES, asked)  # DuckDB finds the relation by its name here, "chosen"
            del chosen
            return _read(database, first, last, most)
        except duckdb.Error as error:
            raise _unreadable(error) from None


def _read(database: duckdb.DuckDBPyConnection, first: float | None, last: float | None, most: int) -> PlotSeries:
    within: dict[str, Any] = {"first": -1e18 if first is None else first, "last": 1e18 if last is None else last}
    low, high, count = _one(database, _SPAN, within)
    if not count:
        return PlotSeries((), (), first or 0.0, last or 0.0, PERIOD)
    begin, end = float(low if first is None else first), float(high if last is None else last)
    width = max(PERIOD, (end - begin) / max(1, min(most, _CELLS // int(count))))
    # Ticks lie in the middle of their buckets: none has two of them and its neighbour none.
    points = database.execute(_BUCKETS, {**within, "origin": float(low) - min(width, PERIOD) / 2, "width": width}).fetchall()
    rows = database.execute(_SUMMARY, within).fetchall()
    return PlotSeries(
        tuple((str(entity), float(t), float(mean), float(least), float(largest)) for entity, t, mean, least, largest in points),
        tuple(EntitySummary(str(entity), int(n), *map(float, values)) for entity, n, *values in rows),
        begin,
        end,
        width,
    )


def _one(database: duckdb.DuckDBPyConnection, statement: str, asked: dict[str, Any]) -> tuple[Any, ...]:
    found = database.execute(statement, asked).fetchone()
    assert found is not None
    return found


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The engine, in memory and kept, since opening one takes longer than a query; each answer has a cursor of its own. Two threads at
    most, and no extension from anywhere."""
    import duckdb

    return duckdb.connect(config={"threads": 2, "autoinstall_known_extensions": False, "autoload_known_extensions": False})


def _unreadable(error: Exception) -> UsageError:
    return UsageError(f"the samples cannot be read: {str(error).splitlines()[0][:200]}")
