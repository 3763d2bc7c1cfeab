"""What a user may say of a density study; everything has a default, which completing the request fills in."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.model.base import Model
from pgherd.model.deployment import CpuMode
from pgherd.model.load import ClientPlace, Protocol
from pgherd.model.trial import State

BuiltinWorkload = Literal["select-only", "tpcb-like", "simple-update"]


class DensityRequest(Model):
    """Options of ``pgherd density`` as given on the command line or in a scenario. None: pgherd chooses, and says what.

    Sizes and durations are texts with units (``512MB``, ``10m``). Paths are relative to where pgherd is called.
    """

    # What is deployed
    vcpus: float | None = Field(None, gt=0, description="cores given to each database (0.25 is a quarter)")
    memory: str | None = Field(None, description="memory of each database's container")
    points: tuple[int, ...] | None = Field(None, description="numbers of databases to measure")
    runtime: Literal["process", "cgroup"] | None = Field(None, description="what isolates the databases")
    cpu_mode: CpuMode | None = Field(None, description="how vcpus are enforced: a CFS quota, whole CPUs, or not")
    cores: float | None = Field(None, gt=0, description="cores of this host that the run may use")
    host_memory: str | None = Field(None, description="memory of this host that the run may use")
    pg_bin: str | None = Field(None, description="directory of postgres, initdb and pgbench")
    pg_version: str | None = Field(None, description="PostgreSQL major version to use, such as 17")
    set: tuple[str, ...] = Field((), description="a setting, NAME=VALUE")
    like: str | None = Field(None, description="take settings from a postgresql.conf or from a server (DSN)")
    run_as: str | None = Field(None, description="the account that servers run as (root only)")

    # What loads it
    workload: BuiltinWorkload = Field("select-only", description="pgbench's builtin script")
    script: tuple[str, ...] = Field((), description="your own pgbench script, FILE or FILE@WEIGHT")
    init: str | None = Field(None, description="an SQL file that fills the database for --script")
    scale: int | None = Field(None, ge=1, description="pgbench scale factor (about 15 MB each)")
    clients: int | None = Field(None, ge=1, description="clients of each database")
    threads: int | None = Field(None, ge=1, description="pgbench threads of each database")
    rate: float | None = Field(None, gt=0, description="open loop: transactions per second of each database")
    protocol: Protocol = Field("prepared", description="how queries are sent")
    client_place: ClientPlace = Field("inside", description="whether pgbench runs inside the database's container")

    # How it is measured
    repeats: int | None = Field(None, ge=1, description="trials per number of databases")
    seconds: str | None = Field(None, description="measured period of each trial")
    ramp: str | None = Field(None, description="ramp-up before it, not counted")
    budget: str | None = Field(None, description="time for all trials; reruns of tainted trials fit into it too")
    state: State = Field("warm", description="state of the servers at the start of each trial")
    seed: int | None = Field(None, ge=0, description="seed of the order of trials")
    at: float = Field(0.85, gt=0, le=1, description="efficiency at which to say how many databases the host holds")
    intent: Literal["cpu-bound", "io-bound"] = Field("cpu-bound", description="what the load is meant to be bound by")
    soak: str | None = Field(None, description="hold one point for this long and judge steadiness")
    platform: tuple[str, ...] = Field((), description="account for a part of the platform: process=NAME or cgroup=PATH")
    threshold: tuple[str, ...] = Field((), description="change a verdict's threshold, NAME=VALUE")
