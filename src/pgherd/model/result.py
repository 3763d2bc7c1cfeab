"""Result of a trial: the numbers for analysis. Stored as ``trial.json``, next to the raw files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

from pgherd.model.analysis import Check
from pgherd.model.base import NAME, TARGET, Model
from pgherd.model.device_io import DeviceIo
from pgherd.model.prometheus import PrometheusView
from pgherd.model.trial import Trial

_USED = ("cpu.user", "cpu.nice", "cpu.system", "cpu.irq", "cpu.softirq")


class Latency(Model):
    """Transaction latency of one target in one phase, in milliseconds.

    A percentile is None if fewer than ten sampled transactions exceed it. ``sampled`` is the number of logged transactions. In
    an open loop latency counts from the scheduled start.
    """

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    maximum: float | None = Field(None, description="largest among the sampled transactions")
    under_50us: float | None = Field(None, description="share of the sampled transactions that took less than 0.05 ms")
    sampled: int = 0
    lag_mean: float | None = Field(None, description="open loop: mean schedule lag")
    lag_max: float | None = None
    lag_growth: float | None = Field(None, description="open loop: growth of the schedule lag, in seconds per second")


class Slice(Model):
    """Time slice of a target: the instants between which its load ran.

    ``switches`` is the number of context switches of the whole host in that time. None means not observed.
    """

    begun: float
    ended: float
    switches: int | None = None


class TargetResult(Model):
    """One target's part of one phase, counted over the common window only.

    ``transactions`` are those in the window, ``throughput`` is per second, and ``per_second`` the series by whole seconds from
    the start of the window. The driver ran from ``first`` to ``last`` (wall clock). ``client_cpu`` is the driver's CPU in cores
    over its lifetime. ``failed`` counts failed transactions. If the target is not a database, a transaction is the driver's
    unit of work (such as an I/O of fio). ``values`` and ``series`` hold its other measurements. With ``turns``, ``throughput``
    is per second of the target's slices, and ``transactions`` are those of its slices within the window.
    """

    target: str = Field(pattern=TARGET)
    driver: str
    transactions: float
    throughput: float
    per_second: list[float] = Field(default_factory=list)
    latency: Latency = Latency()
    failed: int = 0
    scripts: dict[str, float] = Field(
        default_factory=dict,
        description="transactions committed in the window, by script name: exact if all transactions are logged, otherwise estimated",
    )
    first: float
    last: float
    slices: list[Slice] = Field(default_factory=list)
    client_cpu: float | None = None
    client_cpu_seconds: float | None = None
    raw: list[str] = Field(default_factory=list, description="files, relative to the trial's directory")
    clock_ahead: float = Field(0.0, description="lead of the clock in these files over the run's clock (s), if they are from another host")
    values: dict[str, float] = Field(default_factory=dict, description="other measurements of the driver (a name ends in its unit)")
    series: dict[str, list[float]] = Field(
        default_factory=dict, description="more series by whole seconds from the start of the window (a name ends in its unit)"
    )
    nopm: float | None = Field(None, description="committed new orders of the window, per minute (None without such a script)")


class MemoryBalance(Model):
    """Balance of the host's memory budget by second: containers + unallocated = budget (bytes).

    ``worst`` is the largest gap as a share of the budget, at the instant ``worst_at`` (seconds since the epoch). ``budget``,
    ``containers`` and ``unallocated`` belong to that instant. A positive gap is memory that no container is charged for.
    """

    seconds: int = Field(ge=1)
    worst: float
    worst_at: float
    budget: float
    containers: float
    unallocated: float


def counter_increase(before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the increase of a statement's counters, or ``after`` if a smaller one shows that they were reset.

    ``time_ms`` is a sum, whose rounding can differ. So it shows no reset of a statement without a further call.
    """
    found = {name: value - before[name] for name, value in after.items()}
    return after if any(value < 0 for name, value in found.items() if name != "time_ms" or found["calls"]) else found


class StatementCounters(Model):
    """Counters of pg_stat_statements of one statement, or their increase. ``time_ms`` is its time on the server, without planning."""

    calls: int = 0
    time_ms: float = 0.0
    rows: int = 0
    shared_hits: int = 0
    shared_reads: int = 0
    wal_bytes: int = 0

    def since(self, before: StatementCounters | None) -> StatementCounters:
        """Return the increase since ``before``. Counters that were reset count from zero."""
        if before is None:
            return self
        fields = set(StatementCounters.model_fields)
        return StatementCounters(**counter_increase(before.model_dump(include=fields), self.model_dump(include=fields)))


class StatementUse(StatementCounters):
    """Use of a server by one statement. Without ``queryid`` it is the sum of statements of other users, which are hidden."""

    queryid: str
    text: str


class ServerStatements(Model):
    """Statements of an external server's database between the borders of a phase.

    ``seconds`` is the time between the snapshots, and ``time_ms`` that of all statements. ``top`` are those with the most time.
    """

    seconds: float
    calls: int
    time_ms: float
    top: list[StatementUse]


