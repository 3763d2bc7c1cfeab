"""Search for the largest size whose short blocks pass, by bisection, with an interval. Pure.

Each block at a size (databases, or a rate) passes or fails. The share of passing blocks does not grow with the size, and a size passes if
at least half of its blocks do. The search doubles the size until one fails, and halves the gap, with one block per size. Then it measures
the two sizes on both sides of the limit in turn, until each has enough blocks. Every decision uses all blocks so far, so an unlucky block
on the way is corrected later. If the interval is still wide, sizes next to these two are measured.

Imports no scientific library, because it runs between the trials.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ATTEMPTS = 2
"""Trials for each block that is wanted, at most. Those without a usable result are repeated."""
PASSING_SHARE = 0.5
"""Share of the blocks that must pass at a size."""
ALONE, POOLED = 0.0125, 0.00625
"""Chance of error of a test of one size, and of several. Together they are below the 2.5 % of a side of the interval of 95 %."""
GROWTH = 2
"""Factor from a passing size to the next one, while none fails."""
OUTWARD = 3
"""Sizes on each side of the two that decide, of which one may close the interval."""


@dataclass(frozen=True)
class Tally:
    """Blocks of one size. ``attempts`` also counts those without a usable result."""

    passed: int
    blocks: int
    attempts: int = 0


Tallies = Mapping[float, Tally]


@dataclass(frozen=True)
class PassLimit:
    """The largest passing size, with its interval.

    Attributes:
        value: the largest measured size that passes. None: the smallest one fails.
        failing: the smallest measured size above it. None: no larger one was measured.
        low: largest size that passes for certain. None: no size does.
        high: largest size that may pass. None: no measured size fails for certain.
        blocks: number of blocks of all sizes.
        refuted: the smallest measured size that fails for certain.
        unfinished: the smallest size between ``value`` and ``failing`` of which no trial finished, so that the search ends there.
    """

    value: float | None
    failing: float | None
    low: float | None
    high: float | None
    blocks: int
    refuted: float | None = None
    unfinished: float | None = None


def fitted_shares(tallies: Tallies) -> dict[float, float]:
    """Return the closest falling shares of passing blocks by size, weighted by the blocks (pool adjacent violators)."""
    pools: list[tuple[int, int, list[float]]] = []
    for size in sorted(size for size, tally in tallies.items() if tally.blocks):
        passed, blocks, sizes = tallies[size].passed, tallies[size].blocks, [size]
        while pools and pools[-1][0] * blocks <= passed * pools[-1][1]:
            before = pools.pop()
            passed, blocks, sizes = passed + before[0], blocks + before[1], before[2] + sizes
        pools.append((passed, blocks, sizes))
    return {size: passed / blocks for passed, blocks, sizes in pools for size in sizes}


def border(tallies: Tallies) -> tuple[float | None, float | None]:
    """Return the largest passing and the smallest failing measured size."""
    shares = fitted_shares(tallies)
    passing = max((size for size, share in shares.items() if share >= PASSING_SHARE), default=None)
    failing = min((size for size, share in shares.items() if share < PASSING_SHARE), default=None)
    return passing, failing


def next_sizes(candidates: Sequence[float], tallies: Tallies, blocks: int, first: float) -> list[float]:
    """Return the sizes of the next blocks, in order. Empty: the search is over.

    Args:
        candidates: ascending sizes that can be measured.
        tallies: the blocks so far.
        blocks: blocks of each of the two sizes that decide the answer.
        first: the size that is measured after the smallest one.
    """

    def lacking(size: float, wanted: int) -> bool:
        tally = tallies.get(size, Tally(0, 0))
        return tally.blocks < wanted and tally.attempts < ATTEMPTS * wanted

    smallest, largest = candidates[0], candidates[-1]
    if lacking(smallest, 1):
        return [smallest]
    passing, failing = border(tallies)
    if passing is None:
        return [smallest] if lacking(smallest, blocks) else []
    probe = None
    if failing is None and passing < largest:
        wanted = max(first, GROWTH * passing)
        probe = candidates[min(bisect_left(candidates, wanted), len(candidates) - 1)]
    elif failing is not None:
        between = [size for size in candidates if passing < size < failing]
        probe = between[len(between) // 2] if between else None
    if probe is not None and lacking(probe, 1):
        return [probe]
    return [size for size in (passing, failing) if size is not None and lacking(size, blocks)]


def next_outer_sizes(candidates: Sequence[float], tallies: Tallies, blocks: int) -> list[float]:
    """Return sizes whose blocks can narrow the interval of a search that is over, in order: the nearest that is not certain, on each side.

    Args:
        candidates: ascending sizes that can be measured.
        tallies: the blocks so far.
        blocks: blocks of a size, at most. Too few to be certain of any size: none is returned.
    """
    passing, failing = border(tallies)
    if passing is None or failing is None or _at_least(blocks, blocks, PASSING_SHARE) >= ALONE:
        return []
    limit = pass_limit(candidates, tallies)
    below = [size for size in reversed(candidates) if size < passing][:OUTWARD]
    above = [size for size in candidates if size > failing][:OUTWARD]
    found = []
    for side, known in ((below, limit.low), (above, limit.refuted)):
        for size in side:
            if known is not None and abs(size - passing) >= abs(known - passing):
                break
            tally = tallies.get(size, Tally(0, 0))
            if tally.blocks < blocks and tally.attempts < ATTEMPTS * blocks:
                found.append(size)
                break
    return found


def pass_limit(candidates: Sequence[float], tallies: Tallies) -> PassLimit:
    """Return the largest passing size with its interval of 95 %.

    A size passes for certain if the exact test (Clopper and Pearson) excludes a smaller share of passing blocks than PASSING_SHARE, either
    with its blocks or with those of all measured sizes from there to the limit, since the share does not grow with the size. A size fails
    for certain in the same way. Together the tests have less than the error, since the best of several sizes counts, and the same blocks
    choose the limit. In simulated searches the interval covers 95 % where the share falls steadily with the size, and 89 % where half of
    the blocks fail at each of many sizes.
    """
    passing, failing = border(tallies)
    measured = sorted(size for size, tally in tallies.items() if tally.blocks)

    def is_certain(low: float, high: float, error: float, *, fails: bool) -> bool:
        inside = [tallies[size] for size in measured if low <= size <= high]
        blocks, passed = sum(tally.blocks for tally in inside), sum(tally.passed for tally in inside)
        return _at_least(blocks - passed if fails else passed, blocks, 1 - PASSING_SHARE if fails else PASSING_SHARE) < error

    def passes(size: float, limit: float) -> bool:
        return is_certain(size, size, ALONE, fails=False) or is_certain(size, limit, POOLED, fails=False)

    def misses(size: float, limit: float) -> bool:
        return is_certain(size, size, ALONE, fails=True) or is_certain(limit, size, POOLED, fails=True)

    certain = [size for size in measured if passing is not None and size <= passing and passes(size, passing)]
    refuted = min((size for size in measured if failing is not None and size >= failing and misses(size, failing)), default=None)
    high = None if refuted is None else max((size for size in candidates if size < refuted), default=0.0)
    lost = [size for size, tally in tallies.items() if tally.blocks == 0 and tally.attempts >= ATTEMPTS]
    between = [size for size in lost if passing is not None and passing < size and (failing is None or size < failing)]
    blocks = sum(tally.blocks for tally in tallies.values())
    return PassLimit(passing, failing, max(certain, default=None), high, blocks, refuted, min(between, default=None))


def _at_least(successes: int, n: int, share: float) -> float:
    """Return the chance of at least so many successes in n blocks."""
    return math.fsum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(successes, n + 1))


def is_decided(limit: PassLimit, candidates: Sequence[float]) -> bool:
    """Return whether no candidate is left between the largest passing and the smallest failing size."""
    if limit.value is None or limit.failing is None:
        return False
    return not any(limit.value < size < limit.failing for size in candidates)
