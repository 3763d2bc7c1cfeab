"""Complete options of an io-profile run, with a single server or with variants to compare, and the trials.

Imports no scientific library, because the trials are proposed during the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from pgherd.model.analysis import Proposal
from pgherd.model.load import ClientPlace
from pgherd.model.result import TrialResult
from pgherd.model.trial import State, Trial
from pgherd.model.units import Duration, Size
from pgherd.study.comparison import variants
from pgherd.study.comparison.options import CompareOptions, Variant
from pgherd.study.comparison.propose import propose as propose_blocks
from pgherd.study.comparison.request import BlocksRequest, Share
from pgherd.study.database_options import BuiltinWorkload
from pgherd.study.option import option, redefined

KEPT_CHECKS = ("not-client-bound", "io-bound")
"""Validity checks of the trials. The bottleneck of a server with checkpoints is a result here, so no other bottleneck is required."""


class IoProfileOptions(CompareOptions):
    """Complete options of an io-profile run. A single server has ``repeats`` trials. Several variants are compared in blocks.

    With ``fixed_budget`` the user gave the time budget, so trials of a single server that exceed it are left out. Otherwise it limits only
    their reruns. ``memory_ratio`` is the size of the database as a multiple of the container's memory (None: the database is cached).
    ``checkpoint_timeout`` is the time between checkpoints in seconds. ``trace_unavailable`` is the reason why block requests are not traced
    although ``memory_ratio`` needs it ('' if they are traced, or if no trace is needed).
    """

    variants: tuple[Variant, ...] = Field(min_length=1)
    repeats: int = Field(3, ge=1)
    fixed_budget: bool = False
    memory_ratio: float | None = None
    checkpoint_timeout: float | None = None
    trace_unavailable: str = ""

    @property
    def single(self) -> bool:
        """Return True if there is only one server, and no comparison."""
        return len(self.variants) == 1

    def of(self, name: str) -> dict[str, Any]:
        """Return the options of a variant's study."""
        return self.variant(name).options


class IoProfileRequest(BlocksRequest):
    """Options of ``pgherd io-profile`` as given on the command line or in a scenario.

    Without ``compare_setting`` and ``variant`` there is one server. With either, each variant is compared with the first.
    """

    LEFT_OUT: ClassVar[dict[str, str]] = {"min_repeats": "io-profile adds no repeats; give repeats"}

    checkpoints: int | None = option(None, "Minimum checkpoints per trial.", metavar="N", computed="3; 2 in a comparison", web=True, ge=1)
    checkpoint_timeout: Duration | None = option(
        None, "checkpoint_timeout of the servers.", metavar="TIME", computed="30s", web=True, filled="30s"
    )
    compare_setting: str | None = option(None, "Compare values of one setting; the first is the baseline.", metavar="SETTING=V,V")
    variant: tuple[str, ...] = option(
        (), "Variant to compare (repeatable); the first is the baseline.", metavar="NAME:KEY=VALUE,…", repeated=True
    )
    memory_ratio: float | None = option(None, "Random I/O on a database this many times larger than memory.", metavar="K", gt=1)
    workload: BuiltinWorkload = redefined(BlocksRequest, "workload", "tpcb-like")
    clients: int | None = redefined(BlocksRequest, "clients", None, computed="4 per core, at most 32")
    max_blocks: int | None = redefined(BlocksRequest, "max_blocks", None, computed="6; more with more variants")
    precision: Share | None = redefined(BlocksRequest, "precision", None)
    equivalence_margin: Share = redefined(BlocksRequest, "equivalence_margin", 0.05)
    vcpus: float | None = redefined(BlocksRequest, "vcpus", None, computed="all cores")
    memory: Size | None = redefined(BlocksRequest, "memory", None, computed="twice the database")
    repeats: int | None = redefined(BlocksRequest, "repeats", None, help="Trials of one server.", computed="3")
    duration: Duration | None = redefined(BlocksRequest, "duration", None, computed="95s; 65s in a comparison; 20s with --memory-ratio")
    warmup: Duration | None = redefined(BlocksRequest, "warmup", None, computed="5s")
    time_budget: Duration | None = redefined(BlocksRequest, "time_budget", None, computed="as long as that takes")
    start_state: State = redefined(BlocksRequest, "start_state", "warm", computed="fresh")
    client_placement: ClientPlace = redefined(BlocksRequest, "client_placement", "inside", computed="outside")


def propose(options: IoProfileOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The same options and results always give the same proposal."""
    if not options.single:
        return propose_blocks(options, results)
    finished = {result.trial.key() for result in results}
    planned = [trial(options, number) for number in range(options.repeats)]
    missing = tuple(planned_trial for planned_trial in planned if planned_trial.key() not in finished)
    max_trials = options.repeats + options.max_reruns
    spent = sum(result.ended - result.started for result in results)
    fits = spent + (spent / len(results) if results else 0.0) <= options.time_budget
    if missing and not options.fixed_budget:
        return Proposal(trials=missing, max_trials=max_trials)
    if missing and fits:
        return Proposal(trials=missing[:1], max_trials=max_trials)
    if missing:
        reason = f"the budget of {options.time_budget:g} s is used up; {len(results)} of {options.repeats} planned trials were run"
        return Proposal(stop=reason, max_trials=len(results))
    tainted = [result for result in results if result.tainted]
    reruns = len(results) - options.repeats
    if len(tainted) > reruns and reruns < options.max_reruns and fits:
        rerun = tainted[reruns]
        return Proposal(trials=(trial(options, len(results), f"rerun of trial {rerun.id}"),), max_trials=max_trials)
    reason = f"{len(results)} trials were run" + (f", {len(tainted)} of them tainted" if tainted else "")
    return Proposal(stop=reason, max_trials=len(results))


def trial(options: IoProfileOptions, repeat: int, reason: str = "planned") -> Trial:
    """Return a trial of the only variant."""
    template = variants.planned_trials(options.variants[0])[0]
    intents = tuple(intent for intent in template.validity_checks if intent in KEPT_CHECKS)
    return template.model_copy(
        update={"point": {"server": options.variants[0].name}, "repeat": repeat, "reason": reason, "validity_checks": intents}
    )
