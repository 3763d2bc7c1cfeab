"""What a trial's phases came to: when their drivers ran together, and what was counted in that window."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.analysis import memory_accounting
from pgherd.drivers.driver import Span, Window
from pgherd.metrics import aggregate
from pgherd.metrics.accounting import BUDGET
from pgherd.metrics.spool import Spool, SpoolReading
from pgherd.model.errors import TrialError
from pgherd.model.load import Phase
from pgherd.model.result import MemoryAccount, PhaseResult, TargetResult, Turn
from pgherd.runner.play.io_view import Watching
from pgherd.runner.play.launching import Running
from pgherd.store.samples import Sample, write_samples

Write = Callable[[Path, Iterable[Sample]], object]
"""Keeps samples in a trial's directory, as ``write_samples`` does."""


@dataclass(frozen=True)
class PlayedPhase:
    """One phase as it was played: its measured period, the drivers that were its load, and each target's turns where they took any."""

    phase: Phase
    start: float
    stop: float
    running: list[Running]
    turns: Mapping[str, Sequence[Turn]] = field(default_factory=dict)


@dataclass(frozen=True)
class Common:
    """When a phase's drivers made load, instants: ``earliest`` is when the first of them began; from ``first`` to ``last`` all of
    them ran within the measured period. ``planned`` is that period's length, seconds."""

    earliest: float
    first: float
    last: float
    planned: float


@dataclass(frozen=True)
class Driven:
    """The phases of a trial that has been driven. Nothing is counted yet: a trial on several hosts has one window for all.

    ``directory`` is the trial's in the run; ``counted`` was read beside the samples; ``jump`` is how far the wall clock moved
    against the monotonic one, seconds.
    """

    directory: Path
    played: Sequence[PlayedPhase]
    watching: Watching
    counted: list[SpoolReading]
    jump: float

    def spans(self) -> list[Common]:
        """For each phase when its drivers ran.

        Raises:
            TrialError: a driver's output cannot be read.
        """
        return [_common(one, _spans(one, _texts(one))) for one in self.played]

    def results(self, windows: Sequence[tuple[float, float]] | None = None, write: Write = write_samples) -> list[PhaseResult]:
        """What was counted in each phase's window (start and end); by default from the latest start of a driver to the earliest
        end. Keeps the samples (by ``write``) and the drivers' output in the trial's directory.

        Raises:
            TrialError: a driver's output cannot be read, or there was no second in which all of them ran.
            OSError: files cannot be written (a full disk).
        """
        readings = _parse(self.directory, self.counted, write)
        found = []
        for number, one in enumerate(self.played):
            window = None if windows is None else windows[number]
            found.append(_result(one, window, readings, self.directory, number))
        return self.watching.onto(found, readings)


def _texts(played: PlayedPhase) -> dict[str, dict[str, bytes]]:
    return {one.target: one.files() for one in played.running}


def _decoded(files: dict[str, bytes]) -> dict[str, str]:
    return {name: data.decode(errors="replace") for name, data in files.items()}


def _spans(played: PlayedPhase, files: dict[str, dict[str, bytes]]) -> dict[str, Span]:
    try:
        return {one.target: one.span(_decoded(files[one.target]), played.stop) for one in played.running}
    except ValueError as error:
        raise TrialError(str(error)) from None


def _common(played: PlayedPhase, spans: dict[str, Span]) -> Common:
    return Common(
        earliest=min([span.first for span in spans.values()], default=played.start),
        first=max([played.start, *(span.first for span in spans.values())]),
        last=min([played.stop, *(span.last for span in spans.values())]),
        planned=played.stop - played.start,
    )


def _parse(directory: Path, counted: list[SpoolReading], write: Write = write_samples) -> list[SpoolReading]:
    """Parse the spool into Parquet, with what was counted beside it; what could not be read is said in a text file beside it."""
    file = directory / "spool.jsonl"
    with open(file) as lines:
        spool = Spool(lines)
        readings = sorted([*spool, *counted], key=lambda reading: reading[0])  # what was counted, and read in guests, stands at the end
    write(directory, readings)
    # A driver that has ended, or who served it, cannot be read once more at the end: that is no failure.
    failures = {source: f for source, f in spool.failures.items() if f.count > 1 or not source.entity.startswith(("driver:", "platform:"))}
    if failures:
        said = [f"{source.entity} ({source.where}): {f.count} times: {f.last}" for source, f in failures.items()]
        (directory / "samples" / "not-read.txt").write_text("\n".join(said) + "\n")
    file.unlink()
    return readings


