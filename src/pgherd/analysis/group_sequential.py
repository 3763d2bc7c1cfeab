"""Group-sequential comparison of two variants: interim analyses, valid intervals, and when to stop.

The data may be analysed after declared numbers of blocks (`analysis_schedule`). Each look gives one interval for the ratio, which decides:
beyond 1 is higher or lower, within the margin is equivalent, narrow enough is precise enough. The intervals are *repeated
confidence intervals* (Jennison and Turnbull, J. Royal Stat. Soc. B 51, 1989). With the stated confidence **all** intervals of a
study contain the true ratio. Therefore no reason to stop at a look can make its interval wrong more often than stated, and a
rule on the interval's width costs no error rate. Each interval inverts Wilcoxon's signed rank test, exact at its look, at the
level that the spending function allots to that look. docs/explanation/statistics.md has the reasons and the simulation.

**Spending.** The error rate α is spent in portions. By a share t of the planned blocks at most α·tʳ is spent (Lan and DeMets,
Biometrika 70, 1983; power family of Kim and DeMets, Biometrika 74, 1987). The amount spent by each critical value follows from
the joint distribution of the statistic over the looks. The distribution at each look is exact. The dependence between looks is
that of a normal process with independent increments (Armitage, McPherson and Rowe, J. Royal Stat. Soc. A 132, 1969).

The correlation of two looks depends on which blocks scatter most. With ranks R (of the n blocks at the earlier look) and R′ (at
the later) it is ΣRR′ / √(ΣR² ΣR′²). Its minimum, √(ΣR² / ΣR′²), occurs if every later block scatters more than all earlier
ones. A lower correlation makes an error at one of the looks more likely. The critical values are those of this least favourable
case, so that the error rate holds for any course of the noise.

**Many metrics.** The primary metric decides and stops the study. A reader of twenty other intervals at 95 % finds one that
excludes "no difference" by chance. The others therefore share one error rate in equal parts (Bonferroni, because Holm's
procedure gives no intervals). They correlate with the primary metric, which determined the time of stopping, so they are
repeated confidence intervals over the same looks.

Without scientific libraries except for the t interval, because it runs between the trials of a study.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.analysis.block_ratios import (
    Values,
    joined,
    log_ratios,
    min_pairs,
    missing_note,
    no_ratio_reason,
    no_spread_note,
    ratio_estimate,
    signed_rank_tail,
    walsh,
    walsh_rank,
)
from pgherd.analysis.intervals import LEAST, Estimate, mean_interval

POWER = 2.0
"""Exponent r of the spending function α·tʳ. Chosen by simulation (docs/explanation/statistics.md)."""
_GRID_POINTS = 121
"""Points of Simpson's rule over the statistic's range. The error of the boundaries is then below 0.0005."""
_MAX_Z = 9.0
"""Standardised statistic beyond which the probability is negligible."""


@dataclass(frozen=True)
class InterimBound:
    """Critical value at one look with ``pairs`` pairs.

    ``z`` is standardised. ``level`` is its two-sided nominal significance level. ``rank`` is the rank of the Walsh average that
    bounds the interval of the exact signed rank test at that level. 0: there are too few pairs.
    """

    pairs: int
    z: float
    level: float
    rank: int


@functools.lru_cache(maxsize=1024)
def bounds(pairs: tuple[int, ...], spent: tuple[float, ...], exact: bool = True) -> tuple[InterimBound, ...]:
    """Return the critical values of looks.

    ``exact`` rounds each to an attainable value of the signed rank statistic, and passes the remainder on to later looks. A
    look without an attainable value spends nothing. Otherwise the critical values are those of the normal distribution.

    Args:
        pairs: number of pairs at each look, ascending.
        spent: cumulative two-sided error rate at each look, ascending.
        exact: see above.

    Raises:
        ValueError: the lengths differ, or one of the two does not ascend.
    """
    if len(pairs) != len(spent) or any(b <= a for a, b in zip((0, *pairs), pairs, strict=False)):
        raise ValueError(f"looks need ascending numbers of pairs and a portion each, not {pairs} and {spent}")
    if any(b < a for a, b in zip((0.0, *spent), spent, strict=False)):
        raise ValueError(f"portions of the error rate must ascend, not {spent}")
    critical: list[InterimBound] = []
    process = _BoundedProcess()
    for count, allowed in zip(pairs, spent, strict=True):
        variance = count * (count + 1) * (2 * count + 1) / 6  # ΣR²
        z = process.boundary(variance, allowed)
        rank = walsh_rank(upper_tail(z), count)
        critical.append(InterimBound(count, z, 2 * upper_tail(z), rank))
        if not exact:
            process.advance(variance, z)
        elif rank > 0:
            process.advance(variance, _quantile(signed_rank_tail(rank - 1, count)))
    return tuple(critical)


def upper_tail(z: float) -> float:
    """Return P(Z > z) of the standard normal distribution."""
    return math.erfc(z / math.sqrt(2)) / 2


class _BoundedProcess:
    """Density, on a grid, of a normal process with independent increments within the bounds of all looks so far."""

    def __init__(self) -> None:
        self.variance = 0.0
        self.mass: list[tuple[float, float]] = [(0.0, 1.0)]
        self.spent = 0.0

    def beyond(self, variance: float, z: float) -> float:
        """Return the probability to be within all bounds so far and beyond ±z at ``variance``."""
        edge, step = z * math.sqrt(variance), math.sqrt(2 * (variance - self.variance))
        return math.fsum(m * (math.erfc((edge - s) / step) + math.erfc((edge + s) / step)) / 2 for s, m in self.mass)

    def boundary(self, variance: float, allowed: float) -> float:
        """Return the z that spends the remainder of ``allowed``."""
        low, high, remaining = 0.0, _MAX_Z, allowed - self.spent
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.beyond(variance, middle) > remaining else (low, middle)
        return high

    def advance(self, variance: float, z: float) -> None:
        """Apply a look at ``variance`` with bounds ±z: spend the probability beyond, and keep the density within."""
        self.spent += self.beyond(variance, z)
        edge, spread = z * math.sqrt(variance), math.sqrt(variance - self.variance)
        width = 2 * edge / (_GRID_POINTS - 1)
        norm = 1 / (spread * math.sqrt(2 * math.pi))
        mass = []
        for i in range(_GRID_POINTS):
            s = -edge + i * width
            density = norm * math.fsum(m * math.exp(-(((s - t) / spread) ** 2) / 2) for t, m in self.mass)
            simpson = width / 3 * (1 if i in (0, _GRID_POINTS - 1) else 4 if i % 2 else 2)
            mass.append((s, density * simpson))
        self.mass, self.variance = mass, variance


def _quantile(tail: float) -> float:
    """Return the z with P(Z > z) = tail."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle) > tail else (low, middle)
    return high


