"""The answer in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.scaling.answer import answer
from pgherd.studies.scaling.curve import curve
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.points import group
from pgherd.studies.scaling.propose import planned

Build = Callable[..., ScalingOptions]


def said(options: ScalingOptions, host: Any) -> str:
    results = host.all(planned(options))
    return answer([curve(own, group(own, results, name), name, place) for place, (name, own) in enumerate(options.servers().items())])


@pytest.mark.parametrize(
    ("shape_of", "more", "text"),
    [
        (
            {},
            {},
            "One PostgreSQL 18.6 on 4 cores peaks at 57,000 tps (select-only) with 12 clients; it scales linearly up to 4 clients; "
            "16 clients make 3.5 % less than 12.",
        ),
        (
            {"slope": 0.02, "peak": 12, "fall": 0.0},
            {},
            "One PostgreSQL 18.6 on 4 cores peaks at 41,600 tps (select-only) with 12 clients; it scales linearly up to 4 clients; "
            "4 clients already make 96 % of that, and more than 12 clients made no more.",
        ),
        (
            {"knee": 100},
            {"vcpus": 1, "cpu_mode": "quota", "clients": (1, 2)},
            "One PostgreSQL 18.6 on 1 vCPU makes 20,000 tps (select-only) with 2 clients, the most that were measured; it scales linearly "
            "up to 2 clients, as far as was measured; throughput still rises there, so that the peak lies beyond.",
        ),
        (
            {"knee": 1, "slope": 0.1},
            {"clients": (1, 2, 16)},
            "One PostgreSQL 18.6 on 4 cores makes 16,000 tps (select-only) with 16 clients, the most that were measured; it does not scale "
            "linearly beyond 1 client; throughput still rises there, so that the peak lies beyond.",
        ),
        (
            {},
            {"clients": (4,)},
            "One PostgreSQL 18.6 on 4 cores made 40,000 tps (select-only) with 4 clients; how it scales cannot be said from one number of "
            "clients.",
        ),
    ],
)
def test_of_one_server(options: Build, server: Any, shape: Any, shape_of: dict[str, float], more: dict[str, Any], text: str) -> None:
    given = options(**more)
    assert said(given, server(given, {"": shape(**shape_of)}, noise=0)) == text


def test_of_variants_without_an_interval(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4, 8, 12), repeats=1)
    assert said(given, server(given, {"a": shape(), "b": shape(each=20_000)}, noise=0)) == (
        "'a' makes 57,000 tps with 12 clients (select-only); 'b' at 114,000 tps with 12: 2.00 times that, without an interval; "
        "linear up to 4 ('a'), 4 ('b') clients."
    )
