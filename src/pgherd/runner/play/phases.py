"""One trial's phases: start all drivers at one instant, watch, end them at one instant, or wait until they have ended by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pgherd.metrics import registry as samplers
from pgherd.metrics.sampler import ProcessView, View
from pgherd.model.errors import TrialError
from pgherd.model.result import PhaseResult, Turn
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.protocol import Node, Sampling
from pgherd.runner.deploy.targets import Stage
from pgherd.runner.play import counters, io_view, turns
from pgherd.runner.play.driven import Driven, PlayedPhase
from pgherd.runner.play.guest_sampling import GuestSampling
from pgherd.runner.play.launching import (
    Running,
    code_words,
    driver_sources,
    end_all,
    launches,
    process_sources,
    wait_until_ended,
)
from pgherd.runner.watcher import Watcher

_WATCH_SECONDS = 0.5
_END_SECONDS = 30.0


def play(
    node: Node, trial: Trial, stage: Stage, directory: Path, scratch: Path, watcher: Watcher, watched: Sequence[ProcessView] = ()
) -> tuple[list[PhaseResult], float]:
    """Drive the trial's phases and count; returns their results and how far the wall clock moved against the monotonic one (s).

    Arguments and errors are those of ``drive`` and ``Driven.results``.
    """
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
    """Drive the trial's phases.

    ``directory`` is the trial's directory in the run; drivers write below ``scratch``, which their account can reach. ``watched``
    are further processes to sample. ``begin`` is the instant (of the node's clock) at which the first phase's drivers are
    started, and from which all borders are counted, so that several hosts keep step; by default that is when everything
    is ready, and a phase begins when the drivers of the one before it have ended. The window of a phase that ends with its drivers
    is from the first one's start to the last one's end.

    Raises:
        TrialError: a driver or a server ended early, or a driver did not end in time; ``begin`` was over before everything was ready,
            or does not say when all phases begin.
        OSError: files cannot be written (a full disk).
    """
    wall, monotonic = node.now(), time.monotonic()
    view = stage.view()
    view = replace(view, processes=[*watched, ProcessView("pgherd", os.getpid())])
    sampling = node.sample(samplers.sources(view), str(directory / "spool.jsonl"))
    played: list[PlayedPhase] = []
    guests = GuestSampling(directory)
    begun = contextlib.ExitStack()  # is ended where the trial fails, the last first
    begun.callback(_quietly_stop, sampling)

    def mark() -> None:
        """Read the counters, as at both borders of each window."""
        sampling.add(())
        guests.mark()

    try:
        counting = counters.begin(node, trial, view.servers, directory)
        begun.callback(counting.stop)
        watching = io_view.begin(node, view, directory)
        begun.callback(watching.abandon)
        begun.callback(guests.abandon)
        guests.begin(stage.guests())
        sampling.add(process_sources(_backends(view, sampling)))
        before: list[Running] = []
        # All of it now: at a border the old drivers are told to end, and nothing but the spawns of the new ones may come between.
        ready = [launches(node, phase, stage, scratch / f"{number:02d}") for number, phase in enumerate(trial.phases)]
        border = begin
        if border is not None:
            _insist_borders(trial)
            await_begin(node, border, stage, "commands" if trial.open_ended else "phases")
        for phase, launching in zip(trial.phases, ready, strict=True):
            running: list[Running] = []
            taken: Mapping[str, Sequence[Turn]] = {}
            played.append(PlayedPhase(phase, 0.0, 0.0, running))
            for new in launching:
                running.append(Running.start(new))
            _reap(before, stage)
            if phase.turns is not None:
                turns.await_programs(node, running, partial(_watch, running, stage))
            start = (node.now() if border is None else border) + phase.ramp
            sampling.add(driver_sources(running, stage, node))
            guests.add(running, stage)
            watcher.phase(phase.name, phase.ramp, phase.seconds)
            if phase.until == "drivers":
                start = min(one.started for one in running)
                wait_until_ended(node, start + phase.seconds, running, stage)
                stop = max(one.ended for one in running)
                mark()
            else:
                _wait(node, start, running, stage)
                if phase.turns is not None:
                    turns.stop(running)
                mark()
                if phase.turns is None:
                    _wait(node, start + phase.seconds, running, stage)
                else:
                    watching_all = partial(_watch, running, stage)
                    taken = turns.play(node, phase.turns, start, phase.seconds, running, watching_all)
                mark()
                stop = node.now()
                _end(running)
                if taken:
                    turns.go_on(running)  # what is stopped does not hear that it is over
            played[-1] = PlayedPhase(phase, start, stop, running, taken)
            before = running
            border = None if border is None else start + phase.seconds
        _reap(before, stage)
    except BaseException as error:
        for one in played:
            end = end_all if one.phase.until == "drivers" else _kill
            end(one.running)
        begun.close()
        if isinstance(error, OSError):
            stage.check()  # a guest that has died answers nothing any more, and is why
        raise
    try:
        counted = counting.stop()
        watching.stop()
        try:
            sampling.stop()
        except BaseException:
            guests.abandon()
            raise
        guests.stop()
    except BaseException:
        watching.abandon()
        raise
    jump = (node.now() - wall) - (time.monotonic() - monotonic)
    return Driven(directory, played, watching, counted, jump)


def _insist_borders(trial: Trial) -> None:
    if trial.open_ended and len(trial.phases) > 1:
        raise TrialError(
            f"on several hosts a trial that ends with its drivers has one phase, and this one has {len(trial.phases)}: nobody knows when "
            "the second begins"
        )


def await_begin(node: Node, begin: float, stage: Stage, what: str = "phases") -> None:
    """Wait for the agreed instant; the last stretch is slept in one piece. Raises TrialError where it is over: ``what`` is late."""
    late = node.now() - begin
    if late > 0:
        raise TrialError(f"the {what} were to begin {late:.2f} s before everything was ready for them here; agree on a later instant")
    while (left := begin - node.now()) > 0:
        time.sleep(left if left < 2 * _WATCH_SECONDS else _WATCH_SECONDS)
        interruption.insist()
        stage.check()


def _wait(node: Node, until: float, running: list[Running], stage: Stage) -> None:
    while (left := until - node.now()) > 0:
        time.sleep(min(left, _WATCH_SECONDS))
        _watch(running, stage)


def _watch(running: list[Running], stage: Stage) -> None:
    """Raises TrialError where a driver or a server has ended."""
    interruption.insist()
    for one in running:
        code = one.process.poll()
        if code is not None:
            stage.check()
            words = f"{one.load.driver} on {one.target} ended early with {code_words(code)}: {one.last_words()}"
            raise TrialError(f"{words}; {stage.said(one.target)}")
    stage.check()


def _end(running: list[Running]) -> None:
    for one in running:
        one.process.signal(one.driver.stop_signal)
        one.told = one.node.now()


def _reap(running: list[Running], stage: Stage) -> None:
    deadline = time.monotonic() + _END_SECONDS
    for one in running:
        if one.ended:
            continue
        try:
            code = one.process.wait(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            _kill(running)
            raise TrialError(f"{one.load.driver} on {one.target} did not end within {_END_SECONDS:.0f} s of being told to") from None
        one.ended = one.node.now()
        if code not in one.driver.exit_codes:
            stage.check()  # a server that died in the last instant is why
            words = f"{one.load.driver} on {one.target} ended with {code_words(code)}: {one.last_words()}"
            if code == -one.driver.stop_signal:  # it did not even come to listen for it
                words = (
                    f"{one.load.driver} on {one.target} had not begun to make load when its time was over, {one.ended - one.started:.1f} s "
                    f"after it was started: the machine is busy with other things, or --ramp is too short for it"
                )
            raise TrialError(f"{words}; {stage.said(one.target)}")


def _kill(running: list[Running]) -> None:
    """End them all; what is in a guest that does not answer goes with the guest."""
    for one in running:
        with contextlib.suppress(OSError):
            one.process.signal(signal.SIGKILL)
    for one in running:
        with contextlib.suppress(OSError):
            one.process.wait(10)


def _quietly_stop(sampling: Sampling) -> None:
    with contextlib.suppress(OSError):  # the trial has failed already, for a reason that matters more
        sampling.stop()


def _backends(view: View, sampling: Sampling) -> list[ProcessView]:
    pids = sampling.backends()
    return [ProcessView(f"backend:{s.name}", pids[s.conninfo]) for s in view.servers if s.pid and s.conninfo in pids]
