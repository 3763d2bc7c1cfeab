"""Sharing a host's memory: overcommitment rates, throughput against each scheme's own baseline, and what schemes are judged by.

Formulas are those of the experiments E4, E5 and E7 (VMware, "VMware vFabric Postgres 9.2: Performance and Best Practices").
Pure, and without a scientific library but for the t quantile of intervals.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.intervals import LEAST, Estimate, mean_interval
from pgherd.analysis.paired import Values, paired_ratio

ONE_BLOCK = "one block: no interval"
TWO_BLOCKS = f"two blocks: no interval (it takes {LEAST})"


@dataclass(frozen=True)
class Period:
    """One database's share of one period: its clients, and its throughput in any unit."""

    clients: int
    throughput: float


def available(configured: int, rate: float) -> int:
    """The memory (bytes) that is left to containers of ``configured`` bytes at an overcommitment rate: E5's rate is
    1 − available ÷ configured.

    Raises:
        ValueError: the rate is not at least 0 and below 1, or nothing is configured.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"an overcommitment rate is at least 0 and below 1, not {rate:g}")
    if configured <= 0:
        raise ValueError(f"the configured memory must be above zero, not {configured}")
    return round(configured * (1 - rate))


def rate_of(configured: int, left: int) -> float:
    """The overcommitment rate at which ``left`` bytes are available to containers of ``configured`` bytes; below 0 where there is more.

    Raises:
        ValueError: nothing is configured.
    """
    if configured <= 0:
        raise ValueError(f"the configured memory must be above zero, not {configured}")
    return 1 - left / configured


def honest_rate(configured: int, working_sets: Sequence[int]) -> float:
    """The largest rate at which the working sets (bytes) still fit: headroom ÷ configured memory, at least 0 (E7).

    Beyond it a host that gets slower says nothing about consolidation: there is just too little memory. E7's working sets
    of 1376 and 1152 MB in 2 × 4096 MB leave 5664 MB, and so 69 %.

    Raises:
        ValueError: nothing is configured.
    """
    return max(0.0, rate_of(configured, sum(working_sets)))


def corrected(periods: Sequence[Sequence[Period]]) -> float:
    """A scheme's throughput with E4's correction for schemes whose databases share one container's vCPUs.

    In M/M/M every database has vCPUs of its own, so that there are twice as many for two of them. E4 adds to the others what
    their own lightly loaded database attained: the mean over periods of the sum of all databases plus, once more, of those
    that have fewer clients than the busiest of the period. Where all have equally many there is none, and nothing is added.

    Raises:
        ValueError: no periods.
    """
    if not periods:
        raise ValueError("a correction needs at least one period")
    return statistics.fmean(sum(one.throughput for one in period) + _light(period) for period in periods)


def _light(period: Sequence[Period]) -> float:
    busiest = max((one.clients for one in period), default=0)
    return sum(one.throughput for one in period if one.clients < busiest)


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation: the standard deviation (n − 1) over the mean; None for fewer than two values, or a mean of zero."""
    if len(values) < 2 or (mean := statistics.fmean(values)) <= 0:
        return None
    return statistics.stdev(values) / mean


def per_core(throughput: float, cores: float) -> float | None:
    """Throughput per fully used core (E4's CPU productivity); None where no CPU was used."""
    return throughput / cores if cores > 0 else None


def block_ratio(values: Values, baseline: Values, confidence: float = 0.95) -> Estimate | None:
    """Ratio of two things measured in the same blocks (`paired.paired_ratio`), with a note that says how many blocks there are
    where these are too few for an interval; None where no block has both, or one is not above zero."""
    if not any(a is not None and b is not None for a, b in zip(values, baseline, strict=True)):
        return None
    try:
        return _noted(paired_ratio(values, baseline, confidence))
    except ValueError:
        return None


def ratio_of_ratios(
    values: Values, values_baseline: Values, others: Values, others_baseline: Values, confidence: float = 0.95
) -> Estimate | None:
    """How much better one curve holds than another, both against their own baselines, by block: (a ÷ a₀) ÷ (b ÷ b₀)."""
    return block_ratio(_divided(values, values_baseline), _divided(others, others_baseline), confidence)


def _divided(values: Values, baseline: Values) -> list[float | None]:
    return [None if a is None or not b else a / b for a, b in zip(values, baseline, strict=True)]


def block_mean(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean over blocks, with the same note where there is no interval; raises ValueError without values."""
    return _noted(mean_interval(values, confidence))


def _noted(found: Estimate) -> Estimate:
    if found.low is not None:
        return found
    return replace(found, note={1: ONE_BLOCK, 2: TWO_BLOCKS}.get(found.n, found.note))
