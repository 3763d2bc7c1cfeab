"""Compression (E15): how far does each kind of data compress, by codec and block size, and what does encryption leave of it?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.compression.options import CompressionOptions
from pgherd.studies.compression.propose import propose

__all__ = ["STUDY", "CompressionOptions", "CompressionStudy", "propose"]


class CompressionStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "compression"
    options: type[Model] = CompressionOptions

    def propose(self, options: CompressionOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which kinds of data to compress next, or why it stops."""
        return propose(options, results)

    def analyse(self, options: CompressionOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.compression.analyse."""
        from pgherd.studies.compression.analyse import analyse

        return analyse(options, results)


STUDY = CompressionStudy()
