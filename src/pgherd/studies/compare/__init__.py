"""Compare: which of several variants is faster, by how much, and is that sure? Trials in shuffled blocks, with an A/A pair."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.compare.options import Arm, CompareOptions
from pgherd.studies.compare.propose import propose

__all__ = ["STUDY", "Arm", "CompareOptions", "CompareStudy", "propose"]


class CompareStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "compare"
    options: type[Model] = CompareOptions

    def propose(self, options: CompareOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops; see pgherd.studies.compare.propose."""
        return propose(options, results)

    def analyse(self, options: CompareOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.compare.analyse."""
        from pgherd.studies.compare.analyse import analyse

        return analyse(options, results)


STUDY = CompareStudy()
