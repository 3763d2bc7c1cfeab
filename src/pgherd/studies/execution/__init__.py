"""Exec: any command as a load, in repeats, with sampling and verdicts as any study has them."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.execution.options import ExecOptions
from pgherd.studies.execution.propose import propose

__all__ = ["STUDY", "ExecOptions", "ExecStudy", "propose"]


class ExecStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "exec"
    options: type[Model] = ExecOptions

    def propose(self, options: ExecOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops."""
        return propose(options, results)

    def analyse(self, options: ExecOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.execution.analyse."""
        from pgherd.studies.execution.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = ExecStudy()
