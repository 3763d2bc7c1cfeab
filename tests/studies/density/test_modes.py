"""Cost of a transaction and what the scheduler did."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.result import TrialResult
from pgherd.report.drawing import FigureInputs
from pgherd.studies.density.analyse import analyse
from pgherd.studies.density.curve import DensityCurve, density_curve, density_points
from pgherd.studies.density.figures import modes
from pgherd.studies.density.modes import (
    OF_MODE,
    cost_ratio,
    level_warnings,
    mode_findings,
    mode_rows,
    mode_sentence,
    seconds_near_full,
)
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
    client = mode_findings(curve)["client_cpu_share"]
    assert client.value == pytest.approx(0.15) and client.low is None and "no interval: the points differ by design" in client.note


def test_the_cost_is_relative_to_the_reference(options: Build, simulate: Any) -> None:
    class Dear(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) / (1.25 if n == 10 else 1)

    curve = with_scheduler(options(), Dear(options(), noise=0))
    found = cost_ratio(curve, len(curve.points) - 1)
    assert found.value == pytest.approx(1.25) and "single trials 1.25 to 1.25; reference: 6 databases" in found.note
    assert mode_sentence(curve).startswith("At 10 databases a transaction costs 1.25 times as much CPU as at 6 databases (1.25 to 1.25")
    assert mode_findings(curve)["cost_ratio"].note.startswith("at 10 databases; ")


def test_seconds_are_those_of_a_full_host(options: Build, simulate: Any) -> None:
    rows = seconds_near_full(with_scheduler(options(), simulate(options(), noise=0)))
    assert {row["databases"] for row in rows} == {8, 10}
    assert len(rows) == 2 * 3 * 8
    assert rows[0]["rate"] == pytest.approx(rows[0]["throughput"] / 2)


def test_levels_without_a_cpu_limit_are_per_cpu_second(options: Build, simulate: Any) -> None:
    """As of virtual machines. The CPU is measured, so that a level is transactions per CPU-second, and so are the seconds."""
    given = options(databases=(1, 2, 5, 8, 9, 10, 11, 12), cpu_mode="none")
    results = two_levels_of(given, simulate(given, noise=0), lambda tps: [tps] * 8)
    curve = density_curve(given, density_points(given, results))
    assert curve.cpu_shares is None and curve.levels is not None
    findings = mode_findings(curve)
    assert findings["fast_level"].unit == "tx per CPU-second" and 0 < findings["fast_share"].value < 1
    rates = {row["rate"] for row in seconds_near_full(curve)}
    assert min(rates) == pytest.approx(curve.levels.low) and max(rates) == pytest.approx(curve.levels.high)


def test_without_the_cpu_there_is_no_cost(options: Build, simulate: Any) -> None:
    given = options()
    curve = density_curve(given, density_points(given, simulate(given, metrics=False).all(planned(given))))
    findings = mode_findings(curve)
    assert findings["cost_ratio"].value is None and findings["client_cpu_share"].value is None
    assert mode_sentence(curve) == ""
    assert all(row["throttled_share"].value is None and row["throttled_share"].note for row in mode_rows(curve))


def two_levels_of(options: DensityOptions, host: Any, seconds: Callable[[float], list[float]]) -> list[TrialResult]:
    """Results of a host whose trials at 8 or more databases make 75 or 125 %, and wait half as long in the fast mode."""
    results = host.all(planned(options))
    for result in results:
        (phase,) = result.phases
        n = result.trial.point["databases"]
        fast = (n + result.trial.repeat) % 2 == 0
        factor = (1.25 if fast else 0.75) if n >= 8 else 1.0
        phase.metrics["host"]["procs_running"] = 19.0 if fast else 27.0
        for index, target in enumerate(phase.targets):
            tps = target.throughput * factor
            update = {"throughput": tps, "transactions": tps * 9, "per_second": seconds(tps)}
            phase.targets[index] = target.model_copy(update=update)
    return results


def with_two_levels(options: DensityOptions, host: Any, seconds: Callable[[float], list[float]]) -> DensityCurve:
    return density_curve(options, density_points(options, two_levels_of(options, host, seconds)))


def test_each_mode_has_a_row(options: Build, simulate: Any) -> None:
    given = options(databases=(1, 2, 5, 8, 9, 10, 11, 12))
    curve = with_two_levels(given, simulate(given), lambda tps: [])
    rows = mode_rows(curve)
    full = [row for row in rows if row["databases"] >= 8]
    assert [row["mode"] for row in rows if row["databases"] < 8] == [""] * 3
    assert {row["mode"] for row in full} == {"slow", "fast"}
    for row in full:
        fast = row["mode"] == "fast"
        assert row["runnable"].value == (19 if fast else 27)
        assert row["lowest_throughput"] == pytest.approx(150_000 if fast else 90_000, rel=0.05)
        assert row["cost_ratio"].value == pytest.approx(0.8 if fast else 1 / 0.75, rel=0.05)
        assert row["cpu_per_tx"].low is None and row["cpu_per_tx"].note == OF_MODE
    assert sum(row["trials"] for row in rows) == curve.trials()
    assert len({row["mode"] for row in mode_rows(with_scheduler(options(), simulate(options())))}) == 1


def test_the_figure_has_the_modes_of_the_table(options: Build, simulate: Any, synthetic: Any) -> None:
    """A fast trial that receives half of the CPU makes less than a slow one that receives all of it."""
    given = options(databases=(1, 2, 5, 8, 9, 10, 11, 12))
    results = two_levels_of(given, simulate(given), lambda tps: [0.99 * tps, 1.01 * tps] * 4)
    (starved,) = (result for result in results if (result.trial.point["databases"], result.trial.repeat) == (10, 0))
    (phase,) = starved.phases
    for metrics in phase.metrics.values():
        metrics.update({name: value / 2 for name, value in metrics.items() if name == "cpu.usage"})
    half = [[value / 2 for value in target.per_second] for target in phase.targets]
    phase.targets[:] = [
        target.model_copy(update={"throughput": target.throughput / 2, "transactions": target.transactions / 2, "per_second": seconds})
        for target, seconds in zip(phase.targets, half, strict=True)
    ]
    analysis = analyse(given, results)
    trials = {mode: sum(row["trials"] for row in analysis.tables["modes"] if row["mode"] == mode) for mode in ("slow", "fast")}
    drawn = modes(FigureInputs(synthetic.density_run()[0], analysis, results))
    assert drawn.title.endswith(f"in two modes: {trials['slow']} slow and {trials['fast']} fast")
    of_starved = {row["mode"] for row in analysis.figures["seconds"] if row["trial"] == starved.trial.key()}
    assert of_starved == {"fast"}, analysis.figures["seconds"][0]


def test_a_warning_of_two_levels(options: Build, simulate: Any) -> None:
    """It needs trials that differ by more than their seconds explain, or more than other points do if the seconds are unknown."""
    given = options(databases=(1, 2, 5, 10))  # six trials of a full host would be told apart by themselves
    (found,) = level_warnings(with_two_levels(given, simulate(given), lambda tps: [0.97 * tps, 1.03 * tps] * 4))
    assert re.match(r"Two levels: the best and the worst trial of 10 databases \((89|90|91),\d+ to 1[45]\d,\d+ tps\)", found)
    assert level_warnings(with_two_levels(given, simulate(given), lambda tps: [0.4 * tps] * 4 + [1.6 * tps] * 4)) == []


def test_noise_is_no_level(options: Build, simulate: Any) -> None:
    found = [level_warnings(with_scheduler(given, simulate(given, noise=0.1, seed=seed))) for seed in range(40) for given in [options()]]
    assert sum(map(bool, found)) <= 4


@pytest.mark.parametrize(("scheduler", "steps"), [("normal", ["--scheduler batch"]), ("batch", [])])
def test_two_levels_propose_another_policy(options: Build, simulate: Any, scheduler: str, steps: list[str]) -> None:
    given = options(databases=(1, 2, 5, 8, 9, 10, 11, 12), scheduler=scheduler)
    analysis = analyse(given, two_levels_of(given, simulate(given), lambda tps: []))
    assert [found for step in analysis.next_steps for found in re.findall(r"--scheduler \S+", step)] == steps


def test_one_level_proposes_no_policy(options: Build, simulate: Any) -> None:
    assert "--scheduler" not in " ".join(analyse(options(), simulate(options()).all(planned(options()))).next_steps)
