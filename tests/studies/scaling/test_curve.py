"""One server's curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pgherd.studies.scaling.curve import FEW_CLIENTS, Curve, curve, end_of_linear, shape_findings
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.points import group
from pgherd.studies.scaling.propose import planned

Build = Callable[..., ScalingOptions]


@pytest.fixture
def measured(options: Build, server: Any, shape: Any) -> Callable[..., Curve]:
    def run(shape_of: Any = None, noise: float = 0.01, **more: Any) -> Curve:
        given = options(**more)
        results = server(given, {"": shape_of or shape()}, noise=noise).all(planned(given))
        return curve(given, group(given, results), seed=given.seed)

    return run


def test_without_noise_every_number_is_exact(measured: Callable[..., Curve]) -> None:
    line = measured(noise=0)
    assert line.medians == pytest.approx((10_000, 20_000, 30_000, 40_000, 46_000, 52_000, 57_000, 55_000))
    assert (line.region.end, line.region.next) == (4, 6)
    assert line.slope().value == pytest.approx(10_000)
    assert (line.loads[line.best], line.at_edge, line.rising) == (12, False, False)
    assert line.loads[line.saturation()] == 12
    assert line.linear_share(7).value == pytest.approx(55_000 / 160_000)
    assert line.turning.falls is True


def test_a_rise_is_claimed_beyond_the_scatter_only(measured: Callable[..., Curve], shape: Any) -> None:
    """A curve that ends on its way up by 13 %: seen where the medians scatter by 1 %, with 15 % not."""
    line = measured(shape(), clients=(1, 2, 4, 6, 8), noise=0)
    assert line.rising and replace(line, draws=None).rising
    scatter = np.random.default_rng(5).normal(0, 1, (1000, 5))
    assert replace(line, draws=np.array(line.medians) * np.exp(0.01 * scatter)).rising
    assert not replace(line, draws=np.array(line.medians) * np.exp(0.15 * scatter)).rising


def test_intervals_grow_with_the_noise(measured: Callable[..., Curve]) -> None:
    widths = []
    for noise in (0.005, 0.04):
        found = shape_findings(measured(noise=noise))
        widths.append([found[name].high - found[name].low for name in ("peak_throughput", "slope")])
    assert all(wide > 3 * narrow for narrow, wide in zip(*widths, strict=True))


def test_a_noisy_flat_top_may_have_its_peak_at_several_numbers(measured: Callable[..., Curve], shape: Any) -> None:
    found = shape_findings(measured(shape(slope=0.0, peak=100), noise=0.02))
    assert found["peak_clients"].low < found["peak_clients"].high
    assert found["peak_clients"].low <= found["peak_clients"].value <= found["peak_clients"].high
    assert found["saturation"].value == 4
    assert found["end_of_linear"].low <= 4


def test_what_limits_a_point_that_more_clients_would_lift(measured: Callable[..., Curve], shape: Any) -> None:
    assert measured(noise=0).limits() == [FEW_CLIENTS] * 4 + ["host"] * 4
    idle = measured(shape(knee=2, slope=0.0, peak=100), noise=0, clients=(1, 2, 3, 4))
    assert idle.limits() == [FEW_CLIENTS, "unknown", "unknown", "unknown"], "cores are idle, and more clients make no more"


def test_an_end_that_the_noise_may_move_past_the_data_has_no_interval(measured: Callable[..., Curve], shape: Any) -> None:
    # Five clients make 94 % of linear: by this noise that may be 95 %.
    found = end_of_linear(measured(shape(knee=4, slope=0.7, peak=100), clients=(1, 2, 3, 4, 5), noise=0.02, seed=3))
    assert (found.value, found.low) == (4, None)
    assert "by the spread of repeats the region may go on past the last number measured" in found.note
    open_end = end_of_linear(measured(shape(knee=100), clients=(1, 2, 4), noise=0.01))
    assert (open_end.value, open_end.low, open_end.high) == (4, None, None)
    assert "the data end before the linear region does" in open_end.note


def test_few_repeats_have_values_without_intervals(measured: Callable[..., Curve]) -> None:
    line = measured(repeats=1)
    assert line.draws is None
    for finding in shape_findings(line).values():
        assert finding.value is not None
        assert finding.confidence is None
    assert "too few repeats" in shape_findings(line)["slope"].note
