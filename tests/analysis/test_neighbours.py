"""Dips of a curve against its neighbours: how often one is found where there is none, and where there is one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.neighbours import mean_contrast, neighbour_contrast

SIZES = [300, 400, 500, 600, 700, 800, 900, 1000, 1200]


def found(convexity: float, dip: float, buffers: int, studies: int = 300) -> tuple[float, float]:
    """Return the shares of studies with an interval below 1, and of intervals that hold the truth: nine sizes, three repeats, 2 %."""
    rng = np.random.default_rng(11)
    sizes = np.array(SIZES)
    within = [i for i, size in enumerate(SIZES) if 0.45 <= buffers / size <= 0.55]
    truth = 1000 * (0.2 + 0.8 * np.minimum(sizes / 1000, 1) ** convexity)
    truth[within] *= 1 - dip
    below = held = 0
    for _ in range(studies):
        repeats = (truth[:, None] * (1 + 0.02 * rng.standard_normal((len(SIZES), 3)))).tolist()
        ratio = mean_contrast([neighbour_contrast(SIZES, repeats, within)])
        below += ratio.high < 1
        held += ratio.low <= 1 - dip <= ratio.high
    return below / studies, held / studies


@pytest.mark.parametrize("convexity", [1, 2, 3])
@pytest.mark.parametrize("buffers", [280, 400])
def test_a_curve_that_bends_is_no_dip_and_a_dip_is_found(convexity: float, buffers: int) -> None:
    false, covered = found(convexity, 0, buffers)
    assert false <= 0.06 and covered >= 0.91
    power, covered = found(convexity, 0.06, buffers)
    assert power >= 0.85 and covered >= 0.91


@given(st.floats(-3, 3), st.floats(-2, 2), st.floats(-1, 1))
def test_no_cubic_is_a_dip(a: float, b: float, c: float) -> None:
    values = [[float(np.exp(a * x + b * x**2 + c * x**3))] * 3 for x in np.linspace(0, 1, 6)]
    contrast = neighbour_contrast(np.linspace(0, 1, 6).tolist(), values, [2, 3])
    assert contrast is not None and contrast.log == pytest.approx(0, abs=1e-9) and contrast.neighbours == 2


def test_one_neighbour_gives_a_line_and_none_gives_nothing() -> None:
    values = [[100.0, 100.0], [90.0, 90.0], [100.0, 100.0]]
    contrast = neighbour_contrast([1, 2, 3], values, [1])
    assert contrast is not None and contrast.neighbours == 1
    assert mean_contrast([contrast, contrast]).value == pytest.approx(0.9)
    assert neighbour_contrast([1, 2, 3], values, [0]) is None


def test_without_repeats_there_is_no_interval() -> None:
    contrast = neighbour_contrast([1, 2, 3], [[100.0], [90.0], [100.0]], [1])
    assert contrast is not None
    assert mean_contrast([contrast]).low is None and "too few" in mean_contrast([contrast]).note
    with pytest.raises(ValueError, match="at least one"):
        mean_contrast([])
