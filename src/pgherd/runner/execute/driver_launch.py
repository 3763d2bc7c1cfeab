"""Drivers of a phase: commands for each target, running processes, slices of time, and the end of drivers that end by themselves.

Slices are for interleaved loads: all drivers are connected, and at any time all except those of one name are stopped. On a shared host, the
CPU time of one transaction varies by 10 % and more, within fractions of a second and within minutes. Slices that are a fraction of a second
apart meet the same conditions, and many such pairs fit into a minute. So this gives much narrower intervals in the same time than loads
that run one after the other for seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pgherd.drivers.command import ENDED, CommandExit, environment
from pgherd.drivers.driver import Driver, DriverSpan, Endpoint, MeasuredWindow, driver_named
from pgherd.metrics import sampler
from pgherd.metrics.sampler import ContainerView, ProcessView, SamplingView
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase, TimeSlicing
from pgherd.model.result import Slice, TargetResult
from pgherd.model.units import format_seconds
from pgherd.node import interruption
from pgherd.node.files import UnsafeFileError, require_name
from pgherd.node.process import require_open_files
from pgherd.node.protocol import ClockConverter, Command, Node, Process, SampleSource
from pgherd.runner.deploy.targets import TargetResolver
from pgherd.workloads.user_script import carry

# A driver's time limit exceeds the plan by this much. A signal ends it earlier; the limit applies only if this process dies.
_SLACK_S = 60.0

MAX_OUTPUT_BYTES = 2**30
"""Maximum bytes of one driver's output."""


@dataclass(frozen=True)
class DriverCommand:
    """Command of a driver that is ready to start, and the directory on ``node`` for its output."""

    target: str
    load: Load
    driver: Driver
    command: Command
    output: Path
    node: Node
    clock: ClockConverter | None = None


@dataclass
class RunningDriver:
    """Started driver. Its instants are of the clock of ``node``, seconds since the epoch; ``clock`` converts those of a
    guest.

    ``ended`` is 0 while it runs, ``exit`` is set when it ends by itself. ``told`` is the time of its stop signal, because guests
    receive the signal one after the other. ``program`` is the start of its command line, once it has joined its cgroups.
    """

    target: str
    load: Load
    driver: Driver
    process: Process
    output: Path
    node: Node
    started: float
    ended: float = 0.0
    clock: ClockConverter | None = None
    told: float = 0.0
    program: str = ""
    exit: CommandExit | None = None

    @classmethod
    def start(cls, launch: DriverCommand) -> RunningDriver:
        """Spawn the driver. Raises OSError if its program is missing."""
        process = launch.node.spawn(replace(launch.command, end_session=True))
        started = launch.node.now()
        running = cls(launch.target, launch.load, launch.driver, process, launch.output, launch.node, started, clock=launch.clock)
        running.program = launch.command.argv[0]
        return running

    def span(self, files: Mapping[str, str], stop: float) -> DriverSpan:
        """Return the instants of the host's clock between which it generated load; ``stop`` is when it was signalled.

        Raises as the driver's ``span``.
        """
        if self.clock is None:
            return self.driver.span(files, self.started, stop)
        span = self.driver.span(files, self.started, self.told or self.clock.guest(stop))
        return DriverSpan(self.clock.host(span.first), self.clock.host(span.last))

    def result(self, files: Mapping[str, str], window: MeasuredWindow) -> TargetResult:
        """Return what it counted in a window of the host's clock. Raises as the driver's ``result``."""
        if self.clock is None:
            return self.driver.result(self.load, files, self.started, window, self.target)
        guest_window = MeasuredWindow(
            self.clock.guest(window.start), self.clock.guest(window.end), self.told or self.clock.guest(window.stop)
        )
        counted = self.driver.result(self.load, files, self.started, guest_window, self.target)
        return counted.model_copy(update={"first": self.clock.host(counted.first), "last": self.clock.host(counted.last)})

    def files(self) -> dict[str, bytes]:
        """Return its output files by name, and ``ended.json`` of a driver that ended by itself.

        Its user can lay links to anything into the output directory, or files without an end.

        Raises:
            OSError: they cannot be read.
            TrialError: they are not regular files, or too large, or its guest does not respond.
        """
        files: dict[str, bytes] = {}
        remaining = MAX_OUTPUT_BYTES
        try:
            for name in self.node.listdir(str(self.output)):
                files[require_name(name)] = self.node.read_untrusted(str(self.output / name), remaining)
                remaining -= len(files[name])
        except UnsafeFileError as error:
            raise TrialError(f"the output of {self.load.driver} on {self.target} cannot be kept: {error}") from None
        except OSError as error:
            if self.clock is None:
                raise
            raise TrialError(f"the output of {self.load.driver} on {self.target} cannot be fetched from its guest: {error}") from None
        if self.exit is not None:
            files[ENDED] = self.exit.written()
        return files

    def last_words(self) -> str:
        """Return the end of its output in one line, errors preferred."""
        try:
            lines = self.node.read_untrusted(str(self.output / "stderr")).decode(errors="replace").splitlines()
        except (OSError, UnsafeFileError):
            return "(no output)"
        errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
        messages = [line for line in lines if not line.startswith("progress:")]
        return " / ".join((errors or messages)[-3:]) or "(no output)"


