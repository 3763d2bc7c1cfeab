"""Which trials a sizes run consists of: one per scale, smallest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.database_size.options import SizesOptions, deployment


def propose(options: SizesOptions, results: Sequence[TrialResult]) -> Proposal:
    """The scales that have no result yet. A size does not vary from load to load, so that one trial each will do; one
    that failed is not tried again."""
    done = {result.trial.key() for result in results}
    trials = tuple(
        Trial(point={"scale": scale}, deployment=deployment(options, scale), state="fresh", phases=(), probe="database-size")
        for scale in options.scales
    )
    missing = tuple(trial for trial in trials if trial.key() not in done)
    if not missing:
        return Proposal(stop="every scale has been loaded and measured", worst_case=len(trials))
    return Proposal(trials=missing, worst_case=len(trials))
