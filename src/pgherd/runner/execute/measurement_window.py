"""Results of a trial's phases: the window in which all drivers ran, and what was counted in it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.analysis import memory_accounting
from pgherd.drivers.driver import DriverSpan, MeasuredWindow
from pgherd.metrics import aggregate, prometheus
from pgherd.metrics.cgroup import RUN_CGROUP
from pgherd.metrics.server_statistics import wait_series
from pgherd.metrics.spool import Spool, SpoolReading
from pgherd.model.errors import TrialError
from pgherd.model.load import Phase
from pgherd.model.result import MemoryBalance, PhaseResult, ServerStatements, Slice, TargetResult
from pgherd.runner.execute.device_io import DeviceIoRecorder
from pgherd.runner.execute.driver_launch import RunningDriver
from pgherd.store.samples import Sample, write_samples

Write = Callable[[Path, Iterable[Sample]], object]
"""Function that stores samples in a trial's directory, as ``write_samples`` does."""


@dataclass(frozen=True)
class MeasuredPhase:
    """Phase as it ran: its measured period, its drivers, each target's slices if interleaved, and the seconds its memory limits took.

    ``limit_wait`` is the time in seconds after the phase until the last write of a limit had ended.
    """

    phase: Phase
    start: float
    stop: float
    running: list[RunningDriver]
    turns: Mapping[str, Sequence[Slice]] = field(default_factory=dict)
    limited_after: Mapping[str, float | None] = field(default_factory=dict)
    limit_wait: float = 0.0


@dataclass(frozen=True)
class CommonWindow:
    """Common window of a phase's drivers, in instants.

    ``earliest`` is when the first driver began. From ``first`` to ``last`` all drivers ran within the measured
    period. ``planned`` is the length of that period, seconds.
    """

    earliest: float
    first: float
    last: float
    planned: float


@dataclass(frozen=True)
class DrivenPhases:
    """Phases of a trial that has run. Nothing is counted yet, because a trial on several hosts has one window for all.

    ``directory`` is the trial's in the run. ``counted`` was read in addition to the samples. ``jump`` is the step of
    the wall clock against the monotonic clock, seconds. ``statements`` are those of external servers, by phase.
    """

    directory: Path
    played: Sequence[MeasuredPhase]
    watching: DeviceIoRecorder
    counted: list[SpoolReading]
    jump: float
    statements: Mapping[int, dict[str, ServerStatements]] = field(default_factory=dict)

    def spans(self) -> list[CommonWindow]:
        """Return the common window of each phase.

        Raises:
            TrialError: a driver's output cannot be read.
        """
        return [_common(played, _spans(played, _texts(played))) for played in self.played]

    def results(self, windows: Sequence[tuple[float, float]] | None = None, write: Write = write_samples) -> list[PhaseResult]:
        """Return what was counted in each phase's window (start and end), and store samples (by ``write``) and drivers'
        output.

        By default the window is from the latest start of a driver to the earliest end.

        Raises:
            TrialError: a driver's output cannot be read, or the drivers never all ran together.
            OSError: files cannot be written (a full disk).
        """
        readings = _parse(self.directory, self.counted, write)
        results = []
        for number, played in enumerate(self.played):
            window = None if windows is None else windows[number]
            result = _result(played, window, readings, self.directory, number)
            results.append(result.model_copy(update={"statements": self.statements.get(number, {})}))
        return self.watching.onto(results, readings)


def _texts(played: MeasuredPhase) -> dict[str, dict[str, bytes]]:
    return {driver.target: driver.files() for driver in played.running}


def _decoded(files: dict[str, bytes]) -> dict[str, str]:
    return {name: data.decode(errors="replace") for name, data in files.items()}


def _spans(played: MeasuredPhase, files: dict[str, dict[str, bytes]]) -> dict[str, DriverSpan]:
    """Return the spans of the drivers by target, without loads that end by themselves: these are within the window or not."""
    lasting = [driver for driver in played.running if not driver.load.ends_itself]
    try:
        return {driver.target: driver.span(_decoded(files[driver.target]), played.stop) for driver in lasting}
    except ValueError as error:
        raise TrialError(str(error)) from None


def _common(played: MeasuredPhase, spans: dict[str, DriverSpan]) -> CommonWindow:
    return CommonWindow(
        earliest=min([span.first for span in spans.values()], default=played.start),
        first=max([played.start, *(span.first for span in spans.values())]),
        last=min([played.stop, *(span.last for span in spans.values())]),
        planned=played.stop - played.start,
    )


