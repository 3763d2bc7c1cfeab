"""What a study says: findings, tables, verdicts, an answer with a grade."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from pgherd.model.base import Model

Grade = Literal["A", "B", "C"]
VerdictResult = Literal["pass", "fail", "unknown"]
_FROM_BEST: tuple[VerdictResult, ...] = ("pass", "unknown", "fail")


class Finding(Model):
    """A named quantity: value with unit, interval, number of repeats and how it was obtained.

    ``value`` is None where the data cannot support a number; ``note`` then says why. ``low`` and ``high`` bound it at
    ``confidence``; both None means no interval, and ``note`` says why. ``experiment`` and ``published`` tie it to the
    published figure it stands beside (E1 … E18).
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    confidence: float | None = Field(None, gt=0, lt=1)
    n: int = Field(1, ge=0)
    method: str = ""
    note: str = ""
    experiment: str | None = None
    published: str | None = None


class Verdict(Model):
    """What a check says of a trial. What cannot be seen is 'unknown' and never passes.

    ``kind`` 'intent' is declared by the study and must pass; 'noise' applies to every trial. ``observed`` and
    ``wanted`` are sentences with units, such as '3.1 % steal' and 'at most 2 %'. ``severity`` 'taint' means that a
    failed check makes the trial unfit to stand alone; 'warn' widens nothing but is said. Of a trial of several phases ``failed_in``
    names those that failed; empty where the check is of the trial as a whole.
    """

    check: str
    kind: Literal["intent", "noise"]
    result: VerdictResult
    observed: str
    wanted: str
    why: str = ""
    severity: Literal["taint", "warn"] = "taint"
    failed_in: tuple[str, ...] = ()

    @property
    def gravity(self) -> tuple[int, bool]:
        """Of several verdicts of one check (of phases, hosts, trials that go on from each other) the greatest counts: what failed before
        what could not be seen before what passed, and of those that are alike in this what taints before what is only said."""
        return _FROM_BEST.index(self.result), self.severity == "taint"

    @property
    def taints(self) -> bool:
        """Whether it makes its trial unfit to stand alone."""
        return self.result == "fail" and self.severity == "taint"


class Proposal(Model):
    """What a study wants next: trials, or nothing and the reason why it stops. Each is logged in the run."""

    trials: tuple[Any, ...] = Field((), description="pgherd.model.trial.Trial, in the order in which to run")
    stop: str | None = None
    worst_case: int | None = Field(None, description="how many trials may be run in all, at most")


class Analysis(Model):
    """All that a study concludes. Cells of a table row are plain values or Findings.

    ``answer`` is one sentence; ``look_at`` says where to look further; ``figures`` holds what the plots need beyond
    the tables, by figure name (plain lists and numbers).
    """

    answer: str
    grade: Grade
    findings: dict[str, Finding] = Field(default_factory=dict)
    tables: dict[str, list[dict[str, Finding | str | int | float | None]]] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    look_at: list[str] = Field(default_factory=list)
    figures: dict[str, Any] = Field(default_factory=dict)


class Thresholds(Model):
    """Limits against which verdicts hold what was observed. All can be changed (``--threshold NAME=VALUE``)."""

    overlap: float = Field(default=0.95, gt=0, le=1, description="least share of the planned period in which all drivers ran (share)")
    late_end: float = Field(default=0.1, gt=0, description="most by which a measured period may outlast its plan (share)")
    cpu_bound: float = Field(default=0.95, gt=0, le=1, description="least share of its given CPU that a loaded container used (share)")
    host_full: float = Field(default=0.97, gt=0, le=1, description="the host counts as full from this share of its cores on (share)")
    hit_ratio: float = Field(default=0.99, gt=0, le=1, description="least buffer hit ratio of a cached database (share)")
    device_reads: float = Field(default=0.01, ge=0, description="most device reads per transaction of a cached database (reads/tx)")
    client_cpu: float = Field(
        default=0.90, gt=0, le=1, description="a driver is the limit from this share of the CPU its threads can get (share)"
    )
    rate_met: float = Field(default=0.98, gt=0, le=1, description="least share of the wanted rate that was reached (share)")
    io_bound: float = Field(default=0.05, ge=0, description="least device reads per transaction of an I/O-bound load (reads/tx)")
    huge_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="least share of a server's shared memory in use that lies on the pages that were asked for (share)",
    )
    memory_accounted: float = Field(
        default=0.02, gt=0, le=1, description="most of the host's memory budget that no container accounts for, in any second (share)"
    )
    switch_skew: float = Field(
        default=0.1, gt=0, description="most time between the first and the last target to begin its new load at a phase's start (s)"
    )
    steal: float = Field(default=0.02, ge=0, description="most CPU time the hypervisor withheld (share of the host's cores)")
    foreign_cpu: float = Field(default=0.05, ge=0, description="most CPU used outside the experiment (share of the host's cores)")
    clock_offset: float = Field(
        default=0.01, gt=0, description="most by which the offset of a host's clock may be uncertain, in a run on several hosts (s)"
    )
    start_skew: float = Field(
        default=0.1, gt=0, description="most time between the first and the last host to begin a phase, in a run on several hosts (s)"
    )
    clock_jump: float = Field(default=0.05, ge=0, description="most the wall clock may move against the monotonic clock (s)")
    checkpoints: float = Field(default=0, ge=0, description="most checkpoints of read-only loads within the window (count)")
    vacuums: float = Field(default=0, ge=0, description="most autovacuum workers at work in the window (mean count)")
    errors: float = Field(default=0, ge=0, description="most failed transactions (count)")
