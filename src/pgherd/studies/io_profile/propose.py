"""Which trials a study of the storage runs. Pure; imports no scientific library, since it runs between the trials."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.io_profile.options import StorageOptions
from pgherd.study.comparison import variants
from pgherd.study.comparison.propose import propose as propose_blocks

KEPT = ("not-client-bound", "io-bound")
"""Intents that the trials keep; what limits a server with checkpoints is what is to be found out."""


def propose(options: StorageOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    if not options.single:
        return propose_blocks(options, results)
    done = {result.trial.key() for result in results}
    planned = [trial(options, number) for number in range(options.repeats)]
    missing = tuple(one for one in planned if one.key() not in done)
    most = options.repeats + options.max_reruns
    if missing:
        return Proposal(trials=missing, worst_case=most)
    tainted = [result for result in results if result.tainted]
    reruns = len(results) - options.repeats
    spent = sum(result.ended - result.started for result in results)
    each = spent / len(results) if results else 0.0
    if len(tainted) > reruns and reruns < options.max_reruns and spent + each <= options.budget_seconds:
        again = tainted[reruns]
        return Proposal(trials=(trial(options, len(results), f"rerun of trial {again.id}"),), worst_case=most)
    said = f"{len(results)} trials were run" + (f", {len(tainted)} of them tainted" if tainted else "")
    return Proposal(stop=said, worst_case=len(results))


def trial(options: StorageOptions, repeat: int, reason: str = "planned") -> Trial:
    """The single arm's trial."""
    only = variants.planned_trials(options.arms[0])[0]
    intents = tuple(intent for intent in only.intents if intent in KEPT)
    return only.model_copy(update={"point": {"server": options.arms[0].name}, "repeat": repeat, "reason": reason, "intents": intents})
