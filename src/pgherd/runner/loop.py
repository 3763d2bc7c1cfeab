"""The loop over proposals: propose, run, store, propose again, until the study stops. Resume is the same loop."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any, Protocol

from pgherd.metrics.sampler import ProcessView
from pgherd.model.base import Model
from pgherd.model.errors import PgherdError, TrialError
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Proposal
from pgherd.model.result import MemoryKill, PhaseResult, TrialResult
from pgherd.model.run import LoggedProposal, RunRecord
from pgherd.model.study import Study
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.protocol import Node
from pgherd.runner import memory_verdicts, phases, variant_settings, verdicts
from pgherd.runner.stage import Stage
from pgherd.runner.watcher import Watcher
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.io_view import with_io_view

_FAILURES_IN_A_ROW = 3


class Bench(Protocol):
    """What brings a trial's deployment up (see pgherd.runner.fleet)."""

    node: Node
    facts: HostFacts
    scratch: Path
    watched: list[ProcessView]

    def apply(self, trial: Trial) -> tuple[Stage, str]:
        """Bring the trial's deployment and state about; returns the stage and what the transition was."""
        ...

    def probe(self, trial: Trial) -> dict[str, float]:
        """The readings of a trial with a probe and no load, for which nothing needs to be up; see pgherd.runner.probes."""
        ...

    def readings(self) -> dict[str, dict[str, float]]:
        """What was read once of what is up, by entity and metric: it goes beside the sampled metrics of every phase."""
        ...

    def verify(self, trial: Trial) -> None:
        """Check the databases whose consistency is to be checked; raises TrialError where one contradicts itself."""
        ...

    def memory_kills(self) -> tuple[MemoryKill, ...]:
        """What the kernel ended for want of memory since the trial began."""
        ...

    def distrust(self) -> None:
        """A trial has failed: take nothing that is up for healthy."""
        ...

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Settings of the servers that are up which differ from the default, as the server of a target, or the first, says."""
        ...


def execute(
    directory: RunDirectory,
    record: RunRecord,
    study: Study[Any],
    options: Model,
    bench: Bench,
    thresholds: Thresholds,
    watcher: Watcher,
) -> RunRecord:
    """Run the study to its end in an existing run directory, going on after the trials that are already there.

    Every finished trial is on disk before the next begins. Whatever ends the loop, ``run.json`` says how it ended.

    Raises:
        PgherdError: no trial can be finished, or the disk is full.
        KeyboardInterrupt: the user ended it; finished trials are kept.
    """
    results = directory.results()
    directory.drop_partial()
    begun = time.time()
    timing = dict(record.timing)
    wall_before, wall_begun = timing.get("wall", 0.0), 0.0
    record = record.model_copy(update={"state": "running", "error": None, "ended": None})
    directory.save(record)
    failures = 0
    try:
        while True:
            proposal = study.propose(options, results)
            record = _logged(record, proposal, len(results))
            directory.save(record)
            if proposal.stop is not None:
                break
            trials: tuple[Trial, ...] = proposal.trials
            watcher.planned(len(trials), sum(trial.seconds() for trial in trials))
            for trial in trials:
                interruption.insist()
                name = directory.next_trial()
                watcher.trial(trial, int(name))
                result = _trial(directory, name, trial, bench, thresholds, watcher, record)
                if not wall_begun:
                    # The first trial's transition is the set-up: golden copies, clones, first starts.
                    wall_begun = result.phases[0].start - result.trial.phases[0].ramp if result.phases else result.ended
                    timing["setup"] = timing.get("setup", 0.0) + wall_begun - begun
                directory.finish_trial(result)
                results.append(result)
                timing["measured"] = timing.get("measured", 0.0) + sum(phase.seconds for phase in result.phases)
                timing["wall"] = wall_before + time.time() - wall_begun
                record = record.model_copy(update={"timing": dict(timing)})
                if result.error is None:
                    record = variant_settings.noted(record, trial, bench)
                watcher.finished(result)
                if not result.memory_kills:  # too little memory is what a trial may be about, and no fault of the run
                    failures = failures + 1 if result.error and not trial.may_die else 0
                if failures == _FAILURES_IN_A_ROW:
                    raise PgherdError(f"{failures} trials in a row could not be finished; the last said: {result.error}")
        record = record.model_copy(update={"analysis": with_io_view(study.analyse(options, results), results)})
    except BaseException as error:
        directory.drop_partial()  # first of all: on a full disk it makes room for run.json
        if isinstance(error, KeyboardInterrupt) or interruption.asked():
            _closed(directory, record, "interrupted", "interrupted by the user")
            raise
        if _disk_full(error):
            place = (isinstance(error, OSError) and error.filename) or directory.path
            text = f"the disk is full ({place}); free some space, then 'pgherd resume {directory.name}'"
            _closed(directory, record, "failed", text)
            raise PgherdError(text) from None
        _closed(directory, record, "failed", str(error))
        raise
    return _closed(directory, record, "finished", None)


def _with(phase: PhaseResult, readings: dict[str, dict[str, float]]) -> PhaseResult:
    metrics = {entity: {**phase.metrics.get(entity, {}), **more} for entity, more in readings.items()}
    return phase.model_copy(update={"metrics": {**phase.metrics, **metrics}}) if metrics else phase


def _disk_full(error: BaseException) -> bool:
    """As the operating system says it, or a library that only passes on its words."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return not isinstance(error, PgherdError) and os.strerror(errno.ENOSPC) in str(error)


