"""What a run that is being executed tells in OpenMetrics, collected from its directory when somebody asks and at no other time.

Of the samples only the last reading of each source is parsed, whatever has been spooled since the scrape before: a look costs the same
whether it comes each second or each minute. A value carries the instant at which it was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from pgherd.drivers.pgbench_output import Progress as ProgressLine
from pgherd.drivers.pgbench_output import read_progress
from pgherd.metrics import qemu_process, run_metrics
from pgherd.metrics.openmetrics import Levels, Sample, target_labels
from pgherd.metrics.run_metrics import Naming, Progress, Totals
from pgherd.metrics.spool import Latest
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.store.live import Lines, LiveState, LiveTrial, output_dir, read_live, spool_file

FRESH = 15.0
"""Seconds for which a reading is told: what has ended (a driver, a container) says nothing more."""
BORDER = 0.15
"""Seconds before and after a border between phases in which nothing is collected: drivers are started and ended there."""


class Collection:
    """A run's metrics, each time that they are asked for. Not for several threads at once."""

    def __init__(self, run: Path, record: RunRecord, node_exporter: tuple[str, str] | None = None) -> None:
        """``run`` is its directory, ``node_exporter`` the address and version of one that was found on this host.

        What finished trials came to is read now (a run that is resumed has some), before anything is measured.
        """
        self._run, self._record, self._node_exporter = run, record, node_exporter
        self._everywhere = run_metrics.everywhere(record)
        self._naming = Naming(record)
        self._totals = Totals(record)
        self._known: set[str] = set()
        self._newest: TrialResult | None = None
        self._trial: int | None = None
        self._samples: Latest | None = None
        self._levels = Levels()
        self._progress: dict[tuple[str, bool], Progress] = {}
        self._emulated: set[str] = set()
        self._files: dict[tuple[int, str], Lines] = {}
        self._phase = 0
        self._told: dict[tuple[int, int, str], int] = {}
        for result in self._ended():
            self._totals.add(result)
            self._newest = result

    def pause(self) -> float:
        """For how many seconds nothing should be collected: a border between phases is near."""
        live = read_live(self._run)
        if live is None or live.trial is None or live.phase is None or live.phase_begun is None or live.phase >= len(live.trial.phases):
            return 0.0
        phase, now = live.trial.phases[live.phase], time.time()
        start = live.phase_begun + phase.ramp
        for border in (start, start + phase.seconds) if phase.until == "clock" else (start,):
            if abs(now - border) < BORDER:
                return border + BORDER - now
        return 0.0

    def samples(self) -> list[Sample]:
        """Everything there is to tell now, in no order."""
        now, live = time.time(), read_live(self._run)
        trial = None if live is None else live.trial
        found = list(run_metrics.run_info(self._record))
        if self._node_exporter is not None:
            address, version = self._node_exporter
            found.append(Sample(run_metrics.NODE_EXPORTER, {**self._everywhere, "address": address, "version": version}, 1.0))
        for result in self._ended():
            self._rest_of(result)
            self._totals.add(result)
            self._newest = result
        if trial is not None and trial.number != self._trial:
            self._begin(trial)
        if live is not None and trial is not None:
            found += self._present(live, trial, now)
            found += self._sampled(now)
            self._follow(trial, live.phase)
        found += (sample for one in self._progress.values() for sample in one.samples() if sample.t is not None and now - sample.t < FRESH)
        left = 0 if live is None else live.trials_left + int(trial is not None)
        found.append(Sample(run_metrics.TRIALS_LEFT, self._everywhere, left))
        found += self._totals.samples()
        if self._newest is not None:
            found += run_metrics.result_samples(self._record, self._newest, None)
        return found

    def _ended(self) -> Iterator[TrialResult]:
        """Trials that have ended since they were asked for last, in order."""
        try:
            names = sorted(path.name for path in (self._run / "trials").iterdir() if path.name.isdecimal())
        except OSError:
            return
        for name in names:
            if name not in self._known:
                self._known.add(name)
                try:
                    yield TrialResult.model_validate_json((self._run / "trials" / name / "trial.json").read_bytes())
                except (OSError, ValidationError):
                    continue  # whoever analyses the run will say so

    def _begin(self, trial: LiveTrial) -> None:
        self._trial, self._phase = trial.number, 0
        self._samples = Latest(Lines(spool_file(self._run, trial.number)))
        self._levels.begin_trial()
        self._emulated = set()
        self._naming.placed({name: container.host for name, container in trial.containers.items()})
        self._files = {}

    def _present(self, live: LiveState, trial: LiveTrial, now: float) -> Iterator[Sample]:
        """Which trial and phase it is."""
        which = {
            **self._everywhere,
            "trial": f"{trial.number:04d}",
            "study": self._record.study,
            "point": run_metrics.point_words(trial.point),
            "repeat": str(trial.repeat),
        }
        yield Sample(run_metrics.TRIAL, {**which, "reason": trial.reason}, 1.0)
        yield Sample(run_metrics.TRIAL_START, self._everywhere, trial.begun)
        yield Sample(run_metrics.TRIAL_PLANNED, self._everywhere, sum(phase.ramp + phase.seconds for phase in trial.phases))
        for coordinate, value in trial.point.items():
            if not isinstance(value, str):
                yield Sample(run_metrics.POINT, {**self._everywhere, "coordinate": coordinate}, value)
        if live.phase is None or live.phase_begun is None or live.phase >= len(trial.phases):
            return
        phase = trial.phases[live.phase]
        start = live.phase_begun + phase.ramp
        if phase.until == "drivers" or now < start + phase.seconds:
            part = "ramp" if now < start else "measured"
            about = {"number": str(live.phase + 1), "phase": phase.name, "part": part, "load": phase.words}
            yield Sample(run_metrics.PHASE, {**which, **about}, 1.0)

    def _sampled(self, now: float) -> Iterator[Sample]:
        """The samplers' last readings, and how often they failed."""
        assert self._samples is not None
        for t, entity, metric, value in self._samples.read():
            if metric.name == qemu_process.EMULATED and value:
                self._emulated.add(entity.removeprefix("guest:"))
            if now - t < FRESH and (what := self._naming.series(entity, metric.name)) is not None:
                family, labels = what
                yield Sample(family, labels, self._levels.level(entity, metric, value), t)
        failures: dict[str, int] = {}
        for source, failed in self._samples.spool.failures.items():
            failures[source.sampler] = failures.get(source.sampler, 0) + failed.count
        for sampler, count in failures.items():
            yield Sample(run_metrics.SOURCE_FAILURES, {**self._everywhere, "sampler": sampler}, count)

    def _follow(self, trial: LiveTrial, phase: int | None) -> None:
        """Take in what the drivers have told since; those of an earlier phase have ended when the next one begins."""
        if phase is None:
            return
        for number in range(self._phase, min(phase + 1, len(trial.phases))):
            for target, driver in trial.phases[number].loads.items():
                directory = output_dir(trial, number, target)
                if driver != "pgbench" or directory is None:
                    continue
                lines = self._files.setdefault((number, target), Lines(directory / "stderr"))
                told = read_progress(b"\n".join(lines).decode(errors="replace"))
                self._tell(trial.number, number, target, told, target_labels(target)["container"] in self._emulated)
        self._phase = phase

    def _rest_of(self, result: TrialResult) -> None:
        """What the drivers of a trial that has ended told after they were listened to last: their output is kept."""
        for number, phase in enumerate(result.phases):
            for target in phase.targets:
                kept = next((name for name in target.raw if name.endswith("/stderr")), None)
                if target.driver != "pgbench" or kept is None:
                    continue
                try:
                    lines = read_progress((self._run / "trials" / result.id / kept).read_text(errors="replace"))
                except OSError:
                    continue
                told = self._told.get((int(result.id), number, target.target), 0)
                # What was told from another host stood on this one's clock; what is kept is as it was written there.
                rest = [replace(one, at=one.at - target.ahead) for one in lines[told:]]
                self._tell(int(result.id), number, target.target, rest, run_metrics.emulated(phase, target.target))
        self._told = {key: told for key, told in self._told.items() if key[0] > int(result.id)}

    def _tell(self, trial: int, phase: int, target: str, lines: list[ProgressLine], emulated: bool) -> None:
        """Take in lines of one target's driver; ``emulated``: it loads a guest that runs by emulation."""
        labels = {**run_metrics.target_everywhere(self._record, target), **target_labels(target)}
        progress = self._progress.setdefault((target, emulated), Progress(labels, emulated))
        key = (trial, phase, target)
        if lines and key not in self._told:
            progress.begin()
        for line in lines:
            progress.tell(line.at, line.tps, line.latency, line.failed, line.lag, line.skipped)
            self._told[key] = self._told.get(key, 0) + 1
