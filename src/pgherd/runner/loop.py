"""The loop over proposals: propose, run, store, propose again, until the study stops. Resume is the same loop."""

from __future__ import annotations

import errno
import os
import time
from typing import Any, Protocol

from pgherd.model.base import Model
from pgherd.model.errors import PgherdError, TrialError
from pgherd.model.finding import Proposal, Thresholds
from pgherd.model.result import TrialResult
from pgherd.model.run import LoggedProposal, RunRecord
from pgherd.model.study import RunnableStudy
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.runner.observer import RunObserver
from pgherd.runner.play.bench import Bench, Played
from pgherd.store.run_directory import RunDirectory
from pgherd.study.analyse_run import conclude
from pgherd.study.comparison.options import AGAIN_SUFFIX
from pgherd.study.comparison.time_slices import VARIANT

_FAILURES_IN_A_ROW = 3


def execute(
    directory: RunDirectory,
    record: RunRecord,
    study: RunnableStudy[Any],
    options: Model,
    bench: Bench,
    thresholds: Thresholds,
    watcher: RunObserver,
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
    # An analysis of the trials so far ('pgherd report' of an interrupted run) would pass for that of the whole.
    record = record.model_copy(update={"state": "running", "error": None, "ended": None, "analysis": None})
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
            for wanted in trials:
                interruption.insist()
                trial = bench.placed(wanted)
                name = directory.next_trial()
                watcher.trial(trial, int(name))
                result = _trial(directory, name, trial, bench, thresholds, watcher)
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
                    record = with_settings(record, trial, bench)
                watcher.finished(result)
                # Too little memory is what a trial may be about, and no fault of the run; nor is a host that is lost to the trials that
                # need it while others do without.
                if not result.memory_kills and not (trial is not wanted and has_no_load(trial)):
                    failures = 0 if result.error is None else failures + (not trial.may_die)
                if failures == _FAILURES_IN_A_ROW:
                    raise PgherdError(f"{failures} trials in a row could not be finished; the last said: {result.error}")
        analysis = conclude(study, options, results, record.resumed, record.command)
        record = record.model_copy(update={"analysis": analysis})
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


def _trial(directory: RunDirectory, name: str, trial: Trial, bench: Bench, thresholds: Thresholds, watcher: RunObserver) -> TrialResult:
    started = time.time()
    partial = directory.begin_trial(name)
    transition, error, played = "", None, Played()
    try:
        if trial.probe is not None:
            readings = bench.probe(trial)
            return TrialResult(id=name, trial=trial, started=started, ended=time.time(), probe=readings)
        transition = bench.apply(trial)
        played = bench.play(trial, name, partial, thresholds, watcher)
    except TrialError as failure:
        interruption.insist()  # what was cut short by a signal is no trial that failed
        played, error = bench.failed(trial, thresholds), str(failure)
    return TrialResult(
        id=name,
        trial=trial,
        started=started,
        ended=time.time(),
        transition=transition,
        error=error,
        phases=list(played.phases),
        verdicts=list(played.verdicts),
        memory_kills=played.memory_kills,
    )


def has_no_load(trial: Trial) -> bool:
    """Return whether a placed trial has phases but no load, because its targets are on lost hosts."""
    return bool(trial.phases) and not any(phase.loads for phase in trial.phases)


class SettingsSource(Protocol):
    """What is up, and can be asked; see ``runner.loop.Bench``."""

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Settings that differ from the default, as the server of a target, or the first server, says."""
        ...


def with_settings(record: RunRecord, trial: Trial, bench: SettingsSource) -> RunRecord:
    """The record with what the servers that are up for this trial say, where that is not known yet.

    ``settings`` then holds what all variants have in common, ``variant_settings`` all that each has.
    """
    if VARIANT not in trial.point:
        return record if record.settings else record.model_copy(update={"settings": bench.settings()})
    new = {variant: target for variant, target in _variants(trial).items() if variant not in record.variant_settings}
    said = {variant: bench.settings(target) for variant, target in new.items()}
    if not any(said.values()):
        return record
    every = {**record.variant_settings, **{variant: own for variant, own in said.items() if own}}
    first = next(iter(every.values()))
    common = {name: value for name, value in first.items() if all(one.get(name) == value for one in every.values())}
    return record.model_copy(update={"settings": common, "variant_settings": every})


def _variants(trial: Trial) -> dict[str, str | None]:
    """Each variant of a trial, and a database of its server (None: its load is on none)."""
    loaded = {side: phase.turns.targets(side, phase.loads) for phase in trial.phases if phase.turns is not None for side in phase.turns.of}
    loaded = loaded or {str(trial.point[VARIANT]): tuple(target for phase in trial.phases for target in phase.loads)}
    return {
        side.removesuffix(AGAIN_SUFFIX): next((target for target in targets if target.count("/") == 3), None)
        for side, targets in loaded.items()
    }