def launches(node: Node, phase: Phase, resolver: TargetResolver, scratch: Path) -> list[DriverCommand]:
    """Prepare a phase's drivers, so that their spawns follow each other within 1 to 2 ms each.

    A load inside its container runs on the container's node if it has one (a guest), any other load on ``node``.

    Raises:
        CapabilityError: a driver needs more open files than this process may allow it.
    """
    prepared = []
    for target, load in phase.loads.items():
        reach = resolver.endpoint(target)
        driver = driver_named(load.driver)
        output = scratch / target.replace("/", ".")
        inside = load.client_placement == "inside"
        if not inside and reach.outside is not None:
            reach = reach.outside
        guest = reach.handle.node if inside else None
        runs_on = guest or node
        user = None if reach.privileged else resolver.account
        runs_on.make_dir(str(output), mode=0o700, user=user)
        endpoint = Endpoint(
            target, reach.bin, reach.host, reach.port, reach.database, reach.user, str(output), scale=reach.scale, directory=reach.directory
        )
        scripts = tuple(resolver.script(script) for script in load.scripts)
        if guest is not None:
            scripts = carry(node, guest, scripts, str(scratch / "scripts" / target.replace("/", ".")))
        readable = load.model_copy(update={"scripts": scripts})
        argv = driver.argv(readable, endpoint, phase.warmup + phase.seconds + _SLACK_S)
        if guest is None:
            require_open_files(load.open_files, f"{load.driver} on {target}")
        command = Command(
            [*reach.prefix, *argv],
            env={**reach.environment, **environment(load)},
            cwd=str(output),
            join=reach.handle.join if inside and guest is None else (),
            cpus=reach.handle.cpus if inside and guest is None else None,
            user=user,
            sched_batch=load.sched_batch,
            open_files=load.open_files,
            stdout=str(output / "stdout"),
            stderr=str(output / "stderr"),
        )
        prepared.append(DriverCommand(target, load, driver, command, output, runs_on, None if guest is None else reach.handle.clock))
    return prepared


_HOLD = 'read -r _ || exit 96; exec "$@" < /dev/null'
"""Script of the shell that waits for a line before it becomes the driver. It ends with this process, which closes the pipe."""


