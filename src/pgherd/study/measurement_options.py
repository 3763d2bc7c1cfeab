"""Common requests and complete options of studies that do not deploy databases: number and length of trials."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from pgherd.model.analysis import Thresholds
from pgherd.model.units import Duration
from pgherd.study.cluster_options import ClusterRequest
from pgherd.study.complete_options import StudyOptions
from pgherd.study.option import LIMITS, MEASUREMENT, POSTGRESQL, StudyRequest, option


class MeasuredOptions(StudyOptions):
    """Complete options for the number of trials (see pgherd.study.trial_schedule.MeasurementOptions) and the length of their phases.

    ``cores`` is the budget on the host. Times are in seconds. Names are as in pgherd.study.database_options.DatabaseOptions.
    """

    host_cores: float = Field(gt=0)
    repeats: int = Field(3, ge=1)
    duration: float = Field(6.0, gt=0)
    warmup: float = Field(2.0, ge=0)
    time_budget: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' checks")


class MeasurementRequest(ClusterRequest):
    """Measurement options that the user gives for a study without databases."""

    LEFT_OUT: ClassVar[dict[str, str]] = {"placement": "each host runs the same trials, and no containers are placed; leave it out"}

    repeats: int | None = option(3, "Trials per point.", MEASUREMENT, metavar="N", web=True, filled="3", ge=1)
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
