"""What studies of one kind of database share: what a user may ask of it, the complete options, the server and its load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.deployment import (
    Container,
    CpuMode,
    Database,
    Deployment,
    GuestMachine,
    GuestMemoryPolicy,
    Host,
    InitData,
    Role,
    RuntimeName,
    Server,
    Volume,
)
from pgherd.model.finding import Thresholds
from pgherd.model.load import ClientPlace, Load, Protocol, Script
from pgherd.model.trial import State
from pgherd.study.cluster_options import SpreadRequest
from pgherd.study.study import StudyOptions

READ_ONLY = "default_transaction_read_only"
"""The setting by which a server refuses to write, for scripts of which the user says that they do not."""

BuiltinWorkload = Literal["select-only", "tpcb-like", "simple-update", "orders", "random-block"]


class DatabaseRequest(SpreadRequest):
    """Options that say which databases to deploy, how to load them and how to measure, as given on the command line or
    in a scenario. None: pgherd chooses, and says what.

    Sizes and durations are texts with units (``512MB``, ``10m``). Paths are relative to where pgherd is called.
    """

    # What is deployed
    vcpus: float | None = Field(None, gt=0, description="cores given to each database's container (0.25 is a quarter)")
    memory: str | None = Field(None, description="memory of each database's container")
    runtime: Literal["process", "cgroup", "vm"] | None = Field(None, description="what isolates the databases")
    guest_memory: GuestMemoryPolicy | None = Field(None, description="who gives memory of virtual machines back to the host")
    guest_minimum: str | None = Field(None, description="virtual machines: the memory that the balloon of each leaves it at least")
    guest_shares: tuple[str, ...] = Field((), description="virtual machines: a guest's weight where memory is divided, NAME=WEIGHT")
    guest_tax: float | None = Field(None, ge=0, lt=1, description="virtual machines: the share of idle memory that is taken for others")
    guest_pages: str | None = Field(None, description="virtual machines: the size of reserved huge pages on which their memory lies")
    pin_vcpus: bool = Field(False, description="virtual machines: each vCPU runs on a CPU of its own")
    ksm: bool = Field(False, description="virtual machines: the host merges equal pages of their memory (KSM)")
    cpu_mode: CpuMode | None = Field(None, description="how vcpus are enforced: a CFS quota, whole CPUs, or not")
    cores: float | None = Field(None, gt=0, description="cores of this host that the run may use")
    host_memory: str | None = Field(None, description="memory of this host that the run may use")
    pg_bin: str | None = Field(None, description="directory of postgres, initdb and pgbench")
    pg_version: str | None = Field(None, description="PostgreSQL major version to use, such as 17")
    set: tuple[str, ...] = Field((), description="a setting, NAME=VALUE")
    like: str | None = Field(None, description="take settings from a postgresql.conf or from a server (DSN)")
    checksums: bool | None = Field(None, description="data checksums; on by default, whatever the version's own default is")
    wal_dir: str | None = Field(None, description="an existing directory below which the servers' WAL is to lie")
    data_on: str | None = Field(None, description="the volume on which the servers' data lie")
    wal_on: str | None = Field(None, description="the volume on which the servers' WAL lies")
    temp_on: str | None = Field(None, description="the volume on which the servers' temporary files lie")
    tablespaces_on: tuple[str, ...] = Field((), description="volumes over which tables and indexes are spread")
    allow_format: tuple[str, ...] = Field((), description="empty block devices that may be formatted: their paths")
    server: str | None = Field(None, description="the DSN of somebody else's server, to be loaded and not changed")
    allow_write: bool = Field(False, description="transactions on --server may write")
    huge_pages: str | None = Field(
        None, description="pages of the servers' shared memory: off, a size that is reserved for them (2MB, 1GB), or thp (transparent)"
    )
    run_as: str | None = Field(None, description="the account that servers run as (root only)")

    # What loads it
    workload: BuiltinWorkload = Field("select-only", description="pgbench's builtin script, or one of pgherd's own workloads")
    think: float | None = Field(None, ge=0, description="orders: keying and think times, as a multiple of the specification's")
    zipf: float | None = Field(None, description="random-block: rows are chosen by a Zipfian distribution of this parameter")
    updates: int | None = Field(None, ge=0, le=100, description="random-block: per cent of the transactions that update")
    check_consistency: bool = Field(False, description="check the workload's consistency conditions after every trial")
    script: tuple[str, ...] = Field((), description="your own pgbench script, FILE or FILE@WEIGHT")
    read_only: bool = Field(False, description="your own scripts write nothing: PostgreSQL refuses what would")
    init: str | None = Field(None, description="an SQL file that fills the database for --script")
    scale: int | None = Field(
        None, ge=1, description="pgbench scale factor (about 15 MB each); orders: warehouses (110 MB each); random-block: MiB"
    )
    partitions: int | None = Field(
        None, ge=1, le=256, description="parts by hash of the large table (pgbench's accounts, random-block), for tablespaces_on to spread"
    )
    threads: int | None = Field(None, ge=1, description="pgbench threads of each database")
    rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="open loop: transactions per second of each database")
    protocol: Protocol = Field("prepared", description="how queries are sent")
    client_place: ClientPlace = Field("inside", description="whether pgbench runs inside the database's container")
    client_host: str | None = Field(None, description="the host of the cluster on which pgbench runs, and no server")

    # How it is measured
    trace: bool = Field(False, description="trace the block requests of the servers' devices one by one (perf)")
    repeats: int | None = Field(None, ge=1, description="trials per point")
    seconds: str | None = Field(None, description="measured period of each trial")
    ramp: str | None = Field(None, description="ramp-up before it, not counted")
    budget: str | None = Field(None, description="time for all trials; reruns of tainted trials fit into it too")
    state: State = Field("warm", description="state of the servers at the start of each trial")
    seed: int | None = Field(None, ge=0, description="seed of the order of trials")
    platform: tuple[str, ...] = Field((), description="account for a part of the platform: process=NAME or cgroup=PATH")
    threshold: tuple[str, ...] = Field((), description="change a verdict's threshold, NAME=VALUE")


class DatabaseOptions(StudyOptions):
    """The same, complete; what depends on the host has been filled in by the caller.

    Sizes are bytes, times seconds, CPU in cores. ``workload``, ``scale`` and ``init`` describe each database (see
    pgherd.workloads), ``scripts`` what loads it. ``rate`` is per database. ``repeats`` are trials per point.
    ``budget_seconds`` bounds the time of all trials, though every point gets at least one; None: no bound, and no repeats
    beyond the planned ones and reruns. ``max_reruns`` bounds the reruns of tainted trials in the whole run. ``precision``
    is the relative standard error of a point's mean at which it gets no further repeats.
    """

    # What is deployed
    cores: float = Field(gt=0, description="the host's budget")
    memory: int = Field(gt=0, description="the host's budget")
    vcpus: float = Field(gt=0, description="given to each database")
    container_memory: int | None = Field(None, gt=0)
    runtime: RuntimeName = "process"
    cpu_mode: CpuMode = "none"
    guest: GuestMachine | None = Field(None, description="virtual machines: what their hypervisors do for them")
    guest_minimum: int | None = Field(None, gt=0, description="virtual machines: bytes that a balloon never takes; None: a quarter")
    guest_shares: dict[str, float] = Field(default_factory=dict, description="virtual machines: weight by container, where it is not 1")
    labels: dict[str, str] = Field(default_factory=dict)
    pg_bin: str
    pg_version: str = Field(description="of the server; at somebody else's the programs in pg_bin may be of another")
    settings: dict[str, str] = Field(default_factory=dict)
    workload: str = "pgbench"
    scale: int = Field(10, ge=1)
    partitions: int = Field(1, ge=1)
    init: str | None = None
    init_data: InitData | None = Field(None, description="the data files that init reads, as they were when the run was prepared")
    check_consistency: bool = False
    transparent_huge_pages: bool | None = Field(None, description="of the servers' shared memory; None: as the host has them")
    huge_page_bytes: int = Field(
        0, ge=0, description="reserved for each server: no control group counts them, so its limit is lowered by them"
    )
    checksums: bool | None = Field(None, description="data checksums; None: as the version's initdb has it by itself")
    wal_dir: str | None = Field(None, description="where the servers' WAL lies; None: with their data")
    volumes: tuple[Volume, ...] = Field((), description="volumes on which parts of the servers lie, beside that of wal_dir")
    roles: dict[Role, str] = Field(default_factory=dict, description="what lies on which of them: role → name")
    tablespaces: tuple[str, ...] = Field((), description="those over which tables and indexes are spread: names")
    server: str | None = Field(None, description="DSN of somebody else's server, without a password; None: servers of our own")

    # What loads it
    scripts: tuple[Script, ...] = (Script(source="builtin:select-only"),)
    variables: dict[str, str] = Field(default_factory=dict, description="pgbench's variables for the scripts")
    read_only: bool = Field(True, description="the scripts write nothing")
    threads: int = Field(1, ge=1)
    rate: float | None = Field(None, gt=0)
    protocol: Protocol = "prepared"
    client_place: ClientPlace = "inside"
    sampling: float = Field(0.05, gt=0, le=1)

    # How it is measured
    repeats: int = Field(3, ge=1)
    seconds: float = Field(8.0, gt=0)
    ramp: float = Field(1.0, ge=0)
    budget_seconds: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    state: State = "warm"
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' verdicts")

    @property
    def all_volumes(self) -> tuple[Volume, ...]:
        """The volumes on which parts of the servers lie, that of ``wal_dir`` among them."""
        return self.volumes if self.wal_dir is None else (Volume(name="wal", path=self.wal_dir), *self.volumes)

    @property
    def all_roles(self) -> dict[Role, str]:
        """What of each server lies on which of them: role → name."""
        return dict(self.roles) if self.wal_dir is None else {**self.roles, "wal": "wal"}

    def database_called(self, name: str) -> Database:
        """One of the databases, under this name."""
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
        """A container of one server with one database, ``bench``; of somebody else's server it is only the name."""
        database = self.database_called("bench")
        if self.server is not None:
            theirs = Server(name="pg", bin=self.pg_bin, version=self.pg_version, dsn=self.server, databases=(database,))
            return Container(name=name, runtime="external", servers=(theirs,))
        server = Server(
            name="pg",
            bin=self.pg_bin,
            version=self.pg_version,
            settings=self.settings,
            transparent_huge_pages=self.transparent_huge_pages,
            checksums=self.checksums,
            volumes=self.all_roles,
            tablespaces=self.tablespaces,
            databases=(database,),
        )
        return Container(
            name=name,
            runtime=self.runtime,
            vcpus=self.vcpus,
            cpu_mode=self.cpu_mode,
            memory=None if self.container_memory is None else self.container_memory - self.huge_page_bytes,
            memory_minimum=self.guest_minimum,
            memory_shares=self.guest_shares.get(name, 1.0),
            guest=self.guest,
            servers=(server,),
        )

    def deploy(self, names: tuple[str, ...] | list[str]) -> Deployment:
        """One container of each name on this host, within the budget."""
        containers = tuple(self.container(name) for name in names)
        host = Host(name="local", cores=self.cores, memory=self.memory, labels=self.labels, containers=containers)
        return Deployment(hosts=(host,), volumes=self.all_volumes)

    def load(self, clients: int) -> Load:
        """The load of one database by so many clients."""
        return Load(
            driver="pgbench",
            clients=clients,
            threads=min(self.threads, clients),
            rate=self.rate,
            scripts=self.scripts,
            protocol=self.protocol,
            place=self.client_place,
            sampling=self.sampling,
            kept_from_writing=self.settings.get(READ_ONLY) == "on",
            options={f"define:{name}": value for name, value in self.variables.items()},
        )


def target(name: str) -> str:
    """The address of the database of the container of this name."""
    return f"local/{name}/pg/bench"
