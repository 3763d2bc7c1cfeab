"""The complete options of a study of the storage: one arm that is watched, or several that are compared."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.request import Share
from pgherd.study.database_options import BuiltinWorkload, DatabaseRequest


class StorageOptions(CompareOptions):
    """With one arm its trial is run ``repeats`` times; with more they are compared in blocks.

    ``repeats`` are trials of a single arm. ``io_bound`` is how many times the container's memory the database is; None: it is
    meant to be cached. ``every`` is the time from one checkpoint to the next, seconds. ``untraced`` says why requests are not
    traced where that would be needed ('' where they are, or nobody asked).
    """

    arms: tuple[Variant, ...] = Field(min_length=1)
    repeats: int = Field(3, ge=1)
    io_bound: float | None = None
    every: float | None = None
    untraced: str = ""

    @property
    def single(self) -> bool:
        """Whether one server is watched, and nothing compared."""
        return len(self.arms) == 1

    def of(self, side: str) -> dict[str, Any]:
        """The options of an arm's own study."""
        return self.arm(side).options


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
