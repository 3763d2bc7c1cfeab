"""Text of a comparison: ratios as changes, the conclusion for each variant, and the answer. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from pgherd.analysis.block_ratios import Values, no_ratio_reason
from pgherd.analysis.group_sequential import Decision, Outcome, interval_outcome
from pgherd.analysis.intervals import Estimate
from pgherd.study.comparison.metrics import ComparedMetric
from pgherd.study.comparison.options import CompareOptions

INCONCLUSIVE: Final = "inconclusive"
_AMOUNTS = ("more ", "less ", "fewer ", "higher ", "lower ")
"""Prefixes of a metric's words for an amount that a variant has. Other words describe what the variant is."""


def outcome_of(estimate: Estimate, equivalence: float) -> Outcome:
    """Return the outcome of a ratio from its interval. Inconclusive without an interval."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return "inconclusive"
    return interval_outcome(math.log(estimate.low), math.log(estimate.high), equivalence)


def conclusion(metric: ComparedMetric, outcome: Outcome, equivalence: float) -> str:
    """Return the outcome in the metric's words: faster, higher cost, …"""
    match outcome:
        case "higher":
            return metric.words[0]
        case "lower":
            return metric.words[1]
        case "equivalent":
            return f"equivalent (±{100 * equivalence:.3g} %)"
    return INCONCLUSIVE


UNBOUNDED = 100.0
"""Factor beyond which the upper end of an interval is shown as unbounded: relative to a significant change, and to 1 otherwise.

Few blocks or noisy repeats give such ends, which carry no information.
"""

MIN_RATIO = 1e-6
"""Ratio below which a change is shown as −100 %."""


def percent_change(ratio: float, spread: float | None = None) -> str:
    """Return a ratio as a change, such as ``+4.8 %``.

    The number of decimals follows ``spread`` (half the interval, also a ratio). Ratios near 0 get more of them, such as ``−99.97 %``.
    """
    change = (ratio - 1) * 100
    width = abs(change) if spread is None else spread * 100
    decimals = 2 if width < 0.5 else 1 if width < 20 else 0
    if MIN_RATIO <= ratio < 0.01:
        decimals = max(decimals, -math.floor(math.log10(100 * ratio)))
    return f"{round(change, decimals) + 0.0:+.{decimals}f} %".replace("-", "−")


def as_change(value: float, low: float | None, high: float | None) -> str:
    """Return a ratio and its interval as a change, such as ``+4.8 % (+3.1 … +6.4 %)``.

    Without an interval, or with one of zero width, only the change. Large upper ends are omitted, as in ``+200 % (+50 % … unbounded)``.
    """
    if low is None or high is None or low == high:
        return percent_change(value)
    significant = low > 1 or high < 1
    if not significant and high > UNBOUNDED:
        return f"{percent_change(value)} (unbounded)"
    if high > UNBOUNDED * max(value, 1):
        return f"{percent_change(value)} ({percent_change(low)} … unbounded)"
    spread = (high - low) / 2
    return f"{percent_change(value, spread)} ({percent_change(low, spread).removesuffix(' %')} … {percent_change(high, spread)})"


def reason_without_ratio(pair: tuple[Values, Values]) -> str:
    """Return the reason why a pair has no ratio."""
    return no_ratio_reason(*pair) or "no ratio"


def answer(
    options: CompareOptions, metric: ComparedMetric, decided: Mapping[str, Decision | None], aa_ratio: Estimate | None, blocks: int
) -> str:
    """Return the answer: the difference of each variant and of the A/A pair."""
    decisions = {variant: decision for variant, decision in decided.items() if decision is not None}
    parts = [_variant_text(options, metric, variant, decision, blocks) for variant, decision in decisions.items()]
    parts += [f"{variant} was not compared, because it has no {metric.label}" for variant in decided if variant not in decisions]
    # Too few blocks affect all variants, so the reason is given once.
    parts += dict.fromkeys(decision.reason for decision in decisions.values() if decision.estimate.low is None)
    if aa_ratio is not None:
        parts.append(f"{options.baseline} against itself (A/A): {as_change(aa_ratio.value, aa_ratio.low, aa_ratio.high)}")
    text = "; ".join(parts) + "."
    return "N" + text[1:] if text.startswith("no difference between") else text  # never capitalise a variant's name


def _variant_text(options: CompareOptions, metric: ComparedMetric, variant: str, decision: Decision, blocks: int) -> str:
    base, estimate = options.baseline, decision.estimate
    margin = f"{100 * options.equivalence_margin:.3g} %"
    if decision.outcome == "equivalent":
        text = f"{variant} and {base} do not differ by more than {margin}"
    elif decision.outcome == INCONCLUSIVE:
        text = f"no difference between {variant} and {base} established yet (inconclusive)"
    elif metric.better_direction:
        word = conclusion(metric, decision.outcome, options.equivalence_margin)  # faster, or more WAL
        text = f"{variant} {'has' if word.startswith(_AMOUNTS) else 'is'} {word} than {base}"
    else:
        text = f"{variant} has a {conclusion(metric, decision.outcome, options.equivalence_margin)} {metric.label} than {base}"
    numbers = _numbers(estimate, blocks)
    text += f": {metric.label} {numbers}"
    if decision.outcome in ("higher", "lower") and _is_within_margin(estimate, options.equivalence_margin):
        text += f", which is significant but less than {margin}"
    if decision.outcome == INCONCLUSIVE and estimate.low is not None:
        text += (
            f"; about {decision.blocks_needed} more blocks would decide it"
            if decision.blocks_needed
            else "; more blocks are unlikely to decide it"
        )
    return text


def _numbers(estimate: Estimate, blocks: int) -> str:
    text = as_change(estimate.value, estimate.low, estimate.high)
    count = f"{blocks} block{'' if blocks == 1 else 's'}"
    if estimate.low is None:
        return f"{text} ({count}, too few for an interval)"
    value, separator, interval = text.partition(" (")
    level = f"{100 * (estimate.confidence or 0.95):.4g} %"
    return f"{value} ({level} interval {interval.removesuffix(')') if separator else 'of zero width'}, {count})"


def _is_within_margin(estimate: Estimate, equivalence: float) -> bool:
    if estimate.low is None or estimate.high is None:
        return False
    return estimate.low >= 1 / (1 + equivalence) and estimate.high <= 1 + equivalence


def max_deviation(aa_ratio: Estimate) -> float | None:
    """Return the maximum distance of a ratio's interval from 1. None without an interval."""
    return None if aa_ratio.low is None or aa_ratio.high is None else max(abs(aa_ratio.low - 1), abs(aa_ratio.high - 1))
