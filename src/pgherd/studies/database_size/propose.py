"""Trials of a database-size run: one per scale, in ascending order."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.database_size.options import DatabaseSizeOptions, deployment


def propose(options: DatabaseSizeOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the scales without a result. Sizes do not vary between loads, so one trial each is enough. Failed ones are not repeated."""
    finished = {result.trial.key() for result in results}
    trials = tuple(
        Trial(point={"scale": scale}, deployment=deployment(options, scale), state="fresh", phases=(), probe="database-size")
        for scale in options.scales
    )
    remaining = tuple(trial for trial in trials if trial.key() not in finished)
    if not remaining:
        return Proposal(stop="every scale has been loaded and measured", worst_case=len(trials))
    return Proposal(trials=remaining, worst_case=len(trials))
