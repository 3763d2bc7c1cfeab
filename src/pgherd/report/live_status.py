"""Status of a running run: progress, current trial, throughput, CPU and memory, checks, answer.

Everything is read from the run's directory (pgherd.store.live_state), so any process with access can watch: ``pgherd watch`` or the
web page. Each read covers only what was added since the previous one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from pgherd.drivers.driver import read_rates, tells
from pgherd.metrics.sampler import metric
from pgherd.metrics.spool import Spool
from pgherd.model.analysis import Check, Grade
from pgherd.model.base import Model
from pgherd.model.errors import RunDirectoryError
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import MIXED, TrialResult, counted, counted_by
from pgherd.model.run import RunRecord
from pgherd.report.formatting import trial_throughput
from pgherd.store.live_state import LivePhase, LiveState, LiveTrial, TailReader, output_dir, read_live, spool_file
from pgherd.store.run_directory import RunDirectory
from pgherd.study import objectives
from pgherd.study.guests import is_emulated

State = Literal["running", "finished", "interrupted", "failed", "killed"]


class LiveTrialStatus(Model):
    """The running trial.

    ``phase`` is the running one of ``phases``, or None while servers are prepared or drivers end. ``phase_part`` is its warm-up or
    measured period, ``seconds`` the planned length of that part and ``elapsed`` its elapsed time.
    """

    number: int
    point: dict[str, int | float | str]
    repeat: int
    reason: str
    phases: int
    phase: int | None = Field(None, description="from 1 on")
    name: str | None = None
    phase_part: Literal["warmup", "measured"] | None = None
    elapsed: float | None = None
    seconds: float | None = None
    ends_with: Literal["clock", "drivers"] = Field(
        "clock", description="'drivers': the part ends with the drivers, at most after 'seconds'"
    )
    drivers: dict[str, int] = Field(default_factory=dict, description="driver → number of running instances")


class LiveThroughput(Model):
    """Transactions per second in the latest second that all drivers have reported.

    ``reporting`` of ``targets`` drivers report while they run. ``series`` has the seconds of the trial: (seconds since the epoch,
    transactions per second).
    """

    value: float | None
    unit: str = "tps"
    reporting: int
    targets: int
    series: list[tuple[float, float]] = Field(default_factory=list)


class LiveUsage(Model):
    """Resource usage of a container or host: ``cpu`` of ``vcpus`` in cores, ``memory`` of ``limit`` in bytes. None: unknown, or no
    limit.
    """

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
    """A finished trial.

    ``throughput`` covers its phases. It is None if its drivers count different units, or are commands. ``checks`` are those that did not
    pass, ``passed`` the number of those that did. ``misses`` are the conditions of the objectives that a block of a search fails. None: the
    trial is no block of one.
    """

    id: str
    point: dict[str, int | float | str]
    repeat: int
    seconds: float
    throughput: float | None
    unit: str
    tainted: bool
    error: str | None
    checks: list[Check] = Field(default_factory=list)
    passed: int = 0
    misses: list[str] | None = None

    @property
    def judgement(self) -> str:
        """Return ``passes`` or ``misses by percentile`` of a block of a search by objective, otherwise ''."""
        if self.misses is None:
            return ""
        return f"misses by {' and '.join(self.misses)}" if self.misses else "passes"


class LiveStatus(Model):
    """Status of a run at one instant.

    ``trials_remaining`` counts proposed trials that have not ended, including the running one. ``seconds_remaining`` is their
    estimated duration. Both are None if no process executes the run.
    """

    run: str
    study: str
    state: State
    at: float
    started: float
    ended: float | None
    elapsed: float
    setup_step: str | None = None
    trials_done: int
    trials_remaining: int | None = None
    seconds_remaining: float | None = None
    trial: LiveTrialStatus | None = None
    throughput: LiveThroughput | None = None
    host: LiveUsage | None = None
    hosts: list[LiveUsage] = Field(default_factory=list, description="each of several hosts; 'host' is then their sum")
    containers: list[LiveUsage] = Field(default_factory=list)
    devices: list[LiveDevice] = Field(default_factory=list)
    trials: list[LiveTrialResult] = Field(default_factory=list)
    answer: str | None = None
    grade: Grade | None = None
    error: str | None = None
    resume: str | None = Field(None, description="command that resumes the run, if it is resumable")


_IN_USE = ("cpu.user", "cpu.nice", "cpu.system", "cpu.irq", "cpu.softirq")

Series = list[tuple[float, float]]
"""(seconds since the epoch, value), in order of time."""


class ReadingsSource(Protocol):
    """Samples of the running trial."""

    def series(self, entity: str, name: str) -> Series:
        """Return a gauge's readings, or a counter's increase per second."""
        ...

    def latest(self, entity: str, name: str) -> float | None:
        """Return the last value of the series, or None."""
        ...


def participating_hosts(record: RunRecord, trial: LiveTrial) -> Mapping[str, HostFacts]:
    """Return the cluster hosts of a trial, or nothing in a run on this host."""
    if record.environment is None or record.environment.cluster is None:
        return {}
    return {name: facts for name, facts in record.hosts.items() if name in trial.hosts}


def host_usage(readings: ReadingsSource, record: RunRecord, trial: LiveTrial) -> tuple[LiveUsage, list[LiveUsage]]:
    """Return used CPU in cores and unavailable memory of the host. With several hosts: their sum, and each."""
    hosts = participating_hosts(record, trial)
    if not hosts:
        facts = next(iter(record.hosts.values()), None)
        return _usage(readings, "host", "host", None if facts is None else facts.logical_cpus), []
    usages = [_usage(readings, name, f"host:{name}", facts.logical_cpus) for name, facts in hosts.items()]
    total = LiveUsage(
        name="all hosts",
        cpu=_total([usage.cpu for usage in usages]),
        vcpus=_total([usage.vcpus for usage in usages]),
        memory=_total([usage.memory for usage in usages]),
        limit=_total([usage.limit for usage in usages]),
    )
    return total, usages


def cpu_in_use(readings: ReadingsSource, record: RunRecord, trial: LiveTrial) -> Series:
    """Return the used CPU over time, in cores. With several hosts: the sum of their latest readings at each reading."""
    entities = [f"host:{name}" for name in participating_hosts(record, trial)] or ["host"]
    by_host = [_by_instant([readings.series(entity, name) for name in _IN_USE]) for entity in entities]
    if len(by_host) == 1:
        return by_host[0]
    total: Series = []
    last: dict[int, float] = {}
    for t, number, value in sorted((t, number, value) for number, series in enumerate(by_host) for t, value in series):
        last[number] = value
        if len(last) == len(by_host):
            total.append((t, sum(last.values())))
    return total


def _usage(readings: ReadingsSource, name: str, entity: str, cores: float | None) -> LiveUsage:
    rates = [rate for mode in _IN_USE if (rate := readings.latest(entity, mode)) is not None]
    total, available = readings.latest(entity, "memory.total"), readings.latest(entity, "memory.available")
    memory = None if total is None or available is None else total - available
    return LiveUsage(name=name, cpu=sum(rates) if rates else None, vcpus=cores, memory=memory, limit=total)


def _total(values: Sequence[float | None]) -> float | None:
    """Return the sum, or None if one value is unknown, because a partial sum would look like that of all hosts."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _by_instant(parts: Sequence[Series]) -> Series:
    """Return the sum of series of one source by instant."""
    sums: dict[float, float] = {}
    for part in parts:
        for t, value in part:
            sums[t] = sums.get(t, 0.0) + value
    return sorted(sums.items())


