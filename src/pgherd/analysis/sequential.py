"""Looking at the data several times at an error rate stated once: critical values of a group-sequential signed rank test.

The error rate α is spent in portions: by the time a share t of the planned blocks is in, α·tʳ of it may be gone (Lan and
DeMets, Biometrika 70, 1983; the power family of Kim and DeMets, Biometrika 74, 1987). How much each critical value spends
follows from the joint distribution of the statistic over the looks: each look's own is exact, how they hang together is taken
from a normal process with independent increments (Armitage, McPherson and Rowe, J. Royal Stat. Soc. A 132, 1969).

How closely two looks hang together depends on which blocks scatter most. With ranks R (of the n blocks at the earlier look) and R′
(at the later) the correlation is ΣRR′ / √(ΣR² ΣR′²). It is least, √(ΣR² / ΣR′²), where every later block scatters more than all
before it; and the less the looks hang together, the more often one of them is wrong. The critical values are those of this least
favourable case, so that the error rate holds whatever the noise does in the course of a study.

Pure, and without a scientific library: it runs between the trials of a study.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.analysis.intervals import LEAST, Estimate, mean_interval
from pgherd.analysis.paired import (
    Values,
    joined,
    least_pairs,
    log_ratios,
    missing_note,
    no_spread_note,
    ratio_estimate,
    signed_rank_tail,
    walsh,
    walsh_rank,
    why_no_ratio,
)

POWER = 2.0
"""The exponent r of the spending function α·tʳ; chosen by simulation, see docs/statistics.md."""
_POINTS = 121
"""Points of Simpson's rule over the statistic's range; the boundaries' error is then below 0.0005."""
_FAR = 9.0
"""A standardised statistic beyond which nothing is to be expected."""


@dataclass(frozen=True)
class Bound:
    """The critical value at one look. ``pairs``: how many there were. ``z``: standardised; ``level``: its two-sided nominal
    significance level, at which the look alone is made. ``rank``: which smallest Walsh average bounds the interval of the
    exact signed rank test at that level; 0: so few pairs cannot reach it."""

    pairs: int
    z: float
    level: float
    rank: int


@functools.lru_cache(maxsize=1024)
def bounds(pairs: tuple[int, ...], spent: tuple[float, ...], exact: bool = True) -> tuple[Bound, ...]:
    """Critical values of looks at ``pairs`` pairs (ascending), by which ``spent`` of the two-sided error rate may be used up in all.

    ``exact`` rounds each to what the signed rank statistic of so many pairs can attain, and hands the remainder on to later
    looks; a look that can attain nothing costs nothing. Without, the critical values are those of the normal distribution.

    Raises:
        ValueError: not as many portions as looks, or one of the two does not ascend.
    """
    if len(pairs) != len(spent) or any(b <= a for a, b in zip((0, *pairs), pairs, strict=False)):
        raise ValueError(f"looks need ascending numbers of pairs and a portion each, not {pairs} and {spent}")
    if any(b < a for a, b in zip((0.0, *spent), spent, strict=False)):
        raise ValueError(f"portions of the error rate must ascend, not {spent}")
    found: list[Bound] = []
    walk = _BoundedProcess()
    for count, allowed in zip(pairs, spent, strict=True):
        variance = count * (count + 1) * (2 * count + 1) / 6  # ΣR²
        z = walk.boundary(variance, allowed)
        rank = walsh_rank(upper_tail(z), count)
        found.append(Bound(count, z, 2 * upper_tail(z), rank))
        if not exact:
            walk.pass_by(variance, z)
        elif rank > 0:
            walk.pass_by(variance, _quantile(signed_rank_tail(rank - 1, count)))
    return tuple(found)


def upper_tail(z: float) -> float:
    """P(Z > z) of the standard normal distribution."""
    return math.erfc(z / math.sqrt(2)) / 2


class _BoundedProcess:
    """A normal process with independent increments that has been within the bounds of all looks so far: its density on a grid."""

    def __init__(self) -> None:
        self.now = 0.0
        self.mass: list[tuple[float, float]] = [(0.0, 1.0)]
        self.spent = 0.0

    def beyond(self, variance: float, z: float) -> float:
        """The probability to be within all bounds so far and beyond ±z at ``variance``."""
        edge, step = z * math.sqrt(variance), math.sqrt(2 * (variance - self.now))
        return math.fsum(m * (math.erfc((edge - s) / step) + math.erfc((edge + s) / step)) / 2 for s, m in self.mass)

    def boundary(self, variance: float, allowed: float) -> float:
        """The z whose crossing uses up what is left of ``allowed``."""
        low, high, left = 0.0, _FAR, allowed - self.spent
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.beyond(variance, middle) > left else (low, middle)
        return high

    def pass_by(self, variance: float, z: float) -> None:
        """Look at ``variance`` with bounds ±z: what is beyond is spent, what is within goes on."""
        self.spent += self.beyond(variance, z)
        edge, spread = z * math.sqrt(variance), math.sqrt(variance - self.now)
        width = 2 * edge / (_POINTS - 1)
        norm = 1 / (spread * math.sqrt(2 * math.pi))
        mass = []
        for i in range(_POINTS):
            s = -edge + i * width
            density = norm * math.fsum(m * math.exp(-(((s - t) / spread) ** 2) / 2) for t, m in self.mass)
            simpson = width / 3 * (1 if i in (0, _POINTS - 1) else 4 if i % 2 else 2)
            mass.append((s, density * simpson))
        self.mass, self.now = mass, variance


def _quantile(tail: float) -> float:
    """The z with P(Z > z) = tail."""
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle) > tail else (low, middle)
    return high


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
