"""Two levels and noise."""

from __future__ import annotations

import numpy as np
import pytest

from pgherd.analysis.levels import two_levels


@pytest.mark.parametrize("count", [8, 12, 16, 24])
def test_noise_is_one_level(count: int) -> None:
    """About 1 % of normal samples look like two levels. Of 500 at most 4 % may, far beyond chance."""
    rng = np.random.default_rng(count)
    found = [two_levels(np.exp(rng.normal(10, 0.15, count)).tolist()) for _ in range(500)]
    assert sum(levels is not None for levels in found) <= 20


@pytest.mark.parametrize(("count", "noise", "least"), [(12, 0.03, 0.9), (15, 0.08, 0.8)])
def test_two_levels_are_found_where_they_are(count: int, noise: float, least: float) -> None:
    rng = np.random.default_rng(3)
    found, both = 0, 0
    for _ in range(300):
        fast = rng.random(count) < 0.5
        if not 2 <= fast.sum() <= count - 2:
            continue
        both += 1
        levels = two_levels((np.where(fast, 75_000, 45_000) * np.exp(rng.normal(0, noise, count))).tolist())
        if levels is not None:
            found += 1
            assert levels.low == pytest.approx(45_000, rel=0.25) and levels.high == pytest.approx(75_000, rel=0.25)
            assert levels.low < levels.split < levels.high and 0 < levels.high_share < 1
    assert found >= least * both


def test_levels_by_hand() -> None:
    levels = two_levels([10.0, 10.0, 10.0, 40.0, 40.0, 40.0, 40.0, 40.0])
    assert levels is not None
    assert (levels.low, levels.high, levels.split) == (pytest.approx(10), pytest.approx(40), pytest.approx(20))
    assert levels.high_share == pytest.approx(5 / 8)


def test_what_is_too_little_or_too_close_is_one_level() -> None:
    assert two_levels([1.0, 1.0, 2.0, 2.0, 2.0]) is None, "too few values"
    assert two_levels([1.0] * 8 + [3.0]) is None, "one value is no level"
    assert two_levels([1.0] * 5 + [1.1] * 5) is None, "less than 20 % apart"
    assert two_levels([5.0] * 10) is None
    with pytest.raises(ValueError, match="above zero"):
        two_levels([1.0, 0.0, 2.0])
