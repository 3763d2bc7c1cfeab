"""A scenario: a study and its options in a file, so that a command line can be kept, shared and repeated."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import ConfigDict, Field

from pgherd.model.base import Model

SCHEMA: Final = "pgherd/scenario/1"


class Scenario(Model):
    """What a scenario file holds. ``options`` carries the same names as the study's command-line options, with
    underscores for dashes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["pgherd/scenario/1"] = Field(SCHEMA, alias="schema")
    study: str = Field(description="the study's verb, such as density")
    title: str = ""
    experiment: str | None = Field(None, pattern=r"^E\d+$", description="the published experiment it follows")
    note: str = Field("", description="how it deviates from the published set-up, and why")
    options: dict[str, Any] = Field(default_factory=dict)
