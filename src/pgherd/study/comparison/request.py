"""Options that every comparison takes, whatever it compares."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from pgherd.model.base import Model
from pgherd.study.comparison.options import VariantName
from pgherd.study.database_options import DatabaseRequest


def _share(value: object) -> object:
    """``2%`` as 0.02; everything else as it is."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", value)):
        return float(match[1]) / 100
    if isinstance(value, str) and not re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*", value):
        raise ValueError("a share is written as 2% or 0.02")
    return value


_SCHEMA = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d+(\.\d*)? ?%$"}, {"type": "null"}]})
Share = Annotated[float, BeforeValidator(_share), Field(gt=0, lt=0.5), _SCHEMA]
"""A share above zero and below a half, written as ``2%`` or ``0.02``."""


class ScenarioVariant(Model):
    """An arm that is a study by itself: what a scenario file says, under a name."""

    name: VariantName
    study: str
    options: dict[str, Any] = Field(default_factory=dict)


class BlocksRequest(DatabaseRequest):
    """What every comparison may be told, whatever it compares."""

    clients: int | None = Field(None, ge=1, description="clients of the database")
    metric: str | None = Field(None, description="the metric that decides")
    blocks: int | None = Field(None, ge=1, description="blocks at most; each holds everything compared once, and the baseline twice")
    precision: Share | None = Field(None, description="go on until the interval is at most plus or minus this share")
    equivalence: Share = Field(0.02, description="differences up to this share are not worth having")

    @field_validator("repeats")
    @classmethod
    def _blocks_are_repeats(cls, repeats: int | None) -> int | None:
        if repeats is not None:
            raise ValueError("a comparison counts blocks, not repeats; give blocks")
        return repeats
