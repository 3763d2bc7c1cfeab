"""Observer that writes the live state into the run's directory for other processes (format: pgherd.store.live_state)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pgherd.metrics.run_metrics import load_text
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.runner.observer import RunObserver
from pgherd.runner.time_estimate import TimeEstimate
from pgherd.store.live_state import LiveContainer, LivePhase, LiveState, LiveTrial, remove_live, write_live


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
        container.name: LiveContainer(
            vcpus=container.vcpus if container.cpu_mode != "none" else None, memory=container.memory, host=host.name
        )
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
