"""Whether a series of rounds has reached a steady state, by the rule of SNIA's Solid State Storage Performance Test Specification.

The rule (version 2.0.2, "Steady State"): over a window of five rounds the values range by no more than 20 % of their mean, and
the least-squares line through them rises or falls by no more than 10 % of the mean from the window's first round to its last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDS = 5
RANGE = 0.20
SLOPE = 0.10


@dataclass(frozen=True)
class SteadyWindow:
    """One window: ``range`` is (largest − smallest) / mean, ``excursion`` the line's rise (or fall, below zero) over the window
    / mean."""

    range: float
    excursion: float

    @property
    def steady(self) -> bool:
        """Whether both stay within the rule's bounds."""
        return self.range <= RANGE and abs(self.excursion) <= SLOPE


def rounds_of(series: Sequence[float], count: int = ROUNDS) -> list[float]:
    """The means of so many parts of a series, one after the other and alike in length; what is left over at the end is left out.

    Empty where the series has fewer values than there are to be parts.
    """
    length = len(series) // count
    if length == 0:
        return []
    return [math.fsum(series[at * length : (at + 1) * length]) / length for at in range(count)]


def steady_window(rounds: Sequence[float]) -> SteadyWindow | None:
    """The rule applied to a whole window; None for fewer than two rounds, or where the mean is not above zero."""
    n = len(rounds)
    mean = math.fsum(rounds) / n if n else 0.0
    if n < 2 or not mean > 0:
        return None
    centre = (n - 1) / 2
    slope = math.fsum((at - centre) * (value - mean) for at, value in enumerate(rounds)) / math.fsum((at - centre) ** 2 for at in range(n))
    return SteadyWindow((max(rounds) - min(rounds)) / mean, slope * (n - 1) / mean)
