"""Request and complete options of studies of databases, and the containers and loads that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from pgherd.model.analysis import Thresholds
from pgherd.model.capabilities import is_cpu_limited
from pgherd.model.deployment import (
    Container,
    CpuMode,
    Database,
    Deployment,
    GuestMemoryPolicy,
    Host,
    InitData,
    Role,
    RuntimeName,
    Server,
    VmOptions,
    Volume,
)
from pgherd.model.load import ClientPlace, Load, Protocol, Script
from pgherd.model.prometheus import PrometheusSource
from pgherd.model.trial import State
from pgherd.model.units import Duration, Size, format_seconds
from pgherd.study.option import CLUSTER, LIMITS, MEASUREMENT, POSTGRESQL, STORAGE, VM, WORKLOAD, option
from pgherd.study.shared_options import RepeatsRequest, StudyOptions

READ_ONLY = "default_transaction_read_only"
"""PostgreSQL setting that rejects writes. It is on if the user gives --read-only for the scripts."""

DEFAULT_BUDGET = 260.0
"""Default time budget of all trials in seconds.

A run with this budget ends within 5 minutes, including clones, starts of servers, the report and a margin.
"""
BUDGET_TEXT = f"{format_seconds(DEFAULT_BUDGET)} or more"
FREE_SHARE = 0.8
"""Fraction of free memory that a run reserves by default."""
FREE_MEMORY_TEXT = f"{FREE_SHARE * 100:g} % of free memory"

EXISTING_SERVERS = (
    *("dsn", "servers", "server", "allow_writes", "server_cgroup", "prometheus", "prometheus_match", "connection_limit"),
    "query_timeout",
)
"""Options that apply to existing servers only. A study that starts all of its servers leaves them out."""

Scheduler = Literal["normal", "batch", "batch-servers", "batch-clients"]
"""Linux's scheduling policy: the default one, or SCHED_BATCH for servers and clients, or for one of them.

