"""Huge pages (E9): what do larger pages of shared memory buy? A comparison of one server on several kinds of pages."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.compare.propose import propose
from pgherd.studies.hugepages.options import HugepagesOptions

__all__ = ["STUDY", "HugepagesOptions", "HugepagesStudy"]


class HugepagesStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "hugepages"
    options: type[Model] = HugepagesOptions

    def propose(self, options: HugepagesOptions, results: Sequence[TrialResult]) -> Proposal:
        """The trials of the comparison (pgherd.studies.compare.propose), with the processor's counters where it shows them."""
        proposal = propose(options, results)
        if options.uncounted:
            return proposal
        return proposal.model_copy(update={"trials": tuple(trial.model_copy(update={"counters": ("tlb",)}) for trial in proposal.trials)})

    def analyse(self, options: HugepagesOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.hugepages.analyse."""
        from pgherd.studies.hugepages.analyse import analyse

        return analyse(options, results)


STUDY = HugepagesStudy()
