"""Complete options of an isolation run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.units import Duration
from pgherd.study.database_options import EXISTING_SERVERS, DatabaseOptions, DatabaseRequest
from pgherd.study.option import option, redefined, without_nulls

Scheme = Literal["shared-server", "shared-container", "quota", "weights", "cpuset", "io", "vm"]
SCHEMES: Mapping[Scheme, str] = {
    "shared-server": "one server with both databases",
    "shared-container": "one container with a server for each database",
    "quota": "a container each, with a CPU quota",
    "weights": "a container each, with CPU weights and without a quota",
    "cpuset": "a container each, on CPUs of its own",
    "io": "a container each, with a CPU quota and I/O limits",
    "vm": "a virtual machine each",
}
"""Schemes and what they are, from the least to the most separated."""
SHARED: tuple[Scheme, ...] = ("shared-server", "shared-container")
"""Schemes in which both databases use one container, with the resources of two. With the runtime vm it is a virtual machine."""

Aggressor = Literal["cpu", "memory", "buffers", "wal", "temp", "fio", "checkpoint", "vacuum", "connections"]
AGGRESSORS: Mapping[Aggressor, str] = {
    "cpu": "computation",
    "memory": "memory bandwidth and processor cache",
    "buffers": "scans that displace pages from shared buffers and the page cache",
    "wal": "WAL and flushes",
    "temp": "temporary files",
    "fio": "random reads and writes of blocks, past the page cache",
    "checkpoint": "updates with constant checkpoints",
    "vacuum": "autovacuum of a bloated table",
    "connections": "a storm of connections",
}
"""Aggressors and what they load. Each is a pgbench script in the directory ``aggressors``, except FIO."""
FIO: Aggressor = "fio"
FIO_BYTES = 2**30
"""Size of fio's file."""
ALONE = "none"
"""Name of the trials without an aggressor."""
Victim = Literal["select-only", "tpcb-like", "simple-update"]
"""Workloads of the victim. All have pgbench's tables, which aggressors use too."""
LEAST_TRANSACTIONS = 1300
"""Transactions per trial for a p99, which ten must exceed. A trial has fewer if arrivals are late or an aggressor slows the victim."""


class IsolationOptions(DatabaseOptions):
    """Complete options of an isolation run: a victim at a fixed rate, alone and next to one aggressor at a time.

    ``vcpus`` and ``container_memory`` belong to each container with one database. A container with both has twice as much. ``repeats``
    is the number of blocks. A block holds, for one scheme, a trial alone and one with each aggressor. ``scripts_of`` maps each aggressor
    of pgbench to its script.
    """

    schemes: tuple[Scheme, ...]
    aggressors: tuple[Aggressor, ...]
    scripts_of: dict[str, str]
    clients: int = Field(ge=1, description="of the victim")
    aggressor_clients: int = Field(ge=1)
    rate: float = Field(gt=0, description="of the victim, in transactions per second")
    repeats: int = Field(3, ge=1)

    @property
    def comparisons(self) -> int:
        """Number of pairs of a scheme and an aggressor."""
        return len(self.schemes) * len(self.aggressors)


class IsolationRequest(DatabaseRequest):
    """Options of ``pgherd isolation`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = {
        "min_repeats": "isolation adds no repeats; give repeats",
        "cpu_mode": "the scheme decides how CPU is limited; give schemes",
        "check_consistency": "isolation compares latencies; leave it out",
        **dict.fromkeys(("script", "init_script", "read_only"), "the aggressors use pgbench's tables; give workload"),
        **dict.fromkeys(EXISTING_SERVERS, "isolation starts the servers; leave it out"),
        **dict.fromkeys(("huge_pages", "vm_huge_pages"), "the schemes would reserve different numbers of huge pages; leave it out"),
        **dict.fromkeys(
            ("vm_memory_policy", "vm_memory_min", "vm_memory_shares", "vm_idle_tax", "vm_pin_vcpus", "vm_ksm"),
            "isolation gives virtual machines fixed memory and no other options; leave it out",
        ),
    }

    schemes: tuple[Scheme, ...] | None = option(
        None,
        f"{', '.join(SCHEMES)}.",
        metavar="NAME,…",
        computed="shared-server,quota,cpuset; with --runtime vm shared-server,vm",
        web=True,
        filled="shared-server,cpuset",
    )
    aggressors: tuple[Aggressor, ...] | None = option(
        None, f"{', '.join(AGGRESSORS)}.", metavar="NAME,…", computed="all that this host supports", web=True, filled="cpu,wal"
    )
    clients: int = option(8, "Clients of the victim.", metavar="N", ge=1)
    aggressor_clients: int = option(4, "Clients of the aggressor.", metavar="N", web=True, filled="4", ge=1)
    workload: Victim = redefined(DatabaseRequest, "workload", "tpcb-like", help="Victim's workload, a pgbench built-in.")
    rate: float | None = redefined(
        DatabaseRequest, "rate", None, help="Victim's transactions per second.", computed="100 per vCPU, at least 100", filled="120"
    )
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="half of the cores")
    cpu_weight: int | None = redefined(
        DatabaseRequest, "cpu_weight", None, help="Scheme weights: the victim's; the aggressor has 100.", computed="100"
    )
    duration: Duration | None = redefined(DatabaseRequest, "duration", Duration("15s"), filled="11s")
    warmup: Duration | None = redefined(DatabaseRequest, "warmup", Duration("3s"))
    time_budget: Duration | None = redefined(DatabaseRequest, "time_budget", None, computed="none", filled="5m")
    repeats: int | None = redefined(DatabaseRequest, "repeats", None, help="Blocks; 3 or more give intervals.", computed="3")

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, values: Any) -> Any:
        return without_nulls(values)

    @field_validator("schemes", "aggressors")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names or len(set(names)) < len(names):
            raise ValueError("give at least one name, and each name once")
        return names
