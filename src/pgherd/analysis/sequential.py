"""Looking at a comparison while it runs, and stopping it, without fooling oneself.

The data may be looked at after declared numbers of blocks (`looks`). At each look there is one interval for the ratio, and it
alone decides: beyond 1 is higher or lower, within the margin is equivalent, narrow enough is precise enough. The intervals are
*repeated confidence intervals* (Jennison and Turnbull, J. Royal Stat. Soc. B 51, 1989): with the stated confidence **all** of
a study's intervals hold the true ratio. So no reason to stop at a look, whatever it is, can make the interval there wrong more
often than stated; a rule on the interval's width costs nothing.

Each interval inverts Wilcoxon's signed rank test, exact at its look, at the level that the spending function leaves for that look
(`spending`). docs/explanation/statistics.md has the reasons and the simulation.

Pure, and without a scientific library: it runs between the trials of a study.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.paired import Values, joined, least_pairs, log_ratios, missing_note, no_spread_note, ratio_estimate, walsh, walsh_rank
from pgherd.analysis.spending import POWER, Bound, bounds

ALPHA = 0.05
"""The share of studies of two equal things that may call them different."""
EQUIVALENCE = 0.02
"""The margin: ratios between 1 ÷ 1.02 and 1.02 count as no difference worth having."""
GROWTH = 1.5
"""Each look has this many times the blocks of the one before: more looks cost power and save few blocks."""
CHANCE = 0.8
"""`Decision.more` is the number of blocks with this chance to settle it."""
FINAL_Z = 2.1
"""About the critical value of the last look."""
BEYOND_REASON = 1000
"""Blocks in all beyond which more of them are no answer."""

Verdict = Literal["higher", "lower", "equivalent", "cannot tell"]


@dataclass(frozen=True)
class Decision:
    """What the data say at the last look. ``estimate``: the ratio, its interval valid whatever made the study stop.
    ``stop``: no further block is needed (or planned). ``more``: about how many further blocks would settle a verdict that is
    not settled; None when it is, or when they would be beyond reason. ``why``: a sentence."""

    verdict: Verdict
    estimate: Estimate
    stop: bool
    more: int | None
    why: str


@dataclass(frozen=True)
class Look:
    """The data as one look sees them: the log ratios of the whole pairs among the first ``blocks`` blocks; ``bound``: the look's
    critical value (None: no look is due yet); ``number``: which look it is, from 1; ``final``: none comes after it."""

    logs: tuple[float, ...]
    blocks: int
    bound: Bound | None
    number: int
    final: bool

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Estimate, low and high on the log scale; None where so few pairs have no interval at this look's level."""
        rank = self.bound.rank if self.bound and self.logs else 0
        if rank == 0:
            return None
        averages = walsh(self.logs)
        return statistics.median(averages), averages[rank - 1], averages[-rank]


def looks(most: int, alpha: float = ALPHA) -> tuple[int, ...]:
    """At which numbers of blocks a study of at most ``most`` may be looked at, ascending, ``most`` the last.

    The first is the least that can decide anything; below `least_pairs` blocks nothing can.

    Raises:
        ValueError: ``most`` below 1, or alpha not between 0 and 1.
    """
    if most < 1 or not 0 < alpha < 1:
        raise ValueError(f"looks need at least one block and an error rate between 0 and 1, not {most} and {alpha}")
    first = next((n for n in range(1, most) if walsh_rank(spent(n, most, alpha) / 2, n) > 0), most)
    found = [first]
    while found[-1] * GROWTH < most - 1:
        found.append(math.ceil(found[-1] * GROWTH))
    # A look just before the last would spend much and learn little.
    while found and found[-1] * (1 + GROWTH) / 2 > most:
        found.pop()
    return (*found, most)


def spent(blocks: int, most: int, alpha: float = ALPHA) -> float:
    """How much of the error rate may be used up by so many blocks of ``most``."""
    return alpha * math.pow(min(1.0, blocks / most), POWER)


