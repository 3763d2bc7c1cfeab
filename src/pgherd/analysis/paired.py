"""Two ways of doing one thing, measured side by side in blocks: their ratio by block, and an interval on it.

A block holds both sides in a random order. Under no difference it was chance alone which of a block's two values is
called which, so the sign of the block's log ratio is a fair coin whatever the noise was: drifting, autocorrelated, in
bursts, of a different size in every block. Wilcoxon's signed rank statistic is built from these signs, and its distribution is
exact given the sizes of the log ratios. Inverting the test gives the interval. Nothing here takes the noise to be normal,
except where a method says so.

Pure, and without a scientific library: it runs between the trials of a study.
"""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from pgherd.analysis.intervals import Estimate, mean_interval

EXACT = 200
"""Up to so many pairs the signed rank distribution is counted out; beyond, the normal approximation (its error in a tail
of 2.5 % is then below 0.0001)."""

Values = Sequence[float | None]


def log_ratios(values: Values, baseline: Values) -> list[float | None]:
    """The log of value ÷ baseline of each block; None where a side is missing (None, or not finite).

    Raises:
        ValueError: the two differ in length, or a value that is not above zero: such a pair has no ratio.
    """
    if len(values) != len(baseline):
        raise ValueError(f"pairs need as many values as baselines, not {len(values)} and {len(baseline)}")
    found: list[float | None] = []
    for number, (top, bottom) in enumerate(zip(values, baseline, strict=True), 1):
        if top is None or bottom is None or not (math.isfinite(top) and math.isfinite(bottom)):
            found.append(None)
        elif top <= 0 or bottom <= 0:
            raise ValueError(f"no ratio: block {number} has {top:g} against {bottom:g}, and a ratio needs both above zero")
        else:
            found.append(math.log(top) - math.log(bottom))
    return found


def why_no_ratio(values: Values, baseline: Values) -> str | None:
    """Why these pairs have no ratio at all (a value that is not above zero, or no pair that is whole), or None if they have one."""
    try:
        logs = log_ratios(values, baseline)
    except ValueError as error:
        return str(error)
    return None if any(log is not None for log in logs) else "no ratio: no block has a value on both sides"


def paired_ratio(values: Values, baseline: Values, confidence: float = 0.95) -> Estimate:
    """The ratio of values to baseline over blocks, for a number of blocks that was fixed beforehand.

    Hodges and Lehmann's estimate on log ratios with the exact interval of Wilcoxon's signed rank test (Hollander and Wolfe,
    Nonparametric Statistical Methods, 3.2 and 3.3). Where the pairs are too few for a rank interval at this confidence
    (`least_pairs`: six at 95 %) the geometric mean with Student's t interval, which takes log ratios to be normal.
    For data that were looked at while they came in, `sequential.decide` is the right interval.

    Raises:
        ValueError: no ratio can be had (`why_no_ratio`).
    """
    logs = log_ratios(values, baseline)
    whole = [log for log in logs if log is not None]
    if not whole:
        raise ValueError("no ratio: no block has a value on both sides")
    left_out = missing_note(len(logs) - len(whole), len(logs))
    if len(whole) < least_pairs(confidence):
        found = mean_interval(whole, confidence)
        made = ratio_estimate(found.value, found.low, found.high, confidence, len(whole), "")
        method = "geometric mean of the pairs' ratios, t interval on logarithms"
        return replace(made, method=method, note=joined(found.note, left_out), confidence=found.confidence)
    value, low, high = hodges_lehmann(whole, confidence)
    method = "Hodges-Lehmann on the pairs' log ratios, interval by Wilcoxon's signed rank test"
    return ratio_estimate(value, low, high, confidence, len(whole), method, joined(no_spread_note(whole), left_out))


def ratio_estimate(
    value: float, low: float | None, high: float | None, confidence: float | None, n: int, method: str, note: str = ""
) -> Estimate:
    """An estimate on the log scale as a ratio."""
    return Estimate(
        math.exp(value), None if low is None else math.exp(low), None if high is None else math.exp(high), confidence, n, method, note
    )


def hodges_lehmann(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The median of all Walsh averages, and the distribution-free interval for the centre of symmetry.

    It covers at least ``confidence``, also where values are tied.

    Raises:
        ValueError: too few values for any interval at this confidence (`least_pairs`).
    """
    outside = walsh_rank((1 - confidence) / 2, len(values))
    if outside == 0:
        raise ValueError(f"{len(values)} pairs have no rank interval at {confidence:.4g}; at least {least_pairs(confidence)} are needed")
    averages = walsh(values)
    return statistics.median(averages), averages[outside - 1], averages[-outside]


def walsh(values: Sequence[float]) -> list[float]:
    """All Walsh averages (xᵢ + xⱼ) / 2, i ≤ j, ascending. Their median is Hodges and Lehmann's estimate."""
    ordered = sorted(values)
    # (a + b) / 2 written so that huge values do not overflow, and equal ones stay exactly equal.
    return sorted(a if a == b else a / 2 + b / 2 for i, a in enumerate(ordered) for b in ordered[i:])


def walsh_rank(tail: float, n: int) -> int:
    """Which smallest Walsh average of n values bounds the interval that leaves at most ``tail`` on a side; 0: none does.

    The largest k with P(W ≤ k − 1) ≤ tail, where W is the signed rank statistic under the null.
    """
    if n < 1 or tail <= 0:
        return 0
    if n > EXACT:
        middle, spread = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(middle + spread * statistics.NormalDist().inv_cdf(tail) + 0.5))
    return bisect.bisect_right(_signed_rank_counts(n), tail * (1 + 1e-12) * 2.0**n)


def signed_rank_tail(statistic: int, n: int) -> float:
    """P(W ≤ statistic): the lower tail of Wilcoxon's signed rank statistic of n values under the null, exact up to 200."""
    if statistic < 0:
        return 0.0
    total = n * (n + 1) // 2
    if statistic >= total:
        return 1.0
    if n > EXACT:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return statistics.NormalDist().cdf((statistic + 0.5 - total / 2) / spread)
    cumulated = _signed_rank_counts(n)
    if statistic < len(cumulated):
        return cumulated[statistic] / 2.0**n
    return 1 - (cumulated[total - statistic - 1] / 2.0**n)


@functools.lru_cache(maxsize=256)
def _signed_rank_counts(n: int) -> tuple[int, ...]:
    """How many of the 2ⁿ sign patterns have a rank sum ≤ 0, 1, 2 …, up to half of the largest sum."""
    half = n * (n + 1) // 4
    counts = [1] + [0] * half
    for rank in range(1, n + 1):
        for total in range(half, rank - 1, -1):
            counts[total] += counts[total - rank]
    for total in range(1, half + 1):
        counts[total] += counts[total - 1]
    return tuple(counts)


def least_pairs(confidence: float) -> int:
    """The fewest pairs that have a rank interval at this confidence: all signs alike must be rare enough, 2·2⁻ⁿ ≤ 1 − confidence."""
    return max(1, math.ceil(1 - math.log2(1 - confidence) - 1e-9))


def no_spread_note(logs: Sequence[float]) -> str:
    """What to say of blocks that all have the same ratio; empty where they differ."""
    return "the blocks do not differ at all" if len(logs) > 1 and min(logs) == max(logs) else ""


def missing_note(missing: int, blocks: int) -> str:
    """What to say of blocks without a pair; empty where there is none."""
    return f"{missing} of {blocks} blocks have no pair" if missing else ""


def joined(*notes: str) -> str:
    """The notes that say something, in one line."""
    return "; ".join(note for note in notes if note)
