"""Options of a comparison as a user gives them. The complete ones: pgherd.study.comparison.options."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.request import BlocksRequest, ScenarioVariant

__all__ = ["CompareOptions", "CompareRequest"]


class CompareRequest(BlocksRequest):
    """Options of ``pgherd compare`` as given on the command line or in a scenario: variants of one server, with the options of
    databases for what they share, or arms that are studies by themselves."""

    variant: tuple[str, ...] = Field((), description="what is compared, NAME:key=value,key=value; the first is the baseline")
    arms: tuple[ScenarioVariant, ...] = Field((), description="in place of variants: studies with their options; the first is the baseline")
    arrangement: Literal["side-by-side", "one-at-a-time"] | None = Field(
        None, description="whether the servers of all variants are up at once, or each only in its own trials (--arms)"
    )