def _parse(directory: Path, counted: list[SpoolReading], write: Write = write_samples) -> list[SpoolReading]:
    """Write the spool to Parquet, together with counted events. Sources that could not be read are listed in a text
    file.
    """
    file = directory / "spool.jsonl"
    with open(file) as lines:
        spool = Spool(lines)
        sampled = list(spool)
    entities = {entity for _, _, entity, _ in sampled}
    # What was sampled from here takes precedence over the same from Prometheus.
    added = [reading for reading in counted if reading[1] != prometheus.NAME or reading[2] not in entities]
    readings = sorted([*sampled, *added], key=lambda reading: reading[0])  # counted events and guests' samples are at the end
    write(directory, readings)
    # A driver that has ended, or its server process, cannot be read at the end. That is no failure.
    failures = {source: f for source, f in spool.failures.items() if f.count > 1 or not source.entity.startswith(("driver:", "platform:"))}
    if failures:
        unread = [f"{source.entity} ({source.where}): {f.count} times: {f.last}" for source, f in failures.items()]
        (directory / "samples" / "not-read.txt").write_text("\n".join(unread) + "\n")
    file.unlink()
    return readings


def _result(
    played: MeasuredPhase, within: tuple[float, float] | None, readings: list[SpoolReading], directory: Path, number: int
) -> PhaseResult:
    phase, files = played.phase, _texts(played)
    spans = _spans(played, files)
    common = _common(played, spans)
    start, end = within or (common.first, common.last)
    if end <= start:
        raise TrialError(f"the drivers of phase '{phase.name}' never ran together: in no second did all of them generate load")
    targets: list[TargetResult] = []
    for driver in played.running:
        turns = _within(played.turns.get(driver.target, ()), start, end)
        counted, lead = (phase.slices.counted, phase.slices.lead) if phase.slices else (0.0, 0.0)
        window = MeasuredWindow(start, end, played.stop, tuple(DriverSpan(turn.begun, turn.ended) for turn in turns), counted, lead)
        try:
            result = driver.result(_decoded(files[driver.target]), window)
        except ValueError as error:
            raise TrialError(str(error)) from None
        cpu = driver.process.cpu_seconds
        stored = _store_files(
            files.pop(driver.target), directory / "drivers" / f"{number:02d}-{phase.name}" / driver.target.replace("/", ".")
        )
        targets.append(
            result.model_copy(
                update={
                    "slices": turns,
                    "client_cpu_seconds": cpu,
                    "client_cpu": None if cpu is None else cpu / max(driver.ended - driver.started, 1e-9),
                    "raw": [str(path.relative_to(directory)) for path in stored],
                }
            )
        )
    nearby = aggregate.near(readings, start, end)
    return PhaseResult(
        phase=phase.name,
        start=start,
        end=end,
        overlap=(end - start) / common.planned,
        targets=targets,
        skew=max(span.first for span in spans.values()) - common.earliest if len(spans) > 1 else None,
        metrics=aggregate.aggregate(nearby, start, end),
        memory=memory_account(nearby, start, end),
        limited_after=dict(played.limited_after),
        limit_wait=played.limit_wait,
        waits=wait_series(nearby, start, end),
    )


def _within(turns: Sequence[Slice], start: float, end: float) -> list[Slice]:
    """Return slices completely within a window. A slice that began before its driver was ready counts nothing."""
    return [turn for turn in turns if turn.begun >= start and turn.ended <= end]


def _store_files(files: dict[str, bytes], target: Path) -> list[Path]:
    """Write a driver's files into the run; transaction logs are compressed."""
    target.mkdir(parents=True, exist_ok=True)
    stored = []
    for name, data in sorted(files.items()):
        if name in ("stdout", "stderr"):
            stored.append(target / name)
            stored[-1].write_bytes(data)
        else:
            stored.append(target / f"{name}.gz")
            with gzip.open(stored[-1], "wb", compresslevel=1) as packed:
                packed.write(data)
    return stored


_CONTAINER = "container:"


def memory_account(readings: Iterable[SpoolReading], start: float, end: float) -> MemoryBalance | None:
    """Account for the run's memory in a phase's window (seconds since the epoch). Return None if no cgroup limits it."""
    limit: list[tuple[float, float]] = []
    charged: list[tuple[float, float]] = []
    containers: dict[str, list[tuple[float, float]]] = {}
    for time, sampler, entity, values in readings:
        if sampler != "cgroup_memory":
            continue
        if entity == RUN_CGROUP and "memory.limit" in values:
            limit.append((time, values["memory.limit"]))
        if "memory.usage" not in values:
            continue
        if entity == RUN_CGROUP:
            charged.append((time, values["memory.usage"]))
        elif entity.startswith(_CONTAINER):
            containers.setdefault(entity, []).append((time, values["memory.usage"]))
    accounting = memory_accounting.balance(memory_accounting.instants(limit, charged, containers), start, end)
    if accounting is None:
        return None
    worst = accounting.worst
    return MemoryBalance(
        seconds=accounting.seconds,
        worst=worst.gap,
        worst_at=worst.at,
        budget=worst.budget,
        containers=worst.containers,
        unallocated=worst.unallocated,
    )
