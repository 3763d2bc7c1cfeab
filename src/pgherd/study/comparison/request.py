"""Common options of all comparisons, as the user gives them."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from pgherd.model.base import Model
from pgherd.model.units import Duration, Size
from pgherd.study.comparison.options import VariantName
from pgherd.study.database_options import BUDGET_TEXT, DatabaseRequest
from pgherd.study.option import WORKLOAD, option, redefined


def _share(value: object) -> object:
    """Return 0.02 for ``2%``, and other values unchanged. Raises ValueError for other texts."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", value)):
        return float(match[1]) / 100
    if isinstance(value, str) and not re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*", value):
        raise ValueError("a share is written as 2% or 0.02")
    return value


_SCHEMA = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d+(\.\d*)? ?%$"}, {"type": "null"}]})
Share = Annotated[float, BeforeValidator(_share), Field(gt=0, lt=0.5), _SCHEMA]
"""Fraction greater than 0 and less than 0.5, written as ``2%`` or ``0.02``."""


class ScenarioVariant(Model):
    """Variant that is a complete study: the contents of a scenario file and a name."""

    name: VariantName
    study: str
    options: dict[str, Any] = Field(default_factory=dict)


class BlocksRequest(DatabaseRequest):
    """Request of a comparison in randomized blocks."""

    LEFT_OUT: ClassVar[dict[str, str]] = dict.fromkeys(
        ("repeats", "min_repeats"), "a comparison counts blocks, not repeats; give max_blocks"
    )

    clients: int | None = option(
        None, "pgbench clients of the database.", WORKLOAD, metavar="N", computed="2 per vCPU, at least 2", web=True, ge=1
    )
    metric: str | None = option(None, "Metric that decides the comparison.", metavar="NAME", computed="throughput")
    max_blocks: int | None = option(
        None, "Maximum number of randomized blocks.", metavar="N", computed="as many as --time-budget holds", web=True, ge=1
    )
    precision: Share | None = option(
        None, "Stop when the interval's half-width is at most this.", metavar="PERCENT", computed="until decided"
    )
    equivalence_margin: Share = option(0.02, "Differences up to this count as equivalent.", metavar="PERCENT")
    vcpus: float | None = redefined(DatabaseRequest, "vcpus", None, computed="half of the cores")
    memory: Size | None = redefined(DatabaseRequest, "memory", None, computed="what is free, at most 8 GB")
    time_budget: Duration | None = redefined(DatabaseRequest, "time_budget", None, computed=BUDGET_TEXT)
