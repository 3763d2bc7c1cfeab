"""Paired ratios: known answers from tables, from R and from scipy; what must not depend on units, order or names."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from pgherd.analysis import block_ratios
from pgherd.analysis.block_ratios import hodges_lehmann, log_ratios, min_pairs, no_ratio_reason, paired_ratio, signed_rank_tail, walsh_rank

# Hollander & Wolfe, Nonparametric Statistical Methods, table 3.1: depression scale of nine patients, two visits. It is the
# example of R's wilcox.test.
FIRST = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
SECOND = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]

measured = st.floats(0.01, 1e6)
blocks = st.lists(st.tuples(measured, measured), min_size=1, max_size=30)


def sides(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_depression_scale() -> None:
    # R 4.3: wilcox.test(first, second, paired = TRUE, conf.int = TRUE): pseudomedian 0.46, 95 percent 0.010 to 0.786
    assert hodges_lehmann([a - b for a, b in zip(FIRST, SECOND, strict=True)]) == approx((0.46, 0.010, 0.786), abs=5e-4)
    # Its one-sided p-value is 0.01953 (V = 40, the largest sum being 45)
    assert signed_rank_tail(5, 9) == approx(0.01953, abs=5e-6)


def test_as_a_ratio() -> None:
    result = paired_ratio([math.exp(x) for x in FIRST], [math.exp(x) for x in SECOND])
    assert [math.log(x) for x in (result.value, result.low, result.high)] == approx([0.46, 0.010, 0.786], abs=5e-4)
    assert (result.n, result.confidence, result.note) == (9, 0.95, "")
    assert "Wilcoxon" in result.method


@pytest.mark.parametrize(
    ("pairs", "critical"),
    # Critical values of Wilcoxon's T, two-sided 5 % (Wilcoxon and Wilcox 1964, as most textbooks print them)
    [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (13, 17), (14, 21), (15, 25), (20, 52), (25, 89), (30, 137), (50, 434)],
)
def test_critical_values(pairs: int, critical: int) -> None:
    assert walsh_rank(0.025, pairs) == critical + 1


@pytest.mark.parametrize(("confidence", "minimum"), [(0.90, 5), (0.95, 6), (0.98, 7), (0.99, 8)])
def test_least_pairs(confidence: float, minimum: int) -> None:
    assert min_pairs(confidence) == minimum
    assert walsh_rank((1 - confidence) / 2, minimum) >= 1
    assert walsh_rank((1 - confidence) / 2, minimum - 1) == 0
    with pytest.raises(ValueError, match=f"at least {minimum} are needed"):
        hodges_lehmann([float(x) for x in range(minimum - 1)], confidence)


@pytest.mark.parametrize("pairs", [1, 2, 5, 9, 14, 33])
def test_tail_as_scipy_has_it(pairs: int, seed: int) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    rng = random.Random(seed)
    for _ in range(5):
        values = [rng.gauss(0.3, 1) for _ in range(pairs)]
        ranks = {value: rank for rank, value in enumerate(sorted(values, key=abs), 1)}
        positive = sum(rank for value, rank in ranks.items() if value > 0)
        expected = scipy_stats.wilcoxon(values, alternative="less", method="exact").pvalue
        assert signed_rank_tail(positive, pairs) == approx(expected, rel=1e-9)


def test_tail_of_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = [signed_rank_tail(t, 150) for t in (4300, 4600, 5000)], [walsh_rank(p, 150) for p in (0.005, 0.025)]
    monkeypatch.setattr(block_ratios, "MAX_EXACT_PAIRS", 100)
    assert [signed_rank_tail(t, 150) for t in (4300, 4600, 5000)] == approx(exact[0], abs=4e-4)
    assert [walsh_rank(p, 150) for p in (0.005, 0.025)] == approx(exact[1], rel=0.003)


@settings(deadline=None)
@given(blocks, st.sampled_from([0.9, 0.95, 0.99]))
def test_holds_its_estimate_and_grows_with_confidence(pairs: list[tuple[float, float]], confidence: float) -> None:
    values, baseline = sides(pairs)
    result = paired_ratio(values, baseline, confidence)
    if result.low is None or result.high is None:
        assert len(pairs) < 3 and result.note and result.confidence is None
        return
    assert result.low * (1 - 1e-12) <= result.value <= result.high * (1 + 1e-12)
    if len(pairs) >= min_pairs(confidence):
        wider = paired_ratio(values, baseline, 1 - 2.0 ** (1 - len(pairs)))
        assert wider.low <= result.low <= result.high <= wider.high


@settings(deadline=None)
@given(blocks, measured, measured)
def test_units_do_not_matter(pairs: list[tuple[float, float]], unit: float, other: float) -> None:
    values, baseline = sides(pairs)
    plain, scaled = paired_ratio(values, baseline), paired_ratio([v * unit for v in values], [b * other for b in baseline])
    assert scaled.value == approx(plain.value * unit / other, rel=1e-6)
    assert (scaled.low is None) == (plain.low is None)
    if plain.low is not None and plain.high is not None:
        assert (scaled.low, scaled.high) == approx((plain.low * unit / other, plain.high * unit / other), rel=1e-6)


@settings(deadline=None)
@given(blocks)
def test_swapped_sides_invert(pairs: list[tuple[float, float]]) -> None:
    values, baseline = sides(pairs)
    item, other = paired_ratio(values, baseline), paired_ratio(baseline, values)
    assert item.value * other.value == approx(1, rel=1e-9)
    if item.low is not None and other.high is not None:
        assert item.low * other.high == approx(1, rel=1e-9)


@settings(deadline=None)
@given(blocks, st.randoms())
def test_order_of_blocks_does_not_matter(pairs: list[tuple[float, float]], rng: random.Random) -> None:
    shuffled = rng.sample(pairs, len(pairs))
    item, other = paired_ratio(*sides(pairs)), paired_ratio(*sides(shuffled))
    assert [item.value, item.low or 0, item.high or 0] == approx([other.value, other.low or 0, other.high or 0], rel=1e-9)


def test_one_wild_block_hardly_moves_it() -> None:
    baseline = [100.0] * 12
    values = [105 + x / 10 for x in range(-6, 6)]
    calm = paired_ratio(values, baseline)
    wild = paired_ratio([*values[:-1], 1e-6], baseline)
    assert wild.value == approx(calm.value, rel=0.002)
    assert wild.low > 1


def test_few_pairs_have_students_interval_or_none() -> None:
    few = paired_ratio([2.0, 2.2, 1.8], [1.0, 1.1, 0.9])
    assert few.value == approx(2) and few.low == approx(2) and "t interval" in few.method
    two = paired_ratio([2.0, 2.2], [1.0, 1.1])
    assert two.low is None and two.confidence is None and "2 repeats" in two.note


def test_blocks_without_a_pair_are_left_out() -> None:
    values = [1.1, None, 1.2, 1.3, math.nan, 1.25, 1.15, 1.2]
    baseline = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    result = paired_ratio(values, baseline)
    assert result == paired_ratio([*values[:1], *values[2:4], *values[5:], None, None], baseline)
    assert result.n == 6 and result.note == "2 of 8 blocks have no pair"
    assert log_ratios([1.0, 2.0], [1.0, None]) == [0.0, None]


@pytest.mark.parametrize("bad", [0.0, -3.0])
def test_what_is_not_above_zero_has_no_ratio(bad: float) -> None:
    for values, baseline in (([1.0, bad], [1.0, 2.0]), ([1.0, 2.0], [1.0, bad])):
        assert "block 2" in (no_ratio_reason(values, baseline) or "")
        with pytest.raises(ValueError, match="both must be above zero"):
            paired_ratio(values, baseline)


def test_no_pairs_at_all() -> None:
    assert no_ratio_reason([None], [1.0]) == no_ratio_reason([], []) == "no ratio: no block has a complete pair"
    assert no_ratio_reason([None, 1.0], [1.0, 1.0]) is None
    with pytest.raises(ValueError, match="no block"):
        paired_ratio([], [])
    with pytest.raises(ValueError, match="2 and 1"):
        paired_ratio([1.0, 2.0], [1.0])


def test_no_spread() -> None:
    result = paired_ratio([2.1] * 8, [2.0] * 8)
    assert result.low == result.value == result.high == approx(1.05)
    assert result.note == "the blocks do not differ at all"
