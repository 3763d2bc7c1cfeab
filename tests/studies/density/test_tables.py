"""E1's table and where the CPU went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.density.curve import Curve, curve
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import group
from pgherd.studies.density.propose import planned
from pgherd.studies.density.tables import cpu_rows, density_rows

Build = Callable[..., DensityOptions]


def line(options: DensityOptions, host: Any) -> Curve:
    return curve(options, group(options, host.all(planned(options))))


def test_perfect_is_n_times_one_and_n_times_the_slope(options: Build, simulate: Any) -> None:
    rows = density_rows(line(options(), simulate(options(), alone=0.9)))
    for row in rows:
        n = row["databases"]
        assert row["cores"] == n * 0.25
        assert row["fraction"] == n / 8
        assert row["perfect"].value == pytest.approx(n * rows[0]["throughput"].value)
        assert row["perfect"].high == pytest.approx(n * rows[0]["throughput"].high)
        assert row["efficiency"].value == pytest.approx(row["throughput"].value / row["perfect"].value)
        assert row["efficiency_linear"].value == pytest.approx(row["throughput"].value / row["perfect_linear"].value)


def test_one_database_is_1_by_definition(options: Build, simulate: Any) -> None:
    first = density_rows(line(options(), simulate(options())))[0]
    for name in ("efficiency", "efficiency_cpu"):
        assert first[name].value == 1
        assert first[name].low is None
        assert "by definition" in first[name].note
    assert "by definition" in first["jain"].note


def test_what_cpu_per_transaction_covers_is_said(options: Build, simulate: Any) -> None:
    inside = density_rows(line(options(), simulate(options())))[2]["cpu_per_tx"]
    given = options(client_place="outside")
    outside = density_rows(line(given, simulate(given)))[2]["cpu_per_tx"]
    assert "with the clients in them" in inside.note
    assert "without clients" in outside.note
    assert inside.value == pytest.approx(1000 * 0.75 / 45_000, rel=0.05)
    assert inside.unit == "ms"


def test_percentiles_that_are_not_supported_have_a_reason(options: Build, simulate: Any) -> None:
    rows = density_rows(line(options(), simulate(options())))
    assert rows[0]["p99"].value == 3
    assert rows[-1]["p99"].value is None
    assert "too few sampled transactions" in rows[-1]["p99"].note


def test_cpu_adds_up_to_the_host(options: Build, simulate: Any) -> None:
    for row in cpu_rows(line(options(), simulate(options(), overhead=0.3))):
        parts = [row[name].value for name in ("databases_cpu", "clients", "pgherd", "platform", "iowait", "idle", "steal")]
        assert sum(parts) == pytest.approx(2.01)
        assert row["platform.vm"].value == pytest.approx(0.15)


def test_without_named_parts_there_is_no_column_for_them(options: Build, simulate: Any) -> None:
    rows = cpu_rows(line(options(), simulate(options(), metrics=False)))
    assert not any(name.startswith("platform.") for row in rows for name in row)
    assert all(row["idle"].value is None and row["idle"].note for row in rows)
