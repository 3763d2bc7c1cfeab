"""Trials grouped by number of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.points import client_share, group, server_cpu_per_tx
from pgherd.studies.scaling.propose import planned

Build = Callable[..., ScalingOptions]


def test_points_are_those_of_one_variant(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4))
    host = server(
        given, {"a": shape(), "b": shape(each=5_000)}, noise=0, fail=lambda t: "died" if t.key() == "clients=4,variant=b#1" else None
    )
    results = host.all(planned(given))
    one, four = group(given.servers()["b"], results, "b")
    assert (one.clients, one.median) == (1, pytest.approx(5_000))
    assert (four.clients, four.tried, four.failed) == (4, 3, 1)
    assert [point.median for point in group(given.servers()["a"], results, "a")] == [pytest.approx(10_000), pytest.approx(40_000)]
    assert group(given, results) == [], "none without a variant"


def test_the_median_is_not_moved_by_one_bad_trial(options: Build, server: Any) -> None:
    given = options(clients=(4,))
    results = server(given, noise=0).all(planned(given))
    target = results[0].phases[0].targets[0]
    bad = results[0].phases[0].model_copy(update={"targets": [target.model_copy(update={"throughput": 100.0})]})
    (point,) = group(given, [results[0].model_copy(update={"phases": [bad]}), *results[1:]])
    assert point.median == pytest.approx(40_000)
    assert point.mean < 30_000


def test_the_cpu_of_server_and_clients(options: Build, server: Any) -> None:
    given = options(clients=(4,))
    (point,) = group(given, server(given, noise=0).all(planned(given)))
    # Clients outside the container would be beside it; these are inside, a third of its 3.2 cores.
    assert server_cpu_per_tx(point.used[0]) == pytest.approx(1000 * 3.2 * 2 / 3 / 40_000)
    assert client_share(point.used[0]) == pytest.approx(1 / 3)
    (unseen,) = group(given, server(given, metrics=False).all(planned(given)))
    assert server_cpu_per_tx(unseen.used[0]) is None
    assert client_share(unseen.used[0]) is None
