"""Which trials a density run consists of, and in which order. Pure; imports no scientific library, since it runs between
the trials."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from pgherd.model import placing
from pgherd.model.deployment import Deployment
from pgherd.model.finding import Proposal
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Intent, Trial
from pgherd.studies.density.options import SOAK_STRETCH, DensityOptions, deployment, names
from pgherd.study import trial_schedule
from pgherd.study.database_options import target
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """The next trials, or the reason to stop. The same options and results always give the same proposal."""
    if options.soak_seconds:
        return _soak_on(options, results)
    return trial_schedule.propose(options, _design(options), results)


def planned(options: DensityOptions) -> tuple[Trial, ...]:
    """All trials that a run plans before anything is known: what fits no budget is among them."""
    return _soak(options) if options.soak_seconds else _design(options).planned


def worst_case(options: DensityOptions) -> int:
    """How many trials a run has at most."""
    return len(_soak(options)) if options.soak_seconds else trial_schedule.worst_case(options, _design(options))


def _design(options: DensityOptions) -> SchedulePlan:
    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, int(point["databases"]), repeat, reason)

    def reserved(point: Point) -> int:
        return max(options.repeats, options.repeats_one) if point["databases"] == 1 else options.repeats

    points = [{"databases": databases} for databases in options.points]
    return SchedulePlan(_blocks(options), points, build, reserved)


def _blocks(options: DensityOptions) -> list[tuple[Trial, ...]]:
    """The planned trials. Each block holds every point once, shuffled, so that drift of the host does not pose as
    scaling; the further repeats of one database stand at the start of the first block, at the end of the last, and
    spread over the others."""
    rng = random.Random(f"order {options.seed}")
    order = []
    for _ in range(options.repeats):
        block = list(options.points)
        rng.shuffle(block)
        order.append(block)
    extra = max(options.repeats_one - options.repeats, 0) if 1 in options.points else 0
    for index, (block, place) in enumerate(_spread(order, extra)):
        if index == 0 and order[0][0] == 1 and len(order[0]) > 1:
            order[0].append(order[0].pop(0))  # two trials of one database in a row would say little more than one
        block.insert(0 if place == "start" else len(block), 1)
    counts = dict.fromkeys(options.points, 0)
    blocks = []
    for block in order:
        trials = []
        for databases in block:
            trials.append(_trial(options, databases, counts[databases], "planned"))
            counts[databases] += 1
        blocks.append(tuple(trials))
    return blocks


def _spread(order: list[list[int]], extra: int) -> Iterator[tuple[list[int], str]]:
    """Where the further repeats of one database go: (block, 'start' or 'end')."""
    for i in range(extra):
        if i == 0:
            yield order[0], "start"
        elif i == 1:
            yield order[-1], "end"
        else:
            yield order[(i - 1) % len(order)], "end"


def _intents(options: DensityOptions) -> tuple[Intent, ...]:
    rate: tuple[Intent, ...] = ("rate-met",) if options.rate else ()
    if options.intent == "io-bound":
        return ("io-bound", *rate, "not-client-bound")
    return (*(rate or ("cpu-bound",)), "cached", "not-client-bound")


def _loads(options: DensityOptions, databases: int, repeat: int) -> dict[str, Load]:
    """Which databases are loaded: the containers stand in a ring, shuffled once per point; each repeat takes the next
    ones, so that an odd container, or its place on the host, meets all repeats of a point alike rather than always the same."""
    ring = names(options)
    random.Random(f"containers {options.seed} {databases}").shuffle(ring)
    if options.over:
        ring = _over_hosts(options, ring)
    chosen = sorted(ring[(repeat * databases + i) % len(ring)] for i in range(databases))
    load = options.load(options.clients)
    return {target(name): load for name in chosen}


def _over_hosts(options: DensityOptions, ring: list[str]) -> list[str]:
    """The ring in an order in which any few that follow each other are spread over the hosts."""
    where = _cached_places(options.model_dump_json())  # the same for all trials
    return placing.in_turn(where, ring, {host.name: host.cores or 1.0 for host in options.over})


@lru_cache(maxsize=4)
def _cached_places(text: str) -> dict[str, str]:
    options = DensityOptions.model_validate_json(text)
    return placing.place((options.container(name) for name in names(options)), options.over, options.placement)


@lru_cache(maxsize=4)
def _cached_deployment(text: str) -> Deployment:
    return deployment(DensityOptions.model_validate_json(text))


def _deployment(options: DensityOptions) -> Deployment:
    # Hundreds of trials share one deployment; building it anew for each would cost more than the rest.
    return _cached_deployment(options.model_dump_json())


def _trial(options: DensityOptions, databases: int, repeat: int, reason: str) -> Trial:
    phase = Phase(name="steady", ramp=options.ramp, seconds=options.seconds, loads=_loads(options, databases, repeat))
    return _build(options, databases, repeat, reason, (phase,))


def _soak_on(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """The stretches that are left. One that failed is a hole in the soak: its time is over."""
    stretches = _soak(options)
    left = stretches[len(results) :]
    return Proposal(trials=left, worst_case=len(stretches)) if left else Proposal(stop="the soak is over", worst_case=len(stretches))


def _soak(options: DensityOptions) -> tuple[Trial, ...]:
    """Trials of some windows each, so that whatever ends a run of hours costs it no more than the last of them. Their drivers follow
    each other, with a short ramp that is not counted; between trials the servers are left as they are, but may have to be made anew."""
    window = min(options.soak_window, options.soak_seconds or options.soak_window)
    loads, count = _loads(options, options.soak_point, 0), options.soak_count
    phases = [
        Phase(name=f"w{i:04d}", ramp=min(options.ramp, 1.0) if i % SOAK_STRETCH else options.ramp, seconds=window, loads=loads)
        for i in range(count)
    ]
    first, *others = (tuple(phases[begin : begin + SOAK_STRETCH]) for begin in range(0, count, SOAK_STRETCH))
    began = _build(options, options.soak_point, 0, "planned", first)
    on = {"goes_on": True, "state": "warm"}
    return (
        began,
        *(began.model_copy(update={**on, "repeat": number, "phases": stretch}) for number, stretch in enumerate(others, 1)),
    )


def _build(options: DensityOptions, databases: int, repeat: int, reason: str, phases: tuple[Phase, ...]) -> Trial:
    return Trial(
        point={"databases": databases},
        repeat=repeat,
        reason=reason,
        deployment=_deployment(options),
        state=options.state,
        phases=phases,
        intents=_intents(options),
    )
