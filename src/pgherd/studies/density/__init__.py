"""Density (E1, E2, E18): how many databases does this host hold, how far from perfect does it scale, and why?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions, choose_points, deployment
from pgherd.studies.density.propose import planned, propose

__all__ = ["STUDY", "DensityOptions", "DensityStudy", "choose_points", "deployment", "planned", "propose"]


class DensityStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "density"
    options: type[Model] = DensityOptions

    def propose(self, options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops; see pgherd.studies.density.propose."""
        return propose(options, results)

    def analyse(self, options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.density.analyse."""
        from pgherd.studies.density.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = DensityStudy()
