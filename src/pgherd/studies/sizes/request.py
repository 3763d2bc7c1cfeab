"""What a user may say of a sizes study; everything has a default."""

from __future__ import annotations

from pydantic import Field

from pgherd.model.base import Model
from pgherd.studies.sizes.options import PREDICTED, SCALES, Scales


class SizesRequest(Model):
    """Options of ``pgherd sizes`` as given on the command line or in a scenario. None: pgherd chooses, and says what."""

    scales: Scales = Field(SCALES, description="pgbench scale factors to load and measure")
    predict: Scales = Field(PREDICTED, description="scale factors whose size is predicted")
    pg_bin: str | None = Field(None, description="directory of postgres, initdb and pgbench")
    pg_version: str | None = Field(None, description="PostgreSQL major version to use, such as 17, or 'embedded'")
    run_as: str | None = Field(None, description="the account that servers run as (root only)")