ALPHA = 0.05
"""Share of studies of two equal variants that may report a difference."""
EQUIVALENCE_MARGIN = 0.02
"""Margin of equivalence: ratios between 1 ÷ 1.02 and 1.02."""
GROWTH = 1.5
"""Growth of the number of blocks from look to look. More looks would cost power and save few blocks."""
CONCLUSION_CHANCE = 0.8
"""Probability that `Decision.blocks_needed` blocks give a conclusion."""
FINAL_Z = 2.1
"""Approximate critical value of the last look."""
MAX_SUGGESTED_BLOCKS = 1000
"""Maximum total number of blocks to suggest."""

Outcome = Literal["higher", "lower", "equivalent", "inconclusive"]


@dataclass(frozen=True)
class Decision:
    """Conclusion at the last look.

    ``estimate`` is the ratio, with an interval that is valid for any reason to stop. ``stop``: no further block is needed or
    planned. ``blocks_needed`` is about how many further blocks would give a conclusion. It is None if there is one, or if too many would
    be needed. ``reason`` is a sentence.
    """

    outcome: Outcome
    estimate: Estimate
    stop: bool
    blocks_needed: int | None
    reason: str


@dataclass(frozen=True)
class InterimAnalysis:
    """Data at one look: the log ratios of complete pairs among the first ``blocks`` blocks.

    ``bound`` is the look's critical value (None: no look is due yet). ``number`` counts from 1. ``final``: no look follows.
    """

    logs: tuple[float, ...]
    blocks: int
    bound: InterimBound | None
    number: int
    final: bool

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Estimate, low and high on the log scale. None if there are too few pairs at this look's level."""
        rank = self.bound.rank if self.bound and self.logs else 0
        if rank == 0:
            return None
        averages = walsh(self.logs)
        return statistics.median(averages), averages[rank - 1], averages[-rank]


