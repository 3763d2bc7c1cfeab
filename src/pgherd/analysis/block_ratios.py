"""Ratio of two variants that are measured in blocks, with a distribution-free interval.

A block holds both variants in random order. Without a difference, chance alone determines which value belongs to which variant.
The sign of the block's log ratio is then a fair coin for any noise: drifting, autocorrelated, in bursts, of different size in
each block. Wilcoxon's signed rank statistic uses these signs, and its distribution is exact given the sizes of the log ratios.
Inverting the test gives the interval. No method assumes normal noise unless its name includes it.

Without scientific libraries except for the t interval, because it runs between the trials of a study.
"""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from pgherd.analysis.intervals import Estimate, mean_interval

MAX_EXACT_PAIRS = 200
"""Maximum number of pairs for the exact signed rank distribution. Above it the normal approximation is used, with an error below
0.0001 in a tail of 2.5 %."""

Values = Sequence[float | None]


def log_ratios(values: Values, baseline: Values) -> list[float | None]:
    """Return the log of value ÷ baseline of each block. None if either is missing (None, or not finite).

    Raises:
        ValueError: the lengths differ, or a value is not above zero.
    """
    if len(values) != len(baseline):
        raise ValueError(f"pairs need as many values as baselines, not {len(values)} and {len(baseline)}")
    logs: list[float | None] = []
    for number, (value, base) in enumerate(zip(values, baseline, strict=True), 1):
        if value is None or base is None or not (math.isfinite(value) and math.isfinite(base)):
            logs.append(None)
        elif value <= 0 or base <= 0:
            raise ValueError(f"no ratio: block {number} has {value:g} against {base:g}; both must be above zero")
        else:
            logs.append(math.log(value) - math.log(base))
    return logs


def no_ratio_reason(values: Values, baseline: Values) -> str | None:
    """Return the reason why no ratio exists (a value not above zero, or no complete pair), or None."""
    try:
        logs = log_ratios(values, baseline)
    except ValueError as error:
        return str(error)
    return None if any(log is not None for log in logs) else "no ratio: no block has a complete pair"


def paired_ratio(values: Values, baseline: Values, confidence: float = 0.95) -> Estimate:
    """Estimate the ratio of values to baseline over blocks, for a number of blocks that was fixed in advance.

    The estimate is Hodges and Lehmann's on log ratios, with the exact interval of Wilcoxon's signed rank test (Hollander and
    Wolfe, Nonparametric Statistical Methods, 3.2 and 3.3). With too few pairs for a rank interval (`min_pairs`: six at 95 %)
    it is the geometric mean with Student's t interval, which assumes normal log ratios. For data that are analysed as they
    arrive, use `group_sequential.decide`.

    Raises:
        ValueError: no ratio exists (`no_ratio_reason`).
    """
    logs = log_ratios(values, baseline)
    complete = [log for log in logs if log is not None]
    if not complete:
        raise ValueError("no ratio: no block has a complete pair")
    missing = missing_note(len(logs) - len(complete), len(logs))
    if len(complete) < min_pairs(confidence):
        mean = mean_interval(complete, confidence, signed=True)
        ratio = ratio_estimate(mean.value, mean.low, mean.high, confidence, len(complete), "")
        method = "geometric mean of the pairs' ratios, t interval on logarithms"
        return replace(ratio, method=method, note=joined(mean.note, missing), confidence=mean.confidence)
    value, low, high = hodges_lehmann(complete, confidence)
    method = "Hodges-Lehmann on the pairs' log ratios, interval by Wilcoxon's signed rank test"
    return ratio_estimate(value, low, high, confidence, len(complete), method, joined(no_spread_note(complete), missing))


def ratio_estimate(
    value: float, low: float | None, high: float | None, confidence: float | None, n: int, method: str, note: str = ""
) -> Estimate:
    """Convert an estimate on the log scale to a ratio."""
    return Estimate(
        math.exp(value), None if low is None else math.exp(low), None if high is None else math.exp(high), confidence, n, method, note
    )


def hodges_lehmann(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the median of all Walsh averages, and the distribution-free interval for the centre of symmetry.

    Its coverage is at least ``confidence``, even with ties.

    Raises:
        ValueError: too few values for an interval at this confidence (`min_pairs`).
    """
    outside = walsh_rank((1 - confidence) / 2, len(values))
    if outside == 0:
        raise ValueError(f"{len(values)} pairs have no rank interval at {confidence:.4g}; at least {min_pairs(confidence)} are needed")
    averages = walsh(values)
    return statistics.median(averages), averages[outside - 1], averages[-outside]


def walsh(values: Sequence[float]) -> list[float]:
    """Return all Walsh averages (xᵢ + xⱼ) / 2, i ≤ j, ascending. Their median is the Hodges-Lehmann estimate."""
    ordered = sorted(values)
    # (a + b) / 2 without overflow for huge values, and exact for equal ones.
    return sorted(a if a == b else a / 2 + b / 2 for i, a in enumerate(ordered) for b in ordered[i:])


def walsh_rank(tail: float, n: int) -> int:
    """Return the rank of the Walsh average that bounds an interval with at most ``tail`` outside on each side. 0: none.

    It is the largest k with P(W ≤ k − 1) ≤ tail, where W is the signed rank statistic under the null hypothesis.
    """
    if n < 1 or tail <= 0:
        return 0
    if n > MAX_EXACT_PAIRS:
        mean, spread = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(mean + spread * statistics.NormalDist().inv_cdf(tail) + 0.5))
    return bisect.bisect_right(_signed_rank_counts(n), tail * (1 + 1e-12) * 2.0**n)


def signed_rank_tail(statistic: int, n: int) -> float:
    """Return P(W ≤ statistic), the lower tail of Wilcoxon's signed rank statistic of n values under the null hypothesis.

    It is exact up to 200 values.
    """
    if statistic < 0:
        return 0.0
    total = n * (n + 1) // 2
    if statistic >= total:
        return 1.0
    if n > MAX_EXACT_PAIRS:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return statistics.NormalDist().cdf((statistic + 0.5 - total / 2) / spread)
    cumulated = _signed_rank_counts(n)
    if statistic < len(cumulated):
        return cumulated[statistic] / 2.0**n
    return 1 - (cumulated[total - statistic - 1] / 2.0**n)


@functools.lru_cache(maxsize=256)
def _signed_rank_counts(n: int) -> tuple[int, ...]:
    """Return the number of the 2ⁿ sign patterns with a rank sum ≤ 0, 1, 2 …, up to half of the largest sum."""
    half = n * (n + 1) // 4
    counts = [1] + [0] * half
    for rank in range(1, n + 1):
        for total in range(half, rank - 1, -1):
            counts[total] += counts[total - rank]
    for total in range(1, half + 1):
        counts[total] += counts[total - 1]
    return tuple(counts)


def min_pairs(confidence: float) -> int:
    """Return the minimum number of pairs for a rank interval at this confidence.

    All signs equal must be rare enough: 2·2⁻ⁿ ≤ 1 − confidence.
    """
    return max(1, math.ceil(1 - math.log2(1 - confidence) - 1e-9))


def no_spread_note(logs: Sequence[float]) -> str:
    """Return a note if all blocks have the same ratio, otherwise an empty string."""
    return "the blocks do not differ at all" if len(logs) > 1 and min(logs) == max(logs) else ""


def missing_note(missing: int, blocks: int) -> str:
    """Return a note on blocks without a pair, or an empty string."""
    return f"{missing} of {blocks} blocks have no pair" if missing else ""


def joined(*notes: str) -> str:
    """Join the non-empty notes in one line."""
    return "; ".join(note for note in notes if note)