_MIN_SPAN = 0.8
"""Minimum seconds between two readings of a rate. Readings at phase borders follow regular ones closely."""
_STARTUP_SECONDS = 10.0
"""Seconds within which a new run without a lock counts as starting."""
_RECENT_READINGS = 900
"""Maximum number of retained readings per metric, about one a second."""
_RECENT_BYTES = 8 * 2**20
"""Maximum bytes read of a long file at once, because reading disturbs the measured host."""
_SAMPLERS = frozenset({"cpu", "memory", "diskstats", "cgroup_cpu", "cgroup_memory", "processes"})
"""Samplers whose readings are shown. Others are skipped."""


class SpooledReadings:
    """Spooled samples of the running trial by entity and metric, of the last 15 minutes."""

    def __init__(self, spool: Path) -> None:
        self._spool = Spool(TailReader(spool, recent=_RECENT_BYTES, always=b'{"sources"'), only=_SAMPLERS)
        self._series: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._before: dict[tuple[str, str], tuple[float, float]] = {}

    def read(self) -> None:
        """Read the samples added since the last call."""
        for t, _, entity, values in self._spool:
            for name, value in values.items():
                if metric(name).kind == "counter":
                    self._count((entity, name), t, value)
                else:
                    self._add((entity, name), t, value)

    def _count(self, key: tuple[str, str], t: float, value: float) -> None:
        """Add rates over spans of about a second. A decrease restarts the counter."""
        before = self._before.get(key)
        if before is None or value < before[1]:
            self._before[key] = (t, value)
        elif t - before[0] >= _MIN_SPAN:
            self._add(key, t, (value - before[1]) / (t - before[0]))
            self._before[key] = (t, value)

    def _add(self, key: tuple[str, str], t: float, value: float) -> None:
        self._series.setdefault(key, deque(maxlen=_RECENT_READINGS)).append((t, value))

    def entities(self, prefix: str) -> list[str]:
        """Return the sorted entities of a kind, such as ``container:``."""
        return sorted({entity for entity, _ in self._series if entity.startswith(prefix)})

    def series(self, entity: str, name: str) -> Series:
        """Return a gauge's readings, or a counter's increase per second (a counter of CPU seconds: cores)."""
        return list(self._series.get((entity, name), ()))

    def latest(self, entity: str, name: str) -> float | None:
        """Return the last value of the series, or None. A rate needs two readings."""
        series = self._series.get((entity, name))
        return series[-1][1] if series else None


