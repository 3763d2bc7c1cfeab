"""The complete options of a working-set run, its curves, and the deployment of one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgherd.model.deployment import Deployment, RuntimeName
from pgherd.model.load import ClientPlace
from pgherd.model.run import Swap
from pgherd.model.trial import State
from pgherd.study.comparison.request import Share
from pgherd.study.database_options import BuiltinWorkload, DatabaseOptions, DatabaseRequest
from pgherd.study.option import option, redefined
from pgherd.study.swap_options import SwapRequest

SCALE = 128
"""Size of the random-block table, MiB."""

Sweep = Literal["memory", "buffers"]
"""What is varied: the container's memory with fixed shared buffers, or shared buffers with a fixed difference to the container's memory."""

SWEEPS: tuple[Sweep, ...] = ("memory", "buffers")


MB = 2**20
CONTAINER = "db01"
LEAST_BUFFERS = 8
"""Shared buffers below which nothing is measured, in MB."""
BESIDE, BESIDE_CLIENT = 24, 1.5
"""Memory that a server of its own buffers' size needs to live at all, in MB, and for each client: its processes, without any file cached.
Less has been seen to be ended by the kernel."""

GUEST = 128
"""Memory that a guest's kernel and its agent need to live at all, in MB, where the container is a guest."""


@dataclass(frozen=True, order=True)
class SweepCurve:
    """One curve: what is varied, under which load."""

    sweep: Sweep
    clients: int

    def __str__(self) -> str:
        return f"{self.sweep}.{self.clients}"


class WorkingSetOptions(DatabaseOptions):
    """Everything that a working-set run depends on. Sizes are in whole MB (2^20 bytes), the unit of the study's points.

    ``buffers`` are the shared buffers while memory is varied; ``difference`` what a container has beyond them while they are varied, None:
    from the first sweep. ``most`` is the largest container that the host's budget allows, ``least`` the smallest that can be made.
    ``configured`` is what each database would be given, for the headroom; ``database`` the size of the database. With ``refine`` further
    sizes are proposed near the knee. ``swap`` is made for the run; None: the containers use what the host has.
    """

    clients: tuple[int, ...] = Field(min_length=1)
    sweeps: tuple[Sweep, ...] = SWEEPS
    buffers: int = Field(ge=1)
    memory_sizes: tuple[int, ...] = ()
    buffer_sizes: tuple[int, ...] = ()
    difference: int | None = Field(None, ge=0)
    most: int = Field(ge=1)
    least: int = Field(1, ge=1)
    configured: int = Field(ge=1)
    database: int = Field(ge=1)
    refine: bool = True
    swap: Swap | None = None

    @model_validator(mode="after")
    def _consistent(self) -> WorkingSetOptions:
        if min(self.clients) < 1 or len(set(self.clients)) < len(self.clients):
            raise ValueError(f"clients are different numbers from 1 on, not {', '.join(map(str, self.clients))}")
        for sweep in self.sweeps:
            if not self.sizes(sweep):
                raise ValueError(f"the sweep of {sweep} has no sizes")
        return self

    def sizes(self, sweep: Sweep) -> tuple[int, ...]:
        """The planned sizes of a sweep, ascending."""
        return self.memory_sizes if sweep == "memory" else self.buffer_sizes

    def curves(self, sweep: Sweep) -> tuple[SweepCurve, ...]:
        """A sweep's curves, in the order in which the loads were given."""
        return tuple(SweepCurve(sweep, clients) for clients in self.clients)

    def deployment(self, memory: int, buffers: int) -> Deployment:
        """One server in a container of so many MB, with shared buffers of so many."""
        settings = {**self.settings, "shared_buffers": f"{buffers}MB"}
        return self.model_copy(update={"container_memory": memory * MB, "settings": settings}).deploy((CONTAINER,))


def least_beside(clients: int, runtime: RuntimeName) -> int:
    """MB that a server needs beside its shared buffers to live at all; in a guest that guest's own too."""
    return round(BESIDE + BESIDE_CLIENT * clients) + (GUEST if runtime == "vm" else 0)


class WorkingSetRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd working-set`` as given on the command line or in a scenario."""

    LEFT_OUT: ClassVar[dict[str, str]] = dict.fromkeys(
        ("memory", "dsn", "allow_writes", "rate", "huge_pages"),
        "it does not go with a working set: sizes are varied by the study (memory_sizes), on servers of its own, by clients "
        "as fast as they can, and reserved huge pages lie outside the memory limit",
    )

    clients: tuple[int, ...] | None = option(
        None, "Numbers of clients; each has its own working set.", metavar="N,N,…", computed="30,2", web=True
    )
    vary: tuple[Sweep, ...] = option(SWEEPS, "What to vary.", metavar="memory,buffers", web=True, filled="memory", min_length=1)
    shared_buffers: str | None = option(
        None, "shared_buffers while memory is varied.", metavar="SIZE", computed="half the database", web=True
    )
    extra_memory: str | None = option(
        None, "Memory beyond shared_buffers while that is varied.", metavar="SIZE", computed="from the first sweep"
    )
    initial_sizes: int | None = option(None, "Sizes per curve before refinement.", metavar="N", computed="6", web=True, ge=4)
    memory_sizes: tuple[str, ...] = option((), "Measure only these container sizes.", metavar="SIZE,…")
    shared_buffers_sizes: tuple[str, ...] = option((), "Measure only these sizes of shared_buffers.", metavar="SIZE,…")
    precision: Share = option(0.05, "Stop when the interval's half-width is at most this.", metavar="PERCENT")
    configured_memory: str | None = option(None, "Memory per database to compute headroom for.", metavar="SIZE", web=True)
    preset: Literal["E7"] | None = option(None, "Use a published set-up: E7.", metavar="NAME")
    workload: BuiltinWorkload = redefined(DatabaseRequest, "workload", "random-block")
    scale: int | None = redefined(DatabaseRequest, "scale", None, computed=f"{SCALE} MiB", filled="")
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="all cores, no quota")
    repeats: int | None = redefined(DatabaseRequest, "repeats", None, help="Initial measurements of each size.", computed="1")
    duration: str | None = redefined(DatabaseRequest, "duration", "3s")
    warmup: str | None = redefined(DatabaseRequest, "warmup", "1500ms")
    # A container's memory is the server's only, as in E7: that of pgbench is not part of a working set.
    client_placement: ClientPlace = redefined(DatabaseRequest, "client_placement", "outside")
    start_state: State = redefined(DatabaseRequest, "start_state", "restarted")

    @field_validator("start_state")
    @classmethod
    def _not_warm(cls, state: State) -> State:
        if state == "warm":
            raise ValueError("sizes change from trial to trial, so that servers are restarted at least; leave it out, or say fresh")
        return state