class PhaseDrivers:
    """Drivers of one phase, from their commands to their start.

    A driver that is spawned before its phase waits in its cgroups, with its user and affinity: at the border, only the start of its
    program remains. pgbench then connects, which cannot be prepared.
    """

    def __init__(self, node: Node, commands: Sequence[DriverCommand]) -> None:
        """``node`` is this host. Drivers in guests are spawned when the phase starts."""
        self._node, self._commands = node, commands
        self._waiting: dict[str, tuple[RunningDriver, int]] = {}

    def prepare(self, until: float) -> None:
        """Spawn drivers, which wait. The instant ``until`` ends that, and ``start`` spawns the others. Raises as ``RunningDriver.start``.

        Loads that end by themselves are left to ``start``: a process that waits would count as memory of an idle server.
        """
        for command in self._commands:
            if self._node.now() >= until:
                return
            if command.node is self._node and not command.load.ends_itself:
                self._waiting[command.target] = _held(command)

    def start(self, running: list[RunningDriver]) -> None:
        """Start all drivers, those that wait first, and append them to ``running``. Raises as ``RunningDriver.start``."""
        for driver, pipe in self._waiting.values():
            driver.started = self._node.now()
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed where the phase waits
                os.write(pipe, b"\n")
        for command in self._commands:
            if command.target not in self._waiting:
                running.append(RunningDriver.start(command))
                continue
            driver, pipe = self._waiting.pop(command.target)
            running.append(driver)
            os.close(pipe)

    def abandon(self) -> None:
        """End the drivers that wait."""
        for driver, pipe in self._waiting.values():
            with contextlib.suppress(OSError):  # TimeoutError among them
                driver.process.signal(signal.SIGKILL)
                driver.process.wait(10)
            os.close(pipe)
        self._waiting.clear()


def _held(command: DriverCommand) -> tuple[RunningDriver, int]:
    """Spawn a driver that waits, and return it with the pipe that it reads a line from."""
    reading, writing = os.pipe()
    argv = ["/bin/sh", "-c", _HOLD, "sh", *command.command.argv]
    held = replace(command.command, argv=argv, stdin=f"/proc/self/fd/{reading}")
    try:
        driver = RunningDriver.start(replace(command, command=held))
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    driver.program = command.command.argv[0]
    return driver, writing


def process_sources(processes: list[ProcessView]) -> list[SampleSource]:
    """Return sources of processes only; the host's sources were added at the start."""
    return sampler.samplers()["processes"].sources(SamplingView(processes=processes))


def driver_sources(running: list[RunningDriver], resolver: TargetResolver, node: Node) -> list[SampleSource]:
    """Return sources of each driver on this node, and of its container if no cgroup counts the driver there."""
    local = [driver for driver in running if driver.node is node]
    processes = [ProcessView(f"driver:{driver.target}", driver.process.pid) for driver in local]
    inside = [(resolver.endpoint(driver.target).handle, driver.process.pid) for driver in local if driver.load.client_placement == "inside"]
    containers = [ContainerView(handle.container, {}, [pid]) for handle, pid in inside if handle.container and not handle.groups]
    return sampler.samplers()["processes"].sources(SamplingView(containers=containers, processes=processes))


def code_words(code: int) -> str:
    """Describe an exit code. A negative code is the signal that ended the process."""
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


_POLL_INTERVAL_S = 0.5
_SHARED_WAIT_S = 0.02
"""Wait for one driver while others run. It limits the delay with which the end of a different one is noticed."""
_STOP_TIMEOUT_S = 15.0


def wait_until_ended(node: Node, until: float, running: list[RunningDriver], resolver: TargetResolver) -> None:
    """Wait until all drivers have ended (``Phase.until`` 'drivers'). Exit codes do not matter here; a check tests them.

    ``RunningDriver.exit`` records when and how each ended.

    Raises:
        TrialError: a driver runs beyond the instant ``until``, or a server or guest has ended.
    """
    started = min([driver.started for driver in running], default=until)
    while waiting := [driver for driver in running if not driver.ended]:
        interruption.check()
        remaining = until - node.now()
        if remaining <= 0:
            raise TrialError(
                f"{waiting[0].load.driver} on {waiting[0].target} had not ended after {format_seconds(until - started)}, its time "
                f"limit; raise it with --timeout, or end it by the clock with --duration"
            )
        for driver in waiting:
            with contextlib.suppress(TimeoutError):
                code = driver.process.wait(min(remaining, _POLL_INTERVAL_S if len(waiting) == 1 else _SHARED_WAIT_S))
                driver.ended = driver.node.now()
                _end_session(driver)
                driver.exit = CommandExit(code, driver.ended)
        resolver.check()