def decide(
    values: Values,
    baseline: Values,
    *,
    most: int,
    precision: float | None = None,
    equivalence: float = EQUIVALENCE,
    alpha: float = ALPHA,
    last: bool = False,
) -> Decision:
    """What the blocks so far say of values ÷ baseline, and whether the study may stop.

    One value per block on each side, in the order they were run; None where a trial failed: that block has no pair. Between
    looks the answer is that of the last look, so it may be asked at any time. Blocks beyond ``most`` are not counted. Without
    ``precision`` a study stops when there is a verdict; with it, when the interval is at most ± that share; else after ``most``
    blocks. ``last``: there will be no more blocks, for a reason that does not lie in the values (the budget has run out; not:
    the result pleased). What is left of the error rate is then used at this number of blocks.

    Raises:
        ValueError: no ratio can be had (`paired.why_no_ratio`), or a parameter out of range.
    """
    if not (equivalence > 0 and (precision is None or precision > 0)):
        raise ValueError(f"the equivalence margin and the precision must be above zero, not {equivalence} and {precision}")
    logs = log_ratios(values, baseline)
    if all(log is None for log in logs):
        raise ValueError("no ratio: no block has a value on both sides")
    return _decision(logs, deciding_look(logs, most, precision, equivalence, alpha, last), most, precision, equivalence, alpha)


def deciding_look(
    logs: Sequence[float | None], most: int, precision: float | None, equivalence: float, alpha: float = ALPHA, last: bool = False
) -> Look:
    """The look whose interval is the answer: the last one due; at the ``last`` block a final one, unless it was a look at this
    very number of blocks that ended the study, at its own level."""
    look = look_at(logs, most, alpha)
    if last and not (look.blocks == len(logs) and _enough(look, precision, equivalence)):
        return look_at(logs, most, alpha, last=True)
    return look


def look_at(
    logs: Sequence[float | None], most: int, alpha: float = ALPHA, *, last: bool = False, schedule: Sequence[int] = (), exact: bool = True
) -> Look:
    """The data at the last look that is due by now; with ``last``, at a final look now. ``schedule``: the looks of another
    comparison that runs along. ``exact`` as in `spending.bounds`."""
    logs = logs[:most]
    due = [blocks for blocks in schedule or looks(most, alpha) if blocks <= len(logs)]
    if last and len(logs) not in due:
        due.append(len(logs))
    seen = due[-1] if due else len(logs)
    portions: dict[int, float] = {}  # by the number of pairs: a look that has none more than the one before is one with it
    for blocks in due:
        pairs = sum(log is not None for log in logs[:blocks])
        if pairs:
            portions[pairs] = alpha if last and blocks == seen else spent(blocks, most, alpha)
    found = bounds(tuple(portions), tuple(portions.values()), exact)
    whole = tuple(log for log in logs[:seen] if log is not None)
    return Look(whole, seen, found[-1] if found else None, len(due), last or seen >= most)


def verdict_of(low: float, high: float, equivalence: float = EQUIVALENCE) -> Verdict:
    """What an interval on the log scale says. A difference that is certain is said also where it is smaller than the margin."""
    if low > 0:
        return "higher"
    if high < 0:
        return "lower"
    margin = math.log1p(equivalence)
    return "equivalent" if low >= -margin and high <= margin else "cannot tell"


def enough(low: float, high: float, precision: float | None = None, equivalence: float = EQUIVALENCE) -> bool:
    """Whether an interval on the log scale is a reason to stop."""
    if precision is None:
        return verdict_of(low, high, equivalence) != "cannot tell"
    return (high - low) / 2 <= math.log1p(precision)


def _enough(look: Look, precision: float | None, equivalence: float) -> bool:
    found = look.interval
    return found is not None and enough(found[1], found[2], precision, equivalence)


