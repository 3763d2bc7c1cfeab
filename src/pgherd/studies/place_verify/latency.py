"""Latency of planned hosts: the CPU up to which they keep the objective, as the calibration shows it, and what slots kept. Pure.

The curve of a plan is of another workload and of a whole host. So each slot has a second prediction, by a curve of the host as it is here:
the share of late transactions in each phase of the calibration. Both are compared with the slot.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from pgherd.analysis.host_class import LatencyLimit, crossing
from pgherd.analysis.intervals import Estimate, share_interval, student
from pgherd.model.load import LatencyClass, LatencyObjective
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.studies.place_verify.options import PlaceVerifyOptions
from pgherd.studies.place_verify.propose import container_cpu, container_name
from pgherd.study.objectives import MIN_LATE, by_second

_CONFIDENCE = 0.95
_RESAMPLES = 500


def late_transactions(phase: PhaseResult, container: str, objective: LatencyObjective) -> Estimate | None:
    """Return the share of a container's transactions beyond the limit. None: it had no transaction.

    Late transactions come in bursts, so the interval is the wider one of two: of independent transactions (Clopper-Pearson), and of the
    seconds of the phase (ratio estimator, Cochran, Sampling Techniques, 1977, section 6.3, with Student's t).
    """
    mine = _part(phase, container)
    logged, late = (
        round(math.fsum(target.values.get(name, 0.0) for target in mine.targets)) for name in ("logged_tx", f"late_{objective.key}_tx")
    )
    if not logged:
        return None
    found, seconds = share_interval(late, logged), by_second(mine, objective)
    n, half = len(seconds), 0.0
    if n > 1:
        residuals = math.fsum((beyond - found.value * all_of_it) ** 2 for all_of_it, beyond in seconds)
        half = student(_CONFIDENCE, n - 1) * math.sqrt(n / (n - 1) * residuals) / logged
    low, high = found.low or 0.0, 1.0 if found.high is None else found.high
    return Estimate(
        found.value,
        max(0.0, min(low, found.value - half)),
        min(1.0, max(high, found.value + half)),
        _CONFIDENCE,
        logged,
        "share of the transactions; the wider interval of Clopper-Pearson and of the seconds",
    )


def _part(phase: PhaseResult, container: str) -> PhaseResult:
    """Return a phase with the loads of one container."""
    return phase.model_copy(update={"targets": [target for target in phase.targets if target.target.split("/")[1] == container]})


def host_limit(options: PlaceVerifyOptions, calibration: TrialResult, number: int) -> LatencyLimit | None:
    """Return the CPU up to which a host keeps the objective here. None: no objective, or no phase that shows its percentile.

    The interval is a bootstrap over the seconds of each phase, because late transactions come in bursts. A host that needs more than its
    quota has a queue that grows, so it keeps no objective. Between that and the end of the curve nothing is known.
    """
    objective, quota, name = options.objective, options.quota(options.planned[number]), container_name(number)
    if objective is None:
        return None
    points = []
    for phase in calibration.phases:
        cpu, late = container_cpu(phase, name), late_transactions(phase, name, objective)
        if cpu is not None and late is not None and late.n * objective.allowed >= MIN_LATE:
            points.append((cpu, by_second(_part(phase, name), objective)))
    if not points:
        return None
    points.sort(key=lambda point: point[0])
    cores, seconds = [cpu for cpu, _ in points], [found for _, found in points]

    def kept_up_to(phases: Sequence[Sequence[tuple[float, float]]]) -> float:
        shares = [math.fsum(late for _, late in one) / max(math.fsum(logged for logged, _ in one), 1.0) for one in phases]
        found = crossing(cores, shares, objective.allowed)
        return math.inf if found is None else found

    chance = random.Random(f"latency limit {options.seed} {number}")
    drawn = sorted(kept_up_to([chance.choices(one, k=len(one)) for one in seconds]) for _ in range(_RESAMPLES))
    tail, value = round(_RESAMPLES * (1 - _CONFIDENCE) / 2), kept_up_to(seconds)
    return LatencyLimit(
        objective=str(objective),
        low=min(drawn[tail], cores[-1]),
        value=value if math.isfinite(value) else None,
        high=min(drawn[-1 - tail], quota),
        source="calibration",
    )


def is_right(predicted: LatencyClass, late: Estimate | None, objective: LatencyObjective) -> bool | None:
    """Return whether a slot is as predicted.

    None: the prediction leaves it open, too few transactions show the percentile, or the interval of the late share has the allowed one.
    """
    if predicted == "near" or late is None or late.low is None or late.high is None or late.n * objective.allowed < MIN_LATE:
        return None
    if late.low <= objective.allowed <= late.high:
        return None
    return (predicted == "within") == (late.value < objective.allowed)
