"""Overhead (E2), fairness, ideal warnings, published values and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.analysis import Finding
from pgherd.studies.density.curve import DensityCurve, density_curve, density_points
from pgherd.studies.density.findings import (
    E1,
    cpu_rows,
    density_rows,
    evidence_findings,
    ideal_warnings,
    published_efficiency,
    published_efficiency_at,
    published_rows,
)
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned

Build = Callable[..., DensityOptions]


def evidence(options: DensityOptions, host: Any) -> dict[str, Finding]:
    return evidence_findings(density_curve(options, density_points(options, host.all(planned(options)))))


def test_both_ways_of_measuring_overhead(options: Build, simulate: Any) -> None:
    """The platform uses 0.8 of 2 cores. 1.2 remain, and 6 databases need 1.5."""
    findings = evidence(options(), simulate(options(), overhead=0.8))
    assert findings["platform_overhead_measured"].value == pytest.approx(0.8)
    assert findings["platform_overhead_inferred_share"].value == pytest.approx(1 - 1.2 / 1.5, abs=0.02)
    assert findings["platform_overhead_inferred"].value == pytest.approx(2 * (1 - 1.2 / 1.5), abs=0.04)
    assert "upper bound" in findings["platform_overhead_inferred"].note
    assert {findings[name].experiment for name in ("platform_overhead_measured", "platform_overhead_inferred")} == {"E2"}


def test_below_a_full_host_a_quota_bounds_nothing(options: Build, simulate: Any) -> None:
    """The platform uses 0.4 of 2 cores, which the quotas leave idle: throughput at 80 % is not reduced."""
    findings = evidence(options(), simulate(options(), overhead=0.4, noise=0))
    assert findings["platform_overhead_inferred"].value == pytest.approx(0, abs=1e-9)
    assert findings["platform_overhead_measured"].value == pytest.approx(0.4)
    assert "no bound" in findings["platform_overhead_inferred"].note
    assert "upper bound" not in findings["platform_overhead_inferred"].note
    assert "75 % of the cores" in findings["platform_overhead_measured"].note
    assert "no bound: the rate" in evidence(options(rate=1000), simulate(options(rate=1000)))["platform_overhead_inferred"].note


def test_nothing_is_inferred_from_more_than_perfect(options: Build, simulate: Any) -> None:
    class Better(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) * (1.04 if n == 6 else 1)

    findings = evidence(options(), Better(options(), noise=0.001))
    assert findings["platform_overhead_inferred"].value is None
    assert "above ideal" in findings["platform_overhead_inferred"].note


def test_nothing_is_inferred_where_the_reference_is_compared_with_itself(options: Build, simulate: Any) -> None:
    """Without a single database, the ideal is that of 6 databases, which are also the point near 80 % of the cores."""
    given = options(databases=(6, 8, 10))
    findings = evidence(given, simulate(given))
    for name in ("platform_overhead_inferred", "platform_overhead_inferred_share"):
        assert findings[name].value is None
        assert findings[name].note == "the throughput near 80 % of the cores is the ideal itself (as 6 databases)"
    alone = options(host_cores=0.3, databases=(1, 2))
    assert "is the ideal itself (as a single database)" in evidence(alone, simulate(alone))["platform_overhead_inferred"].note
    between = options(databases=(5, 8, 10))
    assert "is the ideal itself" not in evidence(between, simulate(between, overhead=0.8))["platform_overhead_inferred"].note


def test_idle_databases_are_not_cpu_bound(options: Build, simulate: Any) -> None:
    study_options = options()
    results = simulate(study_options).all(planned(study_options))
    for result in results:
        for entity, metrics in result.phases[0].metrics.items():
            if entity.startswith("container:"):
                metrics["cpu.usage"] *= 0.5
    findings = evidence_findings(density_curve(study_options, density_points(study_options, results)))
    assert findings["cpu_limit_utilization"].value == pytest.approx(0.5, abs=0.01)
    assert findings["cpu_limit_utilization"].low is None  # points differ by design and are not repeats of each other
    assert findings["cpu_limit_utilization"].n == 18  # three at each of six points


def test_without_a_limit_there_is_no_share_of_it(options: Build, simulate: Any) -> None:
    findings = evidence(options(cpu_mode="none"), simulate(options(cpu_mode="none")))
    assert findings["cpu_limit_utilization"].value is None
    assert "not limited" in findings["cpu_limit_utilization"].note


def test_unfair_sharing_is_seen(options: Build, simulate: Any) -> None:
    study_options = options()
    results = simulate(study_options).all(planned(study_options))
    for result in results:
        targets = result.phases[0].targets
        if len(targets) > 1:
            targets[0] = targets[0].model_copy(update={"throughput": targets[0].throughput / 2})
    findings = evidence_findings(density_curve(study_options, density_points(study_options, results)))
    assert findings["min_max_ratio"].value == pytest.approx(0.5, abs=0.05)
    assert findings["jain_index"].value < 0.99
    assert "at 8 databases" in findings["jain_index"].note


def test_the_least_fair_point_is_that_of_the_lowest_mean(options: Build, simulate: Any) -> None:
    """One trial of 10 databases is the least fair, but those of 5 are less fair on average."""
    study_options = options()
    results = simulate(study_options).all(planned(study_options))
    for result in results:
        targets, databases = result.phases[0].targets, result.trial.point["databases"]
        part = 0.5 if databases == 5 else 0.3 if databases == 10 and result.trial.repeat == 0 else 1.0
        targets[0] = targets[0].model_copy(update={"throughput": targets[0].throughput * part})
    worst = evidence_findings(density_curve(study_options, density_points(study_options, results)))["min_max_ratio_worst"]
    assert worst.value == pytest.approx(0.5, abs=0.05) and "at 5 databases" in worst.note


def test_one_database_has_no_fairness(options: Build, simulate: Any) -> None:
    study_options = options(databases=(1,))
    assert evidence(study_options, simulate(study_options))["jain_index"].value is None


def test_own_cost(options: Build, simulate: Any) -> None:
    findings = evidence(options(), simulate(options()))
    assert 0.01 < findings["pgherd_cpu"].value < 0.02
    assert findings["pgherd_cpu"].low is None and "no interval: the points differ by design" in findings["pgherd_cpu"].note
    assert evidence(options(databases=(8,)), simulate(options(databases=(8,))))["pgherd_cpu"].low is not None, "repeats of one point"


@pytest.fixture
def warnings_of(options: Build, simulate: Any) -> Callable[..., list[str]]:
    """Warnings of a simulated host with more throughput than ideal at 8 databases, which use all its cores."""

    def of(more: float = 1.0, cpu_factor: float = 1.0, databases: tuple[int, ...] = (1, 2, 3, 5, 6, 8, 10), **host: Any) -> list[str]:
        class Better(simulate):
            def truth(self, n: int) -> float:
                return super().truth(n) * (more if n == 8 else 1.0)

        study_options = options(databases=databases)
        results = Better(study_options, **host).all(planned(study_options))
        for result in results:
            for entity, metrics in result.phases[0].metrics.items():
                if result.trial.point["databases"] == 8 and entity.startswith("container:"):
                    metrics["cpu.usage"] *= cpu_factor
        return ideal_warnings(density_curve(study_options, density_points(study_options, results)))

    return of


def test_no_warning_at_the_ideal(warnings_of: Any) -> None:
    assert warnings_of() == []
    assert warnings_of(more=1.04, noise=0) == [], "a small difference has no warning"


def test_a_single_database_differs_from_the_reference(warnings_of: Any) -> None:
    (slow,) = warnings_of(alone=0.85)
    assert "less than each of 6 databases" in slow and "waking an idle CPU costs more than the query" in slow
    assert "the spread of its repeats" not in slow
    (fast,) = warnings_of(alone=1.15)
    assert "boosted clocks" in fast
    noisy = [text for seed in range(8) for text in warnings_of(alone=0.85, noise=0.12, seed=seed)]
    assert any("which the spread of its repeats also explains" in text for text in noisy)


def test_more_than_perfect_beyond_chance(warnings_of: Any) -> None:
    (text,) = warnings_of(more=1.15, noise=0.005)
    assert text.startswith("Efficiency is above 100 %: 115 % at 8 databases. Transactions cost less CPU time there than at the reference")
    assert text.endswith("otherwise other load slowed the reference")


def test_more_than_perfect_that_the_spread_explains(warnings_of: Any) -> None:
    (text,) = [text for text in warnings_of(more=1.15, noise=0.08) if "above 100 %" in text]
    assert "at 8 databases, within the spread of the repeats." in text
    assert text.endswith("Chance may explain it: add repeats to decide (--repeats)")


def test_efficiencies_as_the_article_says() -> None:
    assert published_efficiency(E1[-1]) == pytest.approx(0.857, abs=5e-4)
    assert published_efficiency(E1[5]) == pytest.approx(1957 / 2048)


@pytest.mark.parametrize(("fraction", "databases"), [(0.025, 1), (0.39, 16), (0.81, 32), (1.0, 40)])
def test_a_close_fraction_has_a_published_value(fraction: float, databases: int) -> None:
    row = next(row for row in E1 if row[0] == databases)
    assert published_efficiency_at(fraction) == published_efficiency(row)


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.9, 1.1])
def test_other_fractions_have_none(fraction: float) -> None:
    assert published_efficiency_at(fraction) is None


def test_the_figure_names_its_source() -> None:
    rows = published_rows()
    assert [row["allocated_share"] for row in rows] == [0.025, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert all("n0derunner.com" in row["source"] for row in rows)


def measured_curve(options: DensityOptions, host: Any) -> DensityCurve:
    return density_curve(options, density_points(options, host.all(planned(options))))


def test_ideal_is_n_times_the_reference(options: Build, simulate: Any) -> None:
    rows = density_rows(measured_curve(options(), simulate(options(), alone=0.9)))
    reference = rows[4]
    assert reference["databases"] == 6
    for row in rows:
        n = row["databases"]
        assert row["cores_allocated"] == n * 0.25
        assert row["allocated_share"] == n / 8
        assert row["ideal"].value == pytest.approx(n / 6 * reference["throughput"].value)
        assert row["ideal"].high == pytest.approx(n / 6 * reference["throughput"].high)
        assert row["efficiency"].value == pytest.approx(row["throughput"].value / row["ideal"].value)
        assert row["efficiency_vs_single"].value == pytest.approx(row["throughput"].value / n / rows[0]["throughput"].value)


def test_the_reference_is_1_by_definition(options: Build, simulate: Any) -> None:
    rows = density_rows(measured_curve(options(), simulate(options())))
    for cell in (rows[0]["efficiency_vs_single"], rows[4]["efficiency"], rows[4]["cpu_efficiency"]):
        assert cell.value == 1
        assert cell.low is None
        assert "by definition" in cell.note + cell.method
    assert "by definition" in rows[0]["jain_index"].note


def test_what_cpu_per_transaction_covers_is_said(options: Build, simulate: Any) -> None:
    inside = density_rows(measured_curve(options(), simulate(options())))[2]["cpu_per_tx"]
    study_options = options(client_placement="outside")
    outside = density_rows(measured_curve(study_options, simulate(study_options)))[2]["cpu_per_tx"]
    assert "with the clients in them" in inside.note
    assert "without clients" in outside.note
    assert inside.value == pytest.approx(1000 * 0.75 / 45_000, rel=0.05)
    assert inside.unit == "ms"


def test_percentiles_that_are_not_supported_have_a_reason(options: Build, simulate: Any) -> None:
    rows = density_rows(measured_curve(options(), simulate(options())))
    assert rows[0]["p99"].value == 3
    assert rows[-1]["p99"].value is None
    assert "too few sampled transactions" in rows[-1]["p99"].note


def test_cpu_adds_up_to_the_host(options: Build, simulate: Any) -> None:
    for row in cpu_rows(measured_curve(options(), simulate(options(), overhead=0.3))):
        parts = [row[name].value for name in ("databases_cpu", "clients_cpu", "pgherd_cpu", "platform_cpu", "iowait", "idle", "steal")]
        assert sum(parts) == pytest.approx(2.01)
        assert row["platform_cpu.vm"].value == pytest.approx(0.15)


def test_without_named_parts_there_is_no_column_for_them(options: Build, simulate: Any) -> None:
    rows = cpu_rows(measured_curve(options(), simulate(options(), metrics=False)))
    assert not any(name.startswith("platform.") for row in rows for name in row)
    assert all(row["idle"].value is None and row["idle"].note for row in rows)


def test_throughput_is_also_per_core_that_steal_left(options: Build, simulate: Any) -> None:
    given = options()
    results = simulate(given, noise=0).all(planned(given))
    for result in results:
        host = result.phases[0].metrics["host"]
        host["cpu.steal"], host["cpu.idle"] = 0.5, max(host["cpu.idle"] - 0.5, 0.0)
    row = density_rows(density_curve(given, density_points(given, results)))[2]
    assert row["throughput_per_core"].value == pytest.approx(row["throughput"].value / 2.01 * 2.01 / 1.51, rel=1e-3)
