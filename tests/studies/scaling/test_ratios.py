"""Ratios between variants' curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.scaling.curve import curve
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.points import group
from pgherd.studies.scaling.propose import planned
from pgherd.studies.scaling.ratios import at_same_clients, ratio_findings, variant_rows

Build = Callable[..., ScalingOptions]


def curves(options: ScalingOptions, host: Any) -> list[Any]:
    results = host.all(planned(options))
    return [
        curve(own, group(own, results, name), name, options.seed + place) for place, (name, own) in enumerate(options.servers().items())
    ]


@pytest.mark.parametrize("noise", [0.01, 0.04])
def test_intervals_hold_the_truth_as_often_as_they_say(variants: Build, server: Any, shape: Any, noise: float) -> None:
    """150 runs of two variants of which one is 10 % faster. Of 300 intervals at 95 %, 15 are to miss; 28 or more would be one in
    a thousand."""
    missed = 0
    for seed in range(150):
        given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 2, 4, 8, 10), seed=seed)
        found = ratio_findings(curves(given, server(given, {"a": shape(), "b": shape(each=11_000)}, noise=noise, seed=seed)))
        for name in ("peak_ratio.b", "slope_ratio.b"):
            missed += not found[name].low <= 1.1 <= found[name].high
    assert missed < 28


def test_a_number_of_clients_that_the_first_does_not_have(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4))
    results = server(given, {"a": shape(), "b": shape(each=5_000)}, noise=0).all(planned(given))
    kept = [result for result in results if result.trial.point != {"variant": "a", "clients": 4}]
    base, other = (curve(own, group(own, kept, name), name) for name, own in given.servers().items())
    assert at_same_clients(other, base, 0).value == pytest.approx(0.5)
    assert "'a' was not measured with so many clients" in at_same_clients(other, base, 1).note


def test_what_the_variants_are(variants: Build) -> None:
    rows = variant_rows(variants({"a": {"settings": {"jit": "off", "work_mem": "4MB"}}, "b": {"settings": {"work_mem": "4MB"}}}).servers())
    assert [row["settings"] for row in rows] == ["jit=off", "jit=default"]
    assert variant_rows(variants({"a": {}, "b": {"scale": 3}}).servers())[1]["settings"] == "the same"


def test_the_servers_cpu_is_compared_where_it_was_seen(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4, 10))
    shapes = {"a": shape(), "b": shape(each=12_500)}
    seen = ratio_findings(curves(given, server(given, shapes, noise=0.002)))["cpu_ratio.b"]
    assert seen.low < 0.8 < seen.high
    assert ratio_findings(curves(given, server(given, shapes, metrics=False)))["cpu_ratio.b"].value is None