class SummedSeries:
    """Sum of several series by second, for the seconds that all of them have."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._seconds: dict[int, dict[int, float]] = {}
        self.series: deque[tuple[float, float]] = deque(maxlen=_RECENT_READINGS)

    def add(self, part: int, values: Iterable[tuple[float, float]]) -> None:
        """Add values of one of the series."""
        for t, value in values:
            second = self._seconds.setdefault(int(t), {})
            second[part] = value
            if len(second) == self._parts:
                self.series.append((float(int(t)), sum(second.values())))
                # Earlier seconds stay incomplete: each driver reports in order.
                self._seconds = {other: values_of for other, values_of in self._seconds.items() if other > int(t)}


class LiveRun:
    """A run whose status is read repeatedly."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.readings: SpooledReadings | None = None
        """Samples of the running trial, or None."""
        self.cpu: Series = []
        """Used CPU over the running trial, in cores."""
        self._trial: int | None = None
        self._drivers: dict[int, tuple[SummedSeries, list[tuple[str, TailReader]]]] = {}
        self._results: dict[str, LiveTrialResult] = {}

    def look(self) -> LiveStatus:
        """Return the current status.

        Raises:
            RunDirectoryError: the directory has no run that this version can read.
        """
        alive = self.directory.alive()  # before run.json, so that a run that ends in between counts as ended
        record = self.directory.record()
        now = time.time()
        state = run_state(record, self.directory, alive, now)
        live = read_live(self.directory.path) if state == "running" else None
        self._follow(live.trial if live else None)
        self._read_results(record)
        analysis = record.analysis
        status = LiveStatus(
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
            resume=f"pgherd resume {self.directory.argument}" if state in ("interrupted", "failed", "killed") else None,
        )
        return status if live is None else status.model_copy(update=self._live(live, record, now))

    def _follow(self, trial: LiveTrial | None) -> None:
        """Switch to the current trial and read its new samples."""
        number = None if trial is None else trial.number
        if number != self._trial:
            self._trial = number
            self.readings = None if number is None else SpooledReadings(spool_file(self.directory.path, number))
            self._drivers = {}
        if self.readings is not None:
            self.readings.read()

    def _live(self, live: LiveState, record: RunRecord, now: float) -> dict[str, object]:
        update: dict[str, object] = {
            "setup_step": live.step,
            "trials_remaining": live.trials_remaining + (live.trial is not None),
            "seconds_remaining": seconds_remaining(live, now),
        }
        if live.trial is None or self.readings is None:
            return update
        self.cpu = cpu_in_use(self.readings, record, live.trial)
        host, hosts = host_usage(self.readings, record, live.trial)
        return {
            **update,
            "trial": trial_status(live, now),
            "throughput": self._throughput(live),
            "host": host,
            "hosts": hosts,
            "containers": container_usage(self.readings, live.trial),
            "devices": devices(self.readings),
        }

    def _throughput(self, live: LiveState) -> LiveThroughput | None:
        """Return the throughput of all phases so far, or None if no running driver reports it."""
        trial = live.trial
        if trial is None or live.phase is None or live.phase >= len(trial.phases):
            return None
        series: Series = []
        for index in range(live.phase + 1):
            total, outputs = self._outputs(trial, index)
            for part, (driver, lines) in enumerate(outputs):
                total.add(part, read_rates(driver, "".join(line.decode(errors="replace") + "\n" for line in lines)))
            series += total.series
        targets = len(trial.phases[live.phase].loads)
        value = series[-1][1] if series else None
        return LiveThroughput(value=value, reporting=len(outputs), targets=targets, series=series[-_RECENT_READINGS:]) if targets else None

    def _outputs(self, trial: LiveTrial, phase: int) -> tuple[SummedSeries, list[tuple[str, TailReader]]]:
        """Return the sum of the reporting drivers of a phase, and their outputs."""
        if phase not in self._drivers:
            directories = [
                (driver, output_dir(trial, phase, target)) for target, driver in trial.phases[phase].loads.items() if tells(driver)
            ]
            outputs = [
                (driver, TailReader(directory / "stderr", recent=_RECENT_BYTES))
                for driver, directory in directories
                if directory is not None
            ]
            self._drivers[phase] = SummedSeries(len(outputs)), outputs
        return self._drivers[phase]

    def _read_results(self, record: RunRecord) -> None:
        """Read the trials that have ended since the last call. An unreadable one is skipped, because it may be about to be removed."""
        for name in self.directory.trial_names():
            if name not in self._results:
                with suppress(RunDirectoryError):
                    self._results[name] = trial_result(record, self.directory.result(name))


