"""What came of a trial: the numbers that analysis works on. Stored as ``trial.json``; raw files lie beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.finding import Verdict
from pgherd.model.io_view import IoView
from pgherd.model.trial import Trial

_USED = ("cpu.user", "cpu.nice", "cpu.system", "cpu.irq", "cpu.softirq")


class Latency(Model):
    """Transaction latency of one target in one phase, in milliseconds.

    A percentile is None where fewer than ten sampled transactions lie beyond it. ``sampled`` is the number of logged
    transactions the percentiles rest on; in an open loop latency counts from the scheduled start.
    """

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    maximum: float | None = Field(None, description="largest among the sampled transactions")
    sampled: int = 0
    lag_mean: float | None = Field(None, description="open loop: mean schedule lag")
    lag_max: float | None = None


class Turn(Model):
    """One turn of a target whose load took turns with others: between which instants it went on. ``switches`` is how many context
    switches the whole host had meanwhile; None where they were not seen."""

    begun: float
    ended: float
    switches: int | None = None


class TargetResult(Model):
    """One target's share of one phase, counted over the common window only.

    ``transactions`` in the window; ``throughput`` per second; ``per_second`` the series by whole seconds from the
    start of the window; ``first`` and ``last`` the wall-clock instants between which the driver ran; ``client_cpu``
    the driver's own CPU in cores over its whole life; ``failed`` failed transactions. For a target that is no database a
    transaction is what its driver counts (an I/O of fio); ``values`` and ``series`` hold what else it measured. Where loads took
    ``turns``, ``throughput`` is per second of its own turns, and ``transactions`` those of the window, which are those of its turns.
    """

    target: str
    driver: str
    transactions: float
    throughput: float
    per_second: list[float] = Field(default_factory=list)
    latency: Latency = Latency()
    failed: int = 0
    scripts: dict[str, float] = Field(
        default_factory=dict,
        description="transactions committed in the window, by the script's name; exact where every transaction is logged, else estimated",
    )
    first: float
    last: float
    turns: list[Turn] = Field(default_factory=list)
    client_cpu: float | None = None
    client_cpu_seconds: float | None = None
    raw: list[str] = Field(default_factory=list, description="files, relative to the trial's directory")
    ahead: float = Field(0.0, description="by how much the clock in these files is ahead of the run's (s): it is another host's")
    values: dict[str, float] = Field(default_factory=dict, description="what else the driver measured; the name ends in the unit")
    series: dict[str, list[float]] = Field(
        default_factory=dict, description="more series by whole seconds from the start of the window; the name ends in the unit"
    )
    new_orders_per_minute: float | None = Field(
        None, description="NOTPM: committed new orders of the window; None where there is no such script"
    )


class MemoryAccount(Model):
    """Whether all of the host's memory budget is accounted for, second by second: containers + unallocated = budget (bytes).

    ``worst`` is the largest gap as a share of the budget, at the instant ``worst_at`` (seconds since the epoch), to which ``budget``,
    ``containers`` and ``unallocated`` belong. Positive: charged to no container.
    """

    seconds: int = Field(ge=1)
    worst: float
    worst_at: float
    budget: float
    containers: float
    unallocated: float


class PhaseResult(Model):
    """One phase: the common window (wall-clock seconds since the epoch) in which all its drivers ran.

    ``overlap`` is the common window over the planned measured period. ``skew`` (seconds) is how far apart the targets began their
    new load at the phase's start, by their drivers' own output (over several hosts with what is not known of their clocks): None for a
    single target. ``metrics`` maps an entity (``host``, ``container:NAME``, ``server:CONTAINER/SERVER``, ``disk:NAME``,
    ``driver:TARGET``, ``pgherd``) to its metrics over the window: a counter's rate per second, a gauge's mean. Names and units are
    those of pgherd.metrics.
    """

    phase: str
    start: float
    end: float
    overlap: float
    targets: list[TargetResult]
    skew: float | None = Field(None, ge=0)
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    memory: MemoryAccount | None = Field(None, description="the host's memory by second; None where nothing holds the budget")
    io: IoView | None = Field(None, description="what the devices below the servers saw; None where it was not looked at")

    @property
    def seconds(self) -> float:
        """Length of the common window in seconds."""
        return self.end - self.start

    def loaded(self, target: TargetResult) -> float:
        """The share of the window in which a target's driver went on: all of it, where loads took no turns."""
        return sum(turn.ended - turn.begun for turn in target.turns) / self.seconds if target.turns else 1.0

    @property
    def throughput(self) -> float:
        """Sum over all targets, per second; where loads took turns, of the time in which each had its own."""
        return sum(target.throughput * self.loaded(target) for target in self.targets)

    @property
    def notpm(self) -> float | None:
        """Committed new orders per minute, of all targets that enter orders; None where there is none."""
        counted = [target.new_orders_per_minute for target in self.targets if target.new_orders_per_minute is not None]
        return sum(counted) if counted else None

    def busy_cores(self, host: str = "host") -> float | None:
        """CPU used on the host, in cores; None where it was not seen. ``host`` is its entity: of several hosts ``host:NAME``.

        That is the CPUs there are less those idle, waiting for I/O, or stolen. A kernel that counts time in use by ticks
        misses tasks which start and stop in step with the tick, as those under a quota do; idle time it measures by the
        clock. Where the number of CPUs was not sampled, it is the sum of the kinds of use.
        """
        seen = self.metrics.get(host, {})
        if "cpu.user" not in seen:
            return None
        if "cpu.online" in seen and "cpu.idle" in seen:
            unused = seen["cpu.idle"] + seen.get("cpu.iowait", 0.0) + seen.get("cpu.steal", 0.0)
            return max(seen["cpu.online"] - unused, 0.0)
        return sum(seen.get(name, 0.0) for name in _USED)


