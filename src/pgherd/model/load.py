"""Loads and phases: which driver loads which target, and for how long."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.base import NAME, Model

Protocol = Literal["simple", "extended", "prepared"]
ClientPlace = Literal["inside", "outside"]


NEW_ORDER = "new-order"
"""Name of the script whose transactions in the window count as new orders per minute (NOPM)."""


MIN_TRANSACTION_TIMEOUT_S = 60.0


def transaction_timeout(seconds: float) -> float:
    """Return the time in seconds after which a transaction is given up, for trials with this measured time.

    It is the same in the rehearsal of scripts and at the end of a trial. The rehearsal refuses scripts whose pace (mean duration of a
    transaction) exceeds the measured time, so that a trial waits for each transaction that passed.
    """
    return max(MIN_TRANSACTION_TIMEOUT_S, seconds)


class Script(Model):
    """Transaction script with its weight in the mix.

    It is a pgbench builtin (``builtin:select-only``), a script of a workload (``orders:payment``), or a file. Transactions of
    scripts with a ``name`` are counted separately under that name.
    """

    source: str
    weight: int = Field(1, ge=1)
    name: str | None = None


LatencyClass = Literal["within", "near", "beyond"]
"""Whether a host keeps a latency objective: by all of the measured interval, by a part of it, or not at all."""


class LatencyObjective(Model):
    """Limit of a percentile of the latency: p99 within 10 ms means that at least 99 % of the transactions take at most 10 ms."""

    percentile: float = Field(ge=50, lt=100)
    limit_ms: float = Field(gt=0)

    @property
    def allowed(self) -> float:
        """Share of the transactions that may take longer. It is rounded, because 1 − 90 / 100 is less than 0.1."""
        return round(1 - self.percentile / 100, 12)

    def most_late(self, logged: float) -> float:
        """Return how many of these transactions of a second may be late: the allowed share, plus three standard deviations.

        Weathervane demands 99 % in every window. That is more than a p95 promises, and at the limit chance alone breaks it in up to half of
        all seconds.
        """
        expected = self.allowed * logged
        return expected + 3 * math.sqrt(expected)

    @property
    def name(self) -> str:
        """The percentile as text, such as ``p99``."""
        return f"p{self.percentile:g}"

    @property
    def key(self) -> str:
        """The objective as a part of a name, such as ``p99_10ms``."""
        return f"{self.name}_{self.limit_ms:g}ms"

    @property
    def doubled(self) -> LatencyObjective:
        """The same percentile with twice the limit."""
        return self.model_copy(update={"limit_ms": 2 * self.limit_ms})

    def __str__(self) -> str:
        return f"{self.name} ≤ {self.limit_ms:g} ms"


class Load(Model):
    """Driver with clients or a rate on one target.

    ``driver`` names a module of pgherd.drivers, or 'idle'. ``rate`` (transactions per second) makes an open loop, in which
    latency counts from the scheduled start. ``place``: whether the driver runs inside the target's container, and so inside its
    CPU quota (as in E1), or outside. ``host`` is the driver's host if it differs from the database's host. ``sampling`` is the
    fraction of transactions logged.

    Scripts are for pgbench only. Other drivers have none, and are configured by ``options``. A driver whose target is not a
    database runs outside any container.
    """

    driver: str = "pgbench"
    clients: int = Field(1, ge=1)
    threads: int = Field(1, ge=1)
    rate: float | None = Field(None, gt=0)
    scripts: tuple[Script, ...] = (Script(source="builtin:select-only"),)
    protocol: Protocol = "prepared"
    client_placement: ClientPlace = "inside"
    host: str | None = None
    sampling: float = Field(0.05, gt=0, le=1)
    kept_from_writing: bool = Field(False, description="the server's settings, or those of the sessions, reject writes")
    sched_batch: bool = Field(False, description="the driver runs under SCHED_BATCH")
    objectives: tuple[LatencyObjective, ...] = Field((), description="limits beyond which the driver counts logged transactions (pgbench)")
    options: dict[str, str] = Field(default_factory=dict, description="options of the driver (see its module)")

    @model_validator(mode="before")
    @classmethod
    def _scripts_need_pgbench(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("driver", "pgbench") != "pgbench":
            return {"scripts": (), "client_placement": "outside", **data}
        return data

    @property
    def ends_itself(self) -> bool:
        """Whether its driver ends after a number of transactions (pgbench's option ``transactions``), before it is stopped."""
        return "transactions" in self.options

    @property
    def open_files(self) -> int:
        """Files that its driver opens: a connection for each client, a log for each thread, and a reserve of 64."""
        return self.clients + self.threads + 64

    @property
    def read_only(self) -> bool:
        """Whether the load is certain not to write to a database."""
        return self.kept_from_writing or all(script.source == "builtin:select-only" for script in self.scripts)


class TimeSlicing(Model):
    """Time slices of a phase's loads. All loads are connected, and at any time all but those of one name are stopped (SIGSTOP).

    ``of`` maps a name to the container whose databases it loads. Each round has one slice of ``seconds`` for each name, and
    ``seed`` shuffles the rounds. Only the last ``counted`` seconds of each slice count for rates, because an idle cgroup starts
    with unused CPU quota.
    """

    of: dict[str, str] = Field(min_length=2)
    seconds: float = Field(gt=0)
    counted: float = Field(gt=0)
    seed: str = ""

    @model_validator(mode="after")
    def _counted_is_a_part(self) -> TimeSlicing:
        if self.counted > self.seconds:
            raise ValueError(f"counted time of {self.counted:g} s exceeds the slice of {self.seconds:g} s")
        return self

    @property
    def lead(self) -> float:
        """Seconds at the start of a slice that never count, even in a slice that started late."""
        return (self.seconds - self.counted) / 2

    def targets(self, name: str, loads: Iterable[str]) -> tuple[str, ...]:
        """Return the targets of ``loads`` whose slices belong to a name."""
        return tuple(target for target in loads if target.split("/")[1] == self.of[name])


class Phase(Model):
    """Warm-up (``ramp`` seconds, not counted) and a measured period (``seconds``) with one load for each target.

    ``loads`` maps a target (``host/container/server/database`` for a database) to its load. Other targets are idle. All loads
    switch at the same instant. ``until`` 'clock': drivers are stopped at the end of the measured period. 'drivers': the phase
    ends when all drivers have finished, and ``seconds`` is their time limit. ``turns``: the loads run in time slices during the
    measured period. This requires pgbench without a rate.
    """

    name: str = Field("steady", pattern=NAME)
    warmup: float = Field(1.0, ge=0)
    seconds: float = Field(10.0, gt=0)
    loads: dict[str, Load] = Field(default_factory=dict)
    until: Literal["clock", "drivers"] = "clock"
    slices: TimeSlicing | None = None
    memory: dict[str, int] = Field(
        default_factory=dict,
        description="memory limit (bytes) of containers from the start of the measured period on",
    )

    def planned(self) -> float:
        """Return the seconds of warm-up and measured period, or of the warm-up if the phase ends with its drivers."""
        return self.warmup + (self.seconds if self.until == "clock" else 0.0)

    @field_validator("loads")
    @classmethod
    def _idle_is_absence(cls, loads: dict[str, Load]) -> dict[str, Load]:
        return {target: load for target, load in loads.items() if load.driver != "idle"}

    @model_validator(mode="after")
    def _loads_can_be_sliced(self) -> Phase:
        if self.slices is None:
            return self
        containers = self.slices.of.values()
        targets = sorted(target for target in self.loads if target.count("/") != 3 or target.split("/")[1] not in containers)
        if targets:
            raise ValueError(
                f"phase '{self.name}' loads {', '.join(targets)} without a time slice. Containers with one: {', '.join(containers)}"
            )
        if self.until != "clock" or any(load.driver != "pgbench" or load.rate is not None for load in self.loads.values()):
            raise ValueError(f"the loads of phase '{self.name}' cannot run in time slices: only pgbench without a rate can be stopped")
        return self
