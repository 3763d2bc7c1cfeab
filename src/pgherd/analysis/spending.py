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
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.paired import signed_rank_tail, walsh_rank

POWER = 2.0
"""The exponent r of the spending function α·tʳ; chosen by simulation, see docs/explanation/statistics.md."""
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
    walk = _Walk()
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


def crossing(variances: Sequence[float], z: Sequence[float]) -> float:
    """The probability that a normal process with independent increments is beyond ±z standard deviations at one or more of the
    looks, at which it has these variances."""
    walk = _Walk()
    for variance, critical in zip(variances, z, strict=True):
        walk.pass_by(variance, critical)
    return walk.spent


def critical_values(variances: Sequence[float], spent: Sequence[float]) -> tuple[float, ...]:
    """The z of each look by which ``spent`` of the two-sided error rate is used up."""
    walk, found = _Walk(), []
    for variance, allowed in zip(variances, spent, strict=True):
        found.append(walk.boundary(variance, allowed))
        walk.pass_by(variance, found[-1])
    return tuple(found)


def upper_tail(z: float) -> float:
    """P(Z > z) of the standard normal distribution."""
    return math.erfc(z / math.sqrt(2)) / 2


class _Walk:
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
