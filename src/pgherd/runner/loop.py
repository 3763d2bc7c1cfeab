"""Main loop of a run: propose trials, run and store them, and repeat until the study stops. Resume uses the same loop."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from pgherd.model.analysis import Proposal, Thresholds
from pgherd.model.base import Model
from pgherd.model.errors import LostServerError, PgherdError, TrialError
from pgherd.model.result import TrialResult
from pgherd.model.run import LoggedProposal, RunRecord
from pgherd.model.study import RunnableStudy
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.runner.execute.local_backend import Backend, TrialOutcome
from pgherd.runner.progress import RunObserver
from pgherd.store.run_directory import RunDirectory
from pgherd.study.analyse_run import conclude
from pgherd.study.comparison.options import AA_SUFFIX
from pgherd.study.comparison.time_slices import VARIANT

_MAX_CONSECUTIVE_FAILURES = 3


def execute(
    directory: RunDirectory,
    record: RunRecord,
    study: RunnableStudy[Any],
    options: Model,
    backend: Backend,
    thresholds: Thresholds,
    observer: RunObserver,
) -> RunRecord:
    """Run the study to its end in an existing run directory. Trials that are stored there already are not repeated.

    Every finished trial is on disk before the next starts. ``run.json`` records the state at the end, also after an error.

    Raises:
        PgherdError: several trials in a row failed, or the disk is full.
        KeyboardInterrupt: the user interrupted the run. Finished trials are kept.
    """
    results = directory.results()
    directory.drop_partial()
    start = time.time()
    timing = dict(record.timing)
    wall_s, wall_start = timing.get("wall", 0.0), 0.0
    # Drop the analysis of an interrupted run ('pgherd report' adds one), because it covers only part of the trials.
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
            observer.planned(len(trials), sum(trial.seconds() for trial in trials))
            for planned in trials:
                interruption.check()
                trial = backend.placed(planned)
                name = directory.next_trial()
                observer.trial(trial, int(name))
                result, lost = _trial(directory, name, trial, backend, thresholds, observer)
                if not wall_start:
                    # The transition of the first trial is the set-up: templates, clones, first starts.
                    wall_start = result.phases[0].start - result.trial.phases[0].warmup if result.phases else result.ended
                    timing["setup"] = timing.get("setup", 0.0) + wall_start - start
                directory.finish_trial(result)
                results.append(result)
                timing["measured"] = timing.get("measured", 0.0) + sum(phase.seconds for phase in result.phases)
                timing["wall"] = wall_s + time.time() - wall_start
                record = record.model_copy(update={"timing": dict(timing)})
                if result.error is None:
                    record = with_settings(record, trial, backend)
                observer.finished(result)
                # An OOM kill may be the result that the study looks for. A lost host or server fails only the trials that need it.
                # Neither counts as a failure of the run.
                if not result.oom_kills and not lost and not (trial is not planned and has_no_load(trial)):
                    failures = 0 if result.error is None else failures + (not trial.failure_expected)
                if failures == _MAX_CONSECUTIVE_FAILURES:
                    raise PgherdError(f"{failures} trials in a row failed; last error: {result.error}")
        analysis = conclude(study, options, results, record.resumed_on_changed_host, record.command)
        record = record.model_copy(update={"analysis": analysis})
    except BaseException as error:
        directory.drop_partial()  # first, because this frees space for run.json on a full disk
        if isinstance(error, KeyboardInterrupt) or interruption.requested():
            _closed(directory, record, "interrupted", "interrupted by the user")
            raise
        if _disk_full(error):
            path = (isinstance(error, OSError) and error.filename) or directory.path
            text = f"the disk is full ({path}); free some space, then 'pgherd resume {directory.argument}'"
            _closed(directory, record, "failed", text)
            raise PgherdError(text) from None
        _closed(directory, record, "failed", str(error))
        raise
    return _closed(directory, record, "finished", None)


def _disk_full(error: BaseException) -> bool:
    """Test for a full disk or quota, also if a library passes on only the text of the error."""
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
    directory: RunDirectory, name: str, trial: Trial, backend: Backend, thresholds: Thresholds, observer: RunObserver
) -> tuple[TrialResult, bool]:
    """Run one trial. Return its result, and True if it failed because a server that it needs is lost."""
    started = time.time()
    partial = directory.begin_trial(name)
    transition, error, outcome, lost = "", None, TrialOutcome(), False
    try:
        if trial.probe is not None:
            readings = backend.probe(trial)
            return TrialResult(id=name, trial=trial, started=started, ended=time.time(), probe=readings), False
        transition = backend.apply(trial)
        outcome = backend.run(trial, name, partial, thresholds, observer)
    except TrialError as failure:
        interruption.check()  # a trial that a signal cut short has not failed
        outcome, error, lost = backend.failed(trial, thresholds), str(failure), isinstance(failure, LostServerError)
    result = TrialResult(
        id=name,
        trial=trial,
        started=started,
        ended=time.time(),
        transition=transition,
        error=error,
        phases=list(outcome.phases),
        checks=list(outcome.checks),
        oom_kills=outcome.oom_kills,
    )
    return result, lost


def has_no_load(trial: Trial) -> bool:
    """Return True if a placed trial has phases but no load, because its targets are on lost hosts."""
    return bool(trial.phases) and not any(phase.loads for phase in trial.phases)


class SettingsSource(Protocol):
    """Running servers that report their settings, see ``runner.execute.local_backend.Backend``."""

    def settings(self, target: str | None = None) -> dict[str, str]:
        """Return the non-default settings of the target's server, or of the first server."""
        ...


