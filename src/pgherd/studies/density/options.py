"""Complete options of a density run, the choice of its points, and its deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, field_validator

from pgherd.model.base import Model
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.fleet import FleetServer
from pgherd.model.units import Duration
from pgherd.studies.density.tenant_mix import TenantClass
from pgherd.studies.density.tenant_table import TenantTable
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest
from pgherd.study.objectives import ObjectiveOptions, ObjectiveRequest
from pgherd.study.option import WORKLOAD, null_means_default, option, redefined

SMALL_HOST_CORES = 32
E1_VCPUS = 4.0
VCPUS_TEXT = f"{E1_VCPUS:g}; cores/8 below {SMALL_HOST_CORES} cores"
"""Default vCPUs of a database: those of E1, or an eighth of a small host."""


def default_vcpus(cores: float) -> float:
    """Return the default vCPUs of a database on a host with this number of cores."""
    return E1_VCPUS if cores >= SMALL_HOST_CORES else cores / 8


def default_clients(vcpus: float) -> int:
    """Return the default number of clients of a database."""
    return max(2, round(2 * vcpus))


REFERENCE_FRACTION = 0.6
"""Fraction of a full host that is measured as the reference."""
REFERENCE_END = 0.75
"""Fraction of a full host up to which a point can be the reference."""
NEAR_FULL, BEYOND, CROSSING_POINTS = 0.9, 1.5, 5
"""Range of the points at the crossing, as fractions of a full host, and their maximum number."""

SOAK_WINDOW = 60.0
"""Length of a soak's phases in seconds."""

SOAK_STRETCH = 10
"""Windows of each trial of a soak. An interruption loses at most these windows."""


class DensityOptions(ObjectiveOptions, DatabaseOptions):
    """Complete options of a density run.

    ``clients`` is the number of clients of each database. With ``tenants``, ``databases`` are numbers of tenants, ``vcpus`` is their mean,
    and the other options of a database are those of its class.
    """

    clients: int = Field(2, ge=1)
    databases: tuple[int, ...] = Field(min_length=1, description="numbers of databases")
    efficiency: float = Field(0.85, gt=0, le=1)
    bound_by: Literal["cpu", "io"] = "cpu"
    over: tuple[Host, ...] = Field((), description="hosts of the databases; cores and memory are totals; empty: one host")
    placement: str = "spread"
    cpu_nodes: tuple[int, ...] = Field((), description="NUMA node of each CPU of this host's share, in their order; empty: unknown")
    fleet: tuple[FleetServer, ...] = Field((), description="existing servers of a list; empty: pgherd starts servers, or loads only dsn")
    tenants: tuple[TenantClass, ...] = Field((), description="classes of tenants; empty: all databases are alike")
    tenant_table: TenantTable | None = Field(None, description="table of databases that the classes of tenants are from")
    max_databases_in_memory: int | None = Field(
        None, description="databases that the memory budget holds; with tenants, of the first 2 × the largest number; None: unknown"
    )
    soak_seconds: float | None = Field(None, gt=0)
    soak_window: float = Field(SOAK_WINDOW, gt=0, description="length of a soak's phases in seconds; drift is judged over them")

    @field_validator("databases")
    @classmethod
    def _ascending(cls, databases: tuple[int, ...]) -> tuple[int, ...]:
        if min(databases) < 1:
            raise ValueError(f"{min(databases)} databases cannot be measured; the minimum is 1")
        return tuple(sorted(set(databases)))

    def variant_options(self) -> Mapping[str, Model]:
        """Return the classes of tenants by name."""
        return {one.name: one for one in self.tenants}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """Return a copy with these classes of tenants."""
        return self.model_copy(update={"tenants": tuple(TenantClass.model_validate(one.model_dump()) for one in options.values())})

    def documents(self) -> Mapping[str, str]:
        """Return the classes that are from a table, as a file for --tenants."""
        return {} if self.tenant_table is None else {"tenants.yaml": self.tenant_table.document}

    @property
    def full(self) -> float:
        """Return the number of databases whose vCPUs are exactly all cores (40 in E1). NaN for listed servers: their cores are unknown."""
        return self.host_cores / self.vcpus if not self.fleet else math.nan

    def fraction(self, databases: float) -> float:
        """Return the vCPUs of ``databases`` databases as a share of the cores. NaN, which fails every comparison, if they are unknown."""
        return databases / self.full

    @property
    def each(self) -> str:
        """Return what a database is, after its number in a sentence."""
        return "of the list" if self.fleet else f"of {self.vcpus:g} vCPU"

    @property
    def external(self) -> bool:
        """Whether the servers are external."""
        return super().external or bool(self.fleet)

    def container(self, name: str) -> Container:
        """Return a container with one server and its database. For an external server, the container is only a name."""
        listed = next((server for server in self.fleet if server.name == name), None)
        if listed is None:
            return super().container(name)
        database = self.database_called("bench").model_copy(update={"scale": listed.scale or self.scale})
        external = self.external_server(listed.dsn, listed.direct, listed.version, database, pooled=listed.pooled)
        cgroup = None if listed.prometheus is not None else listed.container
        return Container(name=name, runtime="external", cgroup=cgroup, prometheus=listed.prometheus, servers=(external,))

    def near_full(self, databases: float) -> bool:
        """Whether so many databases are given at least 90 % of the cores. From there on the host's own limits show."""
        return self.fraction(databases) >= NEAR_FULL - 1e-9

    @property
    def soak_count(self) -> int:
        """Return the number of planned windows of a soak, at least 1."""
        total = self.soak_seconds or self.soak_window
        return max(1, round(total / min(self.soak_window, total)))

    @property
    def soak_point(self) -> int:
        """Return the point of a soak: the largest one whose vCPUs do not exceed the cores, or the smallest one."""
        if self.fleet:
            return self.databases[-1]
        within = [n for n in self.databases if self.fraction(n) <= 1 + 1e-9]
        return within[-1] if within else self.databases[0]


