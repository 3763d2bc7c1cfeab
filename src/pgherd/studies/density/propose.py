"""Trials of a density run and their order.

Pure. Imports no scientific library, because it runs between the trials.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from pgherd.model import placement
from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial, ValidityCheck
from pgherd.studies.density.options import SOAK_STRETCH, DensityOptions, container_names, deployment
from pgherd.study import trial_schedule
from pgherd.study.database_options import target
from pgherd.study.trial_schedule import Point, SchedulePlan


def propose(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The result depends on the arguments only."""
    if options.soak_seconds:
        return _propose_soak(options, results)
    return trial_schedule.propose(options, _design(options), results)


def planned(options: DensityOptions) -> tuple[Trial, ...]:
    """Return all trials planned at the start, including those that may not fit into the time budget."""
    return _soak(options) if options.soak_seconds else _design(options).planned


def worst_case(options: DensityOptions) -> int:
    """Return the maximum number of trials."""
    return len(_soak(options)) if options.soak_seconds else trial_schedule.worst_case(options, _design(options))


def _design(options: DensityOptions) -> SchedulePlan:
    def build(point: Point, repeat: int, reason: str) -> Trial:
        return _trial(options, int(point["databases"]), repeat, reason)

    def reserved(point: Point) -> int:
        return max(options.repeats, options.single_database_repeats) if point["databases"] == 1 else options.repeats

    points = [{"databases": databases} for databases in options.databases]
    return SchedulePlan(_blocks(options), points, build, reserved)


def _blocks(options: DensityOptions) -> list[tuple[Trial, ...]]:
    """Plan the trials in blocks.

    Each block has every point once, in random order, so that drift of the host does not look like scaling. The extra repeats of
    the single database are at the start of the first block, at the end of the last, and spread over the others.
    """
    rng = random.Random(f"order {options.seed}")
    order = []
    for _ in range(options.repeats):
        block = list(options.databases)
        rng.shuffle(block)
        order.append(block)
    extra = max(options.single_database_repeats - options.repeats, 0) if 1 in options.databases else 0
    for index, (block, position) in enumerate(_spread(order, extra)):
        if index == 0 and order[0][0] == 1 and len(order[0]) > 1:
            order[0].append(order[0].pop(0))  # two consecutive trials are hardly independent
        block.insert(0 if position == "start" else len(block), 1)
    counts = dict.fromkeys(options.databases, 0)
    blocks = []
    for block in order:
        trials = []
        for databases in block:
            trials.append(_trial(options, databases, counts[databases], "planned"))
            counts[databases] += 1
        blocks.append(tuple(trials))
    return blocks


def _spread(order: list[list[int]], extra: int) -> Iterator[tuple[list[int], str]]:
    """Yield the positions of the extra repeats of the single database: (block, 'start' or 'end')."""
    for i in range(extra):
        if i == 0:
            yield order[0], "start"
        elif i == 1:
            yield order[-1], "end"
        else:
            yield order[(i - 1) % len(order)], "end"


def _intents(options: DensityOptions) -> tuple[ValidityCheck, ...]:
    rate: tuple[ValidityCheck, ...] = ("rate-achieved",) if options.rate else ()
    if options.bound_by == "io":
        return ("io-bound", *rate, "not-client-bound")
    return (*(rate or ("cpu-bound",)), "cached", "not-client-bound")


def _loads(options: DensityOptions, databases: int, repeat: int) -> dict[str, Load]:
    """Choose the loaded databases, with their load.

    The containers form a ring, shuffled once per point, and each repeat takes the next ones. An unusual container, or its
    location on the host, then does not affect the same repeat of every point.
    """
    ring = container_names(options)
    random.Random(f"containers {options.seed} {databases}").shuffle(ring)
    if options.over:
        ring = _over_hosts(options, ring)
    chosen = sorted(ring[(repeat * databases + i) % len(ring)] for i in range(databases))
    load = options.load(options.clients)
    return {target(name): load for name in chosen}


def _over_hosts(options: DensityOptions, ring: list[str]) -> list[str]:
    """Reorder the ring so that neighbours are spread over the hosts."""
    hosts = _cached_hosts(options.model_dump_json())
    return placement.in_turn(hosts, ring, {host.name: host.cores or 1.0 for host in options.over})


@lru_cache(maxsize=4)
def _cached_hosts(text: str) -> dict[str, str]:
    options = DensityOptions.model_validate_json(text)
    return placement.place((options.container(name) for name in container_names(options)), options.over, options.placement)


@lru_cache(maxsize=4)
def _cached_deployment(text: str) -> Deployment:
    return deployment(DensityOptions.model_validate_json(text))


def _deployment(options: DensityOptions) -> Deployment:
    # Cached, because hundreds of trials share one deployment, which takes longer to build than the trials.
    return _cached_deployment(options.model_dump_json())


def _trial(options: DensityOptions, databases: int, repeat: int, reason: str) -> Trial:
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads=_loads(options, databases, repeat))
    return _build(options, databases, repeat, reason, (phase,))


def _propose_soak(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """Propose the remaining stretches. A failed one is not repeated, since its time has passed."""
    stretches = _soak(options)
    remaining = stretches[len(results) :]
    if remaining:
        return Proposal(trials=remaining, max_trials=len(stretches))
    return Proposal(stop="the soak is over", max_trials=len(stretches))


def _soak(options: DensityOptions) -> tuple[Trial, ...]:
    """Plan a soak as trials of several windows, so that an interruption after hours costs the last trial only.

    Drivers of consecutive windows have a short warm-up between them. Between trials the servers keep running, unless they have to
    be created again.
    """
    window = min(options.soak_window, options.soak_seconds or options.soak_window)
    loads, count = _loads(options, options.soak_point, 0), options.soak_count
    phases = [
        Phase(name=f"w{i:04d}", warmup=min(options.warmup, 1.0) if i % SOAK_STRETCH else options.warmup, seconds=window, loads=loads)
        for i in range(count)
    ]
    first, *others = (tuple(phases[start : start + SOAK_STRETCH]) for start in range(0, count, SOAK_STRETCH))
    trial = _build(options, options.soak_point, 0, "planned", first)
    continued = {"continues_previous": True, "state": "warm"}
    return (
        trial,
        *(trial.model_copy(update={**continued, "repeat": number, "phases": stretch}) for number, stretch in enumerate(others, 1)),
    )


def _build(options: DensityOptions, databases: int, repeat: int, reason: str, phases: tuple[Phase, ...]) -> Trial:
    return Trial(
        point={"databases": databases},
        repeat=repeat,
        reason=reason,
        deployment=_deployment(options),
        state=options.start_state,
        phases=phases,
        validity_checks=_intents(options),
    )
