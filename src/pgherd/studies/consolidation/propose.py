"""Which trials a consolidation run consists of, and in which order. Pure; imports no scientific library.

A block holds every combination of scheme, buffers and rate once, shuffled by the run's seed: what drifts on the host must not
pose as a difference between schemes, nor one scheme's rest in the caches as another's merit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.consolidation.options import ConsolidationOptions
from pgherd.studies.consolidation.schemes import trial
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan


def points(options: ConsolidationOptions) -> list[Point]:
    """Every combination, by buffers, rate and scheme."""
    return [
        {"scheme": scheme, "buffers": percent, "rate": rate}
        for percent in options.buffers
        for rate in options.rates
        for scheme in options.runnable
    ]


def propose(options: ConsolidationOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    if not options.runnable:
        return Proposal(stop="no scheme that was asked for can be had here", worst_case=0)
    return trial_schedule.propose(options, _design(options), results)


def planned(options: ConsolidationOptions) -> tuple[Trial, ...]:
    """All trials that a run plans before anything is known: what fits no budget is among them."""
    return _design(options).planned


def _design(options: ConsolidationOptions) -> SchedulePlan:
    every = points(options)
    blocks = []
    for block in range(options.blocks):
        order = random.Random(f"consolidation {options.seed} {block}").sample(every, len(every))
        blocks.append([trial(options, point, block, "planned") for point in order])
    return SchedulePlan(
        blocks,
        every,
        build=lambda point, repeat, reason: trial(options, point, repeat, reason),
        reserved=lambda point: options.blocks,
        adaptive=False,
    )
