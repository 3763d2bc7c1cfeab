"""Common requests and complete options of studies that do not deploy databases: number and length of trials."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from pgherd.model.analysis import Thresholds
from pgherd.study.cluster_options import ClusterRequest
from pgherd.study.complete_options import StudyOptions
from pgherd.study.option import LIMITS, MEASUREMENT, POSTGRESQL, StudyRequest, option


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

    duration: str | None = option("6s", "Measured time of each trial.", MEASUREMENT, metavar="TIME", web=True, filled="3s")
    warmup: str | None = option("2s", "Warm-up before it, not counted.", MEASUREMENT, metavar="TIME")
    time_budget: str | None = option(
        None, "Total time for all trials, including reruns.", MEASUREMENT, metavar="TIME", computed="none", web=True
    )
    seed: int | None = option(None, "Seed for the order of trials.", MEASUREMENT, metavar="N", computed="random", web=True, ge=0)
    threshold: tuple[str, ...] = option((), "Override a check's threshold (repeatable).", MEASUREMENT, metavar="NAME=VALUE", repeated=True)
    host_cores: float | None = option(None, "Cores this run reserves.", LIMITS, metavar="N", computed="all", gt=0)
    run_as: str | None = option(None, "User that the load runs as, when pgherd runs as root.", LIMITS, metavar="USER")


class SampleRequest(StudyRequest):
    """Options that the user gives for a study that starts a temporary server and does not measure times."""

    time_budget: str | None = option(
        None, "Total time for all trials; none starts that would exceed it.", MEASUREMENT, metavar="TIME", computed="none", web=True
    )

    pg_version: str | None = option(
        None, "PostgreSQL major version, or 'embedded'.", POSTGRESQL, metavar="MAJOR", computed="newest installed"
    )
    pg_bin: str | None = option(None, "Directory with postgres, initdb and pgbench.", POSTGRESQL, metavar="DIR")
    run_as: str | None = option(None, "User that servers run as, when pgherd runs as root.", POSTGRESQL, metavar="USER")
