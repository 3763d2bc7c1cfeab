"""Scaling by latency objective on a simulated queue of known truth."""

from __future__ import annotations

import math
import re

import pytest

from pgherd.model.load import LatencyObjective
from pgherd.studies.scaling.objective import choose_rates
from pgherd.studies.scaling.options import ScalingOptions
from pgherd.studies.scaling.propose import propose
from pgherd.studies.scaling.study import STUDY
from simulated_queue import Queue


def options(**extra: object) -> ScalingOptions:
    given = {
        "host_cores": 2,
        "host_memory": 2**32,
        "vcpus": 2,
        "pg_bin": "/pg/bin",
        "pg_version": "18.6",
        "clients": (8,),
        "max_clients": 8,
    }
    given |= {"objectives": (LatencyObjective(percentile=99, limit_ms=10),), "duration": 4.0, "repeats": 10, "time_budget": 400.0}
    return ScalingOptions(**given | extra)


@pytest.mark.parametrize("seed", range(5))
def test_the_highest_rate_is_found(seed: int) -> None:
    """1 % beyond 10 ms leaves room for 460 of 4,000 tps; the step is 200 tps."""
    queue = Queue(propose, options(), alone=4000.0, seed=seed)
    results, stop = queue.until_stop()
    analysis = STUDY.analyse(options(), results)
    truth = 200 * math.floor((4000 + 1000 * math.log(0.01) / 10) / 200)
    assert stop == "the search is over" and truth == 3400
    capacity = analysis.findings["capacity"]
    assert capacity.unit == "tps" and abs(capacity.value - truth) <= 200
    assert analysis.answer.startswith(f"{capacity.value:,.0f} tps with 8 clients keep p99 ≤ 10 ms (95 %: ")
    assert len(analysis.answer.split()) <= 18, "and two words of an indication"
    assert analysis.findings["closed_throughput"].value == pytest.approx(4000)
    assert {row["rate"] for row in analysis.tables["objective"]} == {result.trial.point.get("rate") for result in results} - {None}


def test_no_rate_keeps_an_impossible_objective() -> None:
    strict = options(objectives=(LatencyObjective(percentile=99, limit_ms=0.1),))
    results, _ = Queue(propose, strict, alone=4000.0).until_stop()
    analysis = STUDY.analyse(strict, results)
    assert analysis.grade == "C" and re.fullmatch(
        r"200 tps cannot keep p99 ≤ 0\.1 ms: measured 1\.\d+ ms; p99 ≤ 1\.\d ms works\.", analysis.answer
    )


@pytest.mark.parametrize(
    "alone, budget, begins",
    [
        (4000.0, 60.0, "2,000 tps with 8 clients keep"),
        (4000.0, 25.0, "No answer"),
        (10.0, 400.0, "No answer"),
    ],
)
def test_answers_are_short(alone: float, budget: float, begins: str) -> None:
    given = options(time_budget=budget)
    results, _ = Queue(propose, given, alone=alone, capacity=10 * alone, taint=lambda trial: "steal").until_stop()
    answer = STUDY.analyse(given, results).answer
    assert answer.removeprefix("Indication only: ").startswith(begins) and len(answer.split()) <= 20, answer


def test_rates() -> None:
    assert choose_rates(4000) == tuple(float(rate) for rate in range(200, 5001, 200))
    assert choose_rates(43)[:3] == (2.5, 5, 7.5)
    assert all(10 <= throughput / choose_rates(throughput)[0] <= 20 for throughput in (1.3, 77, 990, 20_001, 43_210))
