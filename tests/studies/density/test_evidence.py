"""Overhead (E2), CPU-bound evidence and fairness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.finding import Finding
from pgherd.studies.density.curve import curve
from pgherd.studies.density.evidence import evidence_findings
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import group
from pgherd.studies.density.propose import planned

Build = Callable[..., DensityOptions]


def evidence(options: DensityOptions, host: Any) -> dict[str, Finding]:
    return evidence_findings(curve(options, group(options, host.all(planned(options)))))


def test_both_ways_of_measuring_overhead(options: Build, simulate: Any) -> None:
    """A platform so greedy that 80 % of the cores are not there: 1.2 of 2 are left, where 6 databases want 1.5."""
    found = evidence(options(), simulate(options(), overhead=0.8))
    assert found["overhead_direct"].value == pytest.approx(0.8)
    assert found["overhead_inferred_share"].value == pytest.approx(1 - 1.2 / 1.5, abs=0.02)
    assert found["overhead_inferred"].value == pytest.approx(2 * (1 - 1.2 / 1.5), abs=0.04)
    assert "upper bound" in found["overhead_inferred"].note
    assert {found[name].experiment for name in ("overhead_direct", "overhead_inferred")} == {"E2"}


def test_below_a_full_host_a_quota_bounds_nothing(options: Build, simulate: Any) -> None:
    """The platform takes 0.4 of 2 cores, yet nothing is missing at 80 %: it takes what the quotas leave idle."""
    found = evidence(options(), simulate(options(), overhead=0.4, noise=0))
    assert found["overhead_inferred"].value == pytest.approx(0, abs=1e-9)
    assert found["overhead_direct"].value == pytest.approx(0.4)
    assert "no bound" in found["overhead_inferred"].note
    assert "upper bound" not in found["overhead_inferred"].note
    assert "75 % of the cores" in found["overhead_direct"].note
    assert "no bound: the rate" in evidence(options(rate=1000), simulate(options(rate=1000)))["overhead_inferred"].note


def test_nothing_is_inferred_from_more_than_perfect(options: Build, simulate: Any) -> None:
    class Better(simulate):
        def truth(self, n: int) -> float:
            return super().truth(n) * (1.04 if n == 6 else 1)

    found = evidence(options(), Better(options(), noise=0.001))
    assert found["overhead_inferred"].value is None
    assert "above perfect" in found["overhead_inferred"].note


def test_idle_databases_are_not_cpu_bound(options: Build, simulate: Any) -> None:
    given = options()
    results = simulate(given).all(planned(given))
    for result in results:
        for entity, metrics in result.phases[0].metrics.items():
            if entity.startswith("container:"):
                metrics["cpu.usage"] *= 0.5
    found = evidence_findings(curve(given, group(given, results)))
    assert found["cpu_bound_evidence"].value == pytest.approx(0.5, abs=0.01)
    assert found["cpu_bound_evidence"].low is None  # points differ by design; they are no repeats of each other
    assert found["cpu_bound_evidence"].n == 20  # five of one database, three at each of five points


def test_without_a_limit_there_is_no_share_of_it(options: Build, simulate: Any) -> None:
    found = evidence(options(cpu_mode="none"), simulate(options(cpu_mode="none")))
    assert found["cpu_bound_evidence"].value is None
    assert "not limited" in found["cpu_bound_evidence"].note


def test_unfair_sharing_is_seen(options: Build, simulate: Any) -> None:
    given = options()
    results = simulate(given).all(planned(given))
    for result in results:
        targets = result.phases[0].targets
        if len(targets) > 1:
            targets[0] = targets[0].model_copy(update={"throughput": targets[0].throughput / 2})
    found = evidence_findings(curve(given, group(given, results)))
    assert found["fairness_min_max"].value == pytest.approx(0.5, abs=0.05)
    assert found["fairness"].value < 0.99
    assert "at 8 databases" in found["fairness"].note


def test_one_database_shares_with_nobody(options: Build, simulate: Any) -> None:
    given = options(points=(1,))
    assert evidence(given, simulate(given))["fairness"].value is None


def test_own_cost(options: Build, simulate: Any) -> None:
    found = evidence(options(), simulate(options()))
    assert 0.01 < found["pgherd_cpu"].value < 0.02