def analysis_schedule(max_blocks: int, alpha: float = ALPHA) -> tuple[int, ...]:
    """Return the numbers of blocks at which a study of at most ``max_blocks`` blocks is analysed, ascending. The last is ``max_blocks``.

    The first is the smallest that permits a conclusion. Below `min_pairs` blocks there is none.

    Raises:
        ValueError: ``max_blocks`` is below 1, or alpha is not between 0 and 1.
    """
    if max_blocks < 1 or not 0 < alpha < 1:
        raise ValueError(f"looks need at least one block and an error rate between 0 and 1, not {max_blocks} and {alpha}")
    first = next((n for n in range(1, max_blocks) if walsh_rank(spent(n, max_blocks, alpha) / 2, n) > 0), max_blocks)
    numbers = [first]
    while numbers[-1] * GROWTH < max_blocks - 1:
        numbers.append(math.ceil(numbers[-1] * GROWTH))
    # A look just before the last would spend much of the error rate for little information.
    while numbers and numbers[-1] * (1 + GROWTH) / 2 > max_blocks:
        numbers.pop()
    return (*numbers, max_blocks)


def spent(blocks: int, max_blocks: int, alpha: float = ALPHA) -> float:
    """Return the error rate that may be spent by ``blocks`` of ``max_blocks`` blocks."""
    return alpha * math.pow(min(1.0, blocks / max_blocks), POWER)


def decide(
    values: Values,
    baseline: Values,
    *,
    max_blocks: int,
    precision: float | None = None,
    equivalence_margin: float = EQUIVALENCE_MARGIN,
    alpha: float = ALPHA,
    last: bool = False,
) -> Decision:
    """Compare values ÷ baseline over the blocks so far, and decide whether the study may stop.

    Each side has one value per block in order of execution. None marks a failed trial, and that block has no pair. Between
    looks the result is that of the last look, so this may be called at any time. Blocks beyond ``max_blocks`` are ignored. Without
    ``precision`` a study stops at a conclusion. With it, it stops when the interval is within ± that share. In any case it
    stops after ``max_blocks`` blocks.

    Args:
        values: values of the variant.
        baseline: values of the baseline.
        max_blocks: maximum number of blocks.
        precision: target half width of the interval, as a share.
        equivalence_margin: margin of equivalence.
        alpha: error rate.
        last: no blocks will follow, for a reason unrelated to the values, such as an exhausted budget. The remaining error rate is
            then spent at this number of blocks.

    Raises:
        ValueError: no ratio exists (`block_ratios.no_ratio_reason`), or a parameter is out of range.
    """
    if not (equivalence_margin > 0 and (precision is None or precision > 0)):
        raise ValueError(f"the equivalence margin and the precision must be above zero, not {equivalence_margin} and {precision}")
    logs = log_ratios(values, baseline)
    if all(log is None for log in logs):
        raise ValueError("no ratio: no block has a complete pair")
    return _decision(
        logs,
        deciding_analysis(logs, max_blocks, precision, equivalence_margin, alpha, last),
        max_blocks,
        precision,
        equivalence_margin,
        alpha,
    )


def deciding_analysis(
    logs: Sequence[float | None],
    max_blocks: int,
    precision: float | None,
    equivalence_margin: float,
    alpha: float = ALPHA,
    last: bool = False,
) -> InterimAnalysis:
    """Return the look whose interval is the result: the last one due.

    At the ``last`` block it is a final look, unless a regular look at the same number of blocks already ended the study.
    """
    interim = analysis_at(logs, max_blocks, alpha)
    if last and not (interim.blocks == len(logs) and _may_stop(interim, precision, equivalence_margin)):
        return analysis_at(logs, max_blocks, alpha, last=True)
    return interim


def analysis_at(
    logs: Sequence[float | None],
    max_blocks: int,
    alpha: float = ALPHA,
    *,
    last: bool = False,
    schedule: Sequence[int] = (),
    exact: bool = True,
) -> InterimAnalysis:
    """Return the data at the last look due by now, or with ``last`` at a final look now.

    Args:
        logs: log ratios by block.
        max_blocks: maximum number of blocks.
        alpha: error rate.
        last: make a final look.
        schedule: looks of another comparison over the same blocks.
        exact: as in `bounds`.
    """
    logs = logs[:max_blocks]
    due = [blocks for blocks in schedule or analysis_schedule(max_blocks, alpha) if blocks <= len(logs)]
    if last and len(logs) not in due:
        due.append(len(logs))
    blocks_used = due[-1] if due else len(logs)
    portions: dict[int, float] = {}  # by number of pairs: looks with equally many pairs count as one
    for blocks in due:
        pairs = sum(log is not None for log in logs[:blocks])
        if pairs:
            portions[pairs] = alpha if last and blocks == blocks_used else spent(blocks, max_blocks, alpha)
    critical = bounds(tuple(portions), tuple(portions.values()), exact)
    complete = tuple(log for log in logs[:blocks_used] if log is not None)
    return InterimAnalysis(complete, blocks_used, critical[-1] if critical else None, len(due), last or blocks_used >= max_blocks)


