"""The complete options of a density run, the points it measures, and the deployment it needs."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator

from pgherd.model.base import Model
from pgherd.model.deployment import Container, CpuMode, Database, Deployment, Host, RuntimeName, Server
from pgherd.model.load import ClientPlace, Protocol, Script
from pgherd.model.thresholds import Thresholds
from pgherd.model.trial import State

FRACTIONS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Fractions of the cores at which E1 was measured, after its first point of one database."""


class DensityOptions(Model):
    """Everything that a density run depends on; what depends on the host has been filled in by the caller.

    Sizes are bytes, times seconds, CPU in cores. ``workload``, ``scale`` and ``init`` describe each database (see
    pgherd.workloads), ``scripts`` what loads it. ``rate`` is per database. ``repeats`` are trials per point,
    ``repeats_one`` those of one database, on which "perfect" rests. ``budget_seconds`` bounds the time of all trials,
    though every point gets at least one; None: no bound, and no repeats beyond the planned ones and reruns.
    ``max_reruns`` bounds the reruns of tainted trials in the whole run. ``precision`` is the relative standard error of
    a point's mean at which it gets no further repeats.
    """

    # What is deployed
    cores: float = Field(gt=0, description="the host's budget")
    memory: int = Field(gt=0, description="the host's budget")
    vcpus: float = Field(gt=0, description="given to each database")
    container_memory: int | None = Field(None, gt=0)
    runtime: RuntimeName = "process"
    cpu_mode: CpuMode = "none"
    labels: dict[str, str] = Field(default_factory=dict)
    pg_bin: str
    pg_version: str
    settings: dict[str, str] = Field(default_factory=dict)
    workload: str = "pgbench"
    scale: int = Field(10, ge=1)
    init: str | None = None

    # What loads it
    scripts: tuple[Script, ...] = (Script(source="builtin:select-only"),)
    read_only: bool = Field(True, description="the scripts write nothing")
    clients: int = Field(2, ge=1)
    threads: int = Field(1, ge=1)
    rate: float | None = Field(None, gt=0)
    protocol: Protocol = "prepared"
    client_place: ClientPlace = "inside"
    sampling: float = Field(0.05, gt=0, le=1)

    # How it is measured
    points: tuple[int, ...] = Field(min_length=1, description="numbers of databases")
    repeats: int = Field(3, ge=1)
    repeats_one: int = Field(5, ge=1)
    seconds: float = Field(8.0, gt=0)
    ramp: float = Field(1.0, ge=0)
    budget_seconds: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    state: State = "warm"
    seed: int = 1
    at: float = Field(0.85, gt=0, le=1)
    intent: Literal["cpu-bound", "io-bound"] = "cpu-bound"
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' verdicts")
    soak_seconds: float | None = Field(None, gt=0)
    soak_window: float = Field(60.0, gt=0, description="length of a soak's phases; drift is judged over them")

    @field_validator("points")
    @classmethod
    def _ascending(cls, points: tuple[int, ...]) -> tuple[int, ...]:
        if min(points) < 1:
            raise ValueError(f"a point of {min(points)} databases cannot be measured; points begin at 1")
        return tuple(sorted(set(points)))

    @property
    def full(self) -> float:
        """The number of databases that give out exactly all cores (E1: 40)."""
        return self.cores / self.vcpus

    def fraction(self, databases: float) -> float:
        """Share of the cores that so many databases are given."""
        return databases / self.full

    @property
    def soak_point(self) -> int:
        """The point that a soak holds: the only one, or the largest that gives out no more than all cores."""
        within = [n for n in self.points if self.fraction(n) <= 1 + 1e-9]
        return within[-1] if within else self.points[0]


def choose_points(cores: float, vcpus: float, beyond: float = 1.25, limit: int | None = None) -> tuple[int, ...]:
    """Numbers of databases as in E1: one, then 10, 20, 40, 60, 80 and 100 % of the cores, then past them.

    Args:
        cores: the host's budget.
        vcpus: cores given to each database.
        beyond: fraction of the last point, above 1; at least one more database than the cores can serve is taken.
        limit: largest number that memory or disk allows; points beyond it fall away and it becomes a point itself.
    """
    full = cores / vcpus
    most = max(1, math.floor(full + 1e-9))
    wanted = {1, *(min(most, max(1, math.floor(fraction * full + 0.5))) for fraction in FRACTIONS), most}
    wanted.add(max(most + 1, math.floor(beyond * full + 0.5)))
    if limit is not None and max(wanted) > limit:
        wanted = {n for n in wanted if n < limit} | {max(1, limit)}
    return tuple(sorted(wanted))


def names(options: DensityOptions) -> list[str]:
    """Container names, db01 … dbNN, as many as the largest point has databases."""
    count = options.soak_point if options.soak_seconds else max(options.points)
    width = max(2, len(str(count)))
    return [f"db{number:0{width}d}" for number in range(1, count + 1)]


def deployment(options: DensityOptions) -> Deployment:
    """All containers of the largest point, each of one server with one database. All stay up in every trial, and those
    that are not loaded idle: so no trial pays for starting them, and memory is given out alike everywhere."""
    database = Database(name="bench", workload=options.workload, scale=options.scale, init=options.init)
    server = Server(name="pg", bin=options.pg_bin, version=options.pg_version, settings=options.settings, databases=(database,))
    containers = tuple(
        Container(
            name=name,
            runtime=options.runtime,
            vcpus=options.vcpus,
            cpu_mode=options.cpu_mode,
            memory=options.container_memory,
            servers=(server,),
        )
        for name in names(options)
    )
    host = Host(name="local", cores=options.cores, memory=options.memory, labels=options.labels, containers=containers)
    return Deployment(hosts=(host,))
