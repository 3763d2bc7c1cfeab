"""Sizes by scale, against E10 and known truth."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgherd.analysis.sizes import fit_sizes
from pgherd.model.errors import UsageError

MB = 1e6
E10 = {1: 23 * MB, 10: 157 * MB, 100: 1700 * MB, 1000: 15e9, 2500: 37e9, 5000: 74e9, 10000: 147e9}


def test_small_scales_of_e10_predict_its_large_ones() -> None:
    found = fit_sizes([1, 10, 100, 1000], [E10[s] for s in (1, 10, 100, 1000)])
    assert found.base_size == pytest.approx(8 * MB, rel=0.2)
    for scale in (2500, 5000, 10000):
        predicted = found.predict(scale)
        assert predicted.low <= E10[scale] <= predicted.high


@given(st.floats(0, 1e8), st.floats(1e5, 1e8))
@settings(deadline=None)
def test_recovers_a_line(fixed: float, per_scale: float) -> None:
    scales = [1, 2, 5, 10, 50]
    found = fit_sizes(scales, [fixed + per_scale * s for s in scales])
    assert found.size_per_scale == pytest.approx(per_scale, rel=1e-6)
    assert found.base_size == pytest.approx(fixed, rel=1e-5, abs=1e-6 * per_scale)
    assert found.predict(20).value == pytest.approx(fixed + per_scale * 20, rel=1e-6)


def test_three_sizes_have_no_interval_and_say_so() -> None:
    found = fit_sizes([1, 10, 50], [23 * MB, 157 * MB, 760 * MB]).predict(100)
    assert found.low is None
    assert "3 measured sizes" in found.note


def test_far_predictions_are_marked() -> None:
    found = fit_sizes([1, 10], [23 * MB, 157 * MB])
    assert "times beyond the largest measured" in found.predict(5000).note
    assert "beyond" not in found.predict(500).note


@pytest.mark.parametrize(("scales", "sizes"), [([1], [2.0]), ([1, 1], [2.0, 3]), ([1, 2], [1.0]), ([1, 2], [1.0, -1]), ([0, 1], [1.0, 2])])
def test_unusable_sizes_are_refused(scales: list[float], sizes: list[float]) -> None:
    with pytest.raises(UsageError):
        fit_sizes(scales, sizes)
