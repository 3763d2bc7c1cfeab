"""What a user may say of a density study; everything has a default, which completing the request fills in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.studies.databases import DatabaseRequest


class DensityRequest(DatabaseRequest):
    """Options of ``pgherd density`` as given on the command line or in a scenario, beside those of the databases."""

    points: tuple[int, ...] | None = Field(None, description="numbers of databases to measure")
    clients: int | None = Field(None, ge=1, description="clients of each database")
    at: float = Field(0.85, gt=0, le=1, description="efficiency at which to say how many databases the host holds")
    intent: Literal["cpu-bound", "io-bound"] = Field("cpu-bound", description="what the load is meant to be bound by")
    soak: str | None = Field(None, description="hold one point for this long and judge steadiness")
