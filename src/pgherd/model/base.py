"""Common base of all models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen pydantic model that rejects unknown fields, so that a misspelt field raises an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
