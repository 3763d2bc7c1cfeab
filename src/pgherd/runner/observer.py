"""Interface through which a run reports its progress."""

from __future__ import annotations

from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial


class RunObserver:
    """Hooks that a run calls. These do nothing. Subclasses override the ones that they need, such as the terminal's progress."""

    def setup(self, what: str) -> None:
        """Note the start of a set-up step, such as creating a template, cloning or starting servers."""

    def check_cancelled(self) -> None:
        """Check for cancellation. Called repeatedly during long steps. Raises TrialError if the work has been cancelled."""

    def planned(self, trials: int, seconds: float) -> None:
        """Note that ``trials`` more trials are planned, which take about ``seconds`` together."""

    def trial(self, trial: Trial, number: int) -> None:
        """Note the start of a trial."""

    def phase(self, name: str, ramp: float, seconds: float) -> None:
        """Note the start of a phase's drivers."""

    def finished(self, result: TrialResult) -> None:
        """Note that a trial has ended and is stored."""

    def note(self, text: str) -> None:
        """Report an event: a rerun, a warning, or leftovers that were removed."""