def end_all(running: list[RunningDriver]) -> None:
    """Stop all drivers and their child processes, by force if needed. Processes of a different user may remain."""
    for driver in running:
        with contextlib.suppress(OSError):
            driver.process.signal(driver.driver.stop_signal)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    for driver in running:
        with contextlib.suppress(OSError):  # TimeoutError among them
            try:
                driver.process.wait(max(deadline - time.monotonic(), 0.1))
            except TimeoutError:
                driver.process.signal(signal.SIGKILL)
                driver.process.wait(10)
        _end_session(driver)


def _end_session(driver: RunningDriver) -> None:
    """Kill what a command left behind in its session in a guest, of which it was the leader. Mostly there is nothing.

    On this machine, ``Command.end_session`` does it while no other process can have the leader's pid yet.
    """
    if driver.clock is None:
        return
    with contextlib.suppress(OSError, TimeoutError):  # without pkill(1) it remains
        driver.node.run(Command(["pkill", "-KILL", "--session", str(driver.process.pid)]))


SETTLE = 0.003
"""Seconds at the end of a slice in which the servers finish running transactions before the next slice begins."""

_PROGRAM_POLL_INTERVAL_S = 0.005


def slice_order(turns: TimeSlicing, seconds: float) -> Iterator[str]:
    """Yield the name of each slice: as many complete rounds as fit into a period of ``seconds``, each in random order."""
    rng = random.Random(f"turns {turns.seed}")
    for _ in range(max(1, round(seconds / (turns.seconds * len(turns.of))))):
        names = list(turns.of)
        rng.shuffle(names)
        yield from names


def await_programs(node: Node, running: Sequence[RunningDriver], watch: Callable[[], None]) -> None:
    """Wait until each driver process executes its program. Before that, the new process only joins its cgroups and drops
    privileges.

    During that time it neither ends with this process, nor is in the cgroups where ``clean`` finds it. If it were
    stopped then and this process killed, it would never end. ``watch`` is called meanwhile, and raises if a driver
    ended.
    """
    for driver in running:
        while not _runs_program(node, driver):
            watch()
            time.sleep(_PROGRAM_POLL_INTERVAL_S)


def _runs_program(node: Node, driver: RunningDriver) -> bool:
    with contextlib.suppress(OSError):  # ``watch`` reports that it has ended
        return node.read(f"/proc/{driver.process.pid}/cmdline").partition(b"\0")[0].decode(errors="replace") == driver.program
    return False


def pause_all(running: Sequence[RunningDriver]) -> None:
    """Stop drivers until their next slice."""
    for driver in running:
        driver.process.signal(signal.SIGSTOP)


def continue_all(running: Sequence[RunningDriver]) -> None:
    """Continue stopped drivers. Others are not affected."""
    for driver in running:
        driver.process.signal(signal.SIGCONT)


def run_slices(
    node: Node, turns: TimeSlicing, start: float, seconds: float, running: Sequence[RunningDriver], watch: Callable[[], None]
) -> dict[str, list[Slice]]:
    """Run all slices from the instant ``start`` on, with drivers that are stopped. Return each target's slices. The
    drivers end stopped.

    Each slice ends when planned, so a late wake-up does not add to the total. ``watch`` is called in each slice, and
    raises if a driver or a server ended.
    """
    slices: dict[str, list[Slice]] = {driver.target: [] for driver in running}
    drivers = {name: [driver for driver in running if driver.target in turns.targets(name, slices)] for name in turns.of}
    end = start
    for name in slice_order(turns, seconds):
        end += turns.seconds
        switches, begun = _switches(node), node.now()
        continue_all(drivers[name])
        watch()
        time.sleep(max(0.0, end - SETTLE - node.now()))
        pause_all(drivers[name])
        ended, after = node.now(), _switches(node)
        difference = None if switches is None or after is None else after - switches
        for driver in drivers[name]:
            slices[driver.target].append(Slice(begun=begun, ended=ended, switches=difference))
        time.sleep(max(0.0, end - node.now()))
    return slices


def _switches(node: Node) -> int | None:
    """Return the host's context switches since boot, or None if /proc lacks them."""
    try:
        text = node.read("/proc/stat")
    except OSError:
        return None
    _, label, remainder = text.partition(b"\nctxt ")
    return int(remainder.split(None, 1)[0]) if label else None