def reference_point(options: DensityOptions, databases: Sequence[float]) -> float:
    """Return the number of databases that efficiency is relative to: the largest one up to 75 % of a full host, or the smallest one.

    There the CPUs are seldom idle, so that no transaction pays for waking one, and no database waits for another.
    If the cores are unknown, it is the smallest number, because a larger one may already wait for others.
    """
    return max((n for n in databases if options.fraction(n) <= REFERENCE_END + 1e-9), default=min(databases))


def answer_by_cpu(options: DensityOptions) -> bool:
    """Whether the answer compares the CPU received, if it was measured: it is limited and the expected bottleneck, and no rate is given."""
    return options.cpu_limited and options.rate is None and options.bound_by == "cpu"


def choose_points(cores: float, vcpus: float, efficiency: float = 0.85, limit: int | None = None) -> tuple[int, ...]:
    """Choose the numbers of databases: 1, 2 and 60 % of a full host, and up to five from 90 to 150 % of it, where the answer is decided.

    On a small host these are all numbers in that range, so that the crossing is not interpolated over a wide gap.

    Args:
        cores: the cores of the host's share.
        vcpus: the vCPUs of each database.
        efficiency: target efficiency. An ideal host reaches it at the full host ÷ efficiency, and the largest point is beyond that.
        limit: the maximum that memory or disk allows. It replaces all larger points.
    """
    full = cores / vcpus
    first, last = max(1, math.ceil(NEAR_FULL * full - 1e-9)), max(math.floor(BEYOND * full + 1e-9), math.floor(full / efficiency) + 2)
    count = min(CROSSING_POINTS, last - first + 1)
    crossing = {round(first + i * (last - first) / (count - 1)) for i in range(count)} if count > 1 else {first}
    if full >= 1:  # one of them is the full host
        crossing -= {min(crossing, key=lambda n: abs(n - full))}
        crossing.add(math.floor(full + 1e-9))
    points = {1, min(2, first), min(max(1, math.floor(REFERENCE_FRACTION * full + 0.5)), first), *crossing}
    if limit is not None and max(points) > limit:
        points = {n for n in points if n < limit} | {max(1, limit)}
    return tuple(sorted(points))


def next_point(options: DensityOptions) -> int:
    """Return the next larger number of databases, if the measured points are too few to show a loss of efficiency.

    It is a quarter more than the largest point, and more than an ideal host can serve at the target efficiency.
    """
    largest = max(options.databases)
    return max(largest + 1, math.floor(1.25 * largest + 0.5), math.ceil(options.full / options.efficiency - 1e-9) + 1)


def most_databases(options: DensityOptions) -> tuple[float, str]:
    """Return the largest number of databases that can be measured, and why or what to do for more. Infinite: no limit is known."""
    if options.external:
        return max(1, len(options.fleet)), "list more servers in --servers"
    if options.max_databases_in_memory is not None:
        return options.max_databases_in_memory, "memory holds no more"
    return math.inf, ""


def try_more(options: DensityOptions) -> str:
    """Return how a search tries more than its largest number, or why it cannot."""
    largest, (most, reason) = max(options.databases), most_databases(options)
    return reason if most <= largest else f"--databases {min(2 * largest, most):g} also tries more"


def container_names(options: DensityOptions) -> list[str]:
    """Return the container names db01 … dbNN for the largest point, or the names of all listed servers."""
    if options.fleet:
        return [server.name for server in options.fleet]
    count = options.soak_point if options.soak_seconds else max(options.databases)
    width = max(2, len(str(count)))
    return [f"db{number:0{width}d}" for number in range(1, count + 1)]


def deployment(options: DensityOptions) -> Deployment:
    """Return the containers of the largest point, each with one server and one database.

    All containers run in every trial, and those without load are idle. Therefore no trial includes their start, and the division of
    memory is the same in all trials.
    """
    return options.deploy(container_names(options))


class DensityRequest(ObjectiveRequest, DatabaseRequest):
    """Options of ``pgherd density`` as given on the command line or in a scenario."""

    databases: tuple[int, ...] | None = option(
        None,
        "Numbers of databases to load.",
        metavar="N,N,…",
        computed="1 to 150 % of the cores",
        web=True,
    )
    tenants: str | None = option(None, "YAML file of classes of databases, added one by one.", metavar="FILE")
    tenants_from: str | None = option(None, "Table of databases (size, tps, peak hour) to make classes from.", metavar="FILE.csv")
    efficiency: float = option(0.85, "Efficiency that still counts as enough.", metavar="X", web=True, gt=0, le=1)
    bound_by: Literal["cpu", "io"] = option("cpu", "Expected bottleneck (cpu, io); sizes the databases accordingly.", metavar="NAME")
    soak: Duration | None = option(None, "Load the last point for this long and judge stability.", metavar="TIME")
    clients: int | None = option(
        None, "pgbench clients per database.", WORKLOAD, metavar="N", computed="2 per vCPU, at least 2", web=True, ge=1
    )
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed=VCPUS_TEXT)
    duration: Duration = redefined(DatabaseRequest, "duration", Duration("9s"))
    warmup: Duration = redefined(DatabaseRequest, "warmup", Duration("1s"))

    _null_means_default = null_means_default("duration", "warmup")
