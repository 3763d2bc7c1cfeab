"""Comparing two ways of doing one thing on a machine that is never quiet: interleaved pairs, and an interval on their ratio."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from outcome import Figure

from pgherd.analysis.block_ratios import hodges_lehmann
from pgherd.analysis.block_ratios import paired_ratio as ratio
from pgherd.analysis.intervals import Estimate

__all__ = ["FEW", "half_width", "hodges_lehmann", "known", "orders", "ratio", "run_blocks"]

FEW = 10
"""No run is ended for the width of its interval before so many pairs: the interval of few is coarse."""

T = TypeVar("T")


def orders(blocks: int, sides: Sequence[str], rng: random.Random) -> Iterator[tuple[str, ...]]:
    """The order of the sides in each block: a random one, then its reverse (of two sides, ABBA or BAAB), so that what
    drifts evenly through two blocks cancels."""
    while blocks > 0:
        first = tuple(rng.sample(sides, len(sides)))
        yield from (first, first[::-1])[:blocks]
        blocks -= 2


def run_blocks(blocks: int, rng: random.Random, sides: Mapping[str, Callable[[], T]], said: Callable[[int, dict[str, T]], bool]) -> None:
    """Run all sides of each block one after the other; ``said(number, results by side)`` gets each block, and ends it by True."""
    for number, order in enumerate(orders(blocks, list(sides), rng), 1):
        if said(number, {side: sides[side]() for side in order}):
            return


def half_width(estimate: Estimate) -> float | None:
    """Half of the interval's width."""
    return None if estimate.low is None or estimate.high is None else (estimate.high - estimate.low) / 2


def known(name: str, found: Estimate, truth: float, near: float) -> Figure:
    """Return a figure of known truth. The goal is met if an interval of at most ± ``near`` holds it."""
    wide = half_width(found)
    met: bool | None = None
    if wide is not None and found.low is not None and found.high is not None:
        holds = found.low <= truth <= found.high
        met = False if not holds else True if wide <= near else None
    return Figure.of(name, "", found, f"{truth:g} within the interval, ± {near} at most", met)
