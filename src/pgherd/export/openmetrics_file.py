"""A finished run as OpenMetrics text with the time of every reading.

``promtool tsdb create-blocks-from openmetrics`` imports it, and Grafana then shows the run as if Prometheus had scraped it. Samples are
read from the trials' Parquet files by family and series, so that a long run needs little memory. Prometheus uses the last value for five
minutes. Therefore the current trial and phase are written each second, and queries should look back by seconds only (as the dashboards do).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pgherd.drivers.pgbench_output import read_progress
from pgherd.metrics import run_metrics
from pgherd.metrics.openmetrics import END, CounterTotals, Family, Sample, target_labels, text_of
from pgherd.metrics.run_metrics import DriverTotals, MetricLabels, RunTotals
from pgherd.metrics.sampler import metrics
from pgherd.model.errors import PgherdError, RunDirectoryError
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.run import RunRecord
from pgherd.node import files
from pgherd.store.samples import check_files, open_database, read_relation

if TYPE_CHECKING:
    import duckdb

STEP = 1.0
"""Seconds between two samples of the current trial and phase."""
RUN_STEP = 15.0
"""Seconds between two samples of constant facts of the run."""
MOST_INSTANTS = 7 * 24 * 3600
"""Instants of one trial, phase or run. Their samples are kept in memory."""


@dataclass(frozen=True)
class ExportSummary:
    """Numbers of families and samples in an export, and the times of its first and last sample (None without samples)."""

    families: int
    samples: int
    first: float | None
    last: float | None


def write(run: Path, record: RunRecord, results: list[TrialResult], out: TextIO) -> ExportSummary:
    """Write the run as one exposition.

    Raises:
        RunDirectoryError: the samples are unreadable, or times are years apart.
        OSError: ``out`` is not writable.
    """
    count, first, last, families = 0, float("inf"), float("-inf"), 0

    def counted(samples: Iterator[Sample]) -> Iterator[Sample]:
        nonlocal count, first, last
        for sample in samples:
            if sample.t is not None:
                first, last = min(first, sample.t), max(last, sample.t)
            count += 1
            yield sample

    for family, samples in _families(run, record, results):
        lines = text_of(family, counted(samples))
        before = count
        head = [next(lines) for _ in range(2 + bool(family.unit))]
        for line in lines:
            if head:
                out.writelines(head)
                head = []
            out.write(line)
        families += count > before
    out.write(END)
    return ExportSummary(families, count, first if count else None, last if count else None)


def _families(run: Path, record: RunRecord, results: list[TrialResult]) -> Iterator[tuple[Family, Iterator[Sample]]]:
    yield from _events(run, record, results)
    metric_labels = MetricLabels(record)
    for result in results:
        metric_labels.set_deployment(result.trial.deployment)
    yield from _sampled(record, metric_labels, [run / "trials" / result.id / "samples" for result in results])


def _events(run: Path, record: RunRecord, results: list[TrialResult]) -> Iterator[tuple[Family, Iterator[Sample]]]:
    """Yield, by family, everything but the samplers' readings. It is small enough to keep in memory."""
    by_family: dict[Family, dict[tuple[tuple[str, str], ...], list[Sample]]] = {}

    def add(sample: Sample) -> None:
        by_family.setdefault(sample.family, {}).setdefault(tuple(sorted(sample.labels.items())), []).append(sample)

    totals = RunTotals(record)
    progress: dict[tuple[str, bool], DriverTotals] = {}
    if results:
        for t in _instants(results[0].started, results[-1].ended, RUN_STEP):
            for sample in (*run_metrics.run_info(record), *run_metrics.objective_limits(record)):
                add(sample._replace(t=t))
        for sample in run_metrics.capacity_samples(record, results[-1].ended):
            add(sample)
    for result in results:
        until_now = (sample for t in _instants(result.started, result.ended, STEP) for sample in totals.samples(t) if t < result.ended)
        for sample in (*until_now, *_trial_and_phases(record, result), *_progress(run, record, result, progress)):
            add(sample)
        totals.add(result)
        for sample in (*totals.samples(result.ended), *run_metrics.result_samples(record, result, result.ended)):
            add(sample)
    for family, series in sorted(by_family.items(), key=lambda item: item[0].name):
        yield family, (sample._replace(labels=samples[0].labels) for samples in series.values() for sample in _distinct(samples))


