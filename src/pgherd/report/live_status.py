"""Status of a run while it executes: progress, current trial, throughput, CPU and memory, checks, answer."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field, ValidationError

from pgherd.drivers.registry import read_rates, tells
from pgherd.metrics.registry import metric
from pgherd.metrics.spool import Spool
from pgherd.model.base import Model
from pgherd.model.facts import HostFacts
from pgherd.model.finding import Grade, Verdict
from pgherd.model.result import MIXED, TrialResult, counted, counted_by
from pgherd.model.run import RunRecord
from pgherd.report.formatting import trial_throughput
from pgherd.store.live import Lines, LivePhase, LiveState, LiveTrial, output_dir, read_live, spool_file
from pgherd.store.run_directory import RunDirectory
from pgherd.study.emulation import emulated

State = Literal["running", "finished", "interrupted", "failed", "killed"]


class LiveTrialStatus(Model):
    """The trial that runs. ``phase`` is the one that runs, of ``phases``; None while servers are made ready or the drivers end.

    ``part`` is its ramp-up or its measured period, ``seconds`` its planned length and ``elapsed`` what of it is over.
    """

    number: int
    point: dict[str, int | float | str]
    repeat: int
    reason: str
    phases: int
    phase: int | None = Field(None, description="from 1 on")
    name: str | None = None
    part: Literal["ramp", "measured"] | None = None
    elapsed: float | None = None
    seconds: float | None = None
    until: Literal["clock", "drivers"] = Field("clock", description="'drivers': the part ends when they do, after 'seconds' at the latest")
    drivers: dict[str, int] = Field(default_factory=dict, description="driver → how many of it run")


class LiveThroughput(Model):
    """Transactions per second over the latest second that all drivers have told of; ``told`` of ``targets`` drivers tell it while
    they run. ``series`` holds the trial's seconds so far: (seconds since the epoch, transactions per second)."""

    value: float | None
    unit: str = "tps"
    told: int
    targets: int
    series: list[tuple[float, float]] = Field(default_factory=list)


class LiveUsage(Model):
    """What a container, or the host, uses: ``cpu`` of ``vcpus`` in cores, ``memory`` of ``limit`` in bytes. None: not seen, or no
    limit."""

    name: str
    cpu: float | None = None
    vcpus: float | None = None
    memory: float | None = None
    limit: float | None = None


class LiveDevice(Model):
    """A block device: requests and bytes per second, of reads and of writes."""

    name: str
    reads: float
    writes: float
    read_bytes: float
    write_bytes: float


class LiveTrialResult(Model):
    """A trial that has ended: ``throughput`` over its phases, None where its drivers do not count the same, or are commands; the
    verdicts that did not pass, and how many did."""

    id: str
    point: dict[str, int | float | str]
    repeat: int
    seconds: float
    throughput: float | None
    unit: str
    tainted: bool
    error: str | None
    verdicts: list[Verdict] = Field(default_factory=list)
    passed: int = 0


class LiveStatus(Model):
    """All of it. ``trials_left`` counts the trials that are proposed and have not ended, the present one included; ``seconds_left`` is
    what they are taken to need. Both are None where nobody executes the run."""

    run: str
    study: str
    state: State
    at: float
    started: float
    ended: float | None
    elapsed: float
    step: str | None = None
    trials_done: int
    trials_left: int | None = None
    seconds_left: float | None = None
    trial: LiveTrialStatus | None = None
    throughput: LiveThroughput | None = None
    host: LiveUsage | None = None
    hosts: list[LiveUsage] = Field(default_factory=list, description="each of several; 'host' is then all together")
    containers: list[LiveUsage] = Field(default_factory=list)
    devices: list[LiveDevice] = Field(default_factory=list)
    trials: list[LiveTrialResult] = Field(default_factory=list)
    answer: str | None = None
    grade: Grade | None = None
    error: str | None = None
    resume: str | None = Field(None, description="the command that goes on with it, where there is anything to go on with")


