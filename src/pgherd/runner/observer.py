"""What a run tells whoever watches it."""

from __future__ import annotations

from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial


class RunObserver:
    """Hooks that do nothing; the terminal's progress overrides what it shows."""

    def setup(self, what: str) -> None:
        """A step of setting up has begun (making a golden copy, cloning, starting)."""

    def insist(self) -> None:
        """Called now and then while a step takes long; raises TrialError where the work has been called off."""

    def planned(self, trials: int, seconds: float) -> None:
        """``trials`` more are planned, which take about ``seconds``."""

    def trial(self, trial: Trial, number: int) -> None:
        """A trial begins."""

    def phase(self, name: str, ramp: float, seconds: float) -> None:
        """A phase's drivers have been started."""

    def finished(self, result: TrialResult) -> None:
        """A trial has ended and is stored."""

    def note(self, text: str) -> None:
        """Something worth a line: a rerun, a warning, what was cleaned up."""
