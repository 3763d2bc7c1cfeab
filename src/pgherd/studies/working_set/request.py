"""What a user may say of a working-set study; everything has a default, which completing the request fills in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from pgherd.model.load import ClientPlace
from pgherd.model.trial import State
from pgherd.studies.compare.request import Share
from pgherd.studies.databases import BuiltinWorkload, DatabaseRequest
from pgherd.studies.swap import SwapRequest

Sweep = Literal["memory", "buffers"]
"""What is varied: the container's memory with fixed shared buffers, or shared buffers with a fixed difference to the container's memory."""

SWEEPS: tuple[Sweep, ...] = ("memory", "buffers")


class WorkingSetRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd working-set`` as given on the command line or in a scenario, beside those of the databases."""

    clients: tuple[int, ...] | None = Field(None, description="loads: numbers of clients, each with a working set of its own")
    sweeps: tuple[Sweep, ...] = Field(SWEEPS, min_length=1, description="what is varied: memory, buffers, or both")
    buffers: str | None = Field(None, description="shared_buffers while the container's memory is varied")
    difference: str | None = Field(None, description="container memory beyond shared_buffers while these are varied")
    memory_sizes: tuple[str, ...] = Field((), description="container sizes to measure; these and no others")
    buffer_sizes: tuple[str, ...] = Field((), description="sizes of shared_buffers to measure; these and no others")
    points: int | None = Field(None, ge=4, description="sizes of each curve to begin with")
    configured: str | None = Field(None, description="memory that each database would be given, for the headroom")
    precision: Share = Field(0.05, description="go on until half of each knee's interval is at most this share of it")
    paper: Literal["E7"] | None = Field(None, description="the published set-up")
    workload: BuiltinWorkload = Field("random-block", description="pgbench's builtin script, or one of pgherd's own workloads")
    # A container's memory is the server's alone, as in E7: pgbench's is not part of a working set.
    client_place: ClientPlace = Field("outside", description="whether pgbench runs inside the database's container")
    state: State = Field("restarted", description="state of the servers at the start of each trial; fresh where the load writes")

    @field_validator("memory", "server", "rate", "huge_pages")
    @classmethod
    def _not_here(cls, value: object) -> object:
        if value is not None:
            raise ValueError(
                "it does not go with a working set: sizes are varied by the study (memory_sizes), on servers of its own, by clients "
                "as fast as they can, and reserved huge pages lie outside the memory limit"
            )
        return value

    @field_validator("state")
    @classmethod
    def _not_warm(cls, state: State) -> State:
        if state == "warm":
            raise ValueError("sizes change from trial to trial, so that servers are restarted at least; leave it out, or say fresh")
        return state
