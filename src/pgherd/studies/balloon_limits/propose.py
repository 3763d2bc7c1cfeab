"""Trials of a run with a changing memory limit. Pure. Imports no scientific library.

A trial is one pool under load through all phases. A block is one trial of each pool in random order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.balloon_limits.options import BALLOON, SERVER, BalloonLimitsOptions
from pgherd.study import trial_schedule
from pgherd.study.database_options import target
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: BalloonLimitsOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The same options and results always give the same proposal."""
    return trial_schedule.propose(options, _design(options), results)


def planned(options: BalloonLimitsOptions) -> tuple[Trial, ...]:
    """Return all trials of the plan, including those that a time budget may leave out."""
    return _design(options).planned


def _design(options: BalloonLimitsOptions) -> SchedulePlan:
    points: list[Point] = [{"pool": pool} for pool in options.pools]
    blocks = []
    for repeat in range(options.repeats):
        chance = random.Random(f"balloon-limits {options.seed} {repeat}")
        blocks.append([_trial(options, point, repeat, "planned") for point in chance.sample(points, len(points))])
    return SchedulePlan(
        blocks,
        points,
        build=lambda point, repeat, reason: _trial(options, point, repeat, reason),
        reserved=lambda point: options.repeats,
        adaptive=False,
    )


def _trial(options: BalloonLimitsOptions, point: Point, repeat: int, reason: str) -> Trial:
    every = options.load(options.clients).model_copy(update={"sampling": 1.0})  # the slowest transaction is a result
    loads = {target(SERVER): every}
    phases = tuple(
        Phase(
            name=f"change{number}" if number else "start",
            warmup=0.0 if number else options.warmup,
            seconds=options.duration,
            loads=loads,
            memory={SERVER: options.limit(number)} if number else {},
        )
        for number in range(len(options.limits))
    )
    return Trial(
        point=dict(point),
        repeat=repeat,
        reason=reason,
        deployment=deploy(options, str(point["pool"])),
        state=options.start_state,
        phases=phases,
        failure_expected=True,
    )


def deploy(options: BalloonLimitsOptions, pool: str) -> Deployment:
    """Return the server with a pool, in its container with the largest limit."""
    size = next(size for name, size in options.pool_sizes.items() if name == pool)
    settings = options.settings | {"shared_buffers": f"{size // 2**20}MB"} | (options.balloon if pool == BALLOON else {})
    server = options.own_server("pg", (options.database_called("bench"),), settings)
    container = options.container(SERVER).model_copy(update={"servers": (server,)})
    host = Host(cores=options.host_cores, memory=options.host_memory, labels=options.labels, containers=(container,))
    return Deployment(hosts=(host,), volumes=options.volumes)
