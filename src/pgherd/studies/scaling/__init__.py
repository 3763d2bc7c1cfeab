"""Scaling (E3): how does one server's throughput grow with its clients, where does it peak, and which variant scales better?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.scaling.options import ScalingOptions, Variant, choose_clients
from pgherd.studies.scaling.propose import planned, propose

__all__ = ["STUDY", "ScalingOptions", "ScalingStudy", "Variant", "choose_clients", "planned", "propose"]


class ScalingStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "scaling"
    options: type[Model] = ScalingOptions

    def propose(self, options: ScalingOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops; see pgherd.studies.scaling.propose."""
        return propose(options, results)

    def analyse(self, options: ScalingOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.scaling.analyse."""
        from pgherd.studies.scaling.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = ScalingStudy()
