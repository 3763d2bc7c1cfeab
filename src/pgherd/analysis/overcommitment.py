"""Memory overcommitment: its levels, throughput against each layout's baseline, and metrics that compare layouts.

Formulas are those of the experiments E4, E5 and E7 (VMware, "VMware vFabric Postgres 9.2: Performance and Best Practices").
SciPy is used only for the t quantile of intervals.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgherd.analysis.block_ratios import Values, paired_ratio
from pgherd.analysis.intervals import LEAST, Estimate, mean_interval

ONE_BLOCK = "one block: no interval"
TWO_BLOCKS = f"two blocks: no interval (it takes {LEAST})"


@dataclass(frozen=True)
class Period:
    """One database's part of one period: its clients, and its throughput in any unit."""

    clients: int
    throughput: float


def available_memory(configured: int, overcommit: float) -> int:
    """Return the memory (bytes) available to containers of ``configured`` bytes at an overcommitment level.

    The level of E5 is 1 − available ÷ configured.

    Raises:
        ValueError: the level is not at least 0 and below 1, or the configured memory is not above zero.
    """
    if not 0 <= overcommit < 1:
        raise ValueError(f"overcommitment is at least 0 and below 1, not {overcommit:g}")
    if configured <= 0:
        raise ValueError(f"the configured memory must be above zero, not {configured}")
    return round(configured * (1 - overcommit))


def overcommit_of(configured: int, left: int) -> float:
    """Return the overcommitment level if ``left`` bytes are available to containers of ``configured`` bytes.

    It is negative if more is available than configured.

    Raises:
        ValueError: the configured memory is not above zero.
    """
    if configured <= 0:
        raise ValueError(f"the configured memory must be above zero, not {configured}")
    return 1 - left / configured


def max_safe_overcommit(configured: int, working_sets: Sequence[int]) -> float:
    """Return the highest level at which the working sets (bytes) fit: headroom ÷ configured memory, at least 0 (E7).

    Beyond it a slower host reflects a lack of memory, not the effect of consolidation. The working sets of E7, 1376 and 1152 MB
    in 2 × 4096 MB, leave 5664 MB, which is 69 %.

    Raises:
        ValueError: the configured memory is not above zero.
    """
    return max(0.0, overcommit_of(configured, sum(working_sets)))


def vcpu_corrected(periods: Sequence[Sequence[Period]]) -> float:
    """Return a layout's throughput with E4's correction for databases that share the vCPUs of one container.

    In dedicated layouts each database has dedicated vCPUs, so two databases have twice as many in total. For the other layouts E4 adds the
    throughput of the lightly loaded database a second time. The result is the mean over periods of the sum of all databases
    plus those with fewer clients than the busiest of the period. If all have equally many clients, nothing is added.

    Raises:
        ValueError: no periods.
    """
    if not periods:
        raise ValueError("a correction needs at least one period")
    return statistics.fmean(sum(database.throughput for database in period) + _lightly_loaded(period) for period in periods)


def _lightly_loaded(period: Sequence[Period]) -> float:
    busiest = max((database.clients for database in period), default=0)
    return sum(database.throughput for database in period if database.clients < busiest)


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation (n − 1). None for fewer than two values, or a mean of zero."""
    if len(values) < 2 or (mean := statistics.fmean(values)) <= 0:
        return None
    return statistics.stdev(values) / mean


def throughput_per_core(throughput: float, cores: float) -> float | None:
    """Return throughput per fully used core (E4's CPU productivity). None if no CPU was used."""
    return throughput / cores if cores > 0 else None


def block_ratio(values: Values, baseline: Values, confidence: float = 0.95) -> Estimate | None:
    """Estimate the ratio of two quantities measured in the same blocks (`block_ratios.paired_ratio`).

    With too few blocks for an interval the note has their number. None if no block has both values, or any is not above zero.
    """
    if not any(a is not None and b is not None for a, b in zip(values, baseline, strict=True)):
        return None
    try:
        return _with_block_note(paired_ratio(values, baseline, confidence))
    except ValueError:
        return None


def ratio_of_ratios(
    values: Values, values_baseline: Values, others: Values, others_baseline: Values, confidence: float = 0.95
) -> Estimate | None:
    """Estimate by block how two curves compare, each relative to its baseline: (a ÷ a₀) ÷ (b ÷ b₀)."""
    return block_ratio(_quotients(values, values_baseline), _quotients(others, others_baseline), confidence)


def _quotients(values: Values, baseline: Values) -> list[float | None]:
    return [None if a is None or not b else a / b for a, b in zip(values, baseline, strict=True)]


def block_mean(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Estimate the mean over blocks, with the same note if there is no interval. Raises ValueError without values."""
    return _with_block_note(mean_interval(values, confidence))


def _with_block_note(estimate: Estimate) -> Estimate:
    if estimate.low is not None:
        return estimate
    return replace(estimate, note={1: ONE_BLOCK, 2: TWO_BLOCKS}.get(estimate.n, estimate.note))
