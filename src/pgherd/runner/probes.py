"""Trials with a probe and no load. The study of the probe's name measures the contents of a deployment.

A probe returns readings by name. The name ends in the unit.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgherd.model.errors import TrialError
from pgherd.model.trial import Trial
from pgherd.postgres.installations import Installation
from pgherd.runner.observer import RunObserver
from pgherd.runner.session import RunSession
from pgherd.study.registry import studies


def measure(session: RunSession, installations: Mapping[str, Installation], trial: Trial, watcher: RunObserver) -> dict[str, float]:
    """Return the readings of the trial's probe.

    Raises:
        TrialError: there is no such probe, or it failed.
        PgherdError: as ``postgres.golden.ensure``.
    """
    study = studies().get(trial.probe or "")
    probe = study.hook("probe", "measure") if study is not None else None
    if probe is None:
        raise TrialError(f"there is no probe '{trial.probe}'")
    readings: dict[str, float] = probe(session, installations, trial, watcher)
    return readings