def _result(
    played: PlayedPhase, within: tuple[float, float] | None, readings: list[SpoolReading], directory: Path, number: int
) -> PhaseResult:
    phase, files = played.phase, _texts(played)
    spans = _spans(played, files)
    common = _common(played, spans)
    start, end = within or (common.first, common.last)
    if end <= start:
        raise TrialError(f"the drivers of phase '{phase.name}' never ran together: there is no second in which all of them made load")
    targets: list[TargetResult] = []
    for one in played.running:
        turns = _within(played.turns.get(one.target, ()), start, end)
        counted, lead = (phase.turns.counted, phase.turns.lead) if phase.turns else (0.0, 0.0)
        window = Window(start, end, played.stop, tuple(Span(turn.begun, turn.ended) for turn in turns), counted, lead)
        try:
            result = one.result(_decoded(files[one.target]), window)
        except ValueError as error:
            raise TrialError(str(error)) from None
        cpu = one.process.cpu_seconds
        kept = _keep(files.pop(one.target), directory / "drivers" / f"{number:02d}-{phase.name}" / one.target.replace("/", "."))
        targets.append(
            result.model_copy(
                update={
                    "turns": turns,
                    "client_cpu_seconds": cpu,
                    "client_cpu": None if cpu is None else cpu / max(one.ended - one.started, 1e-9),
                    "raw": [str(path.relative_to(directory)) for path in kept],
                }
            )
        )
    around = aggregate.near(readings, start, end)
    return PhaseResult(
        phase=phase.name,
        start=start,
        end=end,
        overlap=(end - start) / common.planned,
        targets=targets,
        skew=max(span.first for span in spans.values()) - common.earliest if len(spans) > 1 else None,
        metrics=aggregate.aggregate(around, start, end),
        memory=memory_account(around, start, end),
    )


def _within(turns: Sequence[Turn], start: float, end: float) -> list[Turn]:
    """The turns that lie in a window whole: of one that began before its driver was ready nothing is counted."""
    return [turn for turn in turns if turn.begun >= start and turn.ended <= end]


def _keep(files: dict[str, bytes], target: Path) -> list[Path]:
    """Write a driver's files into the run; transaction logs are compressed."""
    target.mkdir(parents=True, exist_ok=True)
    kept = []
    for name, data in sorted(files.items()):
        if name in ("stdout", "stderr"):
            kept.append(target / name)
            kept[-1].write_bytes(data)
        else:
            kept.append(target / f"{name}.gz")
            with gzip.open(kept[-1], "wb", compresslevel=1) as packed:
                packed.write(data)
    return kept


_CONTAINER = "container:"


def memory_account(readings: Iterable[SpoolReading], start: float, end: float) -> MemoryAccount | None:
    """The identity in the window of a phase (seconds since the epoch); None where no group holds the budget."""
    limit: list[tuple[float, float]] = []
    charged: list[tuple[float, float]] = []
    containers: dict[str, list[tuple[float, float]]] = {}
    for at, sampler, entity, values in readings:
        if sampler != "cgroup_memory":
            continue
        if entity == BUDGET and "memory.limit" in values:
            limit.append((at, values["memory.limit"]))
        if "memory.usage" not in values:
            continue
        if entity == BUDGET:
            charged.append((at, values["memory.usage"]))
        elif entity.startswith(_CONTAINER):
            containers.setdefault(entity, []).append((at, values["memory.usage"]))
    found = memory_accounting.account(memory_accounting.seconds(limit, charged, containers), start, end)
    if found is None:
        return None
    worst = found.worst
    return MemoryAccount(
        seconds=found.seconds,
        worst=worst.gap,
        worst_at=worst.at,
        budget=worst.budget,
        containers=worst.containers,
        unallocated=worst.unallocated,
    )
