"""Deployment: hosts ⊃ containers ⊃ servers ⊃ databases, plus volumes and network links.

One nested structure expresses each experiment. Density is N containers of one server each. The layouts of consolidation have
all databases in one server, as schemas of one database or not, a server for each in one container, or a container for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pgherd.model.base import NAME, Model
from pgherd.model.capabilities import is_cpu_limited
from pgherd.model.prometheus import PrometheusSource


class Link(Model):
    """Network link as a target of iperf3.

    'remote': an iperf3 server runs at ``host``:``port``. 'hosts': from the cluster's host ``near`` to the host that the link is
    named after, at address ``host``. pgherd runs both ends. 'namespaces': pgherd creates two network namespaces, joined by a
    veth pair, and runs both ends. ``rate`` (bits/s) and ``delay`` (ms, one way) shape the pair.
    """

    name: str = Field(pattern=NAME)
    kind: Literal["remote", "hosts", "namespaces"] = "remote"
    near: str | None = Field(None, pattern=NAME, description="kind 'hosts' only: host that runs the iperf3 client")
    host: str = ""
    port: int = Field(5201, ge=1, le=65535)
    rate: float | None = Field(None, gt=0, description="bits/s")
    delay: float | None = Field(None, gt=0, description="ms, one way")

    @model_validator(mode="after")
    def _reachable(self) -> Link:
        if self.kind != "namespaces" and not self.host:
            raise ValueError(f"link {self.name} has no host")
        if (self.kind == "hosts") != (self.near is not None):
            raise ValueError(f"link {self.name}: 'near' is required for, and limited to, links of kind 'hosts'")
        if self.kind != "namespaces" and (self.rate is not None or self.delay is not None):
            raise ValueError(f"link {self.name} is between hosts: rate and delay apply to namespaces only")
        return self

    @property
    def target(self) -> str:
        """Name as a target: ``NAME``, or ``NEAR/NAME`` between two hosts of a cluster."""
        return self.name if self.near is None else f"{self.near}/{self.name}"


class VmOptions(Model):
    """Hypervisor options of a guest, each off by default.

    ``pinned``: each vCPU runs on its assigned host CPU. ``huge_page``: size in bytes of the reserved huge pages that back guest
    memory. Cgroups do not count these pages, and they cannot be returned. ``merge``: the host may merge identical pages (KSM).
    """

    pinned: bool = False
    huge_page: int | None = Field(None, gt=0)
    merge: bool = False

    @model_serializer(mode="wrap")
    def _asked(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Dump only options that are set, so that a container without a guest equals a guest without options."""
        return {name: value for name, value in dump(self).items() if value}


GuestMemoryPolicy = Literal["static", "virtio-balloon", "free-page-reporting"]
"""Return of guest memory to the host: none, by a balloon that the host controls, or by free page reporting."""


class VmMemoryPolicy(Model):
    """Memory policy of a run for all its guests.

    ``tax`` is the idle memory tax of the ESX server: the maximum fraction of a guest's idle memory that may be reclaimed (0:
    memory is divided by shares only). ``reserve`` is the fraction of the host's budget that stays unallocated, so that a guest
    which grows suddenly does not make the host swap. ``overhead`` is the assumed memory of each hypervisor, in bytes.
    """

    policy: GuestMemoryPolicy = "static"
    tax: float = Field(0.75, ge=0, lt=1)
    reserve: float = Field(0.02, ge=0, le=0.5)
    overhead: int = Field(64 * 2**20, ge=0)


RuntimeName = Literal["process", "cgroup", "vm", "external"]
CpuMode = Literal["quota", "cpuset", "none"]
Role = Literal["data", "wal", "temp", "tablespace"]
OvercommitBy = Literal["cgroup-limit", "mlock"]
"""Method of withholding memory below a run's budget in a trial: by the host's cgroup limit, or by an idle container of locked memory, as
in experiment E4."""

SERVER_NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"
"""Valid names of volumes, databases, servers and containers."""


