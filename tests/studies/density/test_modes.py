"""Cost of a transaction and what the scheduler did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.studies.density.curve import DensityCurve, density_curve, density_points
from pgherd.studies.density.modes import cost_ratio, mode_findings, mode_rows, mode_sentence, seconds_near_full
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned

Build = Callable[..., DensityOptions]


def with_scheduler(options: DensityOptions, host: Any) -> DensityCurve:
    """Curve of a host whose containers are throttled in a quarter of 10 periods, with 2 switches per transaction."""
    results = host.all(planned(options))
    for result in results:
        (phase,) = result.phases
        for entity, metrics in phase.metrics.items():
            if entity.startswith("container:"):
                metrics.update({"cpu.periods": 10.0, "cpu.throttled_periods": 2.5, "cpu.system": metrics["cpu.usage"] / 2})
        phase.metrics["host"].update({"context_switches": 2 * phase.throughput, "procs_running": 7.0})
        for index, target in enumerate(phase.targets):
            latency = target.latency.model_copy(update={"under_50us": 0.25})
            phase.targets[index] = target.model_copy(update={"latency": latency, "per_second": [target.throughput] * 8})
    return density_curve(options, density_points(options, results))


def test_a_row_has_what_distinguishes_the_modes(options: Build, simulate: Any) -> None:
    curve = with_scheduler(options(), simulate(options(), noise=0))
    rows = {row["databases"]: row for row in mode_rows(curve)}
    row = rows[10]
    assert row["throttled_share"].value == pytest.approx(0.25)
    assert row["switches_per_tx"].value == pytest.approx(2)
    assert row["runnable"].value == 7
    assert row["under_50us"].value == pytest.approx(0.25)
    assert row["system_per_tx"].value == pytest.approx(row["cpu_per_tx"].value / 2)
    assert row["client_per_tx"].value == pytest.approx(0.15 * row["cpu_per_tx"].value)
    assert (row["lowest_throughput"], row["highest_throughput"]) == (pytest.approx(120_000), pytest.approx(120_000))
    assert mode_findings(curve)["client_cpu_share"].value == pytest.approx(0.15)


def test_the_cost_is_relative_to_the_reference(options: Build, simulate: Any) -> None:
    class Dear(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) / (1.25 if n == 10 else 1)

    curve = with_scheduler(options(), Dear(options(), noise=0))
    found = cost_ratio(curve, curve.points[-1])
    assert found.value == pytest.approx(1.25) and "single trials 1.25 to 1.25; reference: 6 databases" in found.note
    assert mode_sentence(curve).startswith("At 10 databases a transaction costs 1.25 times as much CPU as at 6 databases (1.25 to 1.25")
    assert mode_findings(curve)["cost_ratio"].note.startswith("at 10 databases; ")


def test_seconds_are_those_of_a_full_host(options: Build, simulate: Any) -> None:
    rows = seconds_near_full(with_scheduler(options(), simulate(options(), noise=0)))
    assert {row["databases"] for row in rows} == {8, 10}
    assert len(rows) == 2 * 3 * 8
    assert rows[0]["rate"] == pytest.approx(rows[0]["throughput"] / 2)


def test_without_the_cpu_there_is_no_cost(options: Build, simulate: Any) -> None:
    given = options()
    curve = density_curve(given, density_points(given, simulate(given, metrics=False).all(planned(given))))
    findings = mode_findings(curve)
    assert findings["cost_ratio"].value is None and findings["client_cpu_share"].value is None
    assert mode_sentence(curve) == ""
    assert all(row["throttled_share"].value is None and row["throttled_share"].note for row in mode_rows(curve))