def run_state(record: RunRecord, directory: RunDirectory, alive: bool, now: float) -> State:
    """Return the state of the run.

    It is that of run.json with two exceptions. A running run without a process was killed. An interrupted run with a process was
    resumed, or is
    about to end.
    """
    if alive:
        return "finished" if record.state == "finished" else "running"
    if record.state != "running":
        return record.state
    starting = not (directory.path / "lock").exists() and now - record.started < _STARTUP_SECONDS
    return "running" if starting else "killed"


def newest_running(root: Path) -> RunDirectory | None:
    """Return the newest running run below the root, or None."""
    return next((directory for directory in reversed(RunDirectory.all(root)) if directory.alive()), None)


def seconds_remaining(live: LiveState, now: float) -> float | None:
    """Return the estimated duration of the remaining trials, or None if unknown."""
    if live.trial is None or live.seconds_left is None:
        return live.seconds_left
    if any(phase.until == "drivers" for phase in live.trial.phases) or live.phase is None or live.phase_begun is None:
        if live.overhead is None:
            return None
        current = live.trial.begun + planned_seconds(live.trial.phases) + live.overhead - now
    else:
        current = live.phase_begun + planned_seconds(live.trial.phases[live.phase :]) - now
    return live.seconds_left + max(current, 0.0)


