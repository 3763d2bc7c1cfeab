"""Drift, worst window and spread of a long run."""

from __future__ import annotations

import numpy as np
import pytest

from pgherd.analysis.steadiness import steadiness

HOURS = [i / 60 for i in range(240)]


def test_a_known_drift_is_found() -> None:
    found = steadiness(HOURS, [1000 * (1 - 0.02 * h) for h in HOURS])
    assert found.drift.value == pytest.approx(-0.02 / 0.96, rel=1e-2)
    assert found.worst_at == 239


def test_the_interval_covers_and_says_when_it_cannot() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = steadiness(HOURS, (1000 * (1 + 0.02 * rng.standard_normal(240))).tolist())
        covered += found.drift.low <= 0 <= found.drift.high
    assert covered >= 88
    short = steadiness(HOURS[:4], [10, 11, 9, 10])
    assert short.drift.low is None
    assert "no interval" in short.drift.note


def test_resembling_neighbours_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    steps = rng.standard_normal(240)
    smooth = np.convolve(steps, np.ones(12) / 12, mode="same") * np.sqrt(12)
    plain, slow = (steadiness(HOURS, (1000 + 20 * x).tolist()) for x in (steps, smooth))
    assert slow.autocorrelation > 0.8 > 0.3 > plain.autocorrelation
    assert slow.drift.high - slow.drift.low > 2 * (plain.drift.high - plain.drift.low)


def test_the_worst_window() -> None:
    series = [100.0] * 20
    series[7] = 60
    found = steadiness(HOURS[:20], series)
    assert (found.worst_at, found.worst) == (7, 0.6)


@pytest.mark.parametrize(("hours", "series"), [([0.0], [1.0]), ([0.0, 1], [1.0]), ([0.0, 1], [0.0, 0])])
def test_too_little_is_refused(hours: list[float], series: list[float]) -> None:
    with pytest.raises(ValueError):
        steadiness(hours, series)
