"""What a user may say of a study of the storage; everything has a default, which completing the request fills in."""

from __future__ import annotations

from pydantic import Field, field_validator

from pgherd.studies.compare.request import Share
from pgherd.studies.databases import BuiltinWorkload, DatabaseRequest


class StorageRequest(DatabaseRequest):
    """Options of ``pgherd storage`` as given on the command line or in a scenario.

    Without ``compare`` and ``variant`` one server is watched; with either its variants are held against the first.
    """

    workload: BuiltinWorkload = Field("tpcb-like", description="pgbench's builtin script, or one of pgherd's own workloads")
    clients: int | None = Field(None, ge=1, description="clients of the database")
    checkpoints: int | None = Field(None, ge=1, description="checkpoints that each trial is to hold")
    checkpoint_every: str | None = Field(None, description="time from one checkpoint's start to the next's (checkpoint_timeout)")
    compare: str | None = Field(None, description="a setting and its values, such as checkpoint_completion_target=0.5,0.9")
    variant: tuple[str, ...] = Field((), description="what is compared, NAME:key=value,key=value; the first is the baseline")
    io_bound: float | None = Field(None, gt=1, description="a random-block database of so many times the container's memory")
    metric: str | None = Field(None, description="the metric that decides a comparison")
    blocks: int | None = Field(None, ge=1, description="blocks of a comparison at most; each holds every variant once, the baseline twice")
    precision: Share | None = Field(None, description="go on until the interval is at most plus or minus this share")
    equivalence: Share = Field(0.05, description="differences up to this share are not worth having")

    @field_validator("server")
    @classmethod
    def _own_servers(cls, server: str | None) -> str | None:
        if server is not None:
            raise ValueError("the devices below somebody else's server cannot be seen from here; leave --server out")
        return server
