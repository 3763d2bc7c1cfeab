"""Disk (E12): how many I/Os a volume takes, how fast, how long one takes, and what limited each figure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.disk.options import DiskOptions, DiskVolume
from pgherd.studies.disk.propose import propose

__all__ = ["STUDY", "DiskOptions", "DiskStudy", "DiskVolume", "propose"]


class DiskStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "disk"
    options: type[Model] = DiskOptions

    def propose(self, options: DiskOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops."""
        return propose(options, results)

    def analyse(self, options: DiskOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.disk.analyse."""
        from pgherd.studies.disk.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = DiskStudy()