class Volume(Model):
    """Storage of a server's files: a directory, a block device, or a loop file that pgherd creates (which distorts results).

    ``host`` is set if several hosts have a volume of this name.
    """

    name: str = Field(pattern=SERVER_NAME)
    kind: Literal["directory", "device", "loop"] = "directory"
    path: str | None = None
    size: int | None = Field(None, gt=0, description="bytes, for a loop volume")
    host: str | None = Field(None, pattern=NAME, description="host of the volume in a deployment on several hosts (None: the only host)")

    @property
    def target(self) -> str:
        """Name as a target: ``NAME``, or ``HOST/NAME``."""
        return self.name if self.host is None else f"{self.host}/{self.name}"


class InitData(Model):
    """Data files that an init file reads: ``files`` relative to ``directory``, and a hash of their contents.

    Both are empty if the init file names no data files.
    """

    directory: str
    files: tuple[str, ...] = ()
    digest: str = ""


class Database(Model):
    """Database, or schema of one, with a workload at a scale. ``workload`` names an entry of pgherd.workloads."""

    name: str = Field("bench", pattern=SERVER_NAME)
    schema_of: str | None = Field(None, pattern=SERVER_NAME, description="database of which it is a schema (None: it is a database)")
    workload: str = "pgbench"
    scale: int = Field(10, ge=1, description="scale factor of the workload")
    partitions: int = Field(1, ge=1, le=256, description="hash partitions of the largest table (pgbench and random-block)")
    init: str | None = Field(None, description="path of an SQL file that fills the database (workload 'script')")
    init_data: InitData | None = Field(
        None, description="data files that the init file reads, at preparation of the run (absent: not scanned yet)"
    )
    verify: bool = Field(False, description="check consistency conditions after every trial. A violation fails the trial")

    @property
    def dbname(self) -> str:
        """Name of the database to connect to."""
        return self.schema_of or self.name

    @property
    def connection(self) -> str:
        """Database for libpq's clients: its name, or a connection string that also sets the search path to the schema.

        The option of a session takes precedence over settings of the role, the database and the server.
        """
        return self.name if self.schema_of is None else f"dbname={self.schema_of} options='-csearch_path=\"{self.name}\"'"


class Server(Model):
    """PostgreSQL instance: its binaries, settings, volumes and databases."""

    name: str = Field("pg", pattern=SERVER_NAME)
    bin: str = Field(description="directory of postgres, initdb and pgbench")
    version: str = Field(description="from `postgres --version`, such as 18.6")
    settings: dict[str, str] = Field(default_factory=dict, description="postgresql.conf (only settings that differ from the default)")
    volumes: dict[Role, str] = Field(default_factory=dict, description="role → volume name (absent: the work directory)")
    tablespaces: tuple[str, ...] = Field((), description="volumes that tables and indexes are spread over, one tablespace each")
    checksums: bool | None = Field(None, description="data checksums (absent: initdb's default)")
    databases: tuple[Database, ...] = (Database(),)
    dsn: str | None = Field(None, description="connection string of an external server")
    direct: str | None = Field(None, description="DSN for samples, if dsn leads to a pooler (None: dsn)")
    pooled: bool = Field(False, description="dsn leads to a pooler")
    query_timeout: float | None = Field(None, gt=0, description="seconds; of sessions on an external server (None: as set there)")
    transparent_huge_pages: bool | None = Field(None, description="transparent huge pages for shared memory (None: as set on the host)")
    sched_batch: bool = Field(False, description="all its processes run under SCHED_BATCH")


class Container(Model):
    """Isolation of servers on a host, with its resources.

    ``vcpus`` is in cores (0.25 is a quarter). ``cpu_mode`` is its enforcement: a CFS quota, whole CPUs (cpuset or affinity), or
    none. ``memory`` is in bytes. ``weight`` is the CPU weight of cgroup v2 (100 is the default). ``iops`` and
    ``io_bandwidth`` (bytes) limit reads per second, and separately writes per second, on each device with files of the servers.
    """

    name: str = Field(pattern=SERVER_NAME)
    runtime: RuntimeName = "process"
    vcpus: float | None = Field(None, gt=0)
    cpu_mode: CpuMode = "none"
    cpu_period: float = Field(0.1, ge=0.001, le=1, description="period of the CPU quota in seconds (kernel default: 0.1)")
    cpus: tuple[int, ...] | None = None
    memory: int | None = Field(None, gt=0)
    swap: int | None = Field(None, ge=0, description="maximum bytes in swap (None: as for the host's budget)")
    weight: int | None = Field(None, ge=1, le=10000)
    iops: int | None = Field(None, ge=1)
    io_bandwidth: int | None = Field(None, ge=1)
    vm_memory_min: int | None = Field(None, gt=0, description="bytes that a guest always keeps (None: a quarter of its memory)")
    vm_memory_shares: float = Field(1.0, gt=0, description="a guest's weight when its host's memory is divided")
    vm: VmOptions | None = Field(None, description="hypervisor options of a guest (None: defaults)")
    cgroup: str | None = Field(None, description="cgroup of external servers: /PATH, pid:N or container:ID (None: found if provable)")
    prometheus: PrometheusSource | None = Field(None, description="Prometheus server with samples of external servers' host")
    servers: tuple[Server, ...] = ()

    @property
    def cpu_limited(self) -> bool:
        """Whether the container cannot use more than its vCPUs."""
        return is_cpu_limited(self.runtime, self.cpu_mode)

    @property
    def io_limited(self) -> bool:
        """Whether the I/O of the container is limited."""
        return self.iops is not None or self.io_bandwidth is not None


