"""Density by latency objective on a simulated queue of known truth."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.analysis import Analysis, Check
from pgherd.model.load import LatencyObjective
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.objective import choose_sizes, requested_sizes
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
    assert analysis.answer.startswith(f"{n} databases at 200 tps keep p99 ≤ 10 ms (95 %: ")
    assert analysis.answer.endswith("); CPU fails first.")
    assert any(text.startswith(f"{capacity.value + 1:g} databases: ") for text in analysis.details), "where it fails"
    assert 17 <= analysis.findings["capacity_doubled"].value <= 19
    cost = analysis.findings["cost_per_million"]
    assert cost.value == pytest.approx(0.38 / 3600 / (200 * capacity.value) * 1e6)
    assert cost.low <= cost.value <= cost.high
    assert analysis.findings["capacity_per_price"].value == pytest.approx(capacity.value / 0.38)
    (price,) = (text for text in analysis.details if "at 0.38 per hour, or " in text)
    assert price.endswith(" databases for 1 per hour.") and f"or {capacity.value / 0.38:.3g} (" in price
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
    assert "keep p99/p95 ≤ 10/1.5 ms (95 %: " in analysis.answer


def test_the_default_rate_is_half_of_one_database(searching: Build) -> None:
    analysis, _, _ = finished(searching(rate=None))
    assert analysis.findings["rate"].value == 500
    assert analysis.details[-1] == "Each database has 500 tps, 50 % of what one makes without a rate (1,000 tps)."


def test_containers_grow_with_the_search(searching: Build) -> None:
    _, _, results = finished(searching())
    counts = [len(result.trial.deployment.hosts[0].containers) for result in results]
    assert counts == sorted(counts) and counts[0] == 1 and counts[-1] < 40
    assert all(len(result.trial.phases[0].loads) <= count for result, count in zip(results, counts, strict=True))


def test_a_number_that_does_not_finish_is_named_and_not_deployed_again(searching: Build) -> None:
    class Small(Queue):
        def run(self, trial: Trial) -> TrialResult:
            result = super().run(trial)
            full = len(trial.deployment.hosts[0].containers) > 8
            return result.model_copy(update={"phases": [], "error": "no memory"}) if full else result

    options = searching()
    results, _ = Small(propose, options).until_stop()
    assert [result.trial.point["databases"] for result in results if result.error is not None] == [16, 16]
    answer = STUDY.analyse(options, results).answer
    assert answer == "At least 8 databases at 200 tps keep p99 ≤ 10 ms; trials with 16 databases did not finish."


def test_a_missed_objective_names_what_works(searching: Build) -> None:
    """One database at 800 tps of a server of 1,000 needs 23 ms for p99; 400 tps need 8 ms."""
    analysis, _, _ = finished(searching(rate=800.0), capacity=1000.0)
    assert analysis.grade == "C" and analysis.findings["capacity"].value is None
    named = re.fullmatch(
        r"1 database cannot keep p99 ≤ 10 ms: measured 2[\d.]+ ms; p99 ≤ (2\d) ms or --rate (480|560) works\.", analysis.answer
    )
    assert named, analysis.answer
    (kept,) = (text for text in analysis.details if text.startswith(f"With p99 ≤ {named[1]} ms, "))
    assert 5 <= int(kept.split()[5]) <= 10, "at least half of the blocks pass there"


def test_a_rate_above_the_capacity_is_refused(searching: Build) -> None:
    analysis, _, results = finished(searching(rate=1500.0))
    assert analysis.grade == "C" and len(results) == 2
    assert analysis.answer.startswith("No answer: --rate 1500 exceeds one database's 1,000 tps with 2 clients; give --rate 1000, or more ")


def test_an_open_answer(searching: Build) -> None:
    analysis, _, _ = finished(searching(databases=tuple(range(1, 9)), max_databases_in_memory=8))
    assert analysis.answer == "At least 8 databases at 200 tps keep p99 ≤ 10 ms; memory holds no more."
    assert analysis.grade == "B" and analysis.findings["capacity"].value is None


def test_only_a_number_that_can_be_measured_is_advised(searching: Build) -> None:
    servers = tuple({"name": f"s{n}", "dsn": f"host=s{n}", "version": "18.1", "host": "h"} for n in range(1, 5))

    def advised(databases: int, **more: Any) -> str:
        return finished(searching(databases=tuple(range(1, databases + 1)), **more))[0].answer.rpartition("; ")[2]

    assert advised(8, max_databases_in_memory=12) == "--databases 12 also tries more."
    assert advised(8, max_databases_in_memory=40) == "--databases 16 also tries more."
    assert advised(4, fleet=servers) == advised(1, dsn="host=s1") == "list more servers in --servers."
    assert advised(3, fleet=servers) == "--databases 4 also tries more."


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
    assert requested_sizes((5,)) == (1, 2, 3, 4, 5) and requested_sizes((8, 4)) == (1, 4, 8)


def test_numbers_that_were_not_tried_are_within_the_interval(searching: Build) -> None:
    """17 databases fit, of which 8 and 32 are tried: the limit is from 8 to 31."""
    analysis, _, _ = finished(searching(databases=(1, 8, 32)))
    capacity = analysis.findings["capacity"]
    assert (capacity.value, capacity.low, capacity.high) == (8, 8, 31) and analysis.grade == "B"
    assert analysis.grade_reason == "the answer's interval spans 24 sizes"
    assert analysis.next_steps == ["no number between 8 and 32 was tried: use --databases 32 to try all up to it"]
    assert 8 <= analysis.findings["capacity_doubled"].high <= 31


def test_without_a_block_that_counts_no_size_misses(searching: Build) -> None:
    options = searching(time_budget=60.0)
    _, _, results = finished(options)
    blocks = [result for result in results if result.trial.point.get("load") != "closed"][:1]
    failed = Check(name="steal", kind="noise", result="fail", observed="", expected="", severity="taint")
    closed = [result for result in results if result.trial.point.get("load") == "closed"]
    analysis = STUDY.analyse(options, [*closed, *(block.model_copy(update={"checks": [failed]}) for block in blocks)])
    assert blocks and analysis.answer == "No answer: no block of 1 database counts."
    assert any("steal" in text for text in analysis.warnings)


def test_answers_are_short(searching: Build) -> None:
    """With every part that makes one longer: several objectives, an open interval, each cause, an indication, each refusal."""
    three = tuple(LatencyObjective(percentile=p, limit_ms=limit) for p, limit in ((50, 2.5), (95, 7.5), (99, 12.5)))
    strict = (P99.model_copy(update={"limit_ms": 1.5}),)
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"objectives": three}, {"host_cpu": False}),
        ({"time_budget": 60.0, "objectives": three}, {"host_cpu": False}),
        ({"databases": tuple(range(1, 9))}, {}),
        ({"time_budget": 20.0}, {}),
        ({"rate": 800.0}, {"capacity": 1000.0}),
        ({"rate": 800.0, "objectives": strict}, {"capacity": 1000.0}),
        ({"rate": 800.0, "objectives": three}, {"capacity": 1000.0}),
        ({"rate": 1500.0}, {}),
        ({"rate": None}, {"alone": 20.0}),
    ]
    found = []
    for options, host in cases:
        for taint in (None, "steal"):
            analysis, _, _ = finished(searching(**options), **host, taint=lambda trial, taint=taint: taint)
            found.append(analysis.answer)
            assert analysis.answer.endswith(".") and len(analysis.answer.split()) <= 20, analysis.answer
    interval, indication = r"keep p50/p95/p99 ≤ 2.5/7.5/12.5 ms \(95 %: ", "^Indication only: .*; the cause is unknown"
    for part in (
        interval,
        indication,
        r"\(95 %: open\)",
        r"\(95 %: \d+–\d",
        "At least",
        "--time-budget",
        "cannot keep",
        "exceeds",
        "few",
    ):
        assert any(re.search(part, answer) for answer in found), (part, found)


def test_no_trial_is_an_answer(searching: Build) -> None:
    assert STUDY.analyse(searching(rate=None), []).answer == "No answer: one database made no throughput without a rate."
    assert STUDY.analyse(searching(), []).answer == "No answer: no block was measured."
