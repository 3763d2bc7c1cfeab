"""Sizes (E10): how large is a database of a given scale on this PostgreSQL, and how large would others be?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.sizes.options import SizesOptions
from pgherd.studies.sizes.propose import propose

__all__ = ["STUDY", "SizesOptions", "SizesStudy", "propose"]


class SizesStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "sizes"
    options: type[Model] = SizesOptions

    def propose(self, options: SizesOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which scales to load next, or why it stops."""
        return propose(options, results)

    def analyse(self, options: SizesOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.sizes.analyse."""
        from pgherd.studies.sizes.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = SizesStudy()
