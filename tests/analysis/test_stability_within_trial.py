"""Variance of the mean of a trial by its seconds."""

import numpy as np
import pytest

from pgherd.analysis.stability import variance_of_mean


def series(rho: float, seconds: int, trials: int, seed: int) -> np.ndarray:
    """Autoregressive series around 1000 with a standard deviation of 100."""
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(trials)]
    for _ in range(seconds - 1):
        values.append(rho * values[-1] + (1 - rho**2) ** 0.5 * rng.standard_normal(trials))
    return 1000 + 100 * np.array(values).T


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.7])
def test_it_is_the_variance_of_the_means(rho: float) -> None:
    """Trials of 9 seconds, by four: the mean over many points is that of the trials' means."""
    means = series(rho, 9, 4000, seed=1).mean(axis=1) / 1000
    found = np.mean([variance_of_mean(series(rho, 9, 4, seed).tolist()) for seed in range(300)])
    assert found == pytest.approx(np.var(means), rel=0.3)


def test_equal_or_few_seconds_show_no_spread() -> None:
    assert variance_of_mean([[5.0] * 9, [7.0] * 9]) == 0
    assert variance_of_mean([[5.0, 9.0], []]) == 0
    assert variance_of_mean([]) == 0


def test_a_change_of_level_within_the_trials_is_a_wide_spread() -> None:
    half = [60.0] * 4 + [40.0] * 4
    assert variance_of_mean([half, half, half]) > 0.15**2