def with_settings(record: RunRecord, trial: Trial, backend: SettingsSource) -> RunRecord:
    """Return the record with the settings of this trial's running servers, unless it has them already.

    For a comparison, ``settings`` holds the settings that all variants share and ``variant_settings`` all settings of each variant. If
    the trial's only server is external, its settings are read again, and changes are added as a sentence. Not so if others may cause a
    difference: of several servers another one may respond first, and behind a pooler another client may have changed the session.
    """
    ways = {(server.dsn, server.direct, server.pooled) for _, _, server in trial.deployment.servers()}
    again = len(ways) == 1 and all(dsn is not None and (direct is not None or not pooled) for dsn, direct, pooled in ways)
    if VARIANT not in trial.point:
        if record.settings and not again:
            return record
        settings = backend.settings()
        return _with_changes(record, record.settings, settings) if record.settings else record.model_copy(update={"settings": settings})
    targets = {variant: target for variant, target in _variants(trial).items() if again or variant not in record.variant_settings}
    reported = {variant: settings for variant, target in targets.items() if (settings := backend.settings(target))}
    for variant in sorted(reported.keys() & record.variant_settings.keys()):
        record = _with_changes(record, record.variant_settings[variant], reported.pop(variant), variant)
    if not reported:
        return record
    by_variant = {**record.variant_settings, **reported}
    first = next(iter(by_variant.values()))
    common = {name: value for name, value in first.items() if all(settings.get(name) == value for settings in by_variant.values())}
    return record.model_copy(update={"settings": common, "variant_settings": by_variant})


def _with_changes(record: RunRecord, before: Mapping[str, str], now: Mapping[str, str], variant: str = "") -> RunRecord:
    """Return the record with a sentence on an external server's changed settings, unless it has that. ``now`` is empty if it is gone."""
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)) if now else []
    changes = "; ".join(f"{name} was {before.get(name, 'the default')}, now {now.get(name, 'the default')}" for name in changed)
    server = f"the external server of variant '{variant}'" if variant else "the external server"
    sentence = f"During the run, settings of {server} were changed ({changes}): results before and after may differ"
    if not changed or sentence in record.resumed_on_changed_host:
        return record
    return record.model_copy(update={"resumed_on_changed_host": [*record.resumed_on_changed_host, sentence]})


def _variants(trial: Trial) -> dict[str, str | None]:
    """Return the target of one database of each variant in a trial. None: the variant's load uses no database."""
    loaded = {
        name: phase.slices.targets(name, phase.loads) for phase in trial.phases if phase.slices is not None for name in phase.slices.of
    }
    loaded = loaded or {str(trial.point[VARIANT]): tuple(target for phase in trial.phases for target in phase.loads)}
    return {
        name.removesuffix(AA_SUFFIX): next((target for target in targets if target.count("/") == 3), None)
        for name, targets in loaded.items()
    }
