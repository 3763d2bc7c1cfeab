"""Any study on several hosts: it sees one large host, and what it concludes is completed by what shows of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgherd.distributed.placing import home
from pgherd.model.base import Model
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.model.run import Cluster
from pgherd.model.study import RunnableStudy
from pgherd.study.per_host import with_hosts


class OnHosts:
    """Implements ``pgherd.model.study.RunnableStudy`` over another one."""

    def __init__(self, study: RunnableStudy[Any], cluster: Cluster) -> None:
        """``study`` knows nothing of the cluster."""
        self.name = study.name
        self.options: type[Model] = study.options
        self._study, self._cluster = study, cluster
        self._known: dict[str, TrialResult] = {}

    def propose(self, options: Any, results: Sequence[TrialResult]) -> Proposal:
        """What the study wants, of one host; ``runner.placing.placed`` places it."""
        return self._study.propose(options, self._home(results))

    def analyse(self, options: Any, results: Sequence[TrialResult]) -> Analysis:
        """What the study says, with the hosts beside it."""
        return with_hosts(self._study.analyse(options, self._home(results)), results, self._cluster.hosts, self._cluster.client)

    def _home(self, results: Sequence[TrialResult]) -> list[TrialResult]:
        for result in results:
            if result.id not in self._known:
                self._known[result.id] = home(result)
        return [self._known[result.id] for result in results]
