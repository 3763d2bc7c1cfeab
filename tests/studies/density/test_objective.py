"""Density by latency objective on a simulated queue of known truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.analysis import Analysis
from pgherd.model.load import LatencyObjective
from pgherd.studies.density.objective import choose_sizes
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import planned, propose
from pgherd.studies.density.study import STUDY
from simulated_queue import Queue

Build = Callable[..., DensityOptions]
P99 = LatencyObjective(percentile=99, limit_ms=10)


@pytest.fixture
def searching(options: Build) -> Build:
    def build(**extra: Any) -> DensityOptions:
        given = {
            "databases": tuple(range(1, 41)),
            "objectives": (P99,),
            "duration": 4.0,
            "repeats": 10,
            "time_budget": 400.0,
            "rate": 200.0,
        }
        return options(**{**given, **extra})

    return build


def finished(options: DensityOptions, **host: Any) -> tuple[Analysis, Queue, list[Any]]:
    queue = Queue(propose, options, **host)
    results, _ = queue.until_stop()
    return STUDY.analyse(options, results), queue, results


def test_a_known_limit(searching: Build) -> None:
    """A share of 1 % beyond 10 ms leaves room for 460 of 4,000 tps, so 17 databases at 200 tps fit."""
    analysis, queue, results = finished(searching(price_per_hour=0.38))
    assert queue.largest(200, 99, 10) == 17
    capacity = analysis.findings["capacity"]
    assert abs(capacity.value - 17) <= 1 and capacity.low <= 17 <= capacity.high and capacity.unit == "databases"
    n = f"{capacity.value:g}"
    assert analysis.answer.startswith(f"{n} databases at 200 tps each keep p99 ≤ 10 ms (95 % interval ")
    assert analysis.answer.endswith(f"the host's CPU fails first, with {capacity.value + 1:g} databases.")
    assert 17 <= analysis.findings["capacity_doubled"].value <= 19
    cost = analysis.findings["cost_per_million"]
    assert cost.value == pytest.approx(0.38 / 3600 / (200 * capacity.value) * 1e6)
    assert cost.low <= cost.value <= cost.high
    assert analysis.findings["capacity_per_price"].value == pytest.approx(capacity.value / 0.38)
    assert analysis.findings["rate"].note == "given"
    assert [row["keeps"] for row in analysis.tables["objective"]] == [
        "yes" if row["databases"] <= capacity.value else "no" for row in analysis.tables["objective"]
    ]
    assert any(text.startswith("With the objective doubled (p99 ≤ 20 ms): ") for text in analysis.details)
    assert sum(result.ended - result.started for result in results) <= 400


@pytest.mark.parametrize("seed", range(10))
def test_the_limit_is_found_within_one(searching: Build, seed: int) -> None:
    analysis, queue, _ = finished(searching(), seed=seed)
    assert abs(analysis.findings["capacity"].value - queue.largest(200, 99, 10)) <= 1


def test_several_objectives_are_kept_together(searching: Build) -> None:
    strict = LatencyObjective(percentile=95, limit_ms=1.5)
    analysis, queue, _ = finished(searching(objectives=(P99, strict)))
    assert abs(analysis.findings["capacity"].value - queue.largest(200, 95, 1.5)) <= 1
    assert queue.largest(200, 95, 1.5) < queue.largest(200, 99, 10) - 2
    assert "p99 ≤ 10 ms and p95 ≤ 1.5 ms" in analysis.answer


def test_the_default_rate_is_half_of_one_database(searching: Build) -> None:
    analysis, _, _ = finished(searching(rate=None))
    assert analysis.findings["rate"].value == 500
    assert analysis.details[-1] == "The rate is 50 % of what one database makes without a rate (1,000 tps)."


def test_containers_grow_with_the_search(searching: Build) -> None:
    _, _, results = finished(searching())
    counts = [len(result.trial.deployment.hosts[0].containers) for result in results]
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] < 40
    assert all(len(result.trial.phases[0].loads) <= count for result, count in zip(results, counts, strict=True))


def test_a_missed_objective_names_what_works(searching: Build) -> None:
    """One database at 800 tps of a server of 1,000 needs 23 ms for p99; 400 tps need 8 ms."""
    analysis, _, _ = finished(searching(rate=800.0), capacity=1000.0)
    assert analysis.grade == "C" and analysis.findings["capacity"].value is None
    assert analysis.answer.startswith("1 database cannot keep p99 ≤ 10 ms: p99 is 2")
    assert "the smallest objective is p99 ≤ 2" in analysis.answer
    assert "the objective is kept with --rate 480." in analysis.answer or "--rate 560" in analysis.answer


def test_a_rate_above_the_capacity_is_refused(searching: Build) -> None:
    analysis, _, results = finished(searching(rate=1500.0))
    assert analysis.grade == "C" and len(results) == 2
    assert analysis.answer.startswith(
        "No answer: --rate 1500 exceeds the capacity of one database, 1,000 tps with 2 clients; give at most --rate 1000"
    )


def test_an_open_answer(searching: Build) -> None:
    analysis, _, _ = finished(searching(databases=tuple(range(1, 9)), max_databases_in_memory=8))
    assert analysis.answer == "At least 8 databases at 200 tps each keep p99 ≤ 10 ms; memory holds no more."
    assert analysis.grade == "B" and analysis.findings["capacity"].value is None


def test_tainted_blocks_are_measured_again(searching: Build) -> None:
    _, queue, results = finished(searching(), taint=lambda trial: "steal" if trial.repeat == 0 else None)
    analysis = STUDY.analyse(queue.options, results)
    assert abs(analysis.findings["capacity"].value - 17) <= 1
    assert any("trials are tainted" in text for text in analysis.warnings)


def test_an_ended_budget_leaves_a_wide_answer(searching: Build) -> None:
    analysis, _, results = finished(searching(time_budget=60.0))
    assert sum(result.ended - result.started for result in results) <= 60
    assert analysis.grade == "B" and "the search did not end: raise --time-budget" in analysis.next_steps


def test_plan_and_sizes(searching: Build) -> None:
    assert [trial.key() for trial in planned(searching())] == ["databases=1,load=closed#0", "databases=1,load=closed#1"]
    assert choose_sizes(2, 0.25, 500) == tuple(range(1, 65))
    assert choose_sizes(2, 0.25, 12) == tuple(range(1, 13))


def test_no_trial_is_an_answer(searching: Build) -> None:
    assert STUDY.analyse(searching(rate=None), []).answer == "No answer: one database made no throughput without a rate."
    assert STUDY.analyse(searching(), []).answer == "No answer: no block was measured."
