"""Which trials a network run consists of, and in which order. Pure; imports no scientific library.

Each repeat is a block of every number of streams on every link, shuffled: what others send over the same wires meanwhile then
spoils no number of streams more than another.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.network.options import IDLE, NetworkOptions
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: NetworkOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    return trial_schedule.propose(options, design(options), results)


def design(options: NetworkOptions) -> SchedulePlan:
    """All that a run plans, and how it goes on."""

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
    phase = Phase(name="steady", ramp=options.ramp, seconds=options.seconds, loads=loads)
    deployment = options.deployment(str(point["link"]))
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=deployment, phases=(phase,))
