"""How long the trials that are still to come will take, as far as can be told."""

from __future__ import annotations

DEFAULT_OVERHEAD_S = 0.7
"""Seconds that a trial takes beside its ramps and periods (start, stop, parse, store), until one has been seen."""


class TimeEstimate:
    """Trials that are proposed and not finished, and what they are taken to need."""

    def __init__(self) -> None:
        """Nothing is planned yet."""
        self._pending: list[float] = []
        self._overheads: list[float] = []

    @property
    def trials(self) -> int:
        """How many are not finished."""
        return len(self._pending)

    @property
    def finished(self) -> int:
        """How many are."""
        return len(self._overheads)

    @property
    def overhead(self) -> float | None:
        """What a trial takes beside its planned time, in seconds: the mean of those that were seen. None where nothing is known: no
        time is planned for what ends by itself, or for a probe, and none has been seen."""
        if self._overheads:
            return sum(self._overheads) / len(self._overheads)
        return DEFAULT_OVERHEAD_S if sum(self._pending) > 0 else None

    def plan(self, trials: int, seconds: float) -> None:
        """So many more are planned, which take about so many seconds; those of the plan before are done, or given up."""
        if trials:
            self._pending = [seconds / trials] * trials

    def finish(self, took: float, planned: float) -> None:
        """One has ended, which took so long (seconds), of which its phases were planned to take so much."""
        self._overheads.append(max(took - planned, 0.0))
        if self._pending:
            self._pending.pop()

    def seconds(self, beside: int = 0) -> float | None:
        """What is left, in seconds, without ``beside`` of the trials: one that runs has its own clock. None where that cannot be
        told yet."""
        left = self._pending[: max(len(self._pending) - beside, 0)]
        overhead = self.overhead
        if overhead is None:
            return None if left else 0.0
        return sum(left) + overhead * len(left)
