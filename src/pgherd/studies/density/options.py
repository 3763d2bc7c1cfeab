"""The complete options of a density run, the points it measures, and the deployment it needs."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator

from pgherd.model.deployment import Deployment, Host
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest
from pgherd.study.option import WORKLOAD, option, redefined

SMALL_HOST_CORES = 32
E1_VCPUS = 4.0
VCPUS_TEXT = f"{E1_VCPUS:g}; cores/8 below {SMALL_HOST_CORES} cores"
"""CPU of a database: that of E1, or an eighth of a small host."""

FRACTIONS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Fractions of the cores at which E1 was measured, after its first point of one database."""

SOAK_WINDOW = 60.0
"""Length of a soak's phases, seconds."""

SOAK_STRETCH = 10
"""Windows of one of a soak's trials: what an interruption costs at most."""


class DensityOptions(DatabaseOptions):
    """Everything that a density run depends on.

    ``clients`` are those of each database. ``repeats_one`` are the trials of one database, on which "perfect" rests.
    """

    clients: int = Field(2, ge=1)
    points: tuple[int, ...] = Field(min_length=1, description="numbers of databases")
    repeats_one: int = Field(5, ge=1)
    at: float = Field(0.85, gt=0, le=1)
    intent: Literal["cpu-bound", "io-bound"] = "cpu-bound"
    over: tuple[Host, ...] = Field((), description="the hosts that it is spread over; cores and memory are those of all; none: one host")
    placement: str = "spread"
    memory_holds: int | None = Field(None, description="the most databases that the memory budget holds; none: not known")
    soak_seconds: float | None = Field(None, gt=0)
    soak_window: float = Field(SOAK_WINDOW, gt=0, description="length of a soak's phases; drift is judged over them")

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
    def soak_count(self) -> int:
        """Windows that a soak plans; at least one."""
        total = self.soak_seconds or self.soak_window
        return max(1, round(total / min(self.soak_window, total)))

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


def next_point(options: DensityOptions) -> int:
    """The next larger number of databases to measure, where those that were measured are too few to see efficiency fall: a quarter more
    than the most of them, and past where that of a full host has fallen to what is wanted."""
    most = max(options.points)
    return max(most + 1, math.floor(1.25 * most + 0.5), math.ceil(options.full / options.at - 1e-9) + 1)


def names(options: DensityOptions) -> list[str]:
    """Container names, db01 … dbNN, as many as the largest point has databases."""
    count = options.soak_point if options.soak_seconds else max(options.points)
    width = max(2, len(str(count)))
    return [f"db{number:0{width}d}" for number in range(1, count + 1)]


def deployment(options: DensityOptions) -> Deployment:
    """All containers of the largest point, each of one server with one database. All stay up in every trial, and those
    that are not loaded idle: so no trial pays for starting them, and memory is given out alike everywhere."""
    return options.deploy(names(options))


class DensityRequest(DatabaseRequest):
    """Options of ``pgherd density`` as given on the command line or in a scenario."""

    databases: tuple[int, ...] | None = option(
        None, "Numbers of databases to load.", metavar="N,N,…", computed="1 to 125 % of the cores", web=True
    )
    efficiency: float = option(0.85, "Efficiency that still counts as enough.", metavar="X", web=True, gt=0, le=1)
    bound_by: Literal["cpu", "io"] = option("cpu", "Expected bottleneck (cpu, io); sizes the databases accordingly.", metavar="NAME")
    soak: str | None = option(None, "Load the last point for this long and judge stability.", metavar="TIME")
    clients: int | None = option(
        None, "pgbench clients per database.", WORKLOAD, metavar="N", computed="2 per vCPU, at least 2", web=True, ge=1
    )
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed=VCPUS_TEXT)
    repeats: int | None = redefined(DatabaseRequest, "repeats", 3, help="Trials per point; the first point gets two more.")
