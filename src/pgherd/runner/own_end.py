"""A trial whose one phase ends when its drivers do (``Phase.until`` 'drivers'): how they are started, waited for, and how each ended.

It stands beside pgherd.runner.phases, whose drivers are ended by the clock, and has the same shape.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pgherd.drivers.command import ENDED, Ending
from pgherd.metrics import registry as samplers
from pgherd.metrics.sampler import ProcessView
from pgherd.model.errors import TrialError
from pgherd.model.result import PhaseResult
from pgherd.model.trial import Trial
from pgherd.model.units import format_seconds
from pgherd.node import interruption
from pgherd.node.protocol import Command, Node
from pgherd.runner import io_view
from pgherd.runner.driven import Driven, PlayedPhase
from pgherd.runner.launching import Running, driver_sources, launches
from pgherd.runner.phases import await_begin
from pgherd.runner.stage import Stage
from pgherd.runner.watcher import Watcher

_WATCH_SECONDS = 0.5
_SHARED_SECONDS = 0.02
"""How long one driver is waited for while others run: so late is the end of another seen at the most."""
_END_SECONDS = 15.0


def play(
    node: Node, trial: Trial, stage: Stage, directory: Path, scratch: Path, watcher: Watcher, watched: Sequence[ProcessView] = ()
) -> tuple[list[PhaseResult], float]:
    """As ``phases.play``, for a trial that is open-ended."""
    driven = drive(node, trial, stage, directory, scratch, watcher, watched)
    return driven.results(), driven.jump


def drive(
    node: Node,
    trial: Trial,
    stage: Stage,
    directory: Path,
    scratch: Path,
    watcher: Watcher,
    watched: Sequence[ProcessView] = (),
    begin: float | None = None,
) -> Driven:
    """As ``phases.drive``: start the drivers, at the instant ``begin`` if there is one, and wait until all have ended.

    Raises:
        TrialError: there are several phases, ``begin`` was over too early, a driver did not end in time, or something else ended.
        OSError: files cannot be written (a full disk).
    """
    if len(trial.phases) != 1:
        raise TrialError(f"a trial that ends with its drivers has one phase, and this one has {len(trial.phases)}")
    phase = trial.phases[0]
    wall, monotonic = node.now(), time.monotonic()
    view = stage.view()
    view = replace(view, processes=[*watched, ProcessView("pgherd", os.getpid())])
    sampling = node.sample(samplers.sources(view), str(directory / "spool.jsonl"))
    watching = io_view.begin(node, view, directory)
    running: list[Running] = []
    try:
        ready = launches(node, phase, stage, scratch / "00")
        if begin is not None:
            await_begin(node, begin, stage, "commands")
        for new in ready:
            running.append(Running.start(new))
        sampling.add(driver_sources(running, stage, node))
        watcher.phase(phase.name, phase.ramp, phase.seconds)
        started = min(one.started for one in running)
        wait(node, started + phase.seconds, running, stage)
        sampling.add(())
    except BaseException:
        _end(running)
        watching.abandon()
        with contextlib.suppress(OSError):  # the trial has failed already, for a reason that matters more
            sampling.stop()
        raise
    watching.stop()
    sampling.stop()
    jump = (node.now() - wall) - (time.monotonic() - monotonic)
    played = PlayedPhase(phase, started, max(one.ended for one in running), running)
    return Driven(directory, [played], watching, [], jump)


def wait(node: Node, until: float, running: list[Running], stage: Stage) -> None:
    """Wait until all drivers have ended, whatever their exit codes: these are judged by a verdict. ``ended.json`` beside each one's
    output says when it ended, and how.

    Raises:
        TrialError: one has not ended by the instant ``until``, or something else has ended that must not.
    """
    begun = min([one.started for one in running], default=until)
    while waiting := [one for one in running if not one.ended]:
        interruption.insist()
        left = until - node.now()
        if left <= 0:
            raise TrialError(
                f"{waiting[0].load.driver} on {waiting[0].target} had not ended after {format_seconds(until - begun)}, the longest that it "
                f"may take; give it more with --timeout, or end it by the clock with --seconds"
            )
        for one in waiting:
            with contextlib.suppress(TimeoutError):
                code = one.process.wait(min(left, _WATCH_SECONDS if len(waiting) == 1 else _SHARED_SECONDS))
                one.ended = one.node.now()
                _end_session(one)
                one.node.write(str(one.output / ENDED), Ending(code, one.ended).written())
        stage.check()


def _end(running: list[Running]) -> None:
    """Tell all to end, and what they have started; then make sure."""
    for one in running:
        one.process.signal(one.driver.stop_signal)
    deadline = time.monotonic() + _END_SECONDS
    for one in running:
        try:
            one.process.wait(max(deadline - time.monotonic(), 0.1))
        except TimeoutError:
            one.process.signal(signal.SIGKILL)
            one.process.wait(10)
        _end_session(one)


def _end_session(one: Running) -> None:
    """End what a command has left behind in its session, of which it was the leader; there mostly is nothing."""
    with contextlib.suppress(OSError, TimeoutError):  # without pkill(1) it stays
        one.node.run(Command(["pkill", "-KILL", "--session", str(one.process.pid)]))
