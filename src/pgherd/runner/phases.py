"""One trial's phases: start all drivers at one instant, watch, end them at one instant, count the common window."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pgherd.drivers import registry as drivers
from pgherd.drivers.driver import Driver, Endpoint, Window
from pgherd.metrics import aggregate
from pgherd.metrics import registry as samplers
from pgherd.metrics.sampler import ContainerView, ProcessView, View
from pgherd.metrics.spool import Spool, SpoolReading
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TargetResult
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.protocol import Command, Node, Process, Sampling, Source
from pgherd.runner import counters, io_view, memory_accounts
from pgherd.runner.stage import Stage
from pgherd.runner.watcher import Watcher
from pgherd.store.samples import write_samples

_WATCH_SECONDS = 0.5
_END_SECONDS = 30.0
# A driver is told to run this much longer than planned; it is ended by its signal, and by itself should we die.
_SLACK_SECONDS = 60.0


@dataclass
class _Running:
    target: str
    load: Load
    driver: Driver
    process: Process
    output: Path
    started: float
    ended: float = 0.0


@dataclass(frozen=True)
class _Launch:
    target: str
    load: Load
    driver: Driver
    command: Command
    output: Path


@dataclass(frozen=True)
class _Played:
    phase: Phase
    start: float
    stop: float
    running: list[_Running]


def play(
    node: Node, trial: Trial, stage: Stage, directory: Path, scratch: Path, watcher: Watcher, watched: Sequence[ProcessView] = ()
) -> tuple[list[PhaseResult], float]:
    """Drive the trial's phases; returns their results and how far the wall clock moved against the monotonic one (s).

    ``directory`` is the trial's directory in the run; drivers write below ``scratch``, which their account can reach,
    and what they wrote is moved into ``directory`` afterwards. ``watched`` are further processes to sample.

    Raises:
        TrialError: a driver or a server ended early, or a driver's output cannot be read.
        OSError: files cannot be written (a full disk).
    """
    wall, monotonic = node.now(), time.monotonic()
    view = stage.view()
    view = replace(view, processes=[*watched, ProcessView("pgherd", os.getpid())])
    sampling = node.sample(samplers.sources(view), str(directory / "spool.jsonl"))
    counting = counters.begin(node, trial, view.servers, directory)
    watching = io_view.begin(node, view, directory)
    played: list[_Played] = []
    try:
        sampling.add(_process_sources(_backends(view, sampling)))
        before: list[_Running] = []
        # All of it now: at a border the old drivers are told to end, and nothing but the spawns of the new ones may come between.
        launches = [_launches(node, phase, stage, scratch / f"{number:02d}") for number, phase in enumerate(trial.phases)]
        for phase, launching in zip(trial.phases, launches, strict=True):
            running: list[_Running] = []
            played.append(_Played(phase, 0.0, 0.0, running))
            for new in launching:
                running.append(_Running(new.target, new.load, new.driver, node.spawn(new.command), new.output, node.now()))
            _reap(before, stage)
            start = node.now() + phase.ramp
            sampling.add(_driver_sources(running, stage))
            watcher.phase(phase.name, phase.ramp, phase.seconds)
            _wait(node, start, running, stage)
            sampling.add(())  # counters are read at both borders of the window
            _wait(node, start + phase.seconds, running, stage)
            sampling.add(())
            stop = node.now()
            _end(running)
            played[-1] = _Played(phase, start, stop, running)
            before = running
        _reap(before, stage)
    except BaseException:
        for one in played:
            _kill(one.running)
        counting.stop()
        watching.abandon()
        _quietly_stop(sampling)
        raise
    counted = counting.stop()
    watching.stop()
    sampling.stop()
    jump = (node.now() - wall) - (time.monotonic() - monotonic)
    readings = _parse(directory, counted)
    results = [_result(one, readings, directory, number) for number, one in enumerate(played)]
    return watching.onto(results, readings), jump


def _launches(node: Node, phase: Phase, stage: Stage, scratch: Path) -> list[_Launch]:
    """A phase's drivers, ready to be spawned: the spawns follow each other within a millisecond or two each."""
    found = []
    for target, load in phase.loads.items():
        reach = stage.reach(target)
        driver = drivers.driver(load.driver)
        output = scratch / target.replace("/", ".")
        node.make_dir(str(output), mode=0o700, user=stage.account)
        endpoint = Endpoint(
            target, reach.bin, reach.host, reach.port, reach.database, reach.user, str(output), scale=reach.scale, directory=reach.directory
        )
        readable = load.model_copy(update={"scripts": tuple(stage.script(script) for script in load.scripts)})
        argv = driver.argv(readable, endpoint, phase.ramp + phase.seconds + _SLACK_SECONDS)
        inside = load.place == "inside"
        command = Command(
            [*reach.prefix, *argv],
            env=dict(reach.environment),
            cwd=str(output),
            join=reach.room.join if inside else (),
            cpus=reach.room.cpus if inside else None,
            user=None if reach.privileged else stage.account,
            stdout=str(output / "stdout"),
            stderr=str(output / "stderr"),
        )
        found.append(_Launch(target, load, driver, command, output))
    return found


