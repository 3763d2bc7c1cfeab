"""What a host is, as far as a result's reader needs to know it."""

from __future__ import annotations

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
