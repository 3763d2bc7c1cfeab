"""Looking at many metrics of one comparison: intervals that hold jointly, at whatever look the study stopped.

One metric, the primary, decides and stops the study. The others were not asked the question, but whoever reads twenty
intervals at 95 % finds one that excludes "no difference" by chance alone. So they share one error rate: each gets an
equal part (Bonferroni; Holm's procedure rejects more, but intervals of its own it has none). And since they correlate
with the primary metric, which chose the moment, they are repeated confidence intervals over the same looks.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from pgherd.analysis.intervals import LEAST, Estimate, mean_interval
from pgherd.analysis.paired import Values, joined, log_ratios, missing_note, no_spread_note, ratio_estimate, walsh, why_no_ratio
from pgherd.analysis.sequential import ALPHA, EQUIVALENCE, Look, deciding_look, look_at, looks


def simultaneous(
    pairs: Mapping[str, tuple[Values, Values]],
    primary: str,
    *,
    most: int,
    precision: float | None = None,
    equivalence: float = EQUIVALENCE,
    alpha: float = ALPHA,
    last: bool = False,
) -> dict[str, Estimate]:
    """The ratio of each metric but the primary, with intervals that hold jointly with probability 1 − alpha.

    ``pairs``: by metric, the values and the baseline of the same blocks, as `sequential.decide` takes them; the other
    parameters as given to it. A metric that has no ratio (`paired.why_no_ratio`) is left out, and takes no part of the error
    rate. Where the blocks are too few for a rank interval at a metric's part, the interval is Student's t on log ratios,
    which takes them to be normal; the note says so.

    Raises:
        KeyError: the primary metric is not among the pairs.
        ValueError: the primary metric has no ratio.
    """
    schedule = looks(most, alpha)
    leading = deciding_look(log_ratios(*pairs[primary]), most, precision, equivalence, alpha, last)
    others = [name for name, pair in pairs.items() if name != primary and why_no_ratio(*pair) is None]
    found = {}
    for name in others:
        logs = log_ratios(*pairs[name])
        final = last and leading.final and leading.blocks < most
        look = look_at(logs, most, alpha / len(others), last=final, schedule=schedule, exact=False)
        found[name] = _estimate(logs, look, len(others), alpha)
    return found


def _estimate(logs: list[float | None], look: Look, family: int, alpha: float) -> Estimate:
    """The estimate of one of ``family`` metrics at a look."""
    whole, n, part = list(look.logs), len(look.logs), f"one of {family} simultaneous intervals (Bonferroni)" if family > 1 else ""
    note = joined(no_spread_note(whole), missing_note(look.blocks - n, look.blocks))
    hl = "Hodges-Lehmann on the blocks' log ratios"
    if look.bound is None or n < LEAST:
        middle = statistics.median(walsh(whole or [log for log in logs if log is not None]))
        return ratio_estimate(middle, None, None, None, n, hl, joined(f"no interval yet: {n} blocks", note))
    level = f"{1 - look.bound.level:.2%} by itself"
    ranked = look.interval
    if ranked is not None:
        method = joined(f"{hl}, repeated confidence interval by Wilcoxon's signed rank test ({level})", part)
        return ratio_estimate(*ranked, 1 - alpha, n, method, note)
    mean = mean_interval(whole, 1 - look.bound.level)
    assumed = f"t interval: rank statistics of {n} blocks do not reach {1 - look.bound.level:.2%}, so log ratios are taken to be normal"
    method = joined(f"geometric mean of the blocks' ratios, repeated t interval on logarithms ({level})", part)
    made = ratio_estimate(mean.value, mean.low, mean.high, 1 - alpha, n, method)
    return replace(made, note=joined(assumed, note))
