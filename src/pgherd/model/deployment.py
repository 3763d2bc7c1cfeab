"""A link between two hosts, or between two network namespaces of one host, as a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pgherd.model.base import Model


class Link(Model):
    """What iperf3 loads. 'remote': an iperf3 server answers at ``host``:``port``. 'hosts': from the cluster's host ``near`` to the one
    that the link is named after, whose address ``host`` is; pgherd runs both ends. 'namespaces': pgherd makes two network namespaces
    joined by a pair of virtual cards, and runs both ends; ``rate`` (bits/s) and ``delay`` (ms, one way) shape it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")
    kind: Literal["remote", "hosts", "namespaces"] = "remote"
    near: str | None = Field(None, description="of kind 'hosts': the host at the near end, which runs iperf3's client")
    host: str = ""
    port: int = Field(5201, ge=1, le=65535)
    rate: float | None = Field(None, gt=0, description="bits/s")
    delay: float | None = Field(None, gt=0, description="ms, one way")

    @model_validator(mode="after")
    def _reachable(self) -> Link:
        if self.kind != "namespaces" and not self.host:
            raise ValueError(f"link {self.name} leads to no host")
        if (self.kind == "hosts") != (self.near is not None):
            raise ValueError(
                f"link {self.name} is {'of a cluster and begins at none of its hosts' if self.near is None else 'of no cluster'}"
            )
        if self.kind != "namespaces" and (self.rate is not None or self.delay is not None):
            raise ValueError(f"link {self.name} is between hosts, which pgherd does not shape: rate and delay are for namespaces")
        return self

    @property
    def target(self) -> str:
        """What names it as a target: ``NAME``, or ``NEAR/NAME`` between two hosts of a cluster."""
        return self.name if self.near is None else f"{self.near}/{self.name}"


class GuestMachine(Model):
    """Choices for a container that is a guest; each is off unless it is asked for.

    ``pinned``: each vCPU runs on a CPU of the host of its own, in turn. ``huge_page``: the guest's memory lies on reserved huge pages of so
    many bytes, which no control group counts, and which cannot be given back. ``merge``: the host may merge pages that are equal (KSM).
    """

    pinned: bool = False
    huge_page: int | None = Field(None, gt=0)
    merge: bool = False

    @model_serializer(mode="wrap")
    def _asked(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what is asked for: a container that is no guest asks for nothing, and so differs in nothing from a guest that does not."""
        return {name: value for name, value in dump(self).items() if value}


GuestMemoryPolicy = Literal["static", "guest-balloon", "free-page-reporting"]
"""Who gives guests' memory back to the host: nobody; the balloons, which the host moves; each guest's kernel by itself."""


class GuestMemory(Model):
    """The policy of a run for all its guests.

    ``tax`` is the idle-memory tax of the ESX server: the largest share of a guest's idle memory that is taken for others (0: memory is
    divided by shares alone). ``reserve`` is the share of the host's budget that stays unallocated, so that a guest which grows at once
    does not make the host swap. ``overhead`` is what the hypervisor of each guest is reckoned to need for itself, bytes.
    """

    policy: GuestMemoryPolicy = "static"
    tax: float = Field(0.75, ge=0, lt=1)
    reserve: float = Field(0.02, ge=0, le=0.5)
    overhead: int = Field(64 * 2**20, ge=0)


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
