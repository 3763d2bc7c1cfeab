"""Complete options of a working-set run, its curves, and the deployment of each size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.capabilities import capabilities_of
from pgherd.model.deployment import Deployment, RuntimeName
from pgherd.model.load import ClientPlace
from pgherd.model.run import Swap
from pgherd.model.trial import State
from pgherd.model.units import Duration, Size
from pgherd.study.comparison.request import Share
from pgherd.study.database_options import EXISTING_SERVERS, BuiltinWorkload, DatabaseOptions, DatabaseRequest
from pgherd.study.option import option, redefined, without_nulls
from pgherd.study.shared_options import SwapRequest

DEFAULT_SCALE = 128
"""Default size of the random-block table in MiB."""

Sweep = Literal["memory", "shared-buffers"]
"""The varied size: the container's memory with constant shared buffers, or shared buffers with a constant difference to the container's
memory."""

SWEEPS: tuple[Sweep, ...] = ("memory", "shared-buffers")

MB = 2**20
CONTAINER = "db01"
MIN_SHARED_BUFFERS_MB = 8
"""Minimum size of shared buffers in MB."""
MIN_EXTRA_MB, MIN_EXTRA_PER_CLIENT_MB = 24, 1.5
"""Minimum memory in MB of a server in addition to shared buffers, and per client. It covers the processes, without cached files. With
less, the kernel was observed to kill servers."""

GUEST_SYSTEM_MB = 128
"""Minimum memory in MB of a guest's kernel and its agent."""


@dataclass(frozen=True, order=True)
class SweepCurve:
    """A curve: the varied size and the number of clients."""

    sweep: Sweep
    clients: int

    def __str__(self) -> str:
        return f"{self.sweep}.{self.clients}"


def coordinate_of(sweep: str) -> str:
    """Return the coordinate of a trial's point, and the part of a finding's name, for the size that a sweep varies."""
    return sweep.replace("-", "_")


class WorkingSetOptions(DatabaseOptions):
    """Complete options of a working-set run. Sizes are in whole MB (2^20 bytes), the unit of the study's points.

    ``shared_buffers`` is their size in the memory sweep. ``extra_memory`` is the memory of a container in addition to shared buffers in
    the other sweep (None: the result of the first sweep). ``max_container`` and ``min_container`` are the largest and the smallest possible
    container. ``configured_memory`` is that of a database, from which the headroom is computed, and ``database_size`` is its size.
    With ``refine`` more sizes are proposed near the knee. ``swap`` is created for the run (None: containers use the swap of the host).
    """

    clients: tuple[int, ...] = Field(min_length=1)
    vary: tuple[Sweep, ...] = SWEEPS
    shared_buffers: int = Field(ge=1)
    memory_sizes: tuple[int, ...] = ()
    shared_buffers_sizes: tuple[int, ...] = ()
    extra_memory: int | None = Field(None, ge=0)
    max_container: int = Field(ge=1)
    min_container: int = Field(1, ge=1)
    configured_memory: int = Field(ge=1)
    database_size: int = Field(ge=1)
    refine: bool = True
    swap: Swap | None = None

    @model_validator(mode="after")
    def _consistent(self) -> WorkingSetOptions:
        if min(self.clients) < 1 or len(set(self.clients)) < len(self.clients):
            raise ValueError(f"clients must be different numbers, each at least 1, not {', '.join(map(str, self.clients))}")
        for sweep in self.vary:
            if not self.sizes(sweep):
                raise ValueError(f"the sweep of {sweep} has no sizes")
        return self

    def sizes(self, sweep: Sweep) -> tuple[int, ...]:
        """Return the planned sizes of a sweep in MB, in ascending order."""
        return self.memory_sizes if sweep == "memory" else self.shared_buffers_sizes

    def fits(self, size: int, extra: int) -> bool:
        """Return whether a container of this size and ``extra`` MB is possible."""
        return self.min_container <= size + extra <= self.max_container

    def curves(self, sweep: Sweep) -> tuple[SweepCurve, ...]:
        """Return the curves of a sweep, in the order of ``clients``."""
        return tuple(SweepCurve(sweep, clients) for clients in self.clients)

    def deployment(self, memory: int, buffers: int) -> Deployment:
        """Return the deployment of one server in a container of ``memory`` MB, with shared buffers of ``buffers`` MB."""
        settings = {**self.settings, "shared_buffers": f"{buffers}MB"}
        return self.model_copy(update={"container_memory": memory * MB, "settings": settings}).deploy((CONTAINER,))


