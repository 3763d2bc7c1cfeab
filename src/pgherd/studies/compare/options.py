"""Options of a comparison on the command line or in a scenario. pgherd.study.comparison.options defines the complete options."""

from __future__ import annotations

from typing import Literal

from pgherd.model.trial import State
from pgherd.model.units import Duration
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.comparison.request import BlocksRequest, ScenarioVariant
from pgherd.study.option import option, redefined

__all__ = ["CompareOptions", "CompareRequest"]


class CompareRequest(BlocksRequest):
    """Options of ``pgherd compare`` as given on the command line or in a scenario.

    A comparison has variants of one server, which share the options of databases, or scenarios of any study without a comparison.
    """

    variant: tuple[str, ...] = option(
        (), "Variant to compare (repeatable); the first is the baseline.", metavar="NAME:KEY=VALUE,…", repeated=True
    )
    scenarios: tuple[ScenarioVariant, ...] = option((), "Scenario files to compare.", positional="[SCENARIO…]")
    interleave: Literal["slices", "trials"] | None = option(
        None, "Alternate variants in time slices of a trial, or by trials.", metavar="HOW", computed="slices where valid"
    )
    duration: Duration | None = redefined(BlocksRequest, "duration", None, computed="2.5s in slices; trials 3s, 5s or 8s")
    warmup: Duration | None = redefined(BlocksRequest, "warmup", None, computed="0.3s or 0.5s")
    start_state: State = redefined(BlocksRequest, "start_state", "warm", computed="warm with slices; restarted or fresh with trials")
