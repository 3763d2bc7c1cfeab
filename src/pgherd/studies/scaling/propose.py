"""Trials of a scaling run, their order, and additional points where the curve is least certain.

Pure. Imports no scientific library, because it runs between the trials.

E3 ran its series in ascending order. Here each series is shuffled: on a host that warms up, or with changing background load, drift
over an ascending series would look like scaling.

Additional points: throughput against clients is assumed to be concave, since each further client adds no more than the one before.
Between two neighbours the curve is then above their chord, and below the extended lines through the points on either side. The height
of that triangle bounds the uncertainty. The next point is taken where it is largest, which is around the knee and the peak (sandwich
algorithm: G. Rote, The convergence rate of the sandwich algorithm for approximating convex functions, Computing 48, 1992).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment
from pgherd.model.load import Phase
from pgherd.model.result import TrialResult, clean_or_all
from pgherd.model.trial import Trial, ValidityCheck
from pgherd.studies.scaling import objective
from pgherd.studies.scaling.options import CONTAINER, ScalingOptions, scripts_of
from pgherd.study import trial_schedule
from pgherd.study.database_options import DatabaseOptions, target
from pgherd.study.trial_schedule import Point, SchedulePlan, throughput

CPU_BOUND_CLIENTS_PER_CORE = 2.0
"""Clients per core from which a select-only load should be CPU-bound: while some clients wait, others keep the server busy."""
MIN_UNCERTAINTY = 0.02
"""Smallest uncertainty, as a share of the highest throughput, for which a point is added."""
GROWTH = 1.5
"""Factor from the largest number of clients to the next one, if throughput still rises there."""
MIN_RISE = 0.02
"""Relative increase at the last point that counts as a rise."""


def propose(options: ScalingOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop. The result depends on the arguments only."""
    if options.objectives:
        return objective.propose(options, results, build_trial)
    return trial_schedule.propose(options, _design(options), results)


def planned(options: ScalingOptions) -> tuple[Trial, ...]:
    """Return all trials planned at the start, including those that may not fit into the time budget."""
    return tuple(propose(options, ()).trials) if options.objectives else _design(options).planned


def _design(options: ScalingOptions) -> SchedulePlan:
    def build(point: Point, repeat: int, reason: str) -> Trial:
        return build_trial(options, str(point.get("variant", "")), int(point["clients"]), repeat, reason)

    def reserved(point: Point) -> int:
        return options.repeats

    def refine(results: Sequence[TrialResult]) -> Sequence[Trial]:
        clients = next_clients(options, results) if options.refine else None
        if clients is None:
            return ()
        rng = random.Random(f"refine {options.seed} {clients}")
        return [
            build_trial(options, variant, clients, repeat, f"added: the curve is least certain at {clients} clients")
            for variant in rng.sample(list(options.servers()), len(options.servers()))
            for repeat in range(options.repeats)
        ]

    points = [_point(variant, clients) for variant in options.servers() for clients in options.clients]
    return SchedulePlan(_blocks(options), points, build, reserved, refine)


def _blocks(options: ScalingOptions) -> list[tuple[Trial, ...]]:
    """Plan one block per series, with every number of clients once, in random order.

    The variants of a series are in random order too. All points of a variant are measured together, because a change of the variant
    restarts the server.
    """
    rng = random.Random(f"order {options.seed}")
    blocks = []
    previous = ""
    for repeat in range(options.repeats):
        order = rng.sample(list(options.servers()), len(options.servers()))
        if len(order) > 1 and order[0] == previous:
            order.append(order.pop(0))  # two consecutive parts of one variant would be closer in time than those of the others
        previous = order[-1]
        blocks.append(
            tuple(
                build_trial(options, variant, clients, repeat, "planned")
                for variant in order
                for clients in rng.sample(options.clients, len(options.clients))
            )
        )
    return blocks


def _point(variant: str, clients: int) -> Point:
    return {"variant": variant, "clients": clients} if variant else {"clients": clients}


def intents(options: DatabaseOptions, clients: int) -> tuple[ValidityCheck, ...]:
    """Return the checks of validity of a point: cached, not limited by pgbench, and CPU-bound if that can be expected.

    A few clients leave cores idle during round trips. A load that writes waits for WAL and for locks. The behaviour of user scripts
    is unknown.
    """
    checks: list[ValidityCheck] = ["cached", "not-client-bound"]
    if scripts_of(options) == "select-only" and clients >= CPU_BOUND_CLIENTS_PER_CORE * options.vcpus:
        checks.insert(0, "cpu-bound")
    return tuple(checks)