def _distinct(samples: list[Sample]) -> Iterator[Sample]:
    """Yield the samples in order of time, one per millisecond, the resolution of Prometheus."""
    before = float("-inf")
    for sample in sorted(samples, key=lambda sample: sample.t or 0.0):
        t = round(sample.t or 0.0, 3)
        if t > before:
            yield sample
            before = t


def _instants(start: float, end: float, step: float) -> Iterator[float]:
    """Yield the instants of a span with its end. Raises RunDirectoryError for a span that no trial has: the run's files were changed."""
    if end - start > MOST_INSTANTS * step:
        raise RunDirectoryError(
            f"a time in the run's files is wrong: {start:.0f} to {end:.0f} (seconds since 1970) are {(end - start) / 86400:,.0f} days, and "
            f"an export has {MOST_INSTANTS * step / 86400:,.0f} at most"
        )
    if start + step == start or end + step == end:
        raise RunDirectoryError(f"a time in the run's files is wrong: {start:g} to {end:g} seconds since 1970")
    t = start
    while t < end:
        yield t
        t += step
    yield end


def _trial_and_phases(record: RunRecord, result: TrialResult) -> Iterator[Sample]:
    """Yield the current trial and phase of each second."""
    trial, common_labels = result.trial, run_metrics.common_labels(record)
    trial_labels = {
        **common_labels,
        "trial": result.id,
        "study": record.study,
        "point": run_metrics.point_text(trial.point),
        "repeat": str(trial.repeat),
    }
    for t in _instants(result.started, result.ended, STEP):
        yield Sample(run_metrics.TRIAL, {**trial_labels, "reason": trial.reason}, 1.0, t)
        yield Sample(run_metrics.TRIAL_START, common_labels, result.started, t)
        yield Sample(run_metrics.TRIAL_PLANNED, common_labels, trial.seconds(), t)
        for coordinate, value in trial.point.items():
            if not isinstance(value, str):
                yield Sample(run_metrics.TRIAL_PARAMETER, {**common_labels, "name": coordinate}, value, t)
    for number, (phase, measured) in enumerate(zip(trial.phases, result.phases, strict=False)):
        phase_labels = {
            **trial_labels,
            "number": str(number + 1),
            "phase": phase.name,
            "load": run_metrics.load_text(phase.loads.values()),
        }
        parts = {"warmup": (measured.start - phase.warmup, measured.start), "measured": (measured.start, measured.end)}
        for part, (start, end) in parts.items():
            for t in _instants(start, end, STEP) if end > start else ():
                yield Sample(run_metrics.PHASE, {**phase_labels, "part": part}, 1.0, t)


def _progress(run: Path, record: RunRecord, result: TrialResult, progress: dict[tuple[str, bool], DriverTotals]) -> Iterator[Sample]:
    """Yield the drivers' progress, once a second."""
    for phase in result.phases:
        for target, ahead, text in _outputs(run, result, phase):
            labels = {**run_metrics.target_common_labels(record, target), **target_labels(target)}
            emulated = run_metrics.emulated(phase, target)
            driver = progress.setdefault((target, emulated), DriverTotals(labels, emulated))
            driver.begin()
            for line in read_progress(text):
                driver.add_line(line.at - ahead, line.tps, line.latency, line.failed, line.lag, line.skipped)
                yield from driver.samples()


