"""Trials of a database-size run: one per scale, in ascending order."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.database_size.options import DatabaseSizeOptions, deployment
from pgherd.study import trial_schedule


def propose(options: DatabaseSizeOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the scales without a result. Sizes do not vary between loads, so one trial each is enough. Failed ones are not repeated."""
    trials = tuple(
        Trial(point={"scale": scale}, deployment=deployment(options, scale), state="fresh", phases=(), probe="database-size")
        for scale in options.scales
    )
    return trial_schedule.propose_once(trials, results, options.time_budget, "every scale has been loaded and measured")
