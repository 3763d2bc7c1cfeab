"""OpenMetrics samples of a running run, collected from its directory at each scrape.

Only the last reading of each source is parsed, so a scrape costs the same after one second or one minute. A value carries the time at
which it was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pgherd.drivers.pgbench_output import ProgressLine, read_progress
from pgherd.metrics import guests, run_metrics
from pgherd.metrics.openmetrics import CounterTotals, Sample, target_labels
from pgherd.metrics.run_metrics import DriverTotals, MetricLabels, RunTotals
from pgherd.metrics.spool import LatestReadings
from pgherd.model.errors import PgherdError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.node import files
from pgherd.store.live_state import LiveState, LiveTrial, TailReader, output_dir, read_live, spool_file
from pgherd.store.run_directory import RunDirectory

FRESH = 15.0
"""Maximum age of a reading that is served, in seconds. A driver or container that has ended has no newer ones."""


class MetricsCollector:
    """Current metrics of a run. Not thread-safe."""

    def __init__(self, run: Path, record: RunRecord) -> None:
        """Read the finished trials of the run's directory (a resumed run has some) before anything is measured."""
        self._run, self._record = run, record
        self._common_labels = run_metrics.common_labels(record)
        self._metric_labels = MetricLabels(record)
        self._totals = RunTotals(record)
        self._read_trials: set[str] = set()
        self._newest: TrialResult | None = None
        self._trial: int | None = None
        self._samples: LatestReadings | None = None
        self._counter_totals = CounterTotals()
        self._progress: dict[tuple[str, bool], DriverTotals] = {}
        self._emulated: set[str] = set()
        self._files: dict[tuple[int, str], TailReader] = {}
        self._phase = 0
        self._lines_read: dict[tuple[int, int, str], int] = {}
        """(trial, phase, target) → progress lines read so far."""
        for result in self._ended():
            self._totals.add(result)
            self._newest = result

    def samples(self) -> list[Sample]:
        """Return all current samples, unordered."""
        now, live = time.time(), read_live(self._run)
        trial = None if live is None else live.trial
        samples = list(run_metrics.run_info(self._record))
        for result in self._ended():
            self._follow_to_end(result)
            self._totals.add(result)
            self._newest = result
        if trial is not None and trial.number != self._trial:
            self._begin(trial)
        if live is not None and trial is not None:
            samples += self._trial_and_phase(live, trial, now)
            samples += self._sampled(now)
            self._follow(trial, live.phase)
        progress = (sample for driver in self._progress.values() for sample in driver.samples())
        samples += (sample for sample in progress if sample.t is not None and now - sample.t < FRESH)
        trials_remaining = 0 if live is None else live.trials_remaining + int(trial is not None)
        samples.append(Sample(run_metrics.TRIALS_REMAINING, self._common_labels, trials_remaining))
        samples += self._totals.samples()
        if self._newest is not None:
            samples += run_metrics.result_samples(self._record, self._newest, None)
        return samples

    def _ended(self) -> Iterator[TrialResult]:
        """Yield the trials that have ended since the last call, in order."""
        try:
            names = sorted(path.name for path in (self._run / "trials").iterdir() if path.name.isdecimal())
        except OSError:
            return
        for name in names:
            if name not in self._read_trials:
                self._read_trials.add(name)
                try:
                    yield RunDirectory(self._run).result(name)
                except PgherdError:
                    continue  # the analysis of the run reports it

    def _begin(self, trial: LiveTrial) -> None:
        self._trial, self._phase = trial.number, 0
        self._samples = LatestReadings(TailReader(spool_file(self._run, trial.number)))
        self._counter_totals.begin_trial()
        self._emulated = set()
        self._metric_labels.set_hosts({name: container.host for name, container in trial.containers.items()})
        self._files = {}

    def _trial_and_phase(self, live: LiveState, trial: LiveTrial, now: float) -> Iterator[Sample]:
        """Yield the current trial and phase."""
        trial_labels = {
            **self._common_labels,
            "trial": f"{trial.number:04d}",
            "study": self._record.study,
            "point": run_metrics.point_text(trial.point),
            "repeat": str(trial.repeat),
        }
        yield Sample(run_metrics.TRIAL, {**trial_labels, "reason": trial.reason}, 1.0)
        yield Sample(run_metrics.TRIAL_START, self._common_labels, trial.begun)
        yield Sample(run_metrics.TRIAL_PLANNED, self._common_labels, sum(phase.warmup + phase.seconds for phase in trial.phases))
        for coordinate, value in trial.point.items():
            if not isinstance(value, str):
                yield Sample(run_metrics.TRIAL_PARAMETER, {**self._common_labels, "name": coordinate}, value)
        if live.phase is None or live.phase_begun is None or live.phase >= len(trial.phases):
            return
        phase = trial.phases[live.phase]
        start = live.phase_begun + phase.warmup
        if phase.until == "drivers" or now < start + phase.seconds:
            part = "warmup" if now < start else "measured"
            phase_labels = {"number": str(live.phase + 1), "phase": phase.name, "part": part, "load": phase.words}
            yield Sample(run_metrics.PHASE, {**trial_labels, **phase_labels}, 1.0)

    def _sampled(self, now: float) -> Iterator[Sample]:
        """Yield the last readings of the samplers, and their numbers of failures."""
        assert self._samples is not None
        for t, entity, metric, value in self._samples.read():
            if metric.name == guests.EMULATED and value:
                self._emulated.add(entity.removeprefix("guest:"))
            if now - t < FRESH and (series := self._metric_labels.series(entity, metric.name)) is not None:
                family, labels = series
                yield Sample(family, labels, self._counter_totals.total(entity, metric, value), t)
        failures: dict[str, int] = {}
        for source, failed in self._samples.spool.failures.items():
            failures[source.sampler] = failures.get(source.sampler, 0) + failed.count
        for sampler, count in failures.items():
            yield Sample(run_metrics.SAMPLER_FAILURES, {**self._common_labels, "sampler": sampler}, count)

    def _follow(self, trial: LiveTrial, phase: int | None) -> None:
        """Read new progress lines of the drivers. Drivers of earlier phases have ended when the next phase starts."""
        if phase is None:
            return
        for number in range(self._phase, min(phase + 1, len(trial.phases))):
            for target, driver in trial.phases[number].loads.items():
                directory = output_dir(trial, number, target)
                if driver != "pgbench" or directory is None:
                    continue
                lines = self._files.setdefault((number, target), TailReader(directory / "stderr"))
                progress = read_progress(b"\n".join(lines).decode(errors="replace"))
                self._add_progress(trial.number, number, target, progress, target_labels(target)["container"] in self._emulated)
        self._phase = phase

    def _follow_to_end(self, result: TrialResult) -> None:
        """Read the remaining progress lines of a finished trial from the stored output of its drivers."""
        for number, phase in enumerate(result.phases):
            for target in phase.targets:
                stderr = next((name for name in target.raw if name.endswith("/stderr")), None)
                if target.driver != "pgbench" or stderr is None:
                    continue
                try:
                    output = files.read_below(self._run, f"trials/{result.id}/{stderr}")
                except (OSError, PgherdError):
                    continue
                lines = read_progress(output.decode(errors="replace"))
                read = self._lines_read.get((int(result.id), number, target.target), 0)
                # The stored output of another host has the times of that host's clock.
                remaining = [replace(line, at=line.at - target.clock_ahead) for line in lines[read:]]
                self._add_progress(int(result.id), number, target.target, remaining, run_metrics.emulated(phase, target.target))
        self._lines_read = {key: count for key, count in self._lines_read.items() if key[0] > int(result.id)}

    def _add_progress(self, trial: int, phase: int, target: str, lines: list[ProgressLine], emulated: bool) -> None:
        """Add progress lines of one target's driver. ``emulated``: its guest runs on emulated processors."""
        labels = {**run_metrics.target_common_labels(self._record, target), **target_labels(target)}
        progress = self._progress.setdefault((target, emulated), DriverTotals(labels, emulated))
        key = (trial, phase, target)
        if lines and key not in self._lines_read:
            progress.begin()
        for line in lines:
            progress.add_line(line.at, line.tps, line.latency, line.failed, line.lag, line.skipped)
            self._lines_read[key] = self._lines_read.get(key, 0) + 1
