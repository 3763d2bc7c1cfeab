"""Common base of all models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$"
"""Valid names of hosts, links and phases. They are part of the names of targets, files and metrics, and of lines in scripts."""
TARGET = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}(/[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}){0,3}$"
"""Valid targets: up to four names."""


class Model(BaseModel):
    """Frozen pydantic model that rejects unknown fields, so that a misspelt field raises an error, and NaN and infinity.

    No quantity has such a value, and JSON has no way to write it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
