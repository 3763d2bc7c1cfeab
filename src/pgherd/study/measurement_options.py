"""What the complete options of studies without databases have in common: how often and how long they measure."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.finding import Thresholds
from pgherd.study.study import StudyOptions


class MeasuredOptions(StudyOptions):
    """What pgherd.study.trial_schedule.MeasurementOptions asks for, and the phases' lengths. ``cores`` is the budget of the host. Times are
    seconds, as in pgherd.study.database_options.DatabaseOptions."""

    cores: float = Field(gt=0)
    repeats: int = Field(3, ge=1)
    seconds: float = Field(6.0, gt=0)
    ramp: float = Field(2.0, ge=0)
    budget_seconds: float | None = Field(None, gt=0)
    max_reruns: int = Field(6, ge=0)
    precision: float = Field(0.01, gt=0)
    seed: int = 1
    thresholds: Thresholds = Field(default=Thresholds(), description="of the trials' verdicts")