@lru_cache(maxsize=32)
def _cached_deployment(text: str) -> Deployment:
    return DatabaseOptions.model_validate_json(text).deploy((CONTAINER,))


def build_trial(options: ScalingOptions, variant: str, clients: int, repeat: int, reason: str) -> Trial:
    """Return a trial of a variant with a number of clients."""
    server = options.servers()[variant]
    load = server.load(clients)
    phase = Phase(name="steady", warmup=options.warmup, seconds=options.duration, loads={target(CONTAINER): load})
    deployment = _cached_deployment(server.model_dump_json(include=set(DatabaseOptions.model_fields)))
    return Trial(
        point=dict(_point(variant, clients)),
        repeat=repeat,
        reason=reason,
        deployment=deployment,
        state=options.start_state,
        phases=(phase,),
        validity_checks=intents(server, clients),
    )


# ---- additional points


def next_clients(options: ScalingOptions, results: Sequence[TrialResult]) -> int | None:
    """Return the number of clients to add, for all variants. None if no point is uncertain enough."""
    candidates: list[tuple[float, int]] = []
    tried = {result.trial.point.get("clients") for result in results}
    for variant in options.servers():
        curve = medians(results, variant)
        beyond = _beyond_last(curve, options.max_clients)
        if beyond is not None and beyond not in tried:
            candidates.append((math.inf, beyond))
        candidates += [(height, n) for n, height in uncertainties(curve) if n not in tried and n <= options.max_clients]
    uncertainty, clients = max(candidates, default=(0.0, 0), key=lambda candidate: (candidate[0], -candidate[1]))
    return clients if uncertainty >= MIN_UNCERTAINTY else None


def medians(results: Sequence[TrialResult], variant: str) -> list[tuple[int, float]]:
    """Return (clients, median throughput) of a variant, ascending. Tainted trials count only at points without a clean one."""
    trials: dict[int, list[TrialResult]] = {}
    for result in results:
        if result.trial.point.get("variant", "") == variant and result.error is None and throughput(result) > 0:
            trials.setdefault(int(result.trial.point["clients"]), []).append(result)
    points = []
    for clients, group in sorted(trials.items()):
        points.append((clients, statistics.median(throughput(result) for result in clean_or_all(group))))
    return points


def uncertainties(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return (clients, uncertainty as a share of the peak) of the most uncertain number in each gap of the curve."""
    if len(curve) < 2:
        return []
    points = [(0, 0.0), *curve]
    peak = max(x for _, x in curve)
    gaps = []
    for i in range(1, len(points) - 1):
        (n0, x0), (n1, x1) = points[i], points[i + 1]
        left = _line(points[i - 1], points[i])
        right = _line(points[i + 1], points[i + 2]) if i + 2 < len(points) else None
        heights = []
        for n in range(n0 + 1, n1):
            chord = x0 + (x1 - x0) * (n - n0) / (n1 - n0)
            # No line bounds the last gap from the right, so only its nearer half counts.
            bound = left(n) if right is None else min(left(n), right(n))
            if right is None and n > (n0 + n1) / 2:
                continue
            heights.append(((bound - chord) / peak, n))
        if heights:
            height, n = max(heights, key=lambda candidate: (candidate[0], -candidate[1]))
            gaps.append((n, height))
    return gaps


def _beyond_last(curve: Sequence[tuple[int, float]], maximum: int) -> int | None:
    """Return a number of clients past the last one if throughput still rises there, and None otherwise or at the maximum."""
    if len(curve) < 2 or curve[-1][0] >= maximum:
        return None
    last, previous = curve[-1], curve[-2]
    if last[1] < max(x for _, x in curve) or last[1] < (1 + MIN_RISE) * previous[1]:
        return None
    return min(maximum, max(last[0] + 1, math.ceil(GROWTH * last[0])))


def _line(first: tuple[int, float], second: tuple[int, float]) -> Callable[[int], float]:
    slope = (second[1] - first[1]) / (second[0] - first[0])
    return lambda n: second[1] + slope * (n - second[0])