_IN_USE = ("cpu.user", "cpu.nice", "cpu.system", "cpu.irq", "cpu.softirq")

Series = list[tuple[float, float]]
"""(seconds since the epoch, value), in order of time."""


class ReadingsSource(Protocol):
    """What is asked of the samples of the trial that runs."""

    def series(self, entity: str, name: str) -> Series:
        """A gauge's readings, or a counter's increase per second."""
        ...

    def latest(self, entity: str, name: str) -> float | None:
        """The last of them; None where there is none."""
        ...


def participating_hosts(record: RunRecord, trial: LiveTrial) -> Mapping[str, HostFacts]:
    """The hosts of a cluster that take part in a trial; none in a run on this host."""
    if record.surroundings is None or record.surroundings.cluster is None:
        return {}
    return {name: facts for name, facts in record.hosts.items() if name in trial.hosts}


def host_usage(readings: ReadingsSource, record: RunRecord, trial: LiveTrial) -> tuple[LiveUsage, list[LiveUsage]]:
    """What the host uses, CPU in cores and its memory that is not available; of several hosts, all together and then each."""
    hosts = participating_hosts(record, trial)
    if not hosts:
        facts = next(iter(record.hosts.values()), None)
        return _use(readings, "host", "host", None if facts is None else facts.logical_cpus), []
    each = [_use(readings, name, f"host:{name}", facts.logical_cpus) for name, facts in hosts.items()]
    whole = LiveUsage(
        name="all hosts",
        cpu=_total([one.cpu for one in each]),
        vcpus=_total([one.vcpus for one in each]),
        memory=_total([one.memory for one in each]),
        limit=_total([one.limit for one in each]),
    )
    return whole, each


def cpu_in_use(readings: ReadingsSource, record: RunRecord, trial: LiveTrial) -> Series:
    """The CPU in use over time, in cores; of several hosts what all of them said last, at each instant at which one said something."""
    entities = [f"host:{name}" for name in participating_hosts(record, trial)] or ["host"]
    each = [_by_instant([readings.series(entity, name) for name in _IN_USE]) for entity in entities]
    if len(each) == 1:
        return each[0]
    found: Series = []
    last: dict[int, float] = {}
    for t, number, value in sorted((t, number, value) for number, series in enumerate(each) for t, value in series):
        last[number] = value
        if len(last) == len(each):
            found.append((t, sum(last.values())))
    return found


def _use(readings: ReadingsSource, name: str, entity: str, cores: float | None) -> LiveUsage:
    used = [rate for mode in _IN_USE if (rate := readings.latest(entity, mode)) is not None]
    total, available = readings.latest(entity, "memory.total"), readings.latest(entity, "memory.available")
    memory = None if total is None or available is None else total - available
    return LiveUsage(name=name, cpu=sum(used) if used else None, vcpus=cores, memory=memory, limit=total)