def min_extra_memory(clients: int, runtime: RuntimeName) -> int:
    """Return the minimum memory of a server in MB, in addition to shared buffers. It includes the system of a guest."""
    return round(MIN_EXTRA_MB + MIN_EXTRA_PER_CLIENT_MB * clients) + (GUEST_SYSTEM_MB if capabilities_of(runtime).own_kernel else 0)


class WorkingSetRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd working-set`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = dict.fromkeys(
        ("memory", *EXISTING_SERVERS, "rate", "huge_pages"),
        "it does not apply to working-set, which varies the memory (memory_sizes), starts the servers, and loads them without a rate "
        "limit; reserved huge pages are not part of the memory limit",
    )

    clients: tuple[int, ...] | None = option(
        None, "Numbers of clients; each has a separate working set.", metavar="N,N,…", computed="30,2", web=True
    )
    vary: tuple[Sweep, ...] = option(SWEEPS, "What to vary.", metavar="memory,shared-buffers", web=True, filled="memory", min_length=1)
    shared_buffers: Size | None = option(
        None, "shared_buffers while memory is varied.", metavar="SIZE", computed="half the database", web=True
    )
    extra_memory: Size | None = option(
        None, "Memory beyond shared_buffers while that is varied.", metavar="SIZE", computed="from the first sweep"
    )
    initial_sizes: int | None = option(None, "Sizes per curve before refinement.", metavar="N", computed="6", web=True, ge=4)
    memory_sizes: tuple[Size, ...] = option((), "Measure only these container sizes.", metavar="SIZE,…")
    shared_buffers_sizes: tuple[Size, ...] = option((), "Measure only these sizes of shared_buffers.", metavar="SIZE,…")
    precision: Share = option(0.05, "Stop when the interval's half-width is at most this.", metavar="PERCENT")
    configured_memory: Size | None = option(None, "Memory per database to compute headroom for.", metavar="SIZE", web=True)
    preset: Literal["E7"] | None = option(None, "Use a published set-up: E7.", metavar="NAME")
    workload: BuiltinWorkload = redefined(DatabaseRequest, "workload", "random-block")
    scale: int | None = redefined(DatabaseRequest, "scale", None, computed=f"{DEFAULT_SCALE} MiB", filled="")
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="all cores, no quota")
    repeats: int | None = redefined(DatabaseRequest, "repeats", None, help="Measurements of each size, not more.", computed="1 or more")
    min_repeats: int | None = redefined(DatabaseRequest, "min_repeats", None, help="Measurements of each size, or more.", computed="1")
    duration: Duration = redefined(DatabaseRequest, "duration", Duration("3s"))
    warmup: Duration = redefined(DatabaseRequest, "warmup", Duration("1500ms"))
    # pgbench runs outside the container, as in E7, because its memory is not part of a working set.
    client_placement: ClientPlace = redefined(DatabaseRequest, "client_placement", "outside")
    start_state: State = redefined(DatabaseRequest, "start_state", "restarted")

    @property
    def adds_sizes(self) -> bool:
        """Whether sizes near the knee follow the first ones. If the user lists sizes, none do."""
        return not (self.memory_sizes or self.shared_buffers_sizes)

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, values: Any) -> Any:
        return without_nulls(values)

    @field_validator("start_state")
    @classmethod
    def _not_warm(cls, state: State) -> State:
        if state == "warm":
            raise ValueError("sizes differ between trials, so that servers must restart; leave it out, or give fresh")
        return state