def interval_outcome(low: float, high: float, equivalence_margin: float = EQUIVALENCE_MARGIN) -> Outcome:
    """Classify an interval on the log scale. A certain difference is reported even within the margin."""
    if low > 0:
        return "higher"
    if high < 0:
        return "lower"
    margin = math.log1p(equivalence_margin)
    return "equivalent" if low >= -margin and high <= margin else "inconclusive"


def may_stop(low: float, high: float, precision: float | None = None, equivalence_margin: float = EQUIVALENCE_MARGIN) -> bool:
    """Whether an interval on the log scale is a reason to stop."""
    if precision is None:
        return interval_outcome(low, high, equivalence_margin) != "inconclusive"
    return (high - low) / 2 <= math.log1p(precision)


def _may_stop(interim: InterimAnalysis, precision: float | None, equivalence_margin: float) -> bool:
    interval = interim.interval
    return interval is not None and may_stop(interval[1], interval[2], precision, equivalence_margin)


def _decision(
    logs: Sequence[float | None],
    interim: InterimAnalysis,
    max_blocks: int,
    precision: float | None,
    equivalence_margin: float,
    alpha: float,
) -> Decision:
    interval, n = interim.interval, len(interim.logs)
    note = joined(no_spread_note(interim.logs), missing_note(interim.blocks - n, interim.blocks))
    method = "Hodges-Lehmann on the blocks' log ratios"
    if interval is None or interim.bound is None:
        so_far = statistics.median(walsh(interim.logs or [log for log in logs if log is not None]))
        return _too_few(interim, max_blocks, alpha, ratio_estimate(so_far, None, None, None, n, method, note))
    centre, low, high = interval
    method += (
        f", repeated confidence interval by Wilcoxon's signed rank test (look {interim.number}, {1 - interim.bound.level:.2%} by itself)"
    )
    estimate = ratio_estimate(centre, low, high, 1 - alpha, n, method, note)
    outcome, margin = interval_outcome(low, high, equivalence_margin), f"±{equivalence_margin * 100:.3g} %"
    phrase = f"the {100 * (1 - alpha):.4g} % interval {_percent(low, high)}"
    blocks_needed = None
    if outcome == "inconclusive":
        blocks_needed = blocks_to_conclude(interim, equivalence_margin)
        outlook = (
            f"about {blocks_needed} more blocks would be conclusive"
            if blocks_needed
            else f"even {MAX_SUGGESTED_BLOCKS} blocks are unlikely to be conclusive"
        )
        reason = f"{phrase} includes both no difference and differences beyond {margin}; {outlook}"
    elif outcome == "equivalent":
        reason = f"{phrase} is within {margin}"
    else:
        reason = f"{phrase} is {'above' if outcome == 'higher' else 'below'} zero"
        if max(-low, high) <= math.log1p(equivalence_margin):
            reason += f", and within {margin}: a difference, but a small one"
    return Decision(outcome, estimate, interim.final or _may_stop(interim, precision, equivalence_margin), blocks_needed, reason)


def _too_few(interim: InterimAnalysis, max_blocks: int, alpha: float, estimate: Estimate) -> Decision:
    """Return the decision without an interval."""
    if not interim.final:
        next_blocks = next(blocks for blocks in analysis_schedule(max_blocks, alpha) if blocks > interim.blocks)
        return Decision(
            "inconclusive",
            estimate,
            False,
            next_blocks - interim.blocks,
            f"{_count_text(interim.blocks)} so far; the next look is at {next_blocks}",
        )
    minimum = min_pairs(1 - alpha)
    blocks_needed = max(1, minimum - len(interim.logs))
    verb = "is" if len(interim.logs) == 1 else "are"
    reason = f"{_count_text(len(interim.logs))} {verb} not enough at {100 * (1 - alpha):.4g} %: at least {minimum} are needed"
    return Decision("inconclusive", estimate, True, blocks_needed, reason)