class Host(Model):
    """Machine with a budget for the run: ``cores`` and ``memory`` (bytes). The name 'local' is the local machine.

    ``memory`` below the run's budget is the memory available in a trial (overcommitment). ``staging`` is how it is withheld.
    """

    name: str = Field("local", pattern=NAME)
    cores: float | None = Field(None, gt=0)
    cpu_nodes: tuple[int, ...] = Field((), description="NUMA node of each CPU of the run, in their order; empty: unknown")
    memory: int | None = Field(None, gt=0)
    swap: int | None = Field(None, ge=0, description="maximum bytes in swap of all containers (None: the host's swap)")
    overcommit_by: OvercommitBy = "cgroup-limit"
    labels: dict[str, str] = Field(default_factory=dict)
    address: str | None = Field(None, description="address for the other hosts of a cluster")
    containers: tuple[Container, ...] = ()


class DatabaseAddress(Model):
    """Address of a database in a deployment. Its text form ``host/container/server/database`` names a target."""

    host: str
    container: str
    server: str
    database: str

    def __str__(self) -> str:
        return _address(self.host, self.container, self.server, self.database)


def _address(host: str, container: str, server: str, database: str) -> str:
    return f"{host}/{container}/{server}/{database}"


class Deployment(Model):
    """All hosts, volumes and links of a trial."""

    hosts: tuple[Host, ...]
    volumes: tuple[Volume, ...] = ()
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Deployment:
        for names, kind in (
            ([host.name for host in self.hosts], "host names"),
            ([volume.target for volume in self.volumes], "volume names"),
            ([link.target for link in self.links], "link names"),
            (self.addresses(), "database addresses"),
        ):
            duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
            if duplicates:
                raise ValueError(f"repeated {kind}: {', '.join(duplicates)}")
        volume_names = {volume.name for volume in self.volumes}
        for _, container, server in self.servers():
            unknown = sorted({*server.volumes.values(), *server.tablespaces} - volume_names)
            if unknown:
                raise ValueError(f"server {container.name}/{server.name} uses unknown volumes: {', '.join(unknown)}")
        return self

    @property
    def memory(self) -> int | None:
        """Memory of all hosts, in bytes. None if any host has no budget."""
        budgets = [host.memory for host in self.hosts if host.memory is not None]
        return sum(budgets) if budgets and len(budgets) == len(self.hosts) else None

    def containers(self) -> Iterator[tuple[Host, Container]]:
        for host in self.hosts:
            for container in host.containers:
                yield host, container

    def servers(self) -> Iterator[tuple[Host, Container, Server]]:
        """Iterate over all servers with their host and container."""
        for host, container in self.containers():
            for server in container.servers:
                yield host, container, server

    def addresses(self) -> list[str]:
        """Return the addresses of all databases as text. Cheaper than ``databases``, which builds a Place for each."""
        return [
            _address(host.name, container.name, server.name, database.name)
            for host, container, server in self.servers()
            for database in server.databases
        ]

    def databases(self) -> Iterator[tuple[DatabaseAddress, Host, Container, Server, Database]]:
        """Iterate over all databases with their address, host, container and server."""
        for host, container, server in self.servers():
            for database in server.databases:
                place = DatabaseAddress(host=host.name, container=container.name, server=server.name, database=database.name)
                yield place, host, container, server, database
