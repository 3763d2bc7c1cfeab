"""Estimate of the time that the remaining trials need."""

from __future__ import annotations

DEFAULT_OVERHEAD_S = 0.7
"""Time of a trial outside its phases (start, stop, parse, store), until a trial has finished. In seconds."""


class TimeEstimate:
    """Unfinished trials of the current proposal and the time that they need."""

    def __init__(self) -> None:
        self._pending: list[float] = []
        self._overheads: list[float] = []

    @property
    def trials(self) -> int:
        """Number of unfinished trials."""
        return len(self._pending)

    @property
    def finished(self) -> int:
        """Number of finished trials."""
        return len(self._overheads)

    @property
    def overhead(self) -> float | None:
        """Mean time of a finished trial beyond its planned time, in seconds.

        None if unknown: no trial has finished, and the pending ones have no planned time. These are probes and commands that end
        when their work is complete.
        """
        if self._overheads:
            return sum(self._overheads) / len(self._overheads)
        return DEFAULT_OVERHEAD_S if sum(self._pending) > 0 else None

    def plan(self, trials: int, seconds: float) -> None:
        """Replace the plan by ``trials`` trials that take ``seconds`` together. Trials of the plan before have finished or are dropped."""
        if trials:
            self._pending = [seconds / trials] * trials

    def finish(self, took: float, planned: float) -> None:
        """Record a finished trial that took ``took`` seconds, of which ``planned`` seconds were planned for its phases."""
        self._overheads.append(max(took - planned, 0.0))
        if self._pending:
            self._pending.pop()

    def seconds(self, running: int = 0) -> float | None:
        """Return the remaining time in seconds, without ``running`` trials that run now and are timed separately. None if unknown."""
        waiting = self._pending[: max(len(self._pending) - running, 0)]
        overhead = self.overhead
        if overhead is None:
            return None if waiting else 0.0
        return sum(waiting) + overhead * len(waiting)
