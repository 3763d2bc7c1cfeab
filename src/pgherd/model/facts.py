"""What a host is, as far as a result's reader needs to know it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.base import Model


class BlockDevice(Model):
    """One block device: its key ``major:minor``, size in bytes, scheduler, whether it rotates, and how far it reads ahead (bytes)."""

    name: str
    number: str
    size: int
    scheduler: str | None = None
    rotational: bool | None = None
    read_ahead: int | None = None


class HostFacts(Model):
    """Facts of one host. ``cores`` counts what the scheduler can use (affinity and any surrounding quota applied).

    ``core_note`` says in words what one core is here: SMT sibling, virtual CPU, boosting clock. None: not visible.
    """

    hostname: str
    kernel: str
    os: str = ""
    cores: float
    logical_cpus: int
    physical_cores: int | None = None
    smt: bool | None = None
    numa_nodes: int | None = None
    cpu_model: str = ""
    virtualisation: str | None = Field(None, description="hypervisor name, or None on bare metal")
    governor: str | None = None
    boost: bool | None = None
    clock_source: str | None = None
    core_note: str = ""
    memory: int = Field(description="bytes in all")
    memory_available: int = 0
    swap: int = 0
    huge_pages: dict[str, int] = Field(default_factory=dict, description="page size → pages reserved")
    transparent_huge_pages: str | None = None
    cgroup: str = Field("none", description="v1, v2, hybrid or none")
    cgroup_writable: str | None = Field(None, description="where a group can be made, or None")
    cgroup_missing: str = Field("", description="why not, and what would make it possible")
    devices: tuple[BlockDevice, ...] = ()
    root: bool = False


Outcome = Literal["ok", "change", "consider", "unknown"]


class Part(Model):
    """A disk or a network card: the kernel's name, the driver ('': not visible), a disk's I/O schedulers (the one in use first)."""

    name: str
    driver: str = ""
    schedulers: tuple[str, ...] = ()


class HostPractice(Model):
    """What was seen of a host. None or empty: not visible. ``knobs`` are /proc/sys/vm's by name."""

    hostname: str = ""
    virtualisation: str | None = None
    memory: int = 0
    swap: int = 0
    disks: tuple[Part, ...] = ()
    cards: tuple[Part, ...] = ()
    balloon: str | None = Field(None, description="driver of the hypervisor's balloon that is bound to a device; '' where there is none")
    knobs: dict[str, int] = Field(default_factory=dict)
    transparent_huge_pages: str | None = None
    governor: str | None = None
    clock_source: str | None = None
    clock_sources: tuple[str, ...] = ()


class ServerPractice(Model):
    """What was seen of a server by SQL. ``settings`` are in the server's own text form (``SHOW``); sizes in bytes in ``bytes_``.

    ``local``: it runs on the host that was looked at. ``data`` and ``wal`` are the disks that the files lie on (all, down to the
    whole devices; empty: not visible), ``system`` those of the root file system. ``timed`` and ``requested`` count checkpoints since the
    statistics began; ``wal_bytes`` and ``full_pages`` WAL and full-page images.
    """

    dsn: str
    version: str
    major: int
    settings: dict[str, str] = Field(default_factory=dict)
    bytes_: dict[str, int] = Field(default_factory=dict)
    local: bool = False
    data: tuple[str, ...] = ()
    wal: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    databases: dict[str, int] = Field(default_factory=dict, description="user databases → bytes")
    servers_here: int | None = Field(None, description="PostgreSQL servers seen on its host, itself among them")
    timed: int | None = None
    requested: int | None = None
    wal_records: int | None = None
    full_pages: int | None = None
    wal_compressions: tuple[str, ...] = Field((), description="values that this build takes for wal_compression; empty: on and off alone")
    huge_pages_status: str | None = Field(None, description="on, off or unknown, as PostgreSQL 17 and later say")
    huge_pages_needed: int | None = None


class Worth(Model):
    """What a run of this host says a change was worth: a sentence with its interval, and the run."""

    run: str
    text: str


class Advice(Model):
    """One check: what was found, what is good practice and why, what it was worth here, and the command that changes it ('' where
    nothing is to be changed, or no command can). ``source`` names where the practice comes from."""

    check: str
    about: Literal["host", "server"]
    outcome: Outcome
    found: str
    wanted: str
    why: str
    command: str = ""
    source: str = ""
    worth: tuple[Worth, ...] = ()
