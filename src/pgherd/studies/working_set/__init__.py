"""Working set (E7): how much memory does a load need, as the knee of throughput against memory and against shared buffers?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.working_set.options import WorkingSetOptions
from pgherd.studies.working_set.propose import propose

__all__ = ["STUDY", "WorkingSetOptions", "WorkingSetStudy", "propose"]


class WorkingSetStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "working-set"
    options: type[Model] = WorkingSetOptions

    def propose(self, options: WorkingSetOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops; see pgherd.studies.working_set.propose."""
        return propose(options, results)

    def analyse(self, options: WorkingSetOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.working_set.analyse."""
        from pgherd.studies.working_set.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = WorkingSetStudy()
