"""Phases of one trial: start all drivers at one instant, sample, then stop them at one instant or wait until they end.

Guests are sampled in the same period: each reads its files, and all samples are merged into the trial's spool.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pgherd.metrics import sampler
from pgherd.metrics.sampler import ProcessView, SamplingView
from pgherd.metrics.spool import SpoolReading
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import transaction_timeout
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import PhaseResult, Slice
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.process import real_time
from pgherd.node.protocol import Node, SamplingLoop
from pgherd.runner.deploy.targets import TargetResolver
from pgherd.runner.execute import device_io, driver_launch, perf_counters
from pgherd.runner.execute.driver_launch import (
    PhaseDrivers,
    RunningDriver,
    code_words,
    driver_sources,
    end_all,
    launches,
    process_sources,
    wait_until_ended,
)
from pgherd.runner.execute.measurement_window import DrivenPhases, MeasuredPhase
from pgherd.runner.execute.statements import StatementRecorder
from pgherd.runner.progress import RunObserver
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm import guest_spool
from pgherd.runtimes.vm.guest_spool import GuestClock, GuestSpool

_POLL_INTERVAL_S = 0.5
_LIMIT_INTERVAL_S = 0.05
_LIMIT_TIMEOUT_S = 60.0


def run(
    node: Node,
    trial: Trial,
    resolver: TargetResolver,
    directory: Path,
    scratch: Path,
    watcher: RunObserver,
    watched: Sequence[ProcessView] = (),
    elsewhere: Callable[[Sequence[tuple[float, float]]], tuple[list[SpoolReading], list[PrometheusView]]] | None = None,
) -> tuple[list[PhaseResult], float]:
    """Run the trial's phases and count. Return their results, and the wall clock's step against the monotonic clock (s).

    ``elsewhere`` returns samples that Prometheus has for the phases' windows, and a view of each server and window, server by server.
    The other arguments, and the errors, are those of ``drive`` and ``DrivenPhases.results``.
    """
    driven = drive(node, trial, resolver, directory, scratch, watcher, watched)
    if elsewhere is None:
        return driven.results(), driven.jump
    readings, views = elsewhere([(span.first, span.last) for span in driven.spans()])
    results = replace(driven, counted=[*driven.counted, *readings]).results()
    return [phase.model_copy(update={"prometheus": views[number :: len(results)]}) for number, phase in enumerate(results)], driven.jump


@real_time()
def drive(
    node: Node,
    trial: Trial,
    resolver: TargetResolver,
    directory: Path,
    scratch: Path,
    watcher: RunObserver,
    watched: Sequence[ProcessView] = (),
    begin: float | None = None,
) -> DrivenPhases:
    """Run the trial's phases.

    Args:
        directory: the trial's directory in the run.
        scratch: directory for the drivers' output, which their user can reach.
        watched: further processes to sample.
        begin: instant (node's clock) at which the first phase's drivers start, and from which all borders are
            counted, so that several hosts
        stay in step. By default, phases start when everything is ready and the drivers of the previous phase have
            ended.

    The window of a phase that ends with its drivers is from the first start to the last end.

    Raises:
        TrialError: a driver or a server ended early, a driver did not end in time, ``begin`` passed before everything
            was ready, or
        ``begin`` does not determine when all phases begin.
        OSError: files cannot be written (a full disk).
    """
    wall, monotonic = node.now(), time.monotonic()
    view = resolver.view()
    waits = trial.wait_events or any(load.objectives for phase in trial.phases for load in phase.loads.values())
    view = replace(view, processes=[*watched, ProcessView("pgherd", os.getpid())], waits=waits)
    sampling = node.sample(sampler.sources(view), str(directory / "spool.jsonl"))
    played: list[MeasuredPhase] = []
    guests = GuestSamplers(directory)
    cleanup = contextlib.ExitStack()  # closed in reverse order if the trial fails
    cleanup.callback(_quietly_stop, sampling)
    cleanup.callback(_restore_memory, trial, resolver)

    def mark() -> None:
        """Read the counters at a border of the window."""
        sampling.add(())
        guests.mark()
        statements.mark(len(played) - 1)

    try:
        counting = perf_counters.begin(node, trial, view.servers, directory)
        cleanup.callback(counting.stop)
        watching = device_io.begin(node, view, directory)
        cleanup.callback(watching.abandon)
        cleanup.callback(guests.abandon)
        guests.begin(resolver.guests())
        statements = StatementRecorder(node, view.servers)
        sampling.add(process_sources(_backends(view, sampling)))
        previous: list[RunningDriver] = []
        patience = transaction_timeout(max(phase.seconds for phase in trial.phases))
        # Prepare all phases now: at a border, only the start of the new drivers may follow the signal to the previous ones.
        numbered = enumerate(trial.phases)
        drivers = [PhaseDrivers(node, launches(node, phase, resolver, scratch / f"{number:02d}")) for number, phase in numbered]
        for waiting in drivers:
            cleanup.callback(waiting.abandon)
        border = begin
        if border is not None:
            _require_known_borders(trial)
            await_begin(node, border, resolver, "commands" if trial.open_ended else "phases")
        for phase, starting, following in zip(trial.phases, drivers, [*drivers[1:], None], strict=True):
            running: list[RunningDriver] = []
            slices: Mapping[str, Sequence[Slice]] = {}
            limits: _MemoryLimits | None = None
            played.append(MeasuredPhase(phase, 0.0, 0.0, running))
            starting.start(running)
            _reap(previous, resolver, patience)
            if phase.slices is not None:
                driver_launch.await_programs(node, running, partial(_watch, running, resolver))
            start = (node.now() if border is None else border) + phase.warmup
            sampling.add(driver_sources(running, resolver, node))
            guests.add(running, resolver)
            watcher.phase(phase.name, phase.warmup, phase.seconds)
            if phase.until == "drivers":
                start = min(driver.started for driver in running)
                wait_until_ended(node, start + phase.seconds, running, resolver)
                stop = max(driver.ended for driver in running)
                mark()
            else:
                if following is not None:
                    _wait(node, start - phase.warmup / 2, running, resolver)
                    following.prepare(start)
                _wait(node, start, running, resolver)
                if phase.slices is not None:
                    driver_launch.pause_all(running)
                mark()
                if phase.slices is None:
                    limits = _MemoryLimits(phase.memory, resolver, node)
                    cleanup.callback(limits.end)
                    limits.start()
                    _wait(node, start + phase.seconds, running, resolver, limits)
                else:
                    watch_drivers = partial(_watch, running, resolver)
                    slices = driver_launch.run_slices(node, phase.slices, start, phase.seconds, running, watch_drivers)
                mark()
                stop = node.now()
                _end(running)
                if limits is not None:
                    limits.end()
                    limits.check()
                    limits.verify()
                if slices:
                    driver_launch.continue_all(running)  # a stopped process does not handle signals
            played[-1] = MeasuredPhase(phase, start, stop, running, slices)
            if limits is not None:
                played[-1] = replace(played[-1], limited_after=limits.after, limit_wait=limits.wait)
            previous = running
            border = None if border is None else start + phase.seconds
        _reap(previous, resolver, patience)
        _restore_memory(trial, resolver)
    except BaseException as error:
        for played_phase in played:
            end = end_all if played_phase.phase.until == "drivers" else _kill
            end(played_phase.running)
        cleanup.close()
        if isinstance(error, OSError):
            resolver.check()  # a guest that has died is the cause
        raise
    try:
        counted_events = counting.stop()
        watching.stop()
        try:
            sampling.stop()
        except BaseException:
            guests.abandon()
            raise
        guests.stop()
        used = statements.stop()
    except BaseException:
        watching.abandon()
        raise
    jump = (node.now() - wall) - (time.monotonic() - monotonic)
    return DrivenPhases(directory, played, watching, counted_events, jump, used)


def _require_known_borders(trial: Trial) -> None:
    if trial.open_ended and len(trial.phases) > 1:
        raise TrialError(
            f"on several hosts, a trial that ends with its drivers has only one phase, but this one has {len(trial.phases)}: the start "
            "of the second is unknown"
        )


def await_begin(node: Node, begin: float, resolver: TargetResolver, what: str = "phases") -> None:
    """Wait for the agreed instant; the last part is one sleep. Raises TrialError if it has passed. ``what`` names what
    is late.
    """
    late = node.now() - begin
    if late > 0:
        raise TrialError(f"the {what} should have begun {late:.2f} s before everything was ready here; agree on a later instant")
    while (remaining := begin - node.now()) > 0:
        time.sleep(remaining if remaining < 2 * _POLL_INTERVAL_S else _POLL_INTERVAL_S)
        interruption.check()
        resolver.check()


class _MemoryLimits:
    """Memory limits of a phase, tried again until the kernel takes them or the phase ends.

    A thread writes them: the kernel may reclaim memory during one write for longer than the phase lasts. It runs in real time, because
    on a full host an ordinary thread waited for a CPU nearly all the time, and the limit was taken late or never.

    ``after`` holds the seconds that each container's limit took. None: the kernel has not taken it, or only after the phase, or the
    container has left it again.
    ``wait`` is the time in seconds for which ``end`` waited for the last write. During it there is no load.
    """

    def __init__(self, limits: Mapping[str, int], resolver: TargetResolver, node: Node) -> None:
        self._limits, self._resolver, self._node, self._start = dict(limits), resolver, node, node.now()
        self.after: dict[str, float | None] = dict.fromkeys(limits)
        self.wait = 0.0
        self._failure: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory limits", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        if self._limits:
            self._thread.start()

    def check(self) -> None:
        """Raise TrialError if a limit cannot be changed, or if the last write has not ended in time."""
        if self._ended.is_set() and self._thread.is_alive():
            names = ", ".join(self._pending())
            raise TrialError(f"the kernel still reclaims memory for the limit of {names} {self.wait:.0f} s after the phase; raise it")
        if isinstance(self._failure, CapabilityError):
            raise TrialError(str(self._failure))
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Stop trying, and wait for the last write: it could otherwise take effect after the limits that follow.

        Only the first call waits, and at most ``_LIMIT_TIMEOUT_S``.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.is_alive():
            begun = time.monotonic()
            self._thread.join(_LIMIT_TIMEOUT_S)
            self.wait = time.monotonic() - begun

    def verify(self) -> None:
        """Set the limits that were taken again. A guest takes pages out of its balloon before it kills a process."""
        for container, memory in self._limits.items():
            if self.after[container] is not None and not self._resolver.try_memory(container, memory):
                self.after[container] = None

    @real_time()
    def _run(self) -> None:
        try:
            while not self._ended.is_set() and self._attempt():
                self._ended.wait(_LIMIT_INTERVAL_S)
        except Exception as error:  # raised where the phase waits
            self._failure = error

    def _attempt(self) -> bool:
        """Try the limits that are not yet taken. Return True if some still are not."""
        for container in self._pending():
            if self._resolver.try_memory(container, self._limits[container]) and not self._ended.is_set():
                self.after[container] = max(self._node.now() - self._start, 0.0)
        return bool(self._pending())

    def _pending(self) -> list[str]:
        return [container for container, after in self.after.items() if after is None]


def _restore_memory(trial: Trial, resolver: TargetResolver) -> None:
    """Give the containers whose limits the trial changed their memory again."""
    changed = {name for phase in trial.phases for name in phase.memory}
    for _, container in trial.deployment.containers() if changed else ():
        if container.name in changed and container.memory is not None:
            with contextlib.suppress(CapabilityError, OSError):  # it may have died; the trial's error is reported
                resolver.try_memory(container.name, container.memory)


def _wait(node: Node, until: float, running: list[RunningDriver], resolver: TargetResolver, limits: _MemoryLimits | None = None) -> None:
    while (remaining := until - node.now()) > 0:
        time.sleep(min(remaining, _POLL_INTERVAL_S))
        _watch(running, resolver)
        if limits is not None:
            limits.check()


def _watch(running: list[RunningDriver], resolver: TargetResolver) -> None:
    """Raise TrialError if a driver or a server has ended, but not for a load that ends by itself."""
    interruption.check()
    for driver in running:
        code = driver.process.poll()
        if code is not None and not (driver.load.ends_itself and code in driver.driver.exit_codes):
            resolver.check()
            message = f"{driver.load.driver} on {driver.target} ended early with {code_words(code)}: {driver.last_words()}"
            raise TrialError(f"{message}; {resolver.error_text(driver.target)}")
    resolver.check()


def _end(running: list[RunningDriver]) -> None:
    for one in running:
        one.process.signal(one.driver.stop_signal)
        one.told = one.node.now()


def _reap(running: list[RunningDriver], resolver: TargetResolver, patience: float) -> None:
    deadline = time.monotonic() + patience
    for driver in running:
        if driver.ended:
            continue
        try:
            code = driver.process.wait(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            _kill(running)
            raise TrialError(
                f"{driver.load.driver} on {driver.target} did not end within {patience:.0f} s after its stop signal; if a transaction "
                "takes that long, raise --duration above it"
            ) from None
        driver.ended = driver.node.now()
        if code not in driver.driver.exit_codes:
            resolver.check()  # a server that died in the last instant is why
            message = f"{driver.load.driver} on {driver.target} ended with {code_words(code)}: {driver.last_words()}"
            if code == -driver.driver.stop_signal:  # it had not installed its signal handler yet
                message = (
                    f"{driver.load.driver} on {driver.target} had not generated load when its time was over, "
                    f"{driver.ended - driver.started:.1f} s after it was started: the machine is busy, or --warmup is too short"
                )
            raise TrialError(f"{message}; {resolver.error_text(driver.target)}")


def _kill(running: list[RunningDriver]) -> None:
    """Kill all drivers. If a guest does not respond, its drivers end with it."""
    for driver in running:
        with contextlib.suppress(OSError):
            driver.process.signal(signal.SIGKILL)
    for driver in running:
        with contextlib.suppress(OSError):
            driver.process.wait(10)


def _quietly_stop(sampling: SamplingLoop) -> None:
    with contextlib.suppress(OSError):  # the trial has failed already; that error is reported
        sampling.stop()


def _backends(view: SamplingView, sampling: SamplingLoop) -> list[ProcessView]:
    pids = sampling.backends()
    return [ProcessView(f"backend:{s.name}", pids[s.conninfo]) for s in view.servers if s.pid and s.conninfo in pids]


@dataclass(frozen=True)
class _SampledGuest:
    handle: ContainerHandle
    spool: Path
    sampling: SamplingLoop


class GuestSamplers:
    """Sampling loops in all guests of a trial. The host's loop runs the SQL queries on guests' servers."""

    def __init__(self, directory: Path) -> None:
        """Args:
        directory: the trial's directory.
        """
        self._directory = directory
        self._guests: list[_SampledGuest] = []

    def begin(self, handles: Mapping[str, ContainerHandle]) -> None:
        """Start sampling in these guests. Raises TrialError if a guest does not respond."""
        try:
            for name, handle in handles.items():
                assert handle.node is not None
                spool = self._directory / f"guest-{name}.jsonl"
                self._guests.append(_SampledGuest(handle, spool, handle.node.sample(sampler.sources(SamplingView()), str(spool))))
            self._record(self._directory / "spool.jsonl")
        except OSError as error:
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def add(self, running: Sequence[RunningDriver], resolver: TargetResolver) -> None:
        """Also sample the drivers in guests. Raises TrialError if a guest does not respond."""
        try:
            for guest in self._guests:
                assert guest.handle.node is not None
                sources = driver_sources(list(running), resolver, guest.handle.node)
                if sources:
                    guest.sampling.add(sources)
        except OSError as error:
            resolver.check()
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def mark(self) -> None:
        """Read everything once now, at a border of the window. Raises TrialError if a guest does not respond."""
        try:
            for guest in self._guests:
                guest.sampling.add(())
        except OSError as error:
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def stop(self) -> None:
        """Stop sampling, and append the samples to the trial's spool in the host's time. Raises TrialError."""
        if not self._guests:
            return
        spools = []
        try:
            for guest in self._guests:
                guest.sampling.stop()
                assert isinstance(guest.handle.clock, GuestClock)
                spools.append(GuestSpool(guest.handle.container, guest.spool.read_text().splitlines(keepends=True), guest.handle.clock))
            self._record(None)
        except OSError as error:
            self.abandon()
            raise TrialError(f"a guest cannot be sampled: {error}") from None
        guest_spool.append(self._directory / "spool.jsonl", spools)
        for guest in self._guests:
            guest.spool.unlink()

    def abandon(self) -> None:
        """Stop what can be stopped, after the trial failed."""
        for guest in self._guests:
            with contextlib.suppress(OSError):
                guest.sampling.stop()
        with contextlib.suppress(OSError, TrialError):
            self._record(None)

    def _record(self, spool: Path | None) -> None:
        """Have the host's view of the guests' balloons and drives recorded. All guests may share one manager."""
        for recorder in {id(guest.handle.balloons): guest.handle.balloons for guest in self._guests}.values():
            if recorder is not None:
                recorder.record(spool)