def _total(values: Sequence[float | None]) -> float | None:
    """None where one is not known: a sum over some hosts would pass for that of all."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _by_instant(parts: Sequence[Series]) -> Series:
    """Series of one source, summed up instant by instant."""
    found: dict[float, float] = {}
    for part in parts:
        for t, value in part:
            found[t] = found.get(t, 0.0) + value
    return sorted(found.items())


_LEAST_SPAN = 0.8
"""Seconds that two readings of a counter must lie apart to make a rate: readings beside the ticks follow each other closely."""
_ABOUT_TO_BEGIN = 10.0
"""Seconds within which a run that has just been made is taken to be about to take its lock."""
_RECENT_READINGS = 900
"""So many readings of each metric, about one a second, are kept."""
_RECENT_BYTES = 8 * 2**20
"""So much of a long file is read when a look comes late: the machine is being measured."""
_SAMPLERS = frozenset({"cpu", "memory", "diskstats", "cgroup_cpu", "cgroup_memory", "processes"})
"""Those whose readings are shown; the rest of a spool is passed over."""


class SpooledReadings:
    """The samples of the trial that runs, by entity and metric, as far as they have been spooled: the last quarter of an hour."""

    def __init__(self, spool: Path) -> None:
        """Nothing is read yet."""
        self._spool = Spool(Lines(spool, recent=_RECENT_BYTES, always=b'{"sources"'), only=_SAMPLERS)
        self._series: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._before: dict[tuple[str, str], tuple[float, float]] = {}

    def read(self) -> None:
        """Read what has been added."""
        for t, _, entity, values in self._spool:
            for name, value in values.items():
                if metric(name).kind == "counter":
                    self._count((entity, name), t, value)
                else:
                    self._add((entity, name), t, value)

    def _count(self, key: tuple[str, str], t: float, value: float) -> None:
        """Rates over spans of about a second; a fall begins anew."""
        before = self._before.get(key)
        if before is None or value < before[1]:
            self._before[key] = (t, value)
        elif t - before[0] >= _LEAST_SPAN:
            self._add(key, t, (value - before[1]) / (t - before[0]))
            self._before[key] = (t, value)

    def _add(self, key: tuple[str, str], t: float, value: float) -> None:
        self._series.setdefault(key, deque(maxlen=_RECENT_READINGS)).append((t, value))

    def entities(self, prefix: str) -> list[str]:
        """Sorted entities of a kind, such as ``container:``."""
        return sorted({entity for entity, _ in self._series if entity.startswith(prefix)})

    def series(self, entity: str, name: str) -> Series:
        """A gauge's readings, or a counter's increase per second (a counter of CPU seconds: cores)."""
        return list(self._series.get((entity, name), ()))

    def latest(self, entity: str, name: str) -> float | None:
        """The last of them; None where there is none (yet: a rate needs two readings)."""
        series = self._series.get((entity, name))
        return series[-1][1] if series else None


class SummedSeries:
    """The sum of several series by whole second, of the seconds of which all of them tell."""

    def __init__(self, parts: int) -> None:
        """So many series are summed up."""
        self._parts = parts
        self._seconds: dict[int, dict[int, float]] = {}
        self.series: deque[tuple[float, float]] = deque(maxlen=_RECENT_READINGS)

    def add(self, part: int, told: Iterable[tuple[float, float]]) -> None:
        """What one of them tells further."""
        for t, value in told:
            second = self._seconds.setdefault(int(t), {})
            second[part] = value
            if len(second) == self._parts:
                self.series.append((float(int(t)), sum(second.values())))
                # Of an earlier second somebody has not told: it will stay so.
                self._seconds = {other: values for other, values in self._seconds.items() if other > int(t)}


class LiveRun:
    """A run that is looked at again and again."""

    def __init__(self, directory: RunDirectory) -> None:
        """Name the run; nothing is read yet."""
        self.directory = directory
        self.readings: SpooledReadings | None = None
        """The samples of the trial that runs; None while there is none."""
        self.cpu: Series = []
        """The CPU in use over the trial that runs, in cores."""
        self._trial: int | None = None
        self._drivers: dict[int, tuple[SummedSeries, list[tuple[str, Lines]]]] = {}
        self._results: dict[str, LiveTrialResult] = {}

    def look(self) -> LiveStatus:
        """What the run shows now.

        Raises:
            RunDirectoryError: the directory holds no run that this version can read.
        """
        alive = self.directory.alive()  # before run.json is read: a run that ends in between is then said to have ended
        record = self.directory.record()
        now = time.time()
        state = run_state(record, self.directory, alive, now)
        told = read_live(self.directory.path) if state == "running" else None
        self._follow(told.trial if told else None)
        self._read_results()
        analysis = record.analysis
        shown = LiveStatus(
            run=self.directory.name,
            study=record.study,
            state=state,
            at=now,
            started=record.started,
            ended=record.ended,
            elapsed=max((record.ended if record.ended is not None and state != "running" else now) - record.started, 0.0),
            trials_done=len(self._results),
            trials=[self._results[name] for name in sorted(self._results)],
            answer=analysis.answer if analysis else None,
            grade=analysis.grade if analysis else None,
            error=record.error,
            resume=resume_command(self.directory) if state in ("interrupted", "failed", "killed") else None,
        )
        return shown if told is None else shown.model_copy(update=self._live(told, record, now))

    def _follow(self, trial: LiveTrial | None) -> None:
        """Turn to the trial that runs now."""
        number = None if trial is None else trial.number
        if number != self._trial:
            self._trial = number
            self.readings = None if number is None else SpooledReadings(spool_file(self.directory.path, number))
            self._drivers = {}
        if self.readings is not None:
            self.readings.read()

    def _live(self, told: LiveState, record: RunRecord, now: float) -> dict[str, object]:
        found: dict[str, object] = {
            "step": told.step,
            "trials_left": told.trials_left + (told.trial is not None),
            "seconds_left": seconds_left(told, now),
        }
        if told.trial is None or self.readings is None:
            return found
        self.cpu = cpu_in_use(self.readings, record, told.trial)
        host, hosts = host_usage(self.readings, record, told.trial)
        return {
            **found,
            "trial": trial_status(told, now),
            "throughput": self._throughput(told),
            "host": host,
            "hosts": hosts,
            "containers": container_usage(self.readings, told.trial),
            "devices": devices(self.readings),
        }

    def _throughput(self, told: LiveState) -> LiveThroughput | None:
        """Of all phases so far; None where no driver runs that tells it."""
        trial = told.trial
        if trial is None or told.phase is None or told.phase >= len(trial.phases):
            return None
        series: Series = []
        for index in range(told.phase + 1):
            together, outputs = self._outputs(trial, index)
            for part, (driver, lines) in enumerate(outputs):
                together.add(part, read_rates(driver, "".join(line.decode(errors="replace") + "\n" for line in lines)))
            series += together.series
        targets = len(trial.phases[told.phase].loads)
        value = series[-1][1] if series else None
        return LiveThroughput(value=value, told=len(outputs), targets=targets, series=series[-_RECENT_READINGS:]) if targets else None

    def _outputs(self, trial: LiveTrial, phase: int) -> tuple[SummedSeries, list[tuple[str, Lines]]]:
        """The outputs of a phase's drivers which tell, and what they tell together."""
        if phase not in self._drivers:
            places = [(driver, output_dir(trial, phase, target)) for target, driver in trial.phases[phase].loads.items() if tells(driver)]
            outputs = [(driver, Lines(place / "stderr", recent=_RECENT_BYTES)) for driver, place in places if place is not None]
            self._drivers[phase] = SummedSeries(len(outputs)), outputs
        return self._drivers[phase]

    def _read_results(self) -> None:
        """Trials that have ended since the last look; one that cannot be read is left out: it may be about to be removed."""
        for file in sorted((self.directory.path / "trials").glob("*/trial.json")):
            name = file.parent.name
            if name in self._results or name.endswith(".partial"):
                continue
            try:
                self._results[name] = trial_result(TrialResult.model_validate_json(file.read_bytes()))
            except (OSError, ValidationError):
                continue