def _closed(directory: RunDirectory, record: RunRecord, state: str, error: str | None) -> RunRecord:
    record = record.model_copy(update={"state": state, "error": error, "ended": time.time()})
    try:
        directory.save(record)
    except OSError:
        if error is None:  # a full disk must not hide why the run ended
            raise
    return record


def _logged(record: RunRecord, proposal: Proposal, after: int) -> RunRecord:
    entry = LoggedProposal(at=time.time(), after=after, trials=[trial.key() for trial in proposal.trials], stop=proposal.stop)
    return record.model_copy(update={"proposals": [*record.proposals, entry]})


def _trial(
    directory: RunDirectory, name: str, trial: Trial, bench: Bench, thresholds: Thresholds, watcher: Watcher, record: RunRecord
) -> TrialResult:
    started = time.time()
    partial = directory.begin_trial(name)
    scratch = bench.scratch / name
    transition = ""
    played: list[PhaseResult] = []
    try:
        if trial.probe is not None:
            readings = bench.probe(trial)
            return TrialResult(id=name, trial=trial, started=started, ended=time.time(), probe=readings)
        stage, transition = bench.apply(trial)
        bench.node.make_dir(str(scratch), mode=0o711)
        played, jump = phases.play(bench.node, trial, stage, partial, scratch, watcher, bench.watched)
        played = [_with(phase, bench.readings()) for phase in played]
        if any(database.verify for *_, database in trial.deployment.databases()):
            bench.verify(trial)
        killed = bench.memory_kills()
        found = verdicts.judge(trial, played, bench.facts, thresholds, jump) + memory_verdicts.judge(trial, played, killed, thresholds)
    except TrialError as error:
        interruption.insist()  # what was cut short by a signal is no trial that failed
        killed = bench.memory_kills()
        bench.distrust()
        found = memory_verdicts.judge(trial, [], killed, thresholds)
        ended = {"id": name, "trial": trial, "started": started, "ended": time.time(), "transition": transition}
        return TrialResult(**ended, error=str(error), memory_kills=killed, verdicts=found)
    finally:
        bench.node.remove_tree(str(scratch))
    ended = {"id": name, "trial": trial, "started": started, "ended": time.time(), "transition": transition}
    return TrialResult(**ended, phases=played, verdicts=found, memory_kills=killed)
