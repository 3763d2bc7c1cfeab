"""Knees: published data against another implementation, simulated curves with known knees, and what must not be claimed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy.optimize import least_squares
from scipy.stats import f as f_distribution

from pgherd.analysis import knee as module
from pgherd.analysis.knee import find_knee, hinge

# Cate & Nelson 1971, relative cotton yield against potassium in the soil (ppm): the classic set for linear plateaus.
YIELD = [53.5, 64.8, 63, 40.8, 79.5, 70.3, 63, 64, 94, 99, 66.5, 103, 97.3, 85.3, 101.3, 97, 96.8, 98, 85.8, 92.3, 96.8, 88.3, 106.8, 97.5]
POTASSIUM = [26, 28, 30, 31, 34, 35, 40, 44, 49, 56, 68, 75, 77, 78, 78, 102, 118, 118, 131, 133, 133, 152, 193, 211]

SIZES = (100.0, 140.0, 180.0, 220.0, 260.0, 280.0, 300.0, 320.0, 360.0, 420.0)


def curve(size: float, knee: float = 300.0, base: float = 50e-6, read: float = 80e-6) -> float:
    """Throughput of accesses that are all alike: each MB below the knee costs the same number of reads."""
    return 1 / (base + read * max(0.0, 1 - size / knee))


def noisy(sizes: tuple[float, ...], noise: float, seed: int, **shape: float) -> list[float]:
    rng = random.Random(seed)
    return [curve(size, **shape) * rng.lognormvariate(0, noise) for size in sizes]


def test_plateau_of_published_data_is_that_of_another_implementation() -> None:
    """scipy's least squares from thirty starting knees: the best of them."""
    x, y = np.array(POTASSIUM, float), np.array(YIELD)

    def off(parameters: np.ndarray) -> np.ndarray:
        return parameters[0] + parameters[1] * np.minimum(x - parameters[2], 0) - y

    best = min((least_squares(off, [95, 0.5, start]) for start in range(30, 180, 5)), key=lambda outcome: outcome.cost)
    result = hinge(POTASSIUM, YIELD)
    assert result.at == approx(best.x[2], rel=1e-3)
    assert result.plateau == approx(best.x[0], rel=1e-3)
    assert result.slope == approx(best.x[1], rel=2e-3)


def test_interval_of_published_data_is_the_profile_s() -> None:
    """Every knee within it fits no worse than F allows, every knee beyond it does: by a grid and scipy's F."""
    x, y = np.array(POTASSIUM, float), np.array(YIELD)

    def rss(knee: float) -> float:
        design = np.column_stack([np.ones(len(x)), np.minimum(x - knee, 0)])
        return float(np.linalg.lstsq(design, y, rcond=None)[1][0])

    result = hinge(POTASSIUM, YIELD)
    assert result.at is not None and result.low is not None and result.high is not None
    limit = rss(result.at) * (1 + f_distribution.ppf(0.95, 1, len(x) - 3) / (len(x) - 3))
    grid = np.linspace(30, 200, 1701)
    inside = [knee for knee in grid if rss(knee) <= limit]
    assert result.low == approx(inside[0], abs=0.2)
    assert result.high == approx(inside[-1], abs=0.2)


def test_chance_of_no_knee_is_f() -> None:
    assert module._chance_of_no_knee(10.0, 4.0, 12) == approx(f_distribution.sf(((10 - 4) / 2) / (4 / 9), 2, 9))


def test_without_noise_the_knee_is_exact() -> None:
    knee = find_knee(SIZES, [curve(size) for size in SIZES])
    assert knee.kind == "knee"
    assert knee.at == approx(300, rel=1e-6)
    assert knee.plateau == approx(20_000, rel=1e-6)
    assert knee.throughput(400) == approx(20_000, rel=1e-6)
    assert knee.throughput(180) == approx(curve(180), rel=1e-6)


@pytest.mark.parametrize(("noise", "expected"), [(0.02, 0.88), (0.06, 0.88)])
def test_interval_holds_the_true_knee_about_as_often_as_it_says(noise: float, expected: float) -> None:
    knees = [find_knee(SIZES * 2, noisy(SIZES * 2, noise, seed)) for seed in range(120)]
    assert all(knee.kind == "knee" for knee in knees)
    covered = sum((knee.low or 0) <= 300 <= (knee.high or 1e9) for knee in knees)
    assert covered >= expected * len(knees)
    assert np.mean([knee.at for knee in knees]) == approx(300, rel=0.02)


def test_more_trials_narrow_the_interval() -> None:
    few, many = (find_knee(SIZES * n, noisy(SIZES * n, 0.03, 1)) for n in (1, 6))
    assert few.half_width is not None and many.half_width is not None
    assert many.half_width < few.half_width


