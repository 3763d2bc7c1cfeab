"""Request and complete options of a verification, with the planned hosts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from pgherd.model.base import Model
from pgherd.model.load import LatencyClass, LatencyObjective
from pgherd.model.units import Duration
from pgherd.study.database_options import EXISTING_SERVERS, DatabaseOptions, DatabaseRequest
from pgherd.study.option import redefined

MAX_SLOTS = 24
"""Most slots that are verified. Of more slots, as many are, at even distances."""


class PlannedHost(Model):
    """Host of a plan with the demand of its databases that was planned for.

    Attributes:
        name: in the plan.
        cores: usable CPU capacity.
        databases: their names.
        cpu: of each database by slot, in cores of this host.
        memory: of each database, in MB: the largest of the day. Empty: the demand has no memory.
        latency: class of each slot. Empty: the plan has no latency objective.
    """

    name: str = Field(min_length=1)
    cores: float = Field(gt=0)
    databases: tuple[str, ...] = Field(min_length=1)
    cpu: tuple[tuple[float, ...], ...]
    memory: tuple[Annotated[float, Field(ge=0)], ...] = ()
    latency: tuple[LatencyClass, ...] = ()

    @model_validator(mode="after")
    def _one_row_for_each_database(self) -> Self:
        if len(self.cpu) != len(self.databases) or len({len(row) for row in self.cpu}) != 1:
            raise ValueError(f"host {self.name}: 'cpu' needs a row for each database, all with the same slots")
        if len(self.memory) not in (0, len(self.databases)) or len(self.latency) not in (0, len(self.cpu[0])):
            raise ValueError(f"host {self.name}: 'memory' needs a value for each database, and 'latency' a class for each slot")
        return self

    def demand(self, slot: int) -> float:
        """Return the CPU of all its databases in a slot."""
        return sum(row[slot] for row in self.cpu)


class PlaceVerifyOptions(DatabaseOptions):
    """Complete options of a verification.

    ``factor`` is the cores of a planned host that one of its cores has here, and ``memory_factor`` the same of its memory. ``scales``
    are those of the databases of each host, and one scale is ``scale_bytes`` of data. Without planned memory there are none, and all
    have ``scale``. ``duration`` and ``warmup`` are those of each slot. ``repeats`` is the number of verification trials.
    """

    planned: tuple[PlannedHost, ...] = Field(min_length=1)
    slots: tuple[str, ...] = Field(min_length=1)
    factor: float = Field(gt=0, le=1)
    memory_factor: float | None = Field(None, gt=0, le=1)
    scales: tuple[tuple[int, ...], ...] = ()
    scale_bytes: int = Field(0, ge=0)
    objective: LatencyObjective | None = None
    repeats: int = Field(1, ge=1)

    def quota(self, host: PlannedHost) -> float:
        """Return the cores of the container that stands for a host."""
        return host.cores * self.factor

    def scale_of(self, number: int, database: int) -> int:
        """Return the scale of a database by the numbers of host and database from 0."""
        return self.scales[number][database] if self.scales else self.scale


class PlaceVerifyRequest(DatabaseRequest):
    """Options of a verification. ``pgherd place --verify`` sets ``planned`` and ``slots`` from its plan."""

    LEFT_OUT: ClassVar[dict[str, str]] = {
        **dict.fromkeys(EXISTING_SERVERS, "the verification starts the servers; leave it out"),
        **dict.fromkeys(
            ("workload", "script", "init_script", "read_only", "rate", "partitions", "think_time", "check_consistency", "zipf"),
            "the load is the planned CPU; leave it out",
        ),
        **dict.fromkeys(("update_percent", "client_placement", "start_state", "min_repeats"), "the load is the planned CPU; leave it out"),
        **dict.fromkeys(
            ("vcpus", "memory", "runtime", "cpu_mode", "cpu_weight", "iops", "io_bandwidth", "huge_pages"),
            "the containers are the planned hosts; leave it out",
        ),
        **dict.fromkeys(
            ("vm_memory_policy", "vm_memory_min", "vm_memory_shares", "vm_idle_tax", "vm_huge_pages", "vm_pin_vcpus", "vm_ksm"),
            "the planned hosts are containers; leave it out",
        ),
    }

    scale: int | None = redefined(DatabaseRequest, "scale", None, computed="1")
    duration: Duration | None = redefined(DatabaseRequest, "duration", Duration("6s"), help="Measured time of each slot.")
    warmup: Duration | None = redefined(DatabaseRequest, "warmup", Duration("1500ms"))
    time_budget: Duration | None = redefined(DatabaseRequest, "time_budget", None, computed="none")
    repeats: int | None = redefined(DatabaseRequest, "repeats", None, help="Verification trials.", computed="1")
    planned: tuple[PlannedHost, ...] = Field((), description="planned hosts, by 'pgherd place --verify'")
    slots: tuple[str, ...] = Field((), description="names of the slots")
    objective: LatencyObjective | None = Field(None, description="latency objective by which slots are classified")

    @model_validator(mode="after")
    def _all_slots(self) -> Self:
        for host in self.planned:
            if len(host.cpu[0]) != len(self.slots):
                raise ValueError(f"host {host.name} has {len(host.cpu[0])} slots of CPU, but there are {len(self.slots)} names of slots")
        return self
