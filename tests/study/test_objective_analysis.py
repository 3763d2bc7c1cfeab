"""What fails first, costs, and the interval as a finding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgherd.analysis.pass_search import PassLimit
from pgherd.model.analysis import Thresholds
from pgherd.model.load import LatencyObjective, Load, Phase
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.objective_analysis import Subject, capacity_finding, costs, failing_resource, rounded_up, worst_latency
from pgherd.study.objectives import Search

TARGET = "local/db01/pg/bench"
OPTIONS: Any = SimpleNamespace(thresholds=Thresholds())
SUBJECT = Subject(
    "databases", "databases", lambda n: f"{n:g} databases keep", lambda n: f"{n:g} databases", lambda n: 300 * n, "memory holds no more"
)
SEARCH = Search(tuple(map(float, range(1, 41))), 8, lambda point: None, lambda *given: Trial.model_construct())


def block(metrics: dict[str, dict[str, float]], p99: float | None = 5.0) -> TrialResult:
    values = {} if p99 is None else {"p99_ms": p99}
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=4, values=values)
    phase = PhaseResult(phase="steady", start=0, end=4, overlap=1, targets=[target], metrics=metrics)
    trial = Trial.model_construct(point={"databases": 1}, repeat=0, phases=(Phase(loads={TARGET: Load(rate=10)}),))
    return TrialResult.model_construct(trial=trial, phases=[phase], error=None, checks=[])


def host(used: float, iowait: float = 0.0) -> dict[str, float]:
    return {"cpu.online": 2, "cpu.user": used, "cpu.idle": 2 - used - iowait, "cpu.iowait": iowait, "cpu.steal": 0}


@pytest.mark.parametrize(
    "metrics, cause",
    [
        ({"host": host(1.99), "container:db01": {"cpu.periods": 10, "cpu.throttled_periods": 5}}, "CPU"),
        ({"host": host(1.5), "container:db01": {"cpu.periods": 10, "cpu.throttled_periods": 5}}, "CPU quota"),
        ({"host": host(1.7)}, "CPU"),
        ({"host": host(1.2), f"driver:{TARGET}": {"cpu.usage": 0.95}}, "client"),
        ({"host": host(0.5, 0.4)}, "disk"),
        ({"host": host(0.5)}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_what_fails_first(metrics: dict[str, dict[str, float]], cause: str) -> None:
    trial = block(metrics)
    assert failing_resource(OPTIONS, trial, trial.phases[0]) == cause


def test_the_worst_database_decides() -> None:
    objective = LatencyObjective(percentile=99, limit_ms=10)
    assert worst_latency(block({}), objective) == 5
    assert worst_latency(block({}, p99=None), objective) is None


def test_findings_of_a_limit() -> None:
    found = capacity_finding(PassLimit(12, 13, 11, 12, 40), SEARCH, SUBJECT)
    assert (found.value, found.low, found.high, found.n) == (12, 11, 12, 40) and found.note == "13 databases miss it in most blocks"
    cost = costs(0.36, found, SUBJECT)
    assert cost["cost_per_million"].value == pytest.approx(0.0001 / 3600 * 1e6)
    assert cost["cost_per_million"].high == pytest.approx(0.0001 / 3300 * 1e6)
    assert cost["capacity_per_price"].value == pytest.approx(12 / 0.36)
    assert costs(None, found, SUBJECT) == {}


def test_open_limits_say_so() -> None:
    wide = capacity_finding(PassLimit(12, 13, None, None, 8), SEARCH, SUBJECT)
    assert (wide.low, wide.high) == (0, 13) and "upper bound not reached" in wide.note
    assert "no interval" in costs(0.36, wide, SUBJECT)["cost_per_million"].note
    never = capacity_finding(PassLimit(40, None, 40, None, 20), SEARCH, SUBJECT)
    assert never.value is None and never.note == "40 databases, the largest measured, keep it; memory holds no more"
    assert costs(0.36, never, SUBJECT)["cost_per_million"].value is None
    assert capacity_finding(PassLimit(None, 1, None, 0, 10), SEARCH, SUBJECT).value is None


def test_limits_are_rounded_up() -> None:
    assert rounded_up(3.41) == 3.5 and rounded_up(23.0) == 23 and rounded_up(0.111) == 0.12
