"""The complete options of a sizes run, and the deployment that one size needs."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.study.complete_options import StudyOptions
from pgherd.study.measurement_options import SampleRequest
from pgherd.study.option import option

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


class SizesRequest(SampleRequest):
    """Options of ``pgherd database-size`` as given on the command line or in a scenario. None: pgherd chooses."""

    scales: Scales = option(SCALES, "Scale factors to load.", metavar="N,N,…", web=True, filled="1,2,5,10")
    predict: Scales = option(PREDICTED, "Scale factors to predict.", metavar="N,N,…", web=True)
