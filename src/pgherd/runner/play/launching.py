"""Drivers of a phase: what is started for each target, on which node, and what runs then."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgherd.drivers import registry as drivers
from pgherd.drivers.command import ENDED, Ending
from pgherd.drivers.driver import Driver, Endpoint, Span, Window
from pgherd.metrics import registry as samplers
from pgherd.metrics.sampler import ContainerView, ProcessView, View
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.result import TargetResult
from pgherd.model.units import format_seconds
from pgherd.node import interruption
from pgherd.node.protocol import Clock, Command, Node, Process, Source
from pgherd.runner.deploy.targets import Stage
from pgherd.workloads.script import carry

# A driver is told to run this much longer than planned; it is ended by its signal, and by itself should we die.
_SLACK_SECONDS = 60.0


@dataclass(frozen=True)
class Launch:
    """A driver that is ready to be started: its command, and the directory on ``node`` into which it writes."""

    target: str
    load: Load
    driver: Driver
    command: Command
    output: Path
    node: Node
    clock: Clock | None = None


@dataclass
class Running:
    """A driver that was started, and ended if ``ended`` is set: instants of the clock of ``node``, seconds since the epoch. ``clock``
    converts them, where that is not the host's. ``told`` is when it was told to end: guests are told one after the other. ``program`` is
    what its command line begins with, once it has joined its groups."""

    target: str
    load: Load
    driver: Driver
    process: Process
    output: Path
    node: Node
    started: float
    ended: float = 0.0
    clock: Clock | None = None
    told: float = 0.0
    program: str = ""

    @classmethod
    def start(cls, launch: Launch) -> Running:
        """Spawn it; raises OSError where its program is missing."""
        process = launch.node.spawn(launch.command)
        started = launch.node.now()
        made = cls(launch.target, launch.load, launch.driver, process, launch.output, launch.node, started, clock=launch.clock)
        made.program = launch.command.argv[0]
        return made

    def span(self, files: Mapping[str, str], stop: float) -> Span:
        """Between which instants of the host's clock it made load; ``stop`` is when it was told to end. Raises as the driver's."""
        if self.clock is None:
            return self.driver.span(files, self.started, stop)
        span = self.driver.span(files, self.started, self.told or self.clock.guest(stop))
        return Span(self.clock.host(span.first), self.clock.host(span.last))

    def result(self, files: Mapping[str, str], window: Window) -> TargetResult:
        """What it counted in a window of the host's clock. Raises as the driver's."""
        if self.clock is None:
            return self.driver.result(self.load, files, self.started, window, self.target)
        theirs = Window(self.clock.guest(window.start), self.clock.guest(window.end), self.told or self.clock.guest(window.stop))
        found = self.driver.result(self.load, files, self.started, theirs, self.target)
        return found.model_copy(update={"first": self.clock.host(found.first), "last": self.clock.host(found.last)})

    def files(self) -> dict[str, bytes]:
        """What it has written, by file name; raises OSError where that cannot be read, TrialError where its guest does not answer."""
        try:
            return {name: self.node.read(str(self.output / name)) for name in self.node.listdir(str(self.output))}
        except OSError as error:
            if self.clock is None:
                raise
            raise TrialError(f"the output of {self.load.driver} on {self.target} cannot be fetched from its guest: {error}") from None

    def last_words(self) -> str:
        """What it said last, errors first, in one line."""
        try:
            lines = self.node.read(str(self.output / "stderr")).decode(errors="replace").splitlines()
        except OSError:
            return "(it said nothing)"
        telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
        said = [line for line in lines if not line.startswith("progress:")]
        return " / ".join((telling or said)[-3:]) or "(it said nothing)"


def launches(node: Node, phase: Phase, stage: Stage, scratch: Path) -> list[Launch]:
    """A phase's drivers, ready to be spawned: the spawns follow each other within a millisecond or two each.

    A load inside its container runs on the container's own node, if that has one (a guest), any other on ``node``.
    """
    found = []
    for target, load in phase.loads.items():
        reach = stage.reach(target)
        driver = drivers.driver(load.driver)
        output = scratch / target.replace("/", ".")
        inside = load.place == "inside"
        if not inside and reach.outside is not None:
            reach = reach.outside
        guest = reach.room.node if inside else None
        runs_on = guest or node
        runs_on.make_dir(str(output), mode=0o700, user=stage.account)
        endpoint = Endpoint(
            target, reach.bin, reach.host, reach.port, reach.database, reach.user, str(output), scale=reach.scale, directory=reach.directory
        )
        scripts = tuple(stage.script(script) for script in load.scripts)
        if guest is not None:
            scripts = carry(node, guest, scripts, str(scratch / "scripts" / target.replace("/", ".")))
        readable = load.model_copy(update={"scripts": scripts})
        argv = driver.argv(readable, endpoint, phase.ramp + phase.seconds + _SLACK_SECONDS)
        command = Command(
            [*reach.prefix, *argv],
            env=dict(reach.environment),
            cwd=str(output),
            join=reach.room.join if inside and guest is None else (),
            cpus=reach.room.cpus if inside and guest is None else None,
            user=None if reach.privileged else stage.account,
            stdout=str(output / "stdout"),
            stderr=str(output / "stderr"),
        )
        found.append(Launch(target, load, driver, command, output, runs_on, None if guest is None else reach.room.clock))
    return found


def process_sources(processes: list[ProcessView]) -> list[Source]:
    """Sources for processes alone: the host's were added at the start."""
    return samplers.samplers()["processes"].sources(View(processes=processes))


def driver_sources(running: list[Running], stage: Stage, node: Node) -> list[Source]:
    """Each driver on this node for itself, and as a part of its container where no control group counts it there."""
    here = [one for one in running if one.node is node]
    processes = [ProcessView(f"driver:{one.target}", one.process.pid) for one in here]
    inside = [(stage.reach(one.target).room, one.process.pid) for one in here if one.load.place == "inside"]
    containers = [ContainerView(room.container, {}, [pid]) for room, pid in inside if room.container and not room.groups]
    return samplers.samplers()["processes"].sources(View(containers=containers, processes=processes))


def code_words(code: int) -> str:
    """An exit code in words; negative: the signal that ended it."""
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


_WATCH_SECONDS = 0.5
_SHARED_SECONDS = 0.02
"""How long one driver is waited for while others run: so late is the end of another seen at the most."""
_END_SECONDS = 15.0


def wait_until_ended(node: Node, until: float, running: list[Running], stage: Stage) -> None:
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


def end_all(running: list[Running]) -> None:
    """Tell all to end, and what they have started; then make sure. What cannot be ended, such as another account's program, is left."""
    for one in running:
        with contextlib.suppress(OSError):
            one.process.signal(one.driver.stop_signal)
    deadline = time.monotonic() + _END_SECONDS
    for one in running:
        with contextlib.suppress(OSError):  # TimeoutError among them
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
