"""The search for the largest passing size: known answers, and simulated hosts of known truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.pass_search import PassLimit, Tally, fitted_shares, is_decided, next_outer_sizes, next_sizes, pass_limit

SIZES = tuple(float(n) for n in range(1, 65))
BLOCKS = 7


def search(passes: Callable[[float], bool], sizes: tuple[float, ...] = SIZES, first: float = 8, blocks: int = BLOCKS) -> dict[float, Tally]:
    """Search with blocks that pass or fail."""
    tallies: dict[float, Tally] = {}
    for _ in range(500):
        wanted = next_sizes(sizes, tallies, blocks, first) or next_outer_sizes(sizes, tallies, blocks)
        if not wanted:
            return tallies
        for size in wanted:
            old = tallies.get(size, Tally(0, 0))
            tallies[size] = Tally(old.passed + passes(size), old.blocks + 1, old.attempts + 1)
    raise AssertionError("the search never ends")


@pytest.mark.parametrize("truth", range(65))
def test_a_sharp_limit_is_found_exactly(truth: int) -> None:
    tallies = search(lambda size: size <= truth)
    limit = pass_limit(SIZES, tallies)
    if truth == 0:
        assert limit == PassLimit(None, 1, None, 0.0, BLOCKS, 1)
    elif truth == 64:
        assert limit.value == limit.low == 64 and limit.failing is limit.high is None
    else:
        assert limit == PassLimit(truth, truth + 1, truth, truth, sum(tally.blocks for tally in tallies.values()), truth + 1)
        assert is_decided(limit, SIZES)
    assert sum(tally.blocks for tally in tallies.values()) <= 2 * BLOCKS + 2 * 9, "a sharp limit needs no outer sizes"


def test_an_early_unlucky_block_is_corrected() -> None:
    unlucky = iter([False, False])
    tallies = search(lambda size: next(unlucky, True) if size == 4 else size <= 20, first=4)
    assert pass_limit(SIZES, tallies).value == 20
    assert tallies[4].blocks > 2


def test_shares_fall_with_the_size() -> None:
    """Known answer: 2 of 4 and 3 of 4 violate the order and are pooled to 5 of 8."""
    assert fitted_shares({1: Tally(4, 4), 2: Tally(2, 4), 3: Tally(3, 4), 4: Tally(0, 4), 5: Tally(0, 0, 3)}) == {
        1: 1.0,
        2: 5 / 8,
        3: 5 / 8,
        4: 0.0,
    }


def test_an_undecided_limit_has_a_wide_interval() -> None:
    tallies = {1.0: Tally(2, 2, 2), 8.0: Tally(2, 2, 2), 9.0: Tally(4, 8, 8), 10.0: Tally(0, 10, 10)}
    limit = pass_limit(SIZES, tallies)
    assert (limit.value, limit.failing, limit.low, limit.high) == (9, 10, None, 9)


def test_the_nearest_sizes_that_are_certain_close_the_interval() -> None:
    """Known answers: 0.5 ** 7 is below 1.25 %, so 7 of 7 blocks of a size are enough, and 9 of 10: 11 / 1024."""
    tallies = {8.0: Tally(1, 1, 1), 14.0: Tally(1, 1, 1), 15.0: Tally(5, 7, 7), 16.0: Tally(2, 7, 7), 18.0: Tally(0, 1, 1)}
    limit = pass_limit(SIZES, tallies)
    assert (limit.value, limit.low, limit.high) == (15, None, None)
    assert next_outer_sizes(SIZES, tallies, 10) == [14, 17]
    closed = tallies | {14.0: Tally(7, 7, 7), 17.0: Tally(1, 10, 10)}
    limit = pass_limit(SIZES, closed)
    assert (limit.value, limit.low, limit.high, limit.refuted) == (15, 14, 16, 17)
    assert next_outer_sizes(SIZES, closed, 10) == []
    unsure = tallies | {14.0: Tally(6, 10, 10), 17.0: Tally(0, 7, 7)}
    assert next_outer_sizes(SIZES, unsure, 10) == [13], "14 stays unsure, so the next one"
    lost = tallies | {14.0: Tally(1, 1, 20), 17.0: Tally(0, 7, 7)}
    assert next_outer_sizes(SIZES, lost, 10) == [13], "14 has no usable blocks"
    assert next_outer_sizes((15.0, 16.0), tallies, 10) == [], "no size is left"
    assert next_outer_sizes(SIZES, tallies, 6) == [], "6 of 6 are not certain"


def test_blocks_without_a_result_do_not_repeat_forever() -> None:
    tallies: dict[float, Tally] = {}
    for _ in range(50):
        wanted = next_sizes(SIZES, tallies, BLOCKS, 8)
        if not wanted:
            break
        for size in wanted:
            tallies[size] = Tally(0, 0, tallies.get(size, Tally(0, 0)).attempts + 1)
    assert not wanted and pass_limit(SIZES, tallies).value is None


def test_a_size_whose_trials_do_not_finish_ends_the_search() -> None:
    passing = {1.0: Tally(7, 7, 7), 8.0: Tally(7, 7, 7)}
    once, twice = (passing | {16.0: Tally(0, 0, attempts)} for attempts in (1, 2))
    assert next_sizes(SIZES, once, BLOCKS, 8) == [16] and pass_limit(SIZES, once).unfinished is None
    assert next_sizes(SIZES, twice, BLOCKS, 8) == [] and pass_limit(SIZES, twice).unfinished == 16
    assert pass_limit(SIZES, twice | {20.0: Tally(0, 7, 7)}).unfinished == 16
    assert pass_limit(SIZES, twice | {12.0: Tally(0, 7, 7)}).unfinished is None, "it is beyond the size that fails"
    assert pass_limit(SIZES, {1.0: Tally(0, 0, 2)}).unfinished is None


@given(st.dictionaries(st.sampled_from(SIZES[:12]), st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8))
def test_the_interval_contains_the_value(raw: dict[float, tuple[int, int]]) -> None:
    tallies = {size: Tally(min(pair), max(pair), max(pair)) for size, pair in raw.items()}
    shares = [share for _, share in sorted(fitted_shares(tallies).items())]
    assert shares == sorted(shares, reverse=True)
    limit = pass_limit(SIZES, tallies)
    if limit.value is not None:
        assert limit.low is None or limit.low <= limit.value
        assert limit.high is None or limit.high >= limit.value
        assert limit.failing is None or limit.failing > limit.value


@pytest.mark.parametrize("width", [0.1, 0.5, 1.0, 2.0])
def test_simulated_hosts(width: float) -> None:
    """Blocks pass at random, with half of them at the limit. 300 searches per width of the transition, in sizes."""
    hits = covered = closed = 0
    searches = 300
    for number in range(searches):
        rng = random.Random(f"{width} {number}")
        limit = rng.uniform(2.0, 50.0)
        truth = math.floor(limit)

        def passes(size: float, rng: random.Random = rng, limit: float = limit) -> bool:
            return rng.random() < 1 / (1 + math.exp(min((size - limit) / width, 50)))

        found = pass_limit(SIZES, search(passes))
        hits += found.value is not None and abs(found.value - truth) <= 1
        covered += (found.low or 0) <= truth <= (found.high if found.high is not None else math.inf)
        closed += found.low is not None and found.high is not None and found.high - found.low <= 4
    assert closed >= {0.1: 1, 0.5: 0.95, 1.0: 0.7, 2.0: 0}[width] * searches
    assert hits >= (0.95 if width <= 1 else 0.8) * searches
    assert covered >= 0.95 * searches


@pytest.mark.parametrize(
    ("share", "truth", "least"),
    [
        (lambda size: 1 - size / 40, 20, 0.95),
        (lambda size: 1 / (1 + math.exp(min((size - 10.4) / 8, 50))), 10, 0.95),
        (lambda size: 1.0 if size <= 3 else 0.49, 3, 0.89),
        (lambda size: 0.5 if size <= 24 else 0.0, 24, 0.89),
    ],
    ids=["line", "wide transition", "nearly half from 4 on", "half up to 24"],
)
def test_the_interval_covers_a_limit_that_is_not_sharp(share: Callable[[float], float], truth: int, least: float) -> None:
    """The same blocks choose the limit and test it, and the best of several sizes counts."""
    sizes, searches = SIZES[:32], 400
    covered = 0
    for number in range(searches):
        rng = random.Random(f"{truth} {number}")

        def passes(size: float, rng: random.Random = rng) -> bool:
            return rng.random() < share(size)

        found = pass_limit(sizes, search(passes, sizes))
        covered += (found.low or 0) <= truth <= (found.high if found.high is not None else math.inf)
    assert covered >= (least - 0.02) * searches
