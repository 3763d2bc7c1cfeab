"""The order in which tenants of a mix are drawn."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pgherd.studies.density.tenant_mix import class_of, draw, shares

WEIGHTS = some.lists(some.one_of(some.integers(1, 500), some.floats(0.001, 1).map(lambda x: round(x, 3))), min_size=1, max_size=8)


@given(WEIGHTS, some.integers(1, 250), some.integers(0, 2**31))
def test_every_size_has_the_right_shares(weights, tenants, seed):
    parts = shares(weights)
    assert sum(parts) == 1
    drawn = draw(parts, tenants, seed)
    counts: Counter[int] = Counter()
    for size, index in enumerate(drawn, 1):
        counts[index] += 1
        assert all(abs(counts[i] - size * part) < 1 for i, part in enumerate(parts)), (size, counts)


@given(WEIGHTS, some.integers(1, 60), some.integers(0, 60), some.integers(0, 9))
def test_a_larger_mix_has_the_smaller_one_as_its_start(weights, tenants, more, seed):
    parts = shares(weights)
    assert draw(parts, tenants + more, seed)[:tenants] == draw(parts, tenants, seed)


def test_the_seed_decides_between_equals_only():
    assert {draw(shares([1, 1, 1]), 3, seed) for seed in range(50)} == {
        (a, b, c) for a in range(3) for b in range(3) for c in range(3) if len({a, b, c}) == 3
    }
    assert {draw(shares([0.75, 0.25]), 4, seed).count(1) for seed in range(20)} == {1}


def test_shares_are_those_that_the_user_wrote():
    assert shares([0.1, 0.2, 0.7]) == (Fraction(1, 10), Fraction(1, 5), Fraction(7, 10))
    assert shares([3, 1]) == (Fraction(3, 4), Fraction(1, 4))


@pytest.mark.parametrize(("name", "expected"), [("small-01", "small"), ("a-b-120", "a-b"), ("a-01-02", "a-01")])
def test_the_name_of_a_tenant_contains_its_class(name, expected):
    assert class_of(f"local/{name}/pg/bench") == expected
