"""Trials of a disk run and their order.

Each repeat is a block with every test on every volume, shuffled. A device that slows down as its caches fill, or another user of the
same hardware, then affects all tests alike. The trials at twice the depth come last. Several hosts do the same in every trial, at the
same time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.disk.access_patterns import MIX, TESTS
from pgherd.studies.disk.options import DiskOptions
from pgherd.study import trial_schedule
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: DiskOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. Equal options and results give equal proposals."""
    return trial_schedule.propose(options, design(options), results)


def design(options: DiskOptions) -> SchedulePlan:
    """Return the planned trials of a run and the rules for more."""

    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, point, repeat, reason)

    points: list[Point] = [{"test": test, "volume": volume} for volume in options.targets() for test in options.tests]
    double_depth = _double_depth_points(options)
    blocks = []
    for repeat in range(options.repeats):
        rng = random.Random(f"order {options.seed} {repeat}")
        blocks.append([build(point, repeat, "planned") for point in rng.sample(points, len(points))])
    if double_depth:
        blocks.append([build(point, 0, "planned: is the depth the limit?") for point in double_depth])
    return SchedulePlan(blocks, [*points, *double_depth], build, lambda point: 1 if "depth" in point else options.repeats)


def _double_depth_points(options: DiskOptions) -> list[Point]:
    if not options.double_iodepth:
        return []
    return [
        {"test": name, "volume": volume, "depth": 2 * options.depth_of(TESTS[name])}
        for volume in options.volume_names()
        for name in options.tests
        if TESTS[name].deep and name != MIX
    ]


def _trial(options: DiskOptions, point: Point, repeat: int, reason: str) -> Trial:
    test, volume = TESTS[str(point["test"])], str(point["volume"])
    depth = int(point["depth"]) if "depth" in point else None
    loads = {disk.volume.target: options.load(test, disk, depth) for disk in options.volumes_of(volume)}
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads=loads)
    return Trial(point=dict(point), repeat=repeat, reason=reason, deployment=options.deployment(), phases=(phase,))