def _outputs(run: Path, result: TrialResult, phase: PhaseResult) -> Iterator[tuple[str, float, str]]:
    """Yield target, offset of its driver's clock from the run's (s), and the driver's progress output."""
    for target in phase.targets:
        stderr = next((name for name in target.raw if name.endswith("/stderr")), None)
        if target.driver == "pgbench" and stderr is not None:
            try:
                text = files.read_below(run, f"trials/{result.id}/{stderr}").decode(errors="replace")
            except (OSError, PgherdError):
                text = ""
            yield target.target, target.clock_ahead, text


def _sampled(record: RunRecord, metric_labels: MetricLabels, directories: list[Path]) -> Iterator[tuple[Family, Iterator[Sample]]]:
    """Yield the samplers' readings by family. Each family is a query over the files of all trials."""
    import duckdb

    with open_database(threads=1) as database:
        sample_files: dict[str, list[str]] = {}
        for directory in directories:
            for file in sorted(directory.glob("*.parquet")) if directory.is_dir() else ():
                sample_files.setdefault(file.stem, []).append(str(file))
        try:
            check_files(database, [file for paths in sample_files.values() for file in paths])
            yield from _of_files(database, metric_labels, sample_files)
        except duckdb.Error as error:
            raise RunDirectoryError(f"cannot read the samples of run {record.run}: {error}") from None


def _of_files(
    database: duckdb.DuckDBPyConnection, metric_labels: MetricLabels, files: dict[str, list[str]]
) -> Iterator[tuple[Family, Iterator[Sample]]]:
    import duckdb

    by_name = metrics()
    # Family → metric → sampler → entities. A container has other samplers in a trial with another runtime.
    sources: dict[Family, dict[str, dict[str, list[str]]]] = {}
    for sampler, paths in files.items():
        relation = read_relation(database, paths)
        entities = sorted(str(row[0]) for row in relation.select(_column("entity")).distinct().fetchall())
        for name in (column for column in relation.columns if column in by_name):
            for entity in entities:
                series = metric_labels.series(entity, name)
                if series is not None:
                    sources.setdefault(series[0], {}).setdefault(name, {}).setdefault(sampler, []).append(entity)
    for family, parts in sorted(sources.items(), key=lambda item: item[0].name):

        def samples(parts: dict[str, dict[str, list[str]]] = parts) -> Iterator[Sample]:
            for name, entities in parts.items():
                rows = [_rows(read_relation(database, files[sampler]), name, members) for sampler, members in entities.items()]
                yield from _series(reduce(duckdb.DuckDBPyRelation.union, rows), metric_labels, name)

        yield family, samples()


def _rows(relation: duckdb.DuckDBPyRelation, name: str, entities: list[str]) -> duckdb.DuckDBPyRelation:
    """Return the readings of one metric by one sampler."""
    import duckdb

    condition = _column("entity").isin(*(duckdb.ConstantExpression(entity) for entity in entities)) & _column(name).isnotnull()
    return relation.filter(condition).select(*(_column(column) for column in ("entity", "t", name, "filename")))


def _series(relation: duckdb.DuckDBPyRelation, metric_labels: MetricLabels, name: str) -> Iterator[Sample]:
    """Yield the series of one metric, entity by entity, each over all trials."""
    metric = metrics()[name]
    current_entity, trial, before = "", "", 0.0
    counter_totals = CounterTotals()
    for entity, t, value, filename in relation.order("entity, t").fetchall():
        directory = filename.rpartition("/")[0]
        if entity != current_entity:
            current_entity, trial, before = entity, "", float("-inf")
        if directory != trial:
            trial = directory
            counter_totals.begin_trial()
        series = metric_labels.series(entity, name)
        if series is not None and round(t, 3) > before:  # skip repeated readings, and those after the clock was set back
            before = round(t, 3)
            yield Sample(*series, counter_totals.total(entity, metric, value), t)


def _column(name: str) -> duckdb.Expression:
    import duckdb

    return duckdb.ColumnExpression(name)
