"""The complete options of a working-set run, its curves, and the deployment of one size."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, model_validator

from pgherd.model.deployment import Deployment, RuntimeName
from pgherd.model.run import Swap
from pgherd.studies.databases import DatabaseOptions
from pgherd.studies.working_set.request import SWEEPS, Sweep

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
class Curve:
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

    def curves(self, sweep: Sweep) -> tuple[Curve, ...]:
        """A sweep's curves, in the order in which the loads were given."""
        return tuple(Curve(sweep, clients) for clients in self.clients)

    def deployment(self, memory: int, buffers: int) -> Deployment:
        """One server in a container of so many MB, with shared buffers of so many."""
        settings = {**self.settings, "shared_buffers": f"{buffers}MB"}
        return self.model_copy(update={"container_memory": memory * MB, "settings": settings}).deploy((CONTAINER,))


def least_beside(clients: int, runtime: RuntimeName) -> int:
    """MB that a server needs beside its shared buffers to live at all; in a guest that guest's own too."""
    return round(BESIDE + BESIDE_CLIENT * clients) + (GUEST if runtime == "vm" else 0)