A woken process under SCHED_BATCH does not preempt the one that runs.
"""

BuiltinWorkload = Literal["select-only", "tpcb-like", "simple-update", "orders", "random-block"]


class DatabaseRequest(RepeatsRequest):
    """Databases to deploy, their load and their measurement, from the command line or a scenario. None: pgherd chooses.

    Sizes and durations are texts with units (``512MB``, ``10m``). Paths are relative to the working directory.
    """

    workload: BuiltinWorkload = option("select-only", "pgbench built-in or one of pgherd's workloads.", WORKLOAD, metavar="NAME", web=True)
    scale: int | None = option(
        None,
        "Scale: pgbench 15 MB, warehouse 110 MB, or MiB.",
        WORKLOAD,
        metavar="N",
        computed="10, 1, 256",
        web=True,
        filled="10",
        ge=1,
    )
    script: tuple[str, ...] = option((), "pgbench script to run (repeatable).", WORKLOAD, metavar="FILE[@WEIGHT]", repeated=True)
    init_script: str | None = option(None, "SQL file that fills the database for --script.", WORKLOAD, metavar="FILE")
    read_only: bool = option(False, "Reject writes from --script.", WORKLOAD)
    threads: int | None = option(None, "pgbench threads per database.", WORKLOAD, metavar="N", computed="one per vCPU", ge=1)
    rate: float | None = option(None, "Open loop: transactions per second per database.", WORKLOAD, metavar="TPS", web=True, gt=0)
    protocol: Protocol = option("prepared", "simple, extended or prepared.", WORKLOAD, metavar="NAME", web=True)
    client_placement: ClientPlace = option("inside", "Run pgbench inside or outside the container.", WORKLOAD, metavar="WHERE", web=True)
    partitions: int | None = option(None, "Partitions of the largest table.", WORKLOAD, metavar="N", computed="1", ge=1, le=256)
    think_time: float | None = option(
        None, "orders: keying and think times, × the specification's.", WORKLOAD, metavar="FACTOR", computed="0", ge=0
    )
    check_consistency: bool = option(False, "orders: verify consistency conditions after each trial.", WORKLOAD)
    zipf: float | None = option(None, "random-block: Zipf exponent.", WORKLOAD, metavar="N", computed="uniform")
    update_percent: int | None = option(None, "random-block: percentage of updates.", WORKLOAD, metavar="N", computed="25", ge=0, le=100)

    duration: Duration | None = option(Duration("9s"), "Measured time of each trial.", MEASUREMENT, metavar="TIME", web=True, filled="5s")
    warmup: Duration | None = option(Duration("1s"), "Warm-up before it, not counted.", MEASUREMENT, metavar="TIME", web=True)
    time_budget: Duration | None = option(
        None, "Total time for all trials, including reruns.", MEASUREMENT, metavar="TIME", computed=BUDGET_TEXT, web=True, filled="3m"
    )
    start_state: State = option("warm", "Servers at a trial's start: fresh, restarted or warm.", MEASUREMENT, metavar="STATE")
    seed: int | None = option(None, "Seed for the order of trials.", MEASUREMENT, metavar="N", computed="random", web=True, ge=0)
    threshold: tuple[str, ...] = option((), "Override a check's threshold (repeatable).", MEASUREMENT, metavar="NAME=VALUE", repeated=True)
    track: tuple[str, ...] = option(
        (), "Report CPU of this process or cgroup separately (repeatable).", MEASUREMENT, metavar="process=NAME|cgroup=PATH", repeated=True
    )
    trace_io: bool = option(False, "Trace block requests with perf.", MEASUREMENT)

    pg_version: str | None = option(
        None, "PostgreSQL major version.", POSTGRESQL, metavar="MAJOR", computed="newest installed, else the bundled one", web=True
    )
    pg_bin: str | None = option(None, "Directory with postgres, initdb and pgbench.", POSTGRESQL, metavar="DIR")
    set: tuple[str, ...] = option((), "PostgreSQL setting (repeatable).", POSTGRESQL, metavar="NAME=VALUE", repeated=True)
    settings_from: str | None = option(None, "Copy settings from a postgresql.conf or a running server.", POSTGRESQL, metavar="FILE|DSN")
    huge_pages: str | None = option(None, "Huge pages for shared memory: 2MB, 1GB, thp or off.", POSTGRESQL, metavar="SIZE|thp|off")
    data_checksums: bool | None = option(None, "Data checksums.", POSTGRESQL, computed="on")
    run_as: str | None = option(None, "User that servers run as, when pgherd runs as root.", POSTGRESQL, metavar="USER")
    dsn: tuple[str, ...] = option((), "Existing server to load; never reconfigured (repeatable).", POSTGRESQL, metavar="DSN", repeated=True)
    servers: str | None = option(None, "YAML list of existing servers; density loads 1 to all of them.", POSTGRESQL, metavar="FILE")
    server: str | None = option(None, "The one server of --servers to load.", POSTGRESQL, metavar="NAME")
    allow_writes: bool = option(False, "Allow transactions that write to existing servers.", POSTGRESQL)
    server_cgroup: str | None = option(
        None,
        "Cgroup of --dsn's server on this host; only read.",
        POSTGRESQL,
        metavar="/PATH|pid:N|container:ID",
        computed="found if provable",
    )
    prometheus: str | None = option(None, "Prometheus server with metrics of existing servers' hosts.", POSTGRESQL, metavar="URL")
    prometheus_match: str = option("host=instance", "Label of a server and the label in Prometheus.", POSTGRESQL, metavar="LABEL=LABEL")
    connection_limit: int | None = option(
        None, "Connections to each existing server.", POSTGRESQL, metavar="N", computed="as many as it has free", ge=1
    )
    query_timeout: Duration = option(
        Duration("60s"), "Time limit of a statement on an existing server; 0s: none.", POSTGRESQL, metavar="TIME"
    )

    vcpus: float | None = option(None, "CPU cores per database.", LIMITS, metavar="N", web=True, gt=0)
    memory: Size | None = option(None, "Memory limit per database.", LIMITS, metavar="SIZE", computed="equal share", web=True)
    runtime: Literal["process", "cgroup", "vm"] | None = option(
        None, "Isolation: process, cgroup or vm.", LIMITS, metavar="NAME", computed="best available"
    )
    cpu_mode: CpuMode | None = option(
        None, "Enforcement of the CPU limit: quota, cpuset or none.", LIMITS, metavar="MODE", computed="quota"
    )
    cpu_weight: int | None = option(None, "CPU weight per container, as in cgroup v2.", LIMITS, metavar="N", computed="100", ge=1, le=10000)
    iops: int | None = option(
        None, "Limit of reads, and of writes, per second and container.", LIMITS, metavar="N", computed="no limit", ge=1
    )
    io_bandwidth: Size | None = option(
        None, "Limit of bytes read, and written, per second and container.", LIMITS, metavar="SIZE", computed="no limit"
    )
    scheduler: Scheduler = option("normal", "CPU scheduling: normal, batch (SCHED_BATCH), or batch for one side.", LIMITS, metavar="POLICY")
    host_cores: float | None = option(None, "Cores this run may use.", LIMITS, metavar="N", computed="all", web=True, gt=0)
    host_memory: Size | None = option(None, "Memory this run may use.", LIMITS, metavar="SIZE", computed=FREE_MEMORY_TEXT, web=True)

    data_volume: str | None = option(None, "Volume for data: DIR, loop:SIZE[@DIR] or device:/dev/X.", STORAGE, metavar="VOLUME")
    wal_volume: str | None = option(None, "Volume for WAL.", STORAGE, metavar="VOLUME")
    temp_volume: str | None = option(None, "Volume for temporary files.", STORAGE, metavar="VOLUME")
    tablespace_volume: tuple[str, ...] = option(
        (), "Volume to spread tables and indexes over (repeatable).", STORAGE, metavar="VOLUME", repeated=True
    )
    allow_format: tuple[str, ...] = option(
        (), "Allow formatting this empty device; asks for its name.", STORAGE, metavar="/dev/X", repeated=True
    )

    vm_memory_policy: GuestMemoryPolicy | None = option(
        None, "static, virtio-balloon or free-page-reporting.", VM, metavar="POLICY", computed="static"
    )
    vm_memory_min: Size | None = option(None, "Memory a guest always keeps.", VM, metavar="SIZE", computed="a quarter")
    vm_memory_shares: tuple[str, ...] = option(
        (), "Weight of a guest when memory is divided (repeatable).", VM, metavar="NAME=N", repeated=True
    )
    vm_idle_tax: float | None = option(
        None, "Fraction of idle guest memory that may be reclaimed.", VM, metavar="X", computed="0.75", ge=0, lt=1
    )
    vm_huge_pages: Size | None = option(None, "Back guest memory with huge pages (2MB, 1GB).", VM, metavar="SIZE")
    vm_pin_vcpus: bool = option(False, "Pin each vCPU to its own host CPU.", VM)
    vm_ksm: bool = option(False, "Merge identical pages of guests (KSM).", VM)

    client_host: str | None = option(None, "Cluster host that runs only pgbench.", CLUSTER, metavar="HOST")

    @field_validator("dsn", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        """Accept one DSN without a list, as variants and earlier scenarios give it."""
        return () if value is None else (value,) if isinstance(value, str) else value


class DatabaseOptions(StudyOptions):
    """Complete options of a study of databases. The preparation replaces defaults that depend on the host by values.

    Sizes are in bytes, times in seconds and CPU in cores.

    Attributes:
        workload: workload that fills each database (see pgherd.workloads), like ``scale`` and ``init``.
        scripts: load of each database.
        rate: transactions per second of each database. None: as many as possible.
        repeats: planned trials per point.
        fixed_repeats: the user gave ``repeats``, so no point gets further ones.
        time_budget: maximum time of all trials. Every point gets at least 1 trial. None: no limit, and no repeats in
            addition to planned trials and reruns.
        max_reruns: maximum number of reruns of tainted trials in the run.
        precision: relative standard error of a point's mean at which it gets no further repeats.
    """

    # Deployment
    host_cores: float = Field(gt=0, description="budget on the host")
    host_memory: int = Field(gt=0, description="budget on the host")
    vcpus: float = Field(gt=0, description="of each database")
    container_memory: int | None = Field(None, gt=0)
    runtime: RuntimeName = "process"
    cpu_mode: CpuMode = "none"
    cpu_weight: int | None = Field(None, ge=1, le=10000, description="of each container")
    iops: int | None = Field(None, ge=1, description="limit of reads, and of writes, per second of each container")
    io_bandwidth: int | None = Field(None, ge=1, description="limit of bytes read, and written, per second of each container")
    scheduler: Scheduler = Field("normal", description="scheduling policy of servers and clients")
    vm: VmOptions | None = Field(None, description="virtual machines: options of their hypervisors")
    vm_memory_min: int | None = Field(None, gt=0, description="virtual machines: bytes that a balloon never reclaims (None: a quarter)")
    vm_memory_shares: dict[str, float] = Field(default_factory=dict, description="virtual machines: weight by container, if it is not 1")
    labels: dict[str, str] = Field(default_factory=dict)
    pg_bin: str
    pg_version: str = Field(description="of the server. The programs in pg_bin may have another version than an external server")
    settings: dict[str, str] = Field(default_factory=dict)
    workload: str = "pgbench"
    scale: int = Field(10, ge=1)
    partitions: int = Field(1, ge=1)
    init: str | None = None
    init_data: InitData | None = Field(None, description="data files that init reads, with their state at the preparation of the run")
    check_consistency: bool = False
    transparent_huge_pages: bool | None = Field(None, description="of the servers' shared memory (None: setting of the host)")
    huge_page_bytes: int = Field(
        0, ge=0, description="reserved for each server. A memory cgroup does not count them, so its limit is lower by this amount"
    )
    data_checksums: bool | None = Field(None, description="data checksums (None: default of the version's initdb)")
    volumes: tuple[Volume, ...] = Field((), description="volumes of the servers' files")
    roles: dict[Role, str] = Field(default_factory=dict, description="role of files → name of their volume")
    tablespaces: tuple[str, ...] = Field((), description="names of the volumes over which tables and indexes are spread")
    dsn: str | None = Field(None, description="DSN of an external server, without password (None: pgherd starts servers)")
    direct: str | None = Field(None, description="DSN for samples, without password, if dsn leads to a pooler (None: dsn)")
    pooled: bool = Field(False, description="dsn leads to a pooler")
    query_timeout: float | None = Field(None, gt=0, description="seconds; of sessions on an external server (None: as set there)")
    server_cgroup: str | None = Field(None, description="cgroup of the external server (None: found if provable)")
    prometheus: PrometheusSource | None = Field(None, description="Prometheus server with samples of the external server's host")

    # Load
    scripts: tuple[Script, ...] = (Script(source="builtin:select-only"),)
    variables: dict[str, str] = Field(default_factory=dict, description="pgbench's variables for the scripts")
    read_only: bool = Field(True, description="the scripts write nothing")
    threads: int = Field(1, ge=1)
    rate: float | None = Field(None, gt=0)
    protocol: Protocol = "prepared"
    client_placement: ClientPlace = "inside"
    sampling: float = Field(0.05, gt=0, le=1)

    # Measurement
    repeats: int = Field(3, ge=1)
    fixed_repeats: bool = False
    duration: float = Field(8.0, gt=0)
    warmup: float = Field(1.0, ge=0)
    time_budget: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    start_state: State = "warm"
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' checks")

    @property
    def cpu_limited(self) -> bool:
        """Whether a database cannot use more than its vCPUs."""
        return is_cpu_limited(self.runtime, self.cpu_mode)

    @property
    def batch_servers(self) -> bool:
        """Whether servers run under SCHED_BATCH."""
        return self.scheduler in ("batch", "batch-servers")

    @property
    def batch_clients(self) -> bool:
        """Whether clients run under SCHED_BATCH."""
        return self.scheduler in ("batch", "batch-clients")

    @property
    def external(self) -> bool:
        """Whether the servers are external."""
        return self.dsn is not None

    def external_server(self, dsn: str, direct: str | None, version: str, database: Database, *, pooled: bool) -> Server:
        """Return an external server with its one database."""
        return Server(
            name="pg",
            bin=self.pg_bin,
            version=version,
            dsn=dsn,
            direct=direct,
            pooled=pooled,
            query_timeout=self.query_timeout,
            databases=(database,),
        )

    def database_called(self, name: str) -> Database:
        """Return a database with this name."""
        return Database(
            name=name,
            workload=self.workload,
            scale=self.scale,
            partitions=self.partitions,
            init=self.init,
            init_data=self.init_data,
            verify=self.check_consistency,
        )

    def container(self, name: str) -> Container:
        """Return a container with one server and its database ``bench``. For an external server, the container is only a name."""
        database = self.database_called("bench")
        if self.dsn is not None:
            external = self.external_server(self.dsn, self.direct, self.pg_version, database, pooled=self.pooled)
            return Container(name=name, runtime="external", cgroup=self.server_cgroup, prometheus=self.prometheus, servers=(external,))
        return Container(
            name=name,
            runtime=self.runtime,
            vcpus=self.vcpus,
            cpu_mode=self.cpu_mode,
            memory=None if self.container_memory is None else self.container_memory - self.huge_page_bytes,
            weight=self.cpu_weight,
            iops=self.iops,
            io_bandwidth=self.io_bandwidth,
            vm_memory_min=self.vm_memory_min,
            vm_memory_shares=self.vm_memory_shares.get(name, 1.0),
            vm=self.vm,
            servers=(self.own_server("pg", (database,)),),
        )

    def own_server(self, name: str, databases: tuple[Database, ...], settings: Mapping[str, str] | None = None) -> Server:
        """Return a server that pgherd starts. Without ``settings`` it has the requested ones."""
        return Server(
            name=name,
            bin=self.pg_bin,
            version=self.pg_version,
            settings=dict(self.settings if settings is None else settings),
            transparent_huge_pages=self.transparent_huge_pages,
            checksums=self.data_checksums,
            volumes=self.roles,
            tablespaces=self.tablespaces,
            sched_batch=self.batch_servers,
            databases=databases,
        )

    def deploy(self, names: tuple[str, ...] | list[str]) -> Deployment:
        """Return a deployment on this host with a container for each name. The budget is that of the host."""
        containers = tuple(self.container(name) for name in names)
        host = Host(name="local", cores=self.host_cores, memory=self.host_memory, labels=self.labels, containers=containers)
        return Deployment(hosts=(host,), volumes=self.volumes)

    def load(self, clients: int) -> Load:
        """Return the load of one database with this number of clients."""
        return Load(
            driver="pgbench",
            clients=clients,
            threads=min(self.threads, clients),
            rate=self.rate,
            scripts=self.scripts,
            protocol=self.protocol,
            client_placement=self.client_placement,
            sched_batch=self.batch_clients,
            sampling=self.sampling,
            kept_from_writing=self.settings.get(READ_ONLY) == "on" or (self.external and self.read_only),
            options={f"define:{name}": value for name, value in self.variables.items()},
        )


def target(name: str) -> str:
    """Return the address of the database in this container of the local host."""
    return f"local/{name}/pg/bench"
