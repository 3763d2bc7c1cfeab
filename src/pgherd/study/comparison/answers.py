"""A comparison in words: what a ratio is called, and the sentence that answers. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.paired import Values, why_no_ratio
from pgherd.analysis.sequential import Decision, Verdict, verdict_of
from pgherd.study.comparison.metrics import ComparedMetric
from pgherd.study.comparison.options import CompareOptions

INCONCLUSIVE = "cannot tell"
_AMOUNTS = ("more ", "less ", "fewer ")
"""How the words of a metric begin that say how much a variant has of something, not what it is like."""


def outcome_of(estimate: Estimate, equivalence: float) -> Verdict:
    """What an interval says of a ratio; without an interval nothing can be told."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return "cannot tell"
    return verdict_of(math.log(estimate.low), math.log(estimate.high), equivalence)


def conclusion(metric: ComparedMetric, decided: Verdict, equivalence: float) -> str:
    """What a variant is called by a metric: faster, dearer, …"""
    match decided:
        case "higher":
            return metric.words[0]
        case "lower":
            return metric.words[1]
        case "equivalent":
            return f"no difference beyond {100 * equivalence:.3g} %"
    return INCONCLUSIVE


UNBOUNDED = 100.0
"""A ratio beyond which an interval's end is not shown, to no difference or (of a certain change) to the change itself: few blocks or
repeats that scatter much give such ends, which say nothing."""

MIN_RATIO = 1e-6
"""A ratio below which it is written as nothing: ends of intervals that say nothing again."""


def percent_change(ratio: float, spread: float | None = None) -> str:
    """``+4.8 %``: a ratio as a change, with as many decimals as ``spread`` (half its interval, a ratio too) deserves; where little is
    left, enough to tell it from nothing, ``−99.97 %``."""
    off = (ratio - 1) * 100
    width = abs(off) if spread is None else spread * 100
    decimals = 2 if width < 0.5 else 1 if width < 20 else 0
    if MIN_RATIO <= ratio < 0.01:
        decimals = max(decimals, -math.floor(math.log10(100 * ratio)))
    return f"{round(off, decimals) + 0.0:+.{decimals}f} %".replace("-", "−")


def as_change(value: float, low: float | None, high: float | None) -> str:
    """``+4.8 % (+3.1 … +6.4 %)``: a ratio and its interval as a change. Without an interval, or with one of no width, only the change;
    an end far beyond it (of one that is not certain: beyond no change) is left out, ``+200 % (+50 % … unbounded)``."""
    if low is None or high is None or low == high:
        return percent_change(value)
    certain = low > 1 or high < 1
    if not certain and high > UNBOUNDED:
        return f"{percent_change(value)} (unbounded)"
    if high > UNBOUNDED * max(value, 1):
        return f"{percent_change(value)} ({percent_change(low)} … unbounded)"
    spread = (high - low) / 2
    return f"{percent_change(value, spread)} ({percent_change(low, spread).removesuffix(' %')} … {percent_change(high, spread)})"


def reason_without_ratio(pair: tuple[Values, Values]) -> str:
    """Why there is no ratio."""
    return why_no_ratio(*pair) or "no ratio"


def answer(
    options: CompareOptions, metric: ComparedMetric, decided: Mapping[str, Decision | None], floor: Estimate | None, blocks: int
) -> str:
    """The sentence: what each variant is, by how much, and what the A/A pair differs by."""
    known = {side: decision for side, decision in decided.items() if decision is not None}
    parts = [_of_variant(options, metric, side, decision, blocks) for side, decision in known.items()]
    # Too few blocks are too few for all variants: that is said once.
    parts += dict.fromkeys(decision.why for decision in known.values() if decision.estimate.low is None)
    if floor is not None:
        parts.append(f"{options.baseline} against itself (A/A): {as_change(floor.value, floor.low, floor.high)}")
    text = "; ".join(parts) + "."
    return "N" + text[1:] if text.startswith("nobody") else text  # a variant's name is written as it is


def _of_variant(options: CompareOptions, metric: ComparedMetric, side: str, decision: Decision, blocks: int) -> str:
    base, estimate = options.baseline, decision.estimate
    margin = f"{100 * options.equivalence:.3g} %"
    if decision.verdict == "equivalent":
        said = f"{side} and {base} do not differ by more than {margin}"
    elif decision.verdict == INCONCLUSIVE:
        said = f"nobody can tell yet whether {side} and {base} differ"
    elif metric.better:
        word = conclusion(metric, decision.verdict, options.equivalence)  # faster, or more WAL
        said = f"{side} {'has' if word.startswith(_AMOUNTS) else 'is'} {word} than {base}"
    else:
        said = f"{side} has a {conclusion(metric, decision.verdict, options.equivalence)} {metric.label} than {base}"
    numbers = _numbers(estimate, blocks)
    said += f": {metric.label} {numbers}"
    if decision.verdict in ("higher", "lower") and _within(estimate, options.equivalence):
        said += f", which is certain but less than {margin}"
    if decision.verdict == INCONCLUSIVE and estimate.low is not None:
        said += f"; about {decision.more} more blocks would settle it" if decision.more else "; no number of blocks is likely to settle it"
    return said


def _numbers(estimate: Estimate, blocks: int) -> str:
    text = as_change(estimate.value, estimate.low, estimate.high)
    many = f"{blocks} block{'' if blocks == 1 else 's'}"
    if estimate.low is None:
        return f"{text} ({many}, too few for an interval)"
    value, opened, interval = text.partition(" (")
    level = f"{100 * (estimate.confidence or 0.95):.4g} %"
    return f"{value} ({level} interval {interval.removesuffix(')') if opened else 'of no width'}, {many})"


def _within(estimate: Estimate, equivalence: float) -> bool:
    if estimate.low is None or estimate.high is None:
        return False
    return estimate.low >= 1 / (1 + equivalence) and estimate.high <= 1 + equivalence


def max_deviation(floor: Estimate) -> float | None:
    """How far from 1 a ratio's interval reaches; None without an interval."""
    return None if floor.low is None or floor.high is None else max(abs(floor.low - 1), abs(floor.high - 1))
