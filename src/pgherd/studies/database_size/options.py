"""The complete options of a sizes run, and the deployment that one size needs."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.base import Model
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.study.study import StudyOptions

SCALES = (1, 2, 5, 10, 20, 50)
"""Loaded by default: together about 1.5 GB, one after the other."""
PREDICTED = (100, 1000, 2500, 5000, 10000)
"""E10's larger scales."""


def _ascending(scales: tuple[int, ...]) -> tuple[int, ...]:
    if not scales or min(scales) < 1:
        raise ValueError("give at least one scale, each of them 1 or more")
    return tuple(sorted(set(scales)))


Scales = Annotated[tuple[int, ...], AfterValidator(_ascending)]
"""pgbench scale factors, ascending and without repetition."""


class SizesOptions(StudyOptions):
    """Everything that a sizes run depends on."""

    pg_bin: str
    pg_version: str
    scales: Scales = Field(SCALES, description="loaded and measured")
    predict: Scales = Field(PREDICTED, description="predicted")


def deployment(options: SizesOptions, scale: int) -> Deployment:
    """One server with one database: no container limits it, since nothing runs in it while it is measured."""
    server = Server(bin=options.pg_bin, version=options.pg_version, databases=(Database(scale=scale),))
    return Deployment(hosts=(Host(containers=(Container(name="db01", servers=(server,)),)),))


class SizesRequest(Model):
    """Options of ``pgherd sizes`` as given on the command line or in a scenario. None: pgherd chooses, and says what."""

    scales: Scales = Field(SCALES, description="pgbench scale factors to load and measure")
    predict: Scales = Field(PREDICTED, description="scale factors whose size is predicted")
    pg_bin: str | None = Field(None, description="directory of postgres, initdb and pgbench")
    pg_version: str | None = Field(None, description="PostgreSQL major version to use, such as 17, or 'embedded'")
    run_as: str | None = Field(None, description="the account that servers run as (root only)")
