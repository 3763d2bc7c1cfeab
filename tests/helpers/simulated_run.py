"""Whole runs of a simulated host or server, for the conftest.py of the studies. pytest's ``pythonpath`` makes it importable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from pgherd.model.analysis import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial


class SimulatedRun:
    """Base of a simulator, which has ``options`` and ``run`` for one trial. ``propose`` is that of its study, as a staticmethod."""

    propose: ClassVar[Callable[..., Proposal]]
    options: Any

    def run(self, trial: Trial) -> TrialResult:
        raise NotImplementedError

    def all(self, trials: Iterable[Trial]) -> list[TrialResult]:
        return [self.run(trial) for trial in trials]

    def until_stop(self, most: int = 1000) -> tuple[list[TrialResult], str]:
        """The whole run, as the runner does it."""
        results: list[TrialResult] = []
        while len(results) < most:
            proposal = self.propose(self.options, results)
            if proposal.stop is not None:
                return results, proposal.stop
            assert proposal.trials
            results += self.all(proposal.trials)
        raise AssertionError("the study never stops")
