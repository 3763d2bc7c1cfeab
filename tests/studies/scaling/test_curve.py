"""Points, curve and published values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pgherd.model.load import Script
from pgherd.studies.scaling.curve import (
    TOO_FEW_CLIENTS,
    ScalingCurve,
    client_cpu_share,
    linear_range_end,
    published_linear_region,
    published_ratio,
    published_saturation,
    scaling_curve,
    scaling_points,
    server_cpu_per_tx,
    shape_findings,
)
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.propose import planned
from pgherd.study.database_options import DatabaseOptions

Build = Callable[..., ScalingOptions]


@pytest.fixture
def measured(options: Build, server: Any, shape: Any) -> Callable[..., ScalingCurve]:
    def run(shape_of: Any = None, noise: float = 0.01, **extra: Any) -> ScalingCurve:
        study_options = options(**extra)
        results = server(study_options, {"": shape_of or shape()}, noise=noise).all(planned(study_options))
        return scaling_curve(study_options, scaling_points(study_options, results), seed=study_options.seed)

    return run


def test_without_noise_every_number_is_exact(measured: Callable[..., ScalingCurve]) -> None:
    line = measured(noise=0)
    assert line.medians == pytest.approx((10_000, 20_000, 30_000, 40_000, 46_000, 52_000, 57_000, 55_000))
    assert (line.region.end, line.region.next) == (4, 6)
    assert line.slope().value == pytest.approx(10_000)
    assert (line.loads[line.best], line.at_edge, line.rising) == (12, False, False)
    assert line.loads[line.saturation()] == 12
    assert line.linear_share(7).value == pytest.approx(55_000 / 160_000)
    assert line.beyond_peak.falls is True


def test_a_rise_is_claimed_beyond_the_scatter_only(measured: Callable[..., ScalingCurve], shape: Any) -> None:
    """The curve ends with a rise of 13 %: significant if the medians scatter by 1 %, but not by 15 %."""
    line = measured(shape(), clients=(1, 2, 4, 6, 8), noise=0)
    assert line.rising and replace(line, draws=None).rising
    scatter = np.random.default_rng(5).normal(0, 1, (1000, 5))
    assert replace(line, draws=np.array(line.medians) * np.exp(0.01 * scatter)).rising
    assert not replace(line, draws=np.array(line.medians) * np.exp(0.15 * scatter)).rising


def test_intervals_grow_with_the_noise(measured: Callable[..., ScalingCurve]) -> None:
    widths = []
    for noise in (0.005, 0.04):
        result = shape_findings(measured(noise=noise))
        widths.append([result[name].high - result[name].low for name in ("peak_throughput", "linear_slope")])
    assert all(wide > 3 * narrow for narrow, wide in zip(*widths, strict=True))


def test_a_noisy_flat_top_may_have_its_peak_at_several_numbers(measured: Callable[..., ScalingCurve], shape: Any) -> None:
    result = shape_findings(measured(shape(slope=0.0, peak=100), noise=0.02))
    assert result["peak_clients"].low < result["peak_clients"].high
    assert result["peak_clients"].low <= result["peak_clients"].value <= result["peak_clients"].high
    assert result["saturation_point"].value == 4
    assert result["linear_range_end"].low <= 4


def test_bottleneck_of_a_point_below_the_peak(measured: Callable[..., ScalingCurve], shape: Any) -> None:
    assert measured(noise=0).limits() == [TOO_FEW_CLIENTS] * 4 + ["host-cpu"] * 4
    idle = measured(shape(knee=2, slope=0.0, peak=100), noise=0, clients=(1, 2, 3, 4))
    assert idle.limits() == [TOO_FEW_CLIENTS, "unknown", "unknown", "unknown"], "cores are idle, and more clients make no more"


def test_an_end_that_the_noise_may_move_past_the_data_has_no_interval(measured: Callable[..., ScalingCurve], shape: Any) -> None:
    # Five clients make 94 % of linear: by this noise that may be 95 %.
    result = linear_range_end(measured(shape(knee=4, slope=0.7, peak=100), clients=(1, 2, 3, 4, 5), noise=0.02, seed=3))
    assert (result.value, result.low) == (4, None)
    assert "by the spread of the repeats the region may extend past the last number measured" in result.note
    open_end = linear_range_end(measured(shape(knee=100), clients=(1, 2, 4), noise=0.01))
    assert (open_end.value, open_end.low, open_end.high) == (4, None, None)
    assert "the data end before the linear region does" in open_end.note


def test_few_repeats_have_values_without_intervals(measured: Callable[..., ScalingCurve]) -> None:
    line = measured(repeats=1)
    assert line.draws is None
    for name, finding in shape_findings(line).items():
        assert (finding.value is None) == (name == "peak_clients")
        assert finding.confidence is None
    assert "too few repeats" in shape_findings(line)["linear_slope"].note


def test_points_are_those_of_one_variant(variants: Build, server: Any, shape: Any) -> None:
    study_options = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4))
    host = server(
        study_options,
        {"a": shape(), "b": shape(each=5_000)},
        noise=0,
        fail=lambda t: "died" if t.key() == "clients=4,variant=b#1" else None,
    )
    results = host.all(planned(study_options))
    item, four = scaling_points(study_options.servers()["b"], results, "b")
    assert (item.clients, item.median) == (1, pytest.approx(5_000))
    assert (four.clients, four.tried, four.failed) == (4, 3, 1)
    assert [point.median for point in scaling_points(study_options.servers()["a"], results, "a")] == [
        pytest.approx(10_000),
        pytest.approx(40_000),
    ]
    assert scaling_points(study_options, results) == [], "none without a variant"


def test_the_median_is_not_moved_by_one_bad_trial(options: Build, server: Any) -> None:
    study_options = options(clients=(4,))
    results = server(study_options, noise=0).all(planned(study_options))
    target = results[0].phases[0].targets[0]
    bad = results[0].phases[0].model_copy(update={"targets": [target.model_copy(update={"throughput": 100.0})]})
    (point,) = scaling_points(study_options, [results[0].model_copy(update={"phases": [bad]}), *results[1:]])
    assert point.median == pytest.approx(40_000)
    assert point.mean < 30_000


def test_the_cpu_of_server_and_clients(options: Build, server: Any) -> None:
    study_options = options(clients=(4,))
    (point,) = scaling_points(study_options, server(study_options, noise=0).all(planned(study_options)))
    # The clients run inside the container and use a third of its 3.2 cores.
    assert server_cpu_per_tx(point.used[0]) == pytest.approx(1000 * 3.2 * 2 / 3 / 40_000)
    assert client_cpu_share(point.used[0]) == pytest.approx(1 / 3)
    (unseen,) = scaling_points(study_options, server(study_options, metrics=False).all(planned(study_options)))
    assert server_cpu_per_tx(unseen.used[0]) is None
    assert client_cpu_share(unseen.used[0]) is None


def test_published_values_are_for_their_workload(options: Build) -> None:
    reads, writes = options(), options(scripts=(Script(source="builtin:tpcb-like"),))
    assert "8 → 20 clients" in published_linear_region(reads)["published"] and published_linear_region(writes) == {}
    assert "≈ 20 → beyond 48 clients" in published_saturation(writes)["published"] and published_saturation(reads) == {}
    assert all("VMware" in published_linear_region(reads)[key] for key in ("published",))
    assert published_linear_region(reads)["experiment"] == "E3"


def test_ratios_only_where_e3_compared_the_like(options: Build) -> None:
    def server(**extra: object) -> DatabaseOptions:
        return options(**extra)

    tpcb = (Script(source="builtin:tpcb-like"),)
    old, new = server(pg_version="15.18"), server()
    assert "4 ×" in published_ratio(new, old, "peak")["published"]
    assert "8 → 20" in published_ratio(new, old, "linear")["published"]
    assert published_ratio(new, old, "slope") == {}
    assert "+100 %" in published_ratio(server(scripts=tpcb), server(scripts=tpcb, pg_version="15.18"), "peak")["published"]
    assert published_ratio(server(scripts=tpcb), old, "peak") == {}, "another load"
    assert published_ratio(server(settings={"jit": "off"}), new, "peak") == {}
    assert published_ratio(server(pg_version="18.5"), new, "peak") == {}, "a minor release is no other version"
    assert "on par" in published_ratio(server(runtime="vm"), new, "peak")["published"]
    assert published_ratio(server(runtime="process"), new, "peak") == {}, "neither of the two is virtual"
    assert published_ratio(server(runtime="vm"), server(runtime="vm"), "peak") == {}
    assert published_ratio(server(runtime="vm"), server(dsn="host=elsewhere"), "peak") == {}, "the machine of an external server is unknown"