class PhaseResult(Model):
    """Result of one phase. Its common window (wall-clock seconds since the epoch) is the time in which all its drivers ran.

    ``overlap`` is the common window over the planned measured period. ``skew`` is the time in seconds between the first and the
    last target's switch to the phase's load, by the drivers' output. Over several hosts it includes the uncertainty of their
    clocks. It is None for a single target. ``metrics`` maps an entity (``host``, ``container:NAME``,
    ``server:CONTAINER/SERVER``, ``disk:NAME``, ``driver:TARGET``, ``pgherd``) to its metrics over the window: the rate per
    second of a counter, the mean of a gauge. Names and units are those of pgherd.metrics.
    """

    phase: str = Field(pattern=NAME)
    start: float
    end: float
    overlap: float
    targets: list[TargetResult]
    skew: float | None = Field(None, ge=0)
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    memory: MemoryBalance | None = Field(None, description="memory balance of the host by second (None without a memory budget)")
    limited_after: dict[str, float | None] = Field(
        default_factory=dict, description="seconds until each container had the phase's memory limit (None: the kernel refused it)"
    )
    limit_wait: float = Field(0.0, ge=0, description="seconds after the phase, without load, until the last write of a limit had ended")
    waits: dict[str, dict[str, list[float]]] = Field(
        default_factory=dict, description="sessions of external servers by class of wait event: server → class → mean by second"
    )
    statements: dict[str, ServerStatements] = Field(
        default_factory=dict, description="statements by time on external servers (pg_stat_statements), by server"
    )
    prometheus: list[PrometheusView] = Field(default_factory=list, description="samples of external servers from Prometheus")
    io: DeviceIo | None = Field(None, description="I/O of the devices below the servers (None if not observed)")

    @property
    def seconds(self) -> float:
        """Length of the common window in seconds."""
        return self.end - self.start

    def loaded(self, target: TargetResult) -> float:
        """Return the share of the window in which a target's driver ran. It is 1 without time slices."""
        return sum(turn.ended - turn.begun for turn in target.slices) / self.seconds if target.slices else 1.0

    @property
    def throughput(self) -> float:
        """Sum over all targets, per second. With time slices, weighted by each target's share of the window."""
        return sum(target.throughput * self.loaded(target) for target in self.targets)

    @property
    def nopm(self) -> float | None:
        """Committed new orders per minute of all targets with such a script. None without any."""
        rates = [target.nopm for target in self.targets if target.nopm is not None]
        return sum(rates) if rates else None

    def busy_cores(self, host: str = "host") -> float | None:
        """Return the CPU used on the host, in cores. None if not observed.

        It is online CPUs less idle, I/O wait and steal. A kernel with tick-based accounting misses tasks that start and stop in
        step with the tick, such as those under a quota, but it measures idle time by the clock. If the number of online CPUs
        was not sampled, the result is the sum of the kinds of use.

        Args:
            host: entity of the host. With several hosts it is ``host:NAME``.
        """
        metrics = self.metrics.get(host, {})
        if "cpu.user" not in metrics:
            return None
        if "cpu.online" in metrics and "cpu.idle" in metrics:
            unused = metrics["cpu.idle"] + metrics.get("cpu.iowait", 0.0) + metrics.get("cpu.steal", 0.0)
            return max(metrics["cpu.online"] - unused, 0.0)
        return sum(metrics.get(name, 0.0) for name in _USED)


class OomKill(Model):
    """Processes of a container that the kernel's OOM killer ended.

    ``at`` is the wall-clock instant of the observation, or of the first kill if the kernel's log is readable. ``names`` are the
    processes' names. ``limit`` is the limit that was reached: the container's, or that of the run's cgroup. None means unknown.
    """

    container: str
    processes: int = Field(ge=1)
    time: float
    names: tuple[str, ...] = ()
    limit: Literal["container", "run"] | None = None


class TrialResult(Model):
    """Finished trial. If ``error`` is set, the trial failed for that reason and has no numbers.

    ``probe`` holds the readings of a trial with a probe and no load, by name. A name ends in its unit (``database_bytes``).
    """

    id: str
    trial: Trial
    started: float
    ended: float
    transition: str = ""
    phases: list[PhaseResult] = Field(default_factory=list)
    probe: dict[str, float] = Field(default_factory=dict)
    checks: list[Check] = Field(default_factory=list)
    error: str | None = None
    oom_kills: tuple[OomKill, ...] = Field((), description="OOM kills, a finding of the trial")
    settings: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="settings that differ from the default, by class of servers, as reported by the server"
    )

    @property
    def tainted(self) -> bool:
        """Whether the trial failed or a tainting check failed. An unknown validity check does not taint."""
        return self.error is not None or any(v.taints for v in self.checks)


def clean_or_all(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the clean trials, or all if none is clean."""
    return [result for result in results if not result.tainted] or list(results)


class WorkUnit(NamedTuple):
    """Unit of work of a driver: ``unit`` of its rate per second, and the singular and plural noun."""

    unit: str
    one: str
    many: str


DATABASE: Final = WorkUnit("tps", "transaction", "transactions")
MIXED: Final = WorkUnit("1/s", "count", "counts")
"""For drivers with different units of work. Their sum has no meaning."""

_COUNTED = {
    "pgbench": DATABASE,
    "fio": WorkUnit("IOPS", "I/O", "I/Os"),
    "iperf3": WorkUnit("bytes/s", "byte", "bytes"),
    "command": WorkUnit("runs/s", "run", "runs"),
}


def counted_by(driver: str) -> WorkUnit:
    """Return the unit of work of a driver. The default is a transaction."""
    return _COUNTED.get(driver, DATABASE)


def counted(results: Iterable[TrialResult]) -> WorkUnit:
    """Return the unit of work of the trials' drivers. The default is a transaction."""
    units = {counted_by(load.driver) for result in results for phase in result.trial.phases for load in phase.loads.values()}
    if len(units) > 1:
        return MIXED
    return units.pop() if units else DATABASE
