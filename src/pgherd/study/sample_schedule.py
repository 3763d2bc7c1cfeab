"""Order of the trials of a study that measures sizes: each planned trial once, as long as the time budget lasts.

Sizes do not vary between trials, so there are no repeats and no reruns. The time of a trial is that of loading and reading data, which is
not known before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial


def propose(planned: Sequence[Trial], results: Sequence[TrialResult], budget_s: float | None, complete: str) -> Proposal:
    """Return the trials without a result, or the reason to stop: ``complete`` after the last one. Failed trials are not repeated.

    With a time budget the first trial always runs. Another one runs if the longest so far would fit into the rest.
    """
    finished = {result.trial.key() for result in results}
    remaining = tuple(trial for trial in planned if trial.key() not in finished)
    if not remaining:
        return Proposal(stop=complete, max_trials=len(planned))
    if budget_s is None:
        return Proposal(trials=remaining, max_trials=len(planned))
    times = [max(result.ended - result.started, 0.0) for result in results]
    if times and sum(times) + max(times) > budget_s:
        stop = f"the budget of {budget_s:g} s is used up; {len(results)} of {len(planned)} planned trials were run"
        return Proposal(stop=stop, max_trials=len(planned))
    return Proposal(trials=remaining[:1], max_trials=len(planned))
