"""Network (E14): how much does a link carry by parallel streams, and is it bound by latency or by bandwidth?"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.studies.network.options import NetworkOptions
from pgherd.studies.network.propose import propose

__all__ = ["STUDY", "NetworkOptions", "NetworkStudy", "propose"]


class NetworkStudy:
    """The study as pgherd.model.study.Study wants it."""

    name = "network"
    options: type[Model] = NetworkOptions

    def propose(self, options: NetworkOptions, results: Sequence[TrialResult]) -> Proposal:
        """Which trials to run next, or why it stops."""
        return propose(options, results)

    def analyse(self, options: NetworkOptions, results: Sequence[TrialResult]) -> Analysis:
        """What the results mean; see pgherd.studies.network.analyse."""
        from pgherd.studies.network.analyse import analyse  # brings in the scientific libraries

        return analyse(options, results)


STUDY = NetworkStudy()