def test_far_below_the_plateau_does_not_bend_the_line() -> None:
    """A skewed load falls in a convex curve: sizes far from the knee must not move it."""

    def skewed(size: float) -> float:
        return 1 / (50e-6 + 80e-6 * max(0.0, 1 - size / 300) + 4e-3 * max(0.0, 1 - size / 120) ** 2)

    sizes = (30.0, 50.0, 70.0, *SIZES)
    assert find_knee(sizes, [skewed(size) for size in sizes]).at == approx(300, rel=0.03)


def test_flat_is_no_knee() -> None:
    for seed in range(30):
        knee = find_knee(SIZES, noisy(SIZES, 0.03, seed, read=0.0))
        if knee.kind != "flat":
            continue
        assert knee.at is None
        assert "below the smallest size measured" in knee.note
        break
    flat = sum(find_knee(SIZES, noisy(SIZES, 0.02, seed, read=0.0)).kind == "flat" for seed in range(100))
    assert flat >= 90


def test_noise_that_could_hide_a_knee_is_not_called_flat() -> None:
    knees = [find_knee(SIZES, noisy(SIZES, 0.35, seed, read=10e-6)) for seed in range(60)]
    assert all(knee.kind != "flat" for knee in knees)
    unclear = [knee for knee in knees if knee.kind == "unclear"]
    assert len(unclear) > 40
    assert unclear[0].at is None and "could hide a knee" in unclear[0].note


def test_still_rising_is_no_knee() -> None:
    result = find_knee(SIZES, [curve(size, knee=500) for size in SIZES])
    assert result.kind == "rising"
    assert result.at is None
    assert "the knee is beyond it" in result.note


def test_a_knee_at_the_last_size_is_not_one_that_was_seen() -> None:
    assert find_knee(SIZES, [curve(size, knee=420) for size in SIZES]).kind == "rising"


def test_too_few_sizes() -> None:
    knee = find_knee((1.0, 2.0, 3.0, 3.0), (1.0, 2.0, 3.0, 3.1))
    assert knee.kind == "unknown"
    assert "3 sizes measured; a knee requires 4" in knee.note


def test_what_does_not_live_bounds_the_knee() -> None:
    """Without swap the server lives, as fast as with all the memory, or it does not."""
    knee = find_knee(SIZES, noisy(SIZES, 0.01, 4, read=0.0), dead=(60.0, 80.0))
    assert (knee.kind, knee.at, knee.low, knee.high) == ("cliff", 100.0, 80.0, 100.0)
    assert "the same at all sizes that run" in knee.note


def test_a_knee_lies_above_what_does_not_live() -> None:
    sizes = (120.0, 200.0, 300.0, 400.0, 500.0, 600.0)
    result = find_knee(sizes, noisy(sizes, 0.05, 2, knee=250), dead=(110.0,))
    assert result.kind == "knee"
    assert result.low is None or result.low >= 110


def test_throughput_that_is_not_above_zero() -> None:
    with pytest.raises(ValueError, match="one throughput above zero"):
        find_knee((1.0, 2.0), (1.0, 0.0))
    with pytest.raises(ValueError, match="1 for 2"):
        find_knee((1.0, 2.0), (1.0,))


measured = st.lists(st.tuples(st.floats(1, 1e6), st.floats(1e-3, 1e7)), min_size=1, max_size=25)


@settings(deadline=None, max_examples=150)
@given(measured)
def test_never_fails_and_stays_within_the_data(pairs: list[tuple[float, float]]) -> None:
    sizes, values = [a for a, _ in pairs], [b for _, b in pairs]
    knee = find_knee(sizes, values)
    if knee.at is None:
        assert knee.note
        return
    assert min(sizes) <= knee.at <= max(sizes)
    assert knee.low is None or knee.low <= knee.at
    assert knee.high is None or knee.high >= knee.at


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.1, 50), st.floats(0.01, 1000))
def test_units_do_not_matter(seed: int, larger: float, faster: float) -> None:
    values = noisy(SIZES, 0.03, seed)
    plain = find_knee(SIZES, values)
    scaled = find_knee([size * larger for size in SIZES], [value * faster for value in values])
    assert plain.kind == scaled.kind
    if plain.at is not None:
        assert scaled.at == approx(plain.at * larger, rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(0, 1000))
def test_order_does_not_matter(rng: random.Random, seed: int) -> None:
    pairs = list(zip(SIZES, noisy(SIZES, 0.03, seed), strict=True))
    shuffled = list(pairs)
    rng.shuffle(shuffled)
    first, other = (find_knee([a for a, _ in some], [b for _, b in some]) for some in (pairs, shuffled))
    assert first.kind == other.kind
    assert (first.at or 0) == approx(other.at or 0)