def trial_status(live: LiveState, now: float) -> LiveTrialStatus:
    """Return the running trial and its current phase."""
    trial = live.trial
    assert trial is not None
    status = LiveTrialStatus(number=trial.number, point=trial.point, repeat=trial.repeat, reason=trial.reason, phases=len(trial.phases))
    if live.phase is None or live.phase_begun is None or live.phase >= len(trial.phases):
        return status
    phase = trial.phases[live.phase]
    elapsed = now - live.phase_begun
    measured = elapsed >= phase.warmup
    drivers: dict[str, int] = {}
    for driver in phase.loads.values():
        drivers[driver] = drivers.get(driver, 0) + 1
    progress = {
        "phase": live.phase + 1,
        "name": phase.name,
        "phase_part": "measured" if measured else "warmup",
        "elapsed": _within(elapsed - phase.warmup, phase.seconds) if measured else _within(elapsed, phase.warmup),
        "seconds": phase.seconds if measured else phase.warmup,
        "ends_with": phase.until,
        "drivers": drivers,
    }
    return status.model_copy(update=progress)


def _within(value: float, limit: float) -> float:
    return min(max(value, 0.0), limit)


def container_usage(readings: SpooledReadings, trial: LiveTrial) -> list[LiveUsage]:
    """Return each container's CPU in cores and memory in bytes (charged to its cgroup, otherwise resident), with its limits."""
    usages = []
    for entity in readings.entities("container:"):
        name = entity.partition(":")[2]
        container = trial.containers.get(name)
        if container is None:
            continue  # an auxiliary cgroup, such as one that withholds memory
        memory = readings.latest(entity, "memory.usage")
        usages.append(
            LiveUsage(
                name=name,
                cpu=readings.latest(entity, "cpu.usage"),
                vcpus=container.vcpus,
                memory=readings.latest(entity, "memory.rss") if memory is None else memory,
                limit=container.memory,
            )
        )
    return usages


def devices(readings: SpooledReadings) -> list[LiveDevice]:
    """Return the block devices with current requests."""
    active = []
    for entity in readings.entities("disk:"):
        reads, writes, read_bytes, write_bytes = (
            readings.latest(entity, name) or 0.0 for name in ("reads", "writes", "read_bytes", "write_bytes")
        )
        if reads or writes:
            name = entity.partition(":")[2]
            active.append(LiveDevice(name=name, reads=reads, writes=writes, read_bytes=read_bytes, write_bytes=write_bytes))
    return active


def trial_result(record: RunRecord, result: TrialResult) -> LiveTrialResult:
    """Return a finished trial of the run with the checks that did not pass."""
    not_passed = [check for check in result.checks if check.result != "pass"]
    unit = counted([result])
    return LiveTrialResult(
        id=result.id,
        point=result.trial.point,
        repeat=result.trial.repeat,
        seconds=result.ended - result.started,
        throughput=trial_throughput(result) if unit not in (MIXED, counted_by("command")) and not is_emulated(result.phases) else None,
        unit=unit.unit,
        tainted=result.tainted,
        error=result.error,
        checks=not_passed,
        passed=len(result.checks) - len(not_passed),
        misses=_misses(record, result),
    )


def _misses(record: RunRecord, result: TrialResult) -> list[str] | None:
    """Return the conditions that a block fails. None of a trial that is no finished block of a search by objective."""
    counted = any(load.objectives for phase in result.trial.phases for load in phase.loads.values())
    if not record.objectives or not counted or result.error is not None:
        return None
    return list(objectives.misses(result, record.objectives, record.thresholds))


def planned_seconds(phases: Sequence[LivePhase]) -> float:
    """Return the length of warm-ups and measured periods. A phase that ends with its drivers counts only its warm-up."""
    return sum(phase.warmup + (phase.seconds if phase.until == "clock" else 0.0) for phase in phases)