class MemoryKill(Model):
    """Processes of a container that the kernel ended for want of memory.

    ``at`` is the wall-clock instant at which it was seen; where the kernel's log could be read, that of the first, and ``names`` are
    the processes'. ``limit`` says whose was reached: the container's own, or the budget of all containers; None: not seen.
    """

    container: str
    processes: int = Field(ge=1)
    at: float
    names: tuple[str, ...] = ()
    limit: Literal["container", "budget"] | None = None


class TrialResult(Model):
    """A finished trial. ``error`` set: it did not finish, and says why; such a trial has no numbers.

    ``probe`` holds the readings of a trial with a probe and no load, by name; the name ends in the unit
    (``database_bytes``).
    """

    id: str
    trial: Trial
    started: float
    ended: float
    transition: str = ""
    phases: list[PhaseResult] = Field(default_factory=list)
    probe: dict[str, float] = Field(default_factory=dict)
    verdicts: list[Verdict] = Field(default_factory=list)
    error: str | None = None
    memory_kills: tuple[MemoryKill, ...] = Field((), description="what the kernel ended for want of memory: a finding of the trial")
    settings: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="per server name class: settings that differ from the default, as the server says"
    )

    @property
    def tainted(self) -> bool:
        """True when it failed, or when a taint verdict failed; an unknown intent taints nothing but is shown."""
        return self.error is not None or any(v.taints for v in self.verdicts)


class Counted(NamedTuple):
    """``unit`` of a rate per second, and what ``one`` of them is, and ``many`` are."""

    unit: str
    one: str
    many: str


DATABASE: Final = Counted("tps", "transaction", "transactions")
MIXED: Final = Counted("1/s", "count", "counts")
"""Drivers that count different things: their sum means nothing."""

_COUNTED = {
    "pgbench": DATABASE,
    "fio": Counted("IOPS", "I/O", "I/Os"),
    "iperf3": Counted("bytes/s", "byte", "bytes"),
    "command": Counted("runs/s", "run", "runs"),
}


def counted_by(driver: str) -> Counted:
    """What a driver counts; a transaction where that is not known."""
    return _COUNTED.get(driver, DATABASE)


def counted(results: Iterable[TrialResult]) -> Counted:
    """What the trials' drivers counted; a transaction where there was none."""
    found = {counted_by(load.driver) for result in results for phase in result.trial.phases for load in phase.loads.values()}
    if len(found) > 1:
        return MIXED
    return found.pop() if found else DATABASE
