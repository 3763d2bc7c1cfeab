"""Options that several studies share: complete options, hosts of a cluster, number and length of trials, and swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from pgherd.model.analysis import Thresholds
from pgherd.model.base import Model
from pgherd.model.deployment import Host
from pgherd.model.run import OnLostHost, SwapKind
from pgherd.model.units import Duration, Size
from pgherd.study.option import CLUSTER, LIMITS, MEASUREMENT, MEMORY, POSTGRESQL, StudyRequest, option


class StudyOptions(Model):
    """Base class of a study's complete options. Studies with several variants or hosts in turn override the methods."""

    def variant_options(self) -> Mapping[str, Model]:
        """Return the complete options of each variant, by name. Empty without variants."""
        return {}

    def with_variant_options(self, options: Mapping[str, Model]) -> Self:
        """Return a copy with these options of all variants."""
        return self

    def documents(self) -> Mapping[str, str]:
        """Return files for the user that the preparation made, by name. They are stored with the user's files."""
        return {}

    @property
    def hosts_in_turn(self) -> tuple[str, ...]:
        """Hosts of a cluster that blocks of trials run on in turn."""
        return ()

    def on_hosts(self, names: tuple[str, ...]) -> Self:
        """Return a copy whose blocks of trials run on these hosts in turn."""
        return self


PIN = "host"
"""Label of a trial's host. Its value is the name of the cluster host that runs all containers of the trial."""


class ClusterRequest(StudyRequest):
    """Cluster options that the user gives. pgherd sets ``over``."""

    cluster: str | None = option(None, "Run on this cluster (see 'pgherd cluster').", CLUSTER, metavar="NAME|ADDRESS")
    cluster_certs: str | None = option(None, "Directory of the cluster's certificates.", CLUSTER, metavar="DIR")
    placement: str = option("spread", "spread, pack, label:KEY=VALUE or listed:CONTAINER=HOST,…", CLUSTER, metavar="RULE")
    on_lost_host: OnLostHost = option("continue", "When a host is lost: continue or stop.", CLUSTER, metavar="ACTION")
    over: tuple[Host, ...] = Field((), description="hosts of the cluster with their budgets")


CLUSTER_FIELDS = frozenset({*ClusterRequest.model_fields, "client_host"})
"""Options of a request that select hosts of a cluster. The other options apply to each host."""

Request = TypeVar("Request", bound=Model)


def of_one_host(request: Request, **changes: object) -> Request:
    """Return the request for a single host: without cluster options and with these changes."""
    options = {name: getattr(request, name) for name in request.model_fields_set - CLUSTER_FIELDS}
    return type(request).model_validate(options | changes)


class MeasuredOptions(StudyOptions):
    """Complete options for the number of trials (see pgherd.study.trial_schedule.MeasurementOptions) and the length of their phases.

    ``cores`` is the budget on the host. Times are in seconds. Names are as in pgherd.study.database_options.DatabaseOptions.
    """

    host_cores: float = Field(gt=0)
    repeats: int = Field(3, ge=1)
    fixed_repeats: bool = Field(False, description="the user gave the number of trials per point: no point gets further repeats")
    duration: float = Field(6.0, gt=0)
    warmup: float = Field(2.0, ge=0)
    time_budget: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' checks")


class RepeatsRequest(ClusterRequest):
    """Number of trials per point that the user gives: exactly, or as a minimum. Without either, the study chooses a minimum."""

    repeats: int | None = option(None, "Trials per point, not more.", MEASUREMENT, metavar="N", computed="3 or more", web=True, ge=1)
    min_repeats: int | None = option(None, "Trials per point, or more.", MEASUREMENT, metavar="N", computed="3", web=True, ge=1)

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if self.repeats is not None and self.min_repeats is not None:
            raise ValueError("repeats and min_repeats exclude each other; give one of them")
        return self

    def planned_repeats(self, default: int) -> int:
        """Return the number of planned trials per point. ``default`` applies if the user gives none."""
        return self.repeats or self.min_repeats or default


class MeasurementRequest(RepeatsRequest):
    """Measurement options that the user gives for a study without databases."""

    LEFT_OUT: ClassVar[dict[str, str]] = {"placement": "each host runs the same trials, and no containers are placed; leave it out"}

    duration: Duration | None = option(Duration("6s"), "Measured time of each trial.", MEASUREMENT, metavar="TIME", web=True, filled="3s")
    warmup: Duration | None = option(Duration("2s"), "Warm-up before it, not counted.", MEASUREMENT, metavar="TIME")
    time_budget: Duration | None = option(
        None, "Total time for all trials, including reruns.", MEASUREMENT, metavar="TIME", computed="none", web=True
    )
    seed: int | None = option(None, "Seed for the order of trials.", MEASUREMENT, metavar="N", computed="random", web=True, ge=0)
    threshold: tuple[str, ...] = option((), "Override a check's threshold (repeatable).", MEASUREMENT, metavar="NAME=VALUE", repeated=True)
    host_cores: float | None = option(None, "Cores this run reserves.", LIMITS, metavar="N", computed="all", gt=0)
    run_as: str | None = option(None, "User that the load runs as, when pgherd runs as root.", LIMITS, metavar="USER")


class SampleRequest(StudyRequest):
    """Options that the user gives for a study that starts a temporary server and does not measure times."""

    time_budget: Duration | None = option(
        None, "Total time for all trials; none starts that would exceed it.", MEASUREMENT, metavar="TIME", computed="none", web=True
    )

    pg_version: str | None = option(
        None, "PostgreSQL major version, or 'embedded'.", POSTGRESQL, metavar="MAJOR", computed="newest installed"
    )
    pg_bin: str | None = option(None, "Directory with postgres, initdb and pgbench.", POSTGRESQL, metavar="DIR")
    run_as: str | None = option(None, "User that servers run as, when pgherd runs as root.", POSTGRESQL, metavar="USER")


class SwapRequest(StudyRequest):
    """Swap that a run creates for its containers. None: the study chooses."""

    swap: SwapKind | None = option(
        None, "Swap for the run: zram, file or none.", MEMORY, metavar="KIND", computed="zram where overcommitted"
    )
    swap_size: Size | None = option(None, "Its size; of zram before compression.", MEMORY, metavar="SIZE", computed="configured memory")
    swap_dir: str | None = option(None, "Directory of the swap file.", MEMORY, metavar="DIR", computed="pgherd's cache")
    zram_algorithm: str | None = option(None, "zram compression algorithm.", MEMORY, metavar="NAME", computed="the kernel's")
    zram_mem_limit: Size | None = option(None, "Maximum memory zram may use.", MEMORY, metavar="SIZE", computed="no limit")
