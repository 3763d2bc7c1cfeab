"""Progress of a run: the hooks that it calls, the estimate of its remaining time, and its live state for other processes.

``LiveWriter`` writes the live state into the directory of the run (format: ``store.live_state``).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pgherd.metrics.run_metrics import load_text
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.store.live_state import LiveContainer, LivePhase, LiveState, LiveTrial, remove_live, write_live


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


class LiveWriter(RunObserver):
    """Observer that writes ``live.json`` on every hook and forwards each hook to another observer.

    Failed writes (a full disk) are ignored, because a missing live state must not fail a measurement. The run reports the full disk.
    """

    def __init__(self, run: Path, inner: RunObserver) -> None:
        """Write into the directory ``run`` and forward hooks to ``inner``."""
        self.run = run
        self._inner = inner
        self._estimate = TimeEstimate()
        self._state = LiveState(pid=os.getpid(), written=time.time())
        self.output: Callable[[int], Path] | None = None
        """Output directory of the drivers of the trial of this number. None until known."""

    def setup(self, what: str) -> None:
        self._write(step=what, phase=None, phase_begun=None)
        self._inner.setup(what)

    def planned(self, trials: int, seconds: float) -> None:
        self._estimate.plan(trials, seconds)
        self._write()
        self._inner.planned(trials, seconds)

    def trial(self, trial: Trial, number: int) -> None:
        output = None if self.output is None else str(self.output(number))
        self._write(trial=live_trial(trial, number, time.time(), output), step=None, phase=None, phase_begun=None)
        self._inner.trial(trial, number)

    def phase(self, name: str, ramp: float, seconds: float) -> None:
        previous = self._state.phase
        self._write(step=None, phase=0 if previous is None else previous + 1, phase_begun=time.time())
        self._inner.phase(name, ramp, seconds)

    def finished(self, result: TrialResult) -> None:
        self._estimate.finish(result.ended - result.started, result.trial.seconds())
        self._write(trial=None, step=None, phase=None, phase_begun=None)
        self._inner.finished(result)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def begin(self) -> None:
        """Write the first state."""
        self._write()

    def end(self) -> None:
        """Remove the live state at the end of the run."""
        remove_live(self.run)

    def _write(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)
        running = int(self._state.trial is not None)
        progress = {
            "trials_remaining": max(self._estimate.trials - running, 0),
            "seconds_left": self._estimate.seconds(running),
            "overhead": self._estimate.overhead,
            "written": time.time(),
        }
        self._state = self._state.model_copy(update=progress)
        with contextlib.suppress(OSError):
            write_live(self.run, self._state)


def live_trial(trial: Trial, number: int, begun: float, output: str | None) -> LiveTrial:
    """Return the live state of a trial at its start."""
    limits = {
        container.name: LiveContainer(vcpus=container.vcpus if container.cpu_limited else None, memory=container.memory, host=host.name)
        for host, container in trial.deployment.containers()
    }
    phases = tuple(
        LivePhase(
            name=phase.name,
            warmup=phase.warmup,
            seconds=phase.seconds,
            until=phase.until,
            loads={target: load.driver for target, load in phase.loads.items()},
            words=load_text(phase.loads.values()),
        )
        for phase in trial.phases
    )
    return LiveTrial(
        number=number,
        point=trial.point,
        repeat=trial.repeat,
        reason=trial.reason,
        begun=begun,
        phases=phases,
        containers=limits,
        hosts=tuple(host.name for host in trial.deployment.hosts),
        output=output,
    )


@contextlib.contextmanager
def open_live_writer(run: Path, inner: RunObserver) -> Iterator[LiveWriter]:
    """Write the live state of a run while it executes, and remove it on exit."""
    writer = LiveWriter(run, inner)
    writer.begin()
    try:
        yield writer
    finally:
        writer.end()
