"""What a user may ask of a consolidation study; everything has a default, which completing the request fills in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from pgherd.model.deployment import Staging
from pgherd.model.load import ClientPlace
from pgherd.model.trial import State
from pgherd.studies.databases import BuiltinWorkload, DatabaseRequest
from pgherd.studies.swap import SwapRequest

Paper = Literal["E4", "E5", "E6"]


class ConsolidationRequest(SwapRequest, DatabaseRequest):
    """Options of ``pgherd consolidation`` as given on the command line or in a scenario.

    ``memory`` and ``vcpus`` are those of a container of one database (schemes 3 and 4); a container of all databases
    (schemes 1 and 2) has the same vCPUs, and the memory of all of them, as in E4.
    """

    databases: int | None = Field(None, ge=2, le=64, description="databases that share the host")
    schemes: tuple[int, ...] | None = Field(None, description="1: 1/1/M, 2: 1/M/M, 3: M/M/M, 4: as 3 with a database balloon each")
    buffers: tuple[int, ...] | None = Field(None, description="shared buffers, per cent of a server's share of memory")
    rates: tuple[float, ...] | None = Field(None, description="rates of overcommitment, 1 − available ÷ configured memory")
    warehouses: int | None = Field(None, ge=1, description="orders: warehouses of each database")
    high: int | None = Field(None, ge=1, description="clients of a busy database")
    low: int | None = Field(None, ge=1, description="clients of a quiet database")
    pattern: str = Field("alternating", description="a pattern by name, or the clients as 30,2,30,2/2,30,2,30")
    periods: int | None = Field(None, ge=1, le=96, description="periods of a trial")
    period: str | None = Field(None, description="measured length of each period")
    blocks: int | None = Field(None, ge=1, description="how often every combination is measured, in mixed order")
    staging: Staging = Field(
        "limit", description="how memory is withheld: by the host group's limit, or by an idle container of locked memory"
    )
    working_set: tuple[str, ...] = Field((), description="working set of a busy database, and of a quiet one, as container memory")
    paper: Paper | None = Field(None, description="the published set-up: E4 (undercommitted), E5 (overcommitted), E6 (memory at 30 %)")
    workload: BuiltinWorkload = Field("orders", description="what loads each database")
    client_place: ClientPlace = Field("outside", description="whether pgbench runs inside the databases' containers")
    state: State = Field("fresh", description="state of the servers at the start of each trial")

    @field_validator("repeats")
    @classmethod
    def _blocks_are_repeats(cls, repeats: int | None) -> int | None:
        if repeats is not None:
            raise ValueError("consolidation counts blocks, not repeats; give blocks")
        return repeats

    @field_validator("seconds")
    @classmethod
    def _periods_have_seconds(cls, seconds: str | None) -> str | None:
        if seconds is not None:
            raise ValueError("a trial consists of periods; give the length of one with period")
        return seconds

    @field_validator("huge_pages", "guest_pages")
    @classmethod
    def _no_huge_pages(cls, huge_pages: str | None) -> str | None:
        if huge_pages not in (None, "off"):
            raise ValueError("no control group counts huge pages, so memory cannot be shared out with them")
        return huge_pages

    @field_validator("server", "rate", "init")
    @classmethod
    def _own_servers(cls, given: object) -> object:
        if given is not None:
            raise ValueError("consolidation makes its own servers, and loads them as hard as it can; leave it out")
        return given

    @field_validator("working_set")
    @classmethod
    def _one_or_two(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len(given) > 2:
            raise ValueError("give the working set of a busy database, and then that of a quiet one")
        return given
