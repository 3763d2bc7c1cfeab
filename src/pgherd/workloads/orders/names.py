"""Last names, and the non-uniform choice of customers, items and names (NURand of the TPC-C description, clause 2.1.6).

NURand(A, x, y) = ((random(0, A) | random(x, y)) + C) % (y − x + 1) + x. Its constants C are drawn once per database there;
here they are fixed, so that every database is the same; those of customers and items are 0, which the clause allows and which
spares the client an addition for every line. The two for last names differ by 69, which clause 2.1.6.1
allows (65 to 119, but not 96 or 112).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")

NAMES_BY_NUMBER = tuple(SYLLABLES[n // 100] + SYLLABLES[n // 10 % 10] + SYLLABLES[n % 10] for n in range(1000))
"""The thousand last names."""

C_NAME_LOAD = 157
C_NAME = 226
C_CUSTOMER = 0
C_ITEM = 0


def nurand(a: int, x: int, y: int, c: int) -> str:
    """NURand as an expression of pgbench's ``\\set``."""
    either = f"(random(0, {a}) | random({x}, {y}))"
    draw = f"({either} + {c}) % {y - x + 1}" if c else f"{either} % {y - x + 1}"
    return f"{draw} + {x}" if x else draw


def draw_load_name(random: np.random.Generator, count: int) -> Any:
    """Numbers of last names as the initial population has them: NURand(255, 0, 999)."""
    first = random.integers(0, 255, size=count, endpoint=True)
    second = random.integers(0, 999, size=count, endpoint=True)
    return ((first | second) + C_NAME_LOAD) % 1000
