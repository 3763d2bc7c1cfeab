"""Which trials a disk run consists of, and in which order. Pure; imports no scientific library.

Each repeat is a block of every test on every volume, shuffled: a device that slows down as it fills its caches, or a neighbour on
the same hardware, then spoils no test more than another. The trials that tell whether the depth was the limit come last. Several hosts
do the same in every trial, all at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.finding import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.disk.access import MIX, TESTS
from pgherd.studies.disk.options import DiskOptions
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: DiskOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    return trial_schedule.propose(options, design(options), results)


def design(options: DiskOptions) -> SchedulePlan:
    """All that a run plans, and how it goes on."""

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"test": test, "volume": place} for place in options.places() for test in options.tests]
    deeper = _deeper(options)
    blocks = []
    for repeat in range(options.repeats):
        rng = random.Random(f"order {options.seed} {repeat}")
        blocks.append([build(point, repeat, "planned") for point in rng.sample(points, len(points))])
    if deeper:
        blocks.append([build(point, 0, "planned: is the depth the limit?") for point in deeper])
    return SchedulePlan(blocks, [*points, *deeper], build, lambda point: 1 if "depth" in point else options.repeats)


def _deeper(options: DiskOptions) -> list[Point]:
    if not options.check_depth:
        return []
    return [
        {"test": name, "volume": volume, "depth": 2 * options.depth_of(TESTS[name])}
        for volume in options.names()
        for name in options.tests
        if TESTS[name].deep and name != MIX
    ]


def _trial(options: DiskOptions, point: Point, repeat: int, reason: str) -> Trial:
    test, place = TESTS[str(point["test"])], str(point["volume"])
    depth = int(point["depth"]) if "depth" in point else None
    loads = {one.volume.target: options.load(test, one, depth) for one in options.at(place)}
    phase = Phase(name="steady", ramp=options.ramp, seconds=options.seconds, loads=loads)
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=options.deployment(), phases=(phase,))
