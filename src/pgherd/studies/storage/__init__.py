"""Storage (E11, E13): what do the devices below a server see, what do checkpoints do to it, and what does a setting change?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.storage.options import StorageOptions
from pgherd.studies.storage.propose import propose

__all__ = ["STUDY", "StorageOptions", "StorageStudy", "propose"]


class StorageStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "storage"
    options: type[Model] = StorageOptions

    def propose(self, options: StorageOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops; see pgherd.studies.storage.propose."""
        return propose(options, results)

    def analyse(self, options: StorageOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.storage.analyse."""
        from pgherd.studies.storage.analyse import analyse

        return analyse(options, results)


STUDY = StorageStudy()