def _decision(logs: Sequence[float | None], look: Look, most: int, precision: float | None, equivalence: float, alpha: float) -> Decision:
    found, n = look.interval, len(look.logs)
    note = joined(no_spread_note(look.logs), missing_note(look.blocks - n, look.blocks))
    method = "Hodges-Lehmann on the blocks' log ratios"
    if found is None or look.bound is None:
        so_far = statistics.median(walsh(look.logs or [log for log in logs if log is not None]))
        return _too_few(look, most, alpha, ratio_estimate(so_far, None, None, None, n, method, note))
    middle, low, high = found
    method += f", repeated confidence interval by Wilcoxon's signed rank test (look {look.number}, {1 - look.bound.level:.2%} by itself)"
    estimate = ratio_estimate(middle, low, high, 1 - alpha, n, method, note)
    verdict, margin = verdict_of(low, high, equivalence), f"±{equivalence * 100:.3g} %"
    said = f"the {100 * (1 - alpha):.4g} % interval {_percent(low, high)}"
    more = None
    if verdict == "cannot tell":
        more = blocks_to_settle(look, equivalence)
        hope = f"about {more} more blocks would settle it" if more else f"not even {BEYOND_REASON} blocks are likely to settle it"
        why = f"{said} holds both no difference and differences beyond {margin}; {hope}"
    elif verdict == "equivalent":
        why = f"{said} lies within {margin}"
    else:
        why = f"{said} lies {'above' if verdict == 'higher' else 'below'} zero"
        if max(-low, high) <= math.log1p(equivalence):
            why += f", and within {margin}: a difference, but a small one"
    return Decision(verdict, estimate, look.final or _enough(look, precision, equivalence), more, why)


def _too_few(look: Look, most: int, alpha: float, estimate: Estimate) -> Decision:
    """The answer where there is no interval yet, or at all."""
    if not look.final:
        coming = next(blocks for blocks in looks(most, alpha) if blocks > look.blocks)
        return Decision(
            "cannot tell", estimate, False, coming - look.blocks, f"{_blocks(look.blocks)} so far; the next look is at {coming}"
        )
    least = least_pairs(1 - alpha)
    more = max(1, least - len(look.logs))
    verb = "decides" if len(look.logs) == 1 else "decide"
    why = f"{_blocks(len(look.logs))} {verb} nothing at {100 * (1 - alpha):.4g} %: at least {least} are needed"
    return Decision("cannot tell", estimate, True, more, why)


def blocks_to_settle(look: Look, equivalence: float = EQUIVALENCE) -> int | None:
    """About how many further blocks would settle what this look does not; None where that is beyond reason.

    The least number with a chance of 80 % that the interval is then beyond zero or within the margin, given what was seen: if the
    blocks scatter as until now, the estimate x of n pairs becomes, with N pairs, one of a normal distribution round x with
    variance σ²(1/n − 1/N) (predictive power; Spiegelhalter, Freedman and Blackburn, Controlled Clinical Trials 7, 1986).
    """
    found = look.interval
    if found is None or look.bound is None:
        return None
    middle, low, high = found
    n, margin, normal = len(look.logs), math.log1p(equivalence), statistics.NormalDist()
    scatter = (high - low) / 2 * math.sqrt(n) / look.bound.z
    per_pair = look.blocks / n
    pairs = n + 1
    while pairs * per_pair <= BEYOND_REASON:
        half = FINAL_Z * scatter / math.sqrt(pairs)
        coming = normal if scatter == 0 else statistics.NormalDist(middle, scatter * math.sqrt(1 / n - 1 / pairs))
        chance = 1 - coming.cdf(half) + coming.cdf(-half) + max(0.0, coming.cdf(margin - half) - coming.cdf(half - margin))
        if chance >= CHANCE:
            return math.ceil(pairs * per_pair) - look.blocks
        pairs += max(1, pairs // 20)
    return None


def _percent(low: float, high: float) -> str:
    """An interval of log ratios as differences in per cent."""
    ends = [math.expm1(end) * 100 for end in (low, high)]
    digits = 1 if ends[1] - ends[0] >= 1 else 2
    return f"{ends[0]:+.{digits}f} … {ends[1]:+.{digits}f} %"


def _blocks(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"
