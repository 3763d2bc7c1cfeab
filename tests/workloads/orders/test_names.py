from __future__ import annotations

import numpy as np

from pgherd.workloads.orders.names import C_NAME, C_NAME_LOAD, NAMES_BY_NUMBER, draw_load_name, nurand


def test_names_of_the_description() -> None:
    # Clause 4.3.2.3: 371 is PRI, CALLY and OUGHT; 40 is BAR, PRES and BAR.
    assert NAMES_BY_NUMBER[371] == "PRICALLYOUGHT"
    assert NAMES_BY_NUMBER[40] == "BARPRESBAR"
    assert len(set(NAMES_BY_NUMBER)) == 1000
    assert (min(map(len, NAMES_BY_NUMBER)), max(map(len, NAMES_BY_NUMBER))) == (9, 15)


def test_the_two_constants_for_names_differ_as_clause_2_1_6_1_asks() -> None:
    delta = abs(C_NAME - C_NAME_LOAD)
    assert 65 <= delta <= 119 and delta not in (96, 112)


def test_nurand_as_an_expression() -> None:
    assert nurand(255, 0, 999, 7) == "((random(0, 255) | random(0, 999)) + 7) % 1000"
    assert nurand(8191, 1, 100_000, 0) == "(random(0, 8191) | random(1, 100000)) % 100000 + 1"
    assert nurand(1023, 1, 3000, 7) == "((random(0, 1023) | random(1, 3000)) + 7) % 3000 + 1"


def test_load_names_are_skewed_and_within_range() -> None:
    drawn = draw_load_name(np.random.default_rng(1), 100_000)
    counts = np.bincount(drawn, minlength=1000)
    assert len(counts) == 1000
    assert counts.max() > 5 * counts.mean()  # of 256 | 1000 values some come up far more often
