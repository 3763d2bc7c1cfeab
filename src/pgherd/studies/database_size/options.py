"""Complete options of a database-size run, the deployment of each size, and the trials: one per scale, in ascending order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.study import trial_schedule
from pgherd.study.option import option
from pgherd.study.shared_options import SampleRequest, StudyOptions

SCALES = (1, 2, 5, 10, 20, 50)
"""Default scales to load, one after the other. Their total size is about 1.5 GB."""
PREDICTED = (100, 1000, 2500, 5000, 10000)
"""Default scales to predict: the larger scales of E10."""


def _ascending(scales: tuple[int, ...]) -> tuple[int, ...]:
    if not scales or min(scales) < 1:
        raise ValueError("give one or more scales, each at least 1")
    return tuple(sorted(set(scales)))


Scales = Annotated[tuple[int, ...], AfterValidator(_ascending)]
"""Scale factors of pgbench, in ascending order without duplicates."""


class DatabaseSizeOptions(StudyOptions):
    """Complete options of a database-size run."""

    pg_bin: str
    pg_version: str
    scales: Scales = Field(SCALES, description="loaded and measured")
    predict: Scales = Field(PREDICTED, description="predicted")
    time_budget: float | None = Field(None, gt=0)


def deployment(options: DatabaseSizeOptions, scale: int) -> Deployment:
    """Return the deployment of one server with one database. It has no limits, because the server runs no load."""
    server = Server(bin=options.pg_bin, version=options.pg_version, databases=(Database(scale=scale),))
    return Deployment(hosts=(Host(containers=(Container(name="db01", servers=(server,)),)),))


class DatabaseSizeRequest(SampleRequest):
    """Options of ``pgherd database-size`` as given on the command line or in a scenario. None: pgherd chooses."""

    scales: Scales = option(SCALES, "Scale factors to load.", metavar="N,N,…", web=True, filled="1,2,5,10")
    predict: Scales = option(PREDICTED, "Scale factors to predict.", metavar="N,N,…", web=True)


def propose(options: DatabaseSizeOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the scales without a result. Sizes do not vary between loads, so one trial each is enough. Failed ones are not repeated."""
    trials = tuple(
        Trial(point={"scale": scale}, deployment=deployment(options, scale), state="fresh", phases=(), probe="database-size")
        for scale in options.scales
    )
    return trial_schedule.propose_once(trials, results, options.time_budget, "every scale has been loaded and measured")
