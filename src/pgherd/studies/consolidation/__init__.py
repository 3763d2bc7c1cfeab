"""Consolidation (E4, E5, E6): which container for databases whose busy hours differ, and how far may their memory be overcommitted?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.consolidation.options import ConsolidationOptions
from pgherd.studies.consolidation.propose import propose

__all__ = ["STUDY", "ConsolidationOptions", "ConsolidationStudy"]


class ConsolidationStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "consolidation"
    options: type[Model] = ConsolidationOptions

    def propose(self, options: ConsolidationOptions, results: Sequence[TrialResult]) -> Proposal:
        """The next trials, or the reason to stop; see pgherd.studies.consolidation.propose."""
        return propose(options, results)

    def analyse(self, options: ConsolidationOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.consolidation.analyse."""
        from pgherd.studies.consolidation.analyse import analyse

        return analyse(options, results)


STUDY = ConsolidationStudy()