def _wait(node: Node, until: float, running: list[_Running], stage: Stage) -> None:
    while (left := until - node.now()) > 0:
        time.sleep(min(left, _WATCH_SECONDS))
        interruption.insist()
        for one in running:
            code = one.process.poll()
            if code is not None:
                stage.check()
                words = f"{one.load.driver} on {one.target} ended early with {_code(code)}: {_last_words(one.output)}"
                raise TrialError(f"{words}; {stage.said(one.target)}")
        stage.check()


def _end(running: list[_Running]) -> None:
    for one in running:
        one.process.signal(one.driver.stop_signal)


def _reap(running: list[_Running], stage: Stage) -> None:
    deadline = time.monotonic() + _END_SECONDS
    for one in running:
        if one.ended:
            continue
        try:
            code = one.process.wait(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            _kill(running)
            raise TrialError(f"{one.load.driver} on {one.target} did not end within {_END_SECONDS:.0f} s of being told to") from None
        one.ended = time.time()
        if code not in one.driver.exit_codes:
            stage.check()  # a server that died in the last instant is why
            words = f"{one.load.driver} on {one.target} ended with {_code(code)}: {_last_words(one.output)}"
            if code == -one.driver.stop_signal:  # it did not even come to listen for it
                words = (
                    f"{one.load.driver} on {one.target} had not begun to make load when its time was over, {one.ended - one.started:.1f} s "
                    f"after it was started: the machine is busy with other things, or --ramp is too short for it"
                )
            raise TrialError(f"{words}; {stage.said(one.target)}")


def _kill(running: list[_Running]) -> None:
    for one in running:
        one.process.signal(signal.SIGKILL)
    for one in running:
        one.process.wait(10)


def _quietly_stop(sampling: Sampling) -> None:
    with contextlib.suppress(OSError):  # the trial has failed already, for a reason that matters more
        sampling.stop()


def _code(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _last_words(output: Path) -> str:
    try:
        lines = (output / "stderr").read_text(errors="replace").splitlines()
    except OSError:
        return "(it said nothing)"
    telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    said = [line for line in lines if not line.startswith("progress:")]
    return " / ".join((telling or said)[-3:]) or "(it said nothing)"


def _process_sources(processes: list[ProcessView]) -> list[Source]:
    """Sources for processes alone: the host's were added at the start."""
    return samplers.samplers()["processes"].sources(View(processes=processes))


def _backends(view: View, sampling: Sampling) -> list[ProcessView]:
    pids = sampling.backends()
    return [ProcessView(f"backend:{s.name}", pids[s.conninfo]) for s in view.servers if s.pid and s.conninfo in pids]


def _driver_sources(running: list[_Running], stage: Stage) -> list[Source]:
    """Each driver for itself, and as a part of its container where no control group counts it there."""
    processes = [ProcessView(f"driver:{one.target}", one.process.pid) for one in running]
    inside = [(stage.reach(one.target).room, one.process.pid) for one in running if one.load.place == "inside"]
    containers = [ContainerView(room.container, {}, [pid]) for room, pid in inside if room.container and not room.groups]
    return samplers.samplers()["processes"].sources(View(containers=containers, processes=processes))


def _parse(directory: Path, counted: list[SpoolReading]) -> list[SpoolReading]:
    """Parse the spool into Parquet, with what was counted beside it; what could not be read is said in a text file beside it."""
    file = directory / "spool.jsonl"
    with open(file) as lines:
        spool = Spool(lines)
        readings = sorted([*spool, *counted], key=lambda reading: reading[0]) if counted else list(spool)
    write_samples(directory, readings)
    # A driver that has ended cannot be read once more at the end: that is no failure.
    failures = {source: f for source, f in spool.failures.items() if f.count > 1 or not source.entity.startswith("driver:")}
    if failures:
        said = [f"{source.entity} ({source.where}): {f.count} times: {f.last}" for source, f in failures.items()]
        (directory / "samples" / "not-read.txt").write_text("\n".join(said) + "\n")
    file.unlink()
    return readings


def _result(played: _Played, readings: list[SpoolReading], directory: Path, number: int) -> PhaseResult:
    phase, planned = played.phase, played.stop - played.start
    texts = {one.target: _texts(one.output) for one in played.running}
    try:
        spans = {o.target: o.driver.span(texts[o.target], o.started, played.stop) for o in played.running}
        start = max([played.start, *(span.first for span in spans.values())])
        end = min([played.stop, *(span.last for span in spans.values())])
        if end <= start:
            raise TrialError(f"the drivers of phase '{phase.name}' never ran together: there is no second in which all of them made load")
        window = Window(start, end, played.stop)
        targets: list[TargetResult] = []
        for one in played.running:
            result = one.driver.result(one.load, texts[one.target], one.started, window, one.target)
            cpu = one.process.cpu_seconds
            kept = _keep(one.output, directory / "drivers" / f"{number:02d}-{phase.name}" / one.target.replace("/", "."))
            targets.append(
                result.model_copy(
                    update={
                        "client_cpu_seconds": cpu,
                        "client_cpu": None if cpu is None else cpu / max(one.ended - one.started, 1e-9),
                        "raw": [str(path.relative_to(directory)) for path in kept],
                    }
                )
            )
    except ValueError as error:
        raise TrialError(str(error)) from None
    first = [span.first for span in spans.values()]
    return PhaseResult(
        phase=phase.name,
        start=start,
        end=end,
        overlap=(end - start) / planned,
        targets=targets,
        skew=max(first) - min(first) if len(first) > 1 else None,
        metrics=aggregate.aggregate(readings, start, end),
        memory=memory_accounts.account(readings, start, end),
    )


def _texts(output: Path) -> dict[str, str]:
    return {file.name: file.read_text(errors="replace") for file in sorted(output.iterdir()) if file.is_file()}


def _keep(output: Path, target: Path) -> list[Path]:
    """Move a driver's files into the run; transaction logs are compressed."""
    target.mkdir(parents=True, exist_ok=True)
    kept = []
    for file in sorted(output.iterdir()):
        if file.name in ("stdout", "stderr"):
            kept.append(target / file.name)
            shutil.copyfile(file, kept[-1])
        else:
            kept.append(target / f"{file.name}.gz")
            with open(file, "rb") as plain, gzip.open(kept[-1], "wb", compresslevel=1) as packed:
                shutil.copyfileobj(plain, packed)
        file.unlink()
    return kept