def run_state(record: RunRecord, directory: RunDirectory, alive: bool, now: float) -> State:
    """As run.json has it; but a run that says it is running and is executed by nobody was killed, and one that is executed and says
    that it was interrupted has just been resumed, or is about to end."""
    if alive:
        return "finished" if record.state == "finished" else "running"
    if record.state != "running":
        return record.state
    beginning = not (directory.path / "lock").exists() and now - record.started < _ABOUT_TO_BEGIN
    return "running" if beginning else "killed"


def resume_command(directory: RunDirectory) -> str:
    """How to go on with a run, from here."""
    default = Path("pgherd-runs")
    return f"pgherd resume {directory.name if directory.path.parent == default else shlex.quote(str(directory.path))}"


def newest_running(root: Path) -> RunDirectory | None:
    """The newest run below the root that is being executed; None where none is."""
    return next((directory for directory in reversed(RunDirectory.all(root)) if directory.alive()), None)


def seconds_left(told: LiveState, now: float) -> float | None:
    """What the trials that are proposed are taken to need still; None where that cannot be told."""
    if told.trial is None or told.seconds_left is None:
        return told.seconds_left
    if any(phase.until == "drivers" for phase in told.trial.phases) or told.phase is None or told.phase_begun is None:
        if told.overhead is None:
            return None
        this = told.trial.begun + planned_seconds(told.trial.phases) + told.overhead - now
    else:
        this = told.phase_begun + planned_seconds(told.trial.phases[told.phase :]) - now
    return told.seconds_left + max(this, 0.0)


