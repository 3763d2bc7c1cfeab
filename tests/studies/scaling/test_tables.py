"""Tables of a scaling analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.scaling.curve import Curve, curve
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.points import group
from pgherd.studies.scaling.propose import planned
from pgherd.studies.scaling.tables import cpu_rows, scaling_rows

Build = Callable[..., ScalingOptions]


def lines(options: ScalingOptions, host: Any) -> list[Curve]:
    results = host.all(planned(options))
    return [curve(own, group(own, results, name), name) for name, own in options.servers().items()]


def test_a_row_of_every_number_of_clients(options: Build, server: Any) -> None:
    given = options(clients=(1, 4, 8))
    one, four, eight = scaling_rows(lines(given, server(given, noise=0)))
    assert (one["clients"], one["clients_per_core"], one["trials"], one["tainted"]) == (1, 0.25, 3, 0)
    assert one["p99"].value is None and one["p99"].note
    assert four["p99"].value == pytest.approx(3 * 1000 * 4 / 40_000)
    assert eight["efficiency_linear"].value == pytest.approx(52 / 80)
    assert "variant" not in one and "ratio" not in one


def test_the_clients_place_is_said_of_their_cpu(options: Build, server: Any) -> None:
    for place, word in (("inside", "with the clients in it"), ("outside", "without clients")):
        given = options(clients=(1, 4), client_place=place)
        assert word in scaling_rows(lines(given, server(given)))[0]["cpu_per_tx"].note


def test_variants_have_their_ratio_to_the_first(variants: Build, server: Any, shape: Any) -> None:
    given = variants({"a": {}, "b": {"scale": 20}}, clients=(1, 4))
    rows = scaling_rows(lines(given, server(given, {"a": shape(), "b": shape(each=5_000)}, noise=0)))
    assert [(row["variant"], row["clients"], row["ratio"].value) for row in rows] == [
        ("a", 1, 1.0),
        ("a", 4, 1.0),
        ("b", 1, pytest.approx(0.5)),
        ("b", 4, pytest.approx(0.5)),
    ]


def test_the_number_of_clients_and_their_cpu_are_two_columns(options: Build, server: Any) -> None:
    given = options(clients=(1, 4))
    row = cpu_rows(lines(given, server(given, noise=0)))[1]
    assert row["clients"] == 4
    assert row["clients_cpu"].value == pytest.approx(3.2 / 3)
    assert row["databases_cpu"].value == pytest.approx(3.2 * 2 / 3)
    assert row["idle"].value == pytest.approx(0.8)
