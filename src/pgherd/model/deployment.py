"""Deployment: hosts ⊃ containers ⊃ servers ⊃ databases, and volumes.

One nested structure expresses every experiment: density is N containers of one server each; the consolidation
schemes are 1/1/M, 1/M/M and M/M/M (containers/servers/databases).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from pgherd.model.base import Model
from pgherd.model.guest_machine import GuestMachine
from pgherd.model.link import Link

RuntimeName = Literal["process", "cgroup", "vm", "external"]
CpuMode = Literal["quota", "cpuset", "none"]
Role = Literal["data", "wal", "temp", "tablespace"]
Staging = Literal["limit", "locked"]
"""How memory below a run's budget is withheld in a trial: by the limit of the host's control group, or by an idle container of locked
memory beside the others, as E4 does it."""

_NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"


class Volume(Model):
    """Where files of a server lie: a directory, a block device, or a loop file that pgherd makes (it distorts).

    ``host`` is set where each of several hosts has a volume of this name: it says whose this is.
    """

    name: str = Field(pattern=_NAME)
    kind: Literal["directory", "device", "loop"] = "directory"
    path: str | None = None
    size: int | None = Field(None, gt=0, description="bytes; for a loop volume")
    host: str | None = Field(None, description="the host that it lies on, in a deployment on several; None: the only one")

    @property
    def target(self) -> str:
        """What names it as a target: ``NAME``, or ``HOST/NAME``."""
        return self.name if self.host is None else f"{self.host}/{self.name}"


class InitData(Model):
    """The data files that an init file names: ``files`` as they stand there, relative to ``directory``, and a hash of their contents;
    no files and no hash where it names none."""

    directory: str
    files: tuple[str, ...] = ()
    digest: str = ""


class Database(Model):
    """One database with a workload at a scale. ``workload`` names an entry of pgherd.workloads."""

    name: str = Field("bench", pattern=_NAME)
    workload: str = "pgbench"
    scale: int = Field(10, ge=1, description="the workload's own scale factor")
    partitions: int = Field(1, ge=1, le=256, description="parts by hash of its large table, of pgbench's tables and random-block's")
    init: str | None = Field(None, description="path of an SQL file that fills the database (workload 'script')")
    init_data: InitData | None = Field(
        None, description="the data files that this file reads, as they were when the run was prepared; absent: not looked for yet"
    )
    verify: bool = Field(False, description="check the workload's consistency conditions after every trial; a violation fails the trial")


class Server(Model):
    """A PostgreSQL instance: where its binaries are, its settings, the volumes its files lie on, its databases."""

    name: str = Field("pg", pattern=_NAME)
    bin: str = Field(description="directory of postgres, initdb and pgbench")
    version: str = Field(description="as `postgres --version` says, such as 18.6")
    settings: dict[str, str] = Field(default_factory=dict, description="postgresql.conf; only what differs from the default")
    volumes: dict[Role, str] = Field(default_factory=dict, description="role → volume name; absent: the work directory")
    tablespaces: tuple[str, ...] = Field((), description="volumes over which tables and indexes are spread, a tablespace on each")
    checksums: bool | None = Field(None, description="data checksums; absent: as the version's initdb has it by itself")
    databases: tuple[Database, ...] = (Database(),)
    dsn: str | None = Field(None, description="for the external runtime: how to reach somebody else's server")
    transparent_huge_pages: bool | None = Field(
        None, description="whether the kernel may back its shared memory by transparent huge pages; None: as the host has it"
    )


class Container(Model):
    """What isolates servers on a host, and what it is given.

    ``vcpus`` is in cores (0.25 is a quarter); ``cpu_mode`` says how it is enforced: a CFS quota, whole CPUs
    (cpuset or affinity), or not at all. ``memory`` is in bytes; ``weight`` is the cgroup v2 CPU weight (100 = normal).
    """

    name: str = Field(pattern=_NAME)
    runtime: RuntimeName = "process"
    vcpus: float | None = Field(None, gt=0)
    cpu_mode: CpuMode = "none"
    cpu_period: float = Field(0.1, ge=0.001, le=1, description="seconds in which a CPU quota is given out anew; the kernel's own is 0.1")
    cpus: tuple[int, ...] | None = None
    memory: int | None = Field(None, gt=0)
    swap: int | None = Field(None, ge=0, description="most bytes that it may have swapped out; None: what the host's budget has")
    weight: int | None = Field(None, ge=1, le=10000)
    memory_minimum: int | None = Field(None, gt=0, description="bytes that a guest's balloon never takes; None: a quarter of its memory")
    memory_shares: float = Field(1.0, gt=0, description="a guest's weight when its host's memory is divided")
    guest: GuestMachine | None = Field(None, description="what a guest's hypervisor does for it beside that; None: nothing")
    servers: tuple[Server, ...] = ()


HOST_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$"
"""What names a host: it is part of the names of targets, files and metrics."""


class Host(Model):
    """A machine with a budget for the experiment: ``cores`` and ``memory`` (bytes). ``name`` 'local' is this one.

    ``memory`` below the run's budget is the memory available in a trial: overcommitment. ``staging`` says how it is withheld.
    """

    name: str = Field("local", pattern=HOST_NAME)
    cores: float | None = Field(None, gt=0)
    memory: int | None = Field(None, gt=0)
    swap: int | None = Field(None, ge=0, description="most bytes that all its containers may have swapped out; None: what the host has")
    staging: Staging = "limit"
    labels: dict[str, str] = Field(default_factory=dict)
    address: str | None = Field(None, description="where the other hosts of a cluster reach it")
    containers: tuple[Container, ...] = ()


class Place(Model):
    """The address of one database in a deployment; its text form ``host/container/server/database`` names a target."""

    host: str
    container: str
    server: str
    database: str

    def __str__(self) -> str:
        return _address(self.host, self.container, self.server, self.database)


def _address(host: str, container: str, server: str, database: str) -> str:
    return f"{host}/{container}/{server}/{database}"


class Deployment(Model):
    """Everything that is up during a trial."""

    hosts: tuple[Host, ...]
    volumes: tuple[Volume, ...] = ()
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Deployment:
        for names, what in (
            ([host.name for host in self.hosts], "host"),
            ([volume.target for volume in self.volumes], "volume"),
            ([link.target for link in self.links], "link"),
            (self.addresses(), "database address"),
        ):
            twice = sorted(name for name, times in Counter(names).items() if times > 1)
            if twice:
                raise ValueError(f"{what} names must differ, but {', '.join(twice)} stand more than once")
        known = {volume.name for volume in self.volumes}
        for _, container, server in self.servers():
            unknown = sorted({*server.volumes.values(), *server.tablespaces} - known)
            if unknown:
                raise ValueError(f"server {container.name}/{server.name} lies on {', '.join(unknown)}, which the deployment does not have")
        return self

    @property
    def memory(self) -> int | None:
        """Memory of all hosts together, bytes; None where one of them has no budget."""
        known = [host.memory for host in self.hosts if host.memory is not None]
        return sum(known) if known and len(known) == len(self.hosts) else None

    def containers(self) -> Iterator[tuple[Host, Container]]:
        """All containers, each with its host."""
        for host in self.hosts:
            for container in host.containers:
                yield host, container

    def servers(self) -> Iterator[tuple[Host, Container, Server]]:
        """All servers, each with where it lies."""
        for host, container in self.containers():
            for server in container.servers:
                yield host, container, server

    def addresses(self) -> list[str]:
        """The addresses of all databases, as text: what ``databases`` has, without the cost of a Place for each."""
        return [
            _address(host.name, container.name, server.name, database.name)
            for host, container, server in self.servers()
            for database in server.databases
        ]

    def databases(self) -> Iterator[tuple[Place, Host, Container, Server, Database]]:
        """All databases, each with its address and where it lies."""
        for host, container, server in self.servers():
            for database in server.databases:
                place = Place(host=host.name, container=container.name, server=server.name, database=database.name)
                yield place, host, container, server, database