def trial_status(told: LiveState, now: float) -> LiveTrialStatus:
    """The trial that runs, and where in its phases it is."""
    trial = told.trial
    assert trial is not None
    shown = LiveTrialStatus(number=trial.number, point=trial.point, repeat=trial.repeat, reason=trial.reason, phases=len(trial.phases))
    if told.phase is None or told.phase_begun is None or told.phase >= len(trial.phases):
        return shown
    phase = trial.phases[told.phase]
    over = now - told.phase_begun
    measured = over >= phase.ramp
    drivers: dict[str, int] = {}
    for driver in phase.loads.values():
        drivers[driver] = drivers.get(driver, 0) + 1
    where = {
        "phase": told.phase + 1,
        "name": phase.name,
        "part": "measured" if measured else "ramp",
        "elapsed": _within(over - phase.ramp, phase.seconds) if measured else _within(over, phase.ramp),
        "seconds": phase.seconds if measured else phase.ramp,
        "until": phase.until,
        "drivers": drivers,
    }
    return shown.model_copy(update=where)


def _within(value: float, most: float) -> float:
    return min(max(value, 0.0), most)


def container_usage(readings: SpooledReadings, trial: LiveTrial) -> list[LiveUsage]:
    """Each container that is seen: CPU in cores, memory in bytes (charged to its group, else resident), and its limits."""
    found = []
    for entity in readings.entities("container:"):
        name = entity.partition(":")[2]
        given = trial.containers.get(name)
        if given is None:
            continue  # a group of pgherd's own, such as one that withholds memory
        memory = readings.latest(entity, "memory.usage")
        found.append(
            LiveUsage(
                name=name,
                cpu=readings.latest(entity, "cpu.usage"),
                vcpus=given.vcpus,
                memory=readings.latest(entity, "memory.rss") if memory is None else memory,
                limit=given.memory,
            )
        )
    return found


def devices(readings: SpooledReadings) -> list[LiveDevice]:
    """Block devices that do anything at present."""
    found = []
    for entity in readings.entities("disk:"):
        reads, writes, read_bytes, write_bytes = (
            readings.latest(entity, name) or 0.0 for name in ("reads", "writes", "read_bytes", "write_bytes")
        )
        if reads or writes:
            name = entity.partition(":")[2]
            found.append(LiveDevice(name=name, reads=reads, writes=writes, read_bytes=read_bytes, write_bytes=write_bytes))
    return found


def trial_result(result: TrialResult) -> LiveTrialResult:
    """A trial that has ended, with the verdicts that did not pass."""
    open_ = [verdict for verdict in result.verdicts if verdict.result != "pass"]
    what = counted([result])
    return LiveTrialResult(
        id=result.id,
        point=result.trial.point,
        repeat=result.trial.repeat,
        seconds=result.ended - result.started,
        throughput=trial_throughput(result) if what not in (MIXED, counted_by("command")) and not emulated(result.phases) else None,
        unit=what.unit,
        tainted=result.tainted,
        error=result.error,
        verdicts=open_,
        passed=len(result.verdicts) - len(open_),
    )


def planned_seconds(phases: Sequence[LivePhase]) -> float:
    """Ramps and measured periods together; of a phase that ends with its drivers the ramp alone."""
    return sum(phase.ramp + (phase.seconds if phase.until == "clock" else 0.0) for phase in phases)
