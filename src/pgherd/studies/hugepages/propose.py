"""Trials of the huge pages study."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.hugepages.options import HugepagesOptions
from pgherd.study.comparison import propose as comparison


def propose(options: HugepagesOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the trials of the comparison, with the processor's TLB counters if it has them."""
    proposal = comparison.propose(options, results)
    if options.counters_unavailable:
        return proposal
    return proposal.model_copy(update={"trials": tuple(trial.model_copy(update={"counters": ("tlb",)}) for trial in proposal.trials)})
