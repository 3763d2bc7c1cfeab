"""Trials of the I/O profile. Pure. Imports no scientific library, because it runs between the trials."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.io_profile.options import IoProfileOptions
from pgherd.study.comparison import variants
from pgherd.study.comparison.propose import propose as propose_blocks

KEPT_CHECKS = ("not-client-bound", "io-bound")
"""Validity checks of the trials. The bottleneck of a server with checkpoints is a result here, so no other bottleneck is required."""


def propose(options: IoProfileOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The same options and results always give the same proposal."""
    if not options.single:
        return propose_blocks(options, results)
    finished = {result.trial.key() for result in results}
    planned = [trial(options, number) for number in range(options.repeats)]
    missing = tuple(planned_trial for planned_trial in planned if planned_trial.key() not in finished)
    max_trials = options.repeats + options.max_reruns
    if missing:
        return Proposal(trials=missing, max_trials=max_trials)
    tainted = [result for result in results if result.tainted]
    reruns = len(results) - options.repeats
    spent = sum(result.ended - result.started for result in results)
    seconds_per_trial = spent / len(results) if results else 0.0
    if len(tainted) > reruns and reruns < options.max_reruns and spent + seconds_per_trial <= options.time_budget:
        rerun = tainted[reruns]
        return Proposal(trials=(trial(options, len(results), f"rerun of trial {rerun.id}"),), max_trials=max_trials)
    reason = f"{len(results)} trials were run" + (f", {len(tainted)} of them tainted" if tainted else "")
    return Proposal(stop=reason, max_trials=len(results))


def trial(options: IoProfileOptions, repeat: int, reason: str = "planned") -> Trial:
    """Return a trial of the only variant."""
    template = variants.planned_trials(options.variants[0])[0]
    intents = tuple(intent for intent in template.validity_checks if intent in KEPT_CHECKS)
    return template.model_copy(
        update={"point": {"server": options.variants[0].name}, "repeat": repeat, "reason": reason, "validity_checks": intents}
    )
