"""What a run shows at one instant, as models: pgherd.report.live_status fills them in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.finding import Grade, Verdict

State = Literal["running", "finished", "interrupted", "failed", "killed"]


class PresentTrial(Model):
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


class PresentThroughput(Model):
    """Transactions per second over the latest second that all drivers have told of; ``told`` of ``targets`` drivers tell it while
    they run. ``series`` holds the trial's seconds so far: (seconds since the epoch, transactions per second)."""

    value: float | None
    unit: str = "tps"
    told: int
    targets: int
    series: list[tuple[float, float]] = Field(default_factory=list)


class PresentUse(Model):
    """What a container, or the host, uses: ``cpu`` of ``vcpus`` in cores, ``memory`` of ``limit`` in bytes. None: not seen, or no
    limit."""

    name: str
    cpu: float | None = None
    vcpus: float | None = None
    memory: float | None = None
    limit: float | None = None


class PresentDevice(Model):
    """A block device: requests and bytes per second, of reads and of writes."""

    name: str
    reads: float
    writes: float
    read_bytes: float
    write_bytes: float


class PresentResult(Model):
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


class Present(Model):
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
    trial: PresentTrial | None = None
    throughput: PresentThroughput | None = None
    host: PresentUse | None = None
    hosts: list[PresentUse] = Field(default_factory=list, description="each of several; 'host' is then all together")
    containers: list[PresentUse] = Field(default_factory=list)
    devices: list[PresentDevice] = Field(default_factory=list)
    trials: list[PresentResult] = Field(default_factory=list)
    answer: str | None = None
    grade: Grade | None = None
    error: str | None = None
    resume: str | None = Field(None, description="the command that goes on with it, where there is anything to go on with")
