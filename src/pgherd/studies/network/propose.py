"""Trials of a network run and their order.

Each repeat is a block with every number of streams on every link, shuffled. Other traffic on the same links then affects all numbers of
streams alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: NetworkOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Equal options and results give equal proposals."""
    return trial_schedule.propose(options, design(options), results)


def design(options: NetworkOptions) -> SchedulePlan:
    """Return the planned trials of a run and the rules for more."""

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"link": link.target, "streams": streams} for link in options.links for streams in (IDLE, *options.streams)]
    blocks = []
    for repeat in range(options.repeats):
        rng = random.Random(f"order {options.seed} {repeat}")
        blocks.append([build(point, repeat, "planned") for point in rng.sample(points, len(points))])
    return SchedulePlan(blocks, points, build, lambda point: options.repeats)


def _trial(options: NetworkOptions, point: Point, repeat: int, reason: str) -> Trial:
    loads = {str(point["link"]): options.load(int(point["streams"]))}
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads=loads)
    deployment = options.deployment(str(point["link"]))
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=deployment, phases=(phase,))
