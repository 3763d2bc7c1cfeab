"""A watcher that writes what happens into the run's directory, where another process can look (format: pgherd.store.live)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pgherd.metrics.run_metrics import load_words
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.runner.observer import RunObserver
from pgherd.runner.time_estimate import TimeEstimate
from pgherd.store.live import LiveContainer, LivePhase, LiveState, LiveTrial, remove_live, write_live


class LiveWriter(RunObserver):
    """Writes ``live.json`` on every hook, and passes each on to another watcher.

    A state that cannot be written (a full disk) is left out: the run itself will notice, and nobody's measurement fails for want of
    being watched.
    """

    def __init__(self, run: Path, inner: RunObserver) -> None:
        """Record into this run's directory; ``inner`` hears everything too."""
        self.run = run
        self._inner = inner
        self._remaining = TimeEstimate()
        self._state = LiveState(pid=os.getpid(), written=time.time())
        self.output: Callable[[int], Path] | None = None
        """Where the drivers of a trial (of this number) write, once that is known."""

    def setup(self, what: str) -> None:
        """A step of setting up has begun."""
        self._write(step=what, phase=None, phase_begun=None)
        self._inner.setup(what)

    def planned(self, trials: int, seconds: float) -> None:
        """So many more are planned."""
        self._remaining.plan(trials, seconds)
        self._write()
        self._inner.planned(trials, seconds)

    def trial(self, trial: Trial, number: int) -> None:
        """A trial begins."""
        output = None if self.output is None else str(self.output(number))
        self._write(trial=live_trial(trial, number, time.time(), output), step=None, phase=None, phase_begun=None)
        self._inner.trial(trial, number)

    def phase(self, name: str, ramp: float, seconds: float) -> None:
        """A phase's drivers have been started: the next one of the trial."""
        before = self._state.phase
        self._write(step=None, phase=0 if before is None else before + 1, phase_begun=time.time())
        self._inner.phase(name, ramp, seconds)

    def finished(self, result: TrialResult) -> None:
        """A trial has ended and is stored."""
        self._remaining.finish(result.ended - result.started, result.trial.seconds())
        self._write(trial=None, step=None, phase=None, phase_begun=None)
        self._inner.finished(result)

    def note(self, text: str) -> None:
        """Passed on."""
        self._inner.note(text)

    def begin(self) -> None:
        """Write the first state."""
        self._write()

    def end(self) -> None:
        """The run has ended: there is nothing more to watch."""
        remove_live(self.run)

    def _write(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)
        running = int(self._state.trial is not None)
        left = {
            "trials_left": max(self._remaining.trials - running, 0),
            "seconds_left": self._remaining.seconds(beside=running),
            "overhead": self._remaining.overhead,
            "written": time.time(),
        }
        self._state = self._state.model_copy(update=left)
        with contextlib.suppress(OSError):
            write_live(self.run, self._state)


def live_trial(trial: Trial, number: int, begun: float, output: str | None) -> LiveTrial:
    """What is told of a trial that begins."""
    limits = {
        container.name: LiveContainer(
            vcpus=container.vcpus if container.cpu_mode != "none" else None, memory=container.memory, host=host.name
        )
        for host, container in trial.deployment.containers()
    }
    phases = tuple(
        LivePhase(
            name=one.name,
            ramp=one.ramp,
            seconds=one.seconds,
            until=one.until,
            loads={target: load.driver for target, load in one.loads.items()},
            words=load_words(one.loads.values()),
        )
        for one in trial.phases
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
    """Record a run while it is executed; however it ends, what was recorded goes."""
    recording = LiveWriter(run, inner)
    recording.begin()
    try:
        yield recording
    finally:
        recording.end()