def blocks_to_conclude(interim: InterimAnalysis, equivalence_margin: float = EQUIVALENCE_MARGIN) -> int | None:
    """Return about how many further blocks would give a conclusion that this look does not. None if too many.

    It is the smallest number with a chance of 80 % that the interval is then beyond zero or within the margin, given the data.
    If the scatter of blocks does not change, the estimate x of n pairs becomes, with N pairs, normally distributed around x
    with variance σ²(1/n − 1/N) (predictive power; Spiegelhalter, Freedman and Blackburn, Controlled Clinical Trials 7, 1986).
    """
    interval = interim.interval
    if interval is None or interim.bound is None:
        return None
    centre, low, high = interval
    n, margin, normal = len(interim.logs), math.log1p(equivalence_margin), statistics.NormalDist()
    scatter = (high - low) / 2 * math.sqrt(n) / interim.bound.z
    per_pair = interim.blocks / n
    pairs = n + 1
    while pairs * per_pair <= MAX_SUGGESTED_BLOCKS:
        half = FINAL_Z * scatter / math.sqrt(pairs)
        future = normal if scatter == 0 else statistics.NormalDist(centre, scatter * math.sqrt(1 / n - 1 / pairs))
        chance = 1 - future.cdf(half) + future.cdf(-half) + max(0.0, future.cdf(margin - half) - future.cdf(half - margin))
        if chance >= CONCLUSION_CHANCE:
            return math.ceil(pairs * per_pair) - interim.blocks
        pairs += max(1, pairs // 20)
    return None


def _percent(low: float, high: float) -> str:
    """Format an interval of log ratios as differences in percent."""
    ends = [math.expm1(end) * 100 for end in (low, high)]
    digits = 1 if ends[1] - ends[0] >= 1 else 2
    return f"{ends[0]:+.{digits}f} … {ends[1]:+.{digits}f} %"


def _count_text(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"


def simultaneous(
    pairs: Mapping[str, tuple[Values, Values]],
    primary: str,
    *,
    max_blocks: int,
    precision: float | None = None,
    equivalence_margin: float = EQUIVALENCE_MARGIN,
    alpha: float = ALPHA,
    last: bool = False,
) -> dict[str, Estimate]:
    """Estimate the ratio of each metric but the primary, with intervals that hold jointly with probability 1 − alpha.

    A metric without a ratio (`block_ratios.no_ratio_reason`) is skipped and takes no part of the error rate. If there are too few blocks
    for a rank interval at a metric's part, the interval is Student's t on log ratios, which assumes normality. The note reports
    it.

    Args:
        pairs: by metric, values and baseline of the same blocks, as for `decide`.
        primary: name of the primary metric.
        max_blocks: as for `decide`, as are the remaining parameters.

    Raises:
        KeyError: the primary metric is not among the pairs.
        ValueError: the primary metric has no ratio.
    """
    schedule = analysis_schedule(max_blocks, alpha)
    primary_interim = deciding_analysis(log_ratios(*pairs[primary]), max_blocks, precision, equivalence_margin, alpha, last)
    others = [name for name, pair in pairs.items() if name != primary and no_ratio_reason(*pair) is None]
    estimates = {}
    for name in others:
        logs = log_ratios(*pairs[name])
        final = last and primary_interim.final and primary_interim.blocks < max_blocks
        interim = analysis_at(logs, max_blocks, alpha / len(others), last=final, schedule=schedule, exact=False)
        estimates[name] = _estimate(logs, interim, len(others), alpha)
    return estimates


def _estimate(logs: list[float | None], interim: InterimAnalysis, family: int, alpha: float) -> Estimate:
    """Return the estimate of one of ``family`` metrics at a look."""
    complete, n, correction = (
        list(interim.logs),
        len(interim.logs),
        f"one of {family} simultaneous intervals (Bonferroni)" if family > 1 else "",
    )
    note = joined(no_spread_note(complete), missing_note(interim.blocks - n, interim.blocks))
    base_method = "Hodges-Lehmann on the blocks' log ratios"
    if interim.bound is None or n < LEAST:
        centre = statistics.median(walsh(complete or [log for log in logs if log is not None]))
        return ratio_estimate(centre, None, None, None, n, base_method, joined(f"no interval yet: {n} blocks", note))
    level = f"{1 - interim.bound.level:.2%} by itself"
    interval = interim.interval
    if interval is not None:
        method = joined(f"{base_method}, repeated confidence interval by Wilcoxon's signed rank test ({level})", correction)
        return ratio_estimate(*interval, 1 - alpha, n, method, note)
    mean = mean_interval(complete, 1 - interim.bound.level, signed=True)
    assumption = f"t interval: rank statistics of {n} blocks do not reach {1 - interim.bound.level:.2%}, so log ratios are assumed normal"
    method = joined(f"geometric mean of the blocks' ratios, repeated t interval on logarithms ({level})", correction)
    ratio = ratio_estimate(mean.value, mean.low, mean.high, 1 - alpha, n, method)
    return replace(ratio, note=joined(assumption, note))
