"""Which trials a scaling run consists of, and in which order. Pure; imports no scientific library, since it runs between
the trials.

E3 ran its series in ascending order, back to back. Here each series is shuffled: on a host that warms up, or whose load
from outside changes, an ascending series turns time into clients, and drift poses as scaling.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from pgherd.model.deployment import Deployment
from pgherd.model.finding import Proposal
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Intent, Trial
from pgherd.studies.scaling.certainty import next_clients
from pgherd.studies.scaling.options import CONTAINER, ScalingOptions, scripts_of
from pgherd.study import trial_schedule
from pgherd.study.database_options import DatabaseOptions, target
from pgherd.study.trial_schedule import Point, SchedulePlan

BUSY = 2.0
"""From so many clients per core on a select-only load is meant to use up the CPU: while some wait for an answer, others have one."""


def propose(options: ScalingOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    return trial_schedule.propose(options, _design(options), results)


def planned(options: ScalingOptions) -> tuple[Trial, ...]:
    """All trials that a run plans before anything is known: what fits no budget is among them."""
    return _design(options).planned


def _design(options: ScalingOptions) -> SchedulePlan:
    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, str(point.get("variant", "")), int(point["clients"]), repeat, reason)

    def reserved(point: Point) -> int:
        return options.repeats

    def refine(results: Sequence[TrialResult]) -> Sequence[Trial]:
        clients = next_clients(options, results) if options.refine else None
        if clients is None:
            return ()
        rng = random.Random(f"refine {options.seed} {clients}")
        return [
            _trial(options, variant, clients, repeat, f"added: the curve is least certain at {clients} clients")
            for variant in rng.sample(list(options.servers()), len(options.servers()))
            for repeat in range(options.repeats)
        ]

    points = [_point(variant, clients) for variant in options.servers() for clients in options.clients]
    return SchedulePlan(_blocks(options), points, build, reserved, refine)


def _blocks(options: ScalingOptions) -> list[tuple[Trial, ...]]:
    """One block for each series: every number of clients once, shuffled. Variants follow one another within a series, in an
    order that is shuffled too, and each is measured whole, since going from one to the next restarts the server."""
    rng = random.Random(f"order {options.seed}")
    blocks = []
    before = ""
    for repeat in range(options.repeats):
        order = rng.sample(list(options.servers()), len(options.servers()))
        if len(order) > 1 and order[0] == before:
            order.append(order.pop(0))  # two halves of one variant in a row would lie closer in time than the others do
        before = order[-1]
        blocks.append(
            tuple(
                _trial(options, variant, clients, repeat, "planned")
                for variant in order
                for clients in rng.sample(options.clients, len(options.clients))
            )
        )
    return blocks


def _point(variant: str, clients: int) -> Point:
    return {"variant": variant, "clients": clients} if variant else {"clients": clients}


def intents(options: DatabaseOptions, clients: int) -> tuple[Intent, ...]:
    """What a point is meant to be: cached and not held back by pgbench itself; bound by CPU only where that can be expected.

    A few clients leave cores idle while their answers are on the way; a load that writes waits for its log to reach the
    disk, and for locks; of a user's own scripts nothing is known.
    """
    found: list[Intent] = ["cached", "not-client-bound"]
    if scripts_of(options) == "select-only" and clients >= BUSY * options.vcpus:
        found.insert(0, "cpu-bound")
    return tuple(found)


@lru_cache(maxsize=32)
def _cached_deployment(text: str) -> Deployment:
    return DatabaseOptions.model_validate_json(text).deploy((CONTAINER,))


def _trial(options: ScalingOptions, variant: str, clients: int, repeat: int, reason: str) -> Trial:
    own = options.servers()[variant]
    load = own.load(clients)
    phase = Phase(name="steady", ramp=options.ramp, seconds=options.seconds, loads={target(CONTAINER): load})
    deployed = _cached_deployment(own.model_dump_json(include=set(DatabaseOptions.model_fields)))
    return Trial(
        point=dict(_point(variant, clients)),
        repeat=repeat,
        reason=reason,
        deployment=deployed,
        state=options.state,
        phases=(phase,),
        intents=intents(own, clients),
    )
