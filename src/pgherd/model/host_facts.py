"""Facts about hosts and servers, and the advice derived from them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.base import Model


class BlockDevice(Model):
    """Block device. ``number`` is ``major:minor``. ``size`` and ``read_ahead`` are in bytes."""

    name: str
    number: str
    size: int
    scheduler: str | None = None
    rotational: bool | None = None
    read_ahead: int | None = None


class HostFacts(Model):
    """Facts about one host. ``cores`` counts what the scheduler can use, after affinity and any enclosing quota.

    ``core_note`` describes one core: SMT sibling, virtual CPU, boosting clock. None means not visible.
    """

    hostname: str
    kernel: str
    os: str = ""
    cores: float
    logical_cpus: int
    physical_cores: int | None = None
    smt: bool | None = None
    numa_nodes: int | None = None
    cpu_nodes: tuple[int, ...] = Field((), description="NUMA node of each CPU that this process may use; empty: not visible")
    cpu_model: str = ""
    virtualisation: str | None = Field(None, description="hypervisor name, or None on bare metal")
    governor: str | None = None
    boost: bool | None = None
    clock_source: str | None = None
    core_note: str = ""
    memory: int = Field(description="total bytes")
    memory_available: int = 0
    swap: int = 0
    page_size: int | None = Field(None, description="bytes of a page; missing in runs of former versions")
    huge_pages: dict[str, int] = Field(default_factory=dict, description="page size → pages reserved")
    transparent_huge_pages: str | None = None
    cgroup: str = Field("none", description="v1, v2, hybrid or none")
    cgroup_writable: str | None = Field(None, description="cgroup in which pgherd can create groups, or None")
    cgroup_missing: str = Field("", description="reason, and the change that would enable it")
    enclosing_limits: tuple[str, ...] = Field(
        (), description="limits of control groups (I/O, swap, huge pages) and of this process (ulimit) that servers inherit"
    )
    devices: tuple[BlockDevice, ...] = ()
    root: bool = False


Outcome = Literal["ok", "change", "consider", "unknown"]


class HardwareDevice(Model):
    """Disk or network card: kernel name, driver ('': not visible), I/O schedulers of a disk (the active one first)."""

    name: str
    driver: str = ""
    schedulers: tuple[str, ...] = ()


class HostAdviceFacts(Model):
    """Settings of a host that advice depends on. None or empty means not visible. ``knobs`` are sysctls of /proc/sys/vm."""

    hostname: str = ""
    virtualisation: str | None = None
    memory: int = 0
    swap: int = 0
    disks: tuple[HardwareDevice, ...] = ()
    cards: tuple[HardwareDevice, ...] = ()
    balloon: str | None = Field(None, description="driver of the memory balloon that is bound to a device ('': none)")
    knobs: dict[str, int] = Field(default_factory=dict)
    transparent_huge_pages: str | None = None
    governor: str | None = None
    clock_source: str | None = None
    clock_sources: tuple[str, ...] = ()


class ServerFacts(Model):
    """Facts about a server, read by SQL. ``settings`` are in text form (``SHOW``), ``bytes_`` has sizes in bytes.

    ``local``: the server runs on the inspected host. ``data`` and ``wal`` are the disks of its files, down to the whole devices
    (empty: not visible). ``system`` are the disks of the root file system. ``timed`` and ``requested`` count checkpoints since
    the statistics were reset. ``wal_records`` and ``full_pages`` count WAL records and full-page images.
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
    servers_here: int | None = Field(None, description="PostgreSQL servers on its host, including this one")
    timed: int | None = None
    requested: int | None = None
    wal_records: int | None = None
    full_pages: int | None = None
    wal_compressions: tuple[str, ...] = Field((), description="values of wal_compression in this build (empty: only on and off)")
    huge_pages_status: str | None = Field(None, description="on, off or unknown (PostgreSQL 17 and later)")
    huge_pages_needed: int | None = None


class MeasuredBenefit(Model):
    """Benefit of a change as measured by a run on this host: a sentence with its interval."""

    run: str
    text: str


class Advice(Model):
    """Result of one recommendation's check.

    ``observed`` and ``recommended`` are states, ``rationale`` is the reason. ``fix`` is the command that applies the change ('':
    nothing to change, or no command can). ``measured_benefit`` was measured on this host. ``source`` is the origin of the
    recommendation.
    """

    check: str
    scope: Literal["host", "server"]
    outcome: Outcome
    observed: str
    recommended: str
    rationale: str
    fix: str = ""
    source: str = ""
    measured_benefit: tuple[MeasuredBenefit, ...] = ()
