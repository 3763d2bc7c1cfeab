"""Parsing of objectives, and the judgement of a block."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgherd.model.analysis import Thresholds
from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective, Load, Phase
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.model.units import Duration
from pgherd.studies.density.options import DensityRequest
from pgherd.study import objectives
from pgherd.study.objectives import late_shares, misses, objective_fields, parse_objectives, parse_price

P99 = LatencyObjective(percentile=99, limit_ms=10)


def test_objectives_are_parsed() -> None:
    assert parse_objectives(["p99=10ms", "p99.9=0.05s"]) == (P99, LatencyObjective(percentile=99.9, limit_ms=50))
    assert parse_objectives(["p99=10ms, p95=5ms"]) == parse_objectives(["p99=10ms", "p95=5ms"])
    assert str(P99) == "p99 ≤ 10 ms" and P99.key == "p99_10ms" and str(P99.doubled) == "p99 ≤ 20 ms"


@pytest.mark.parametrize("text", ["99=10ms", "p99", "p99=10", "p99=ms", "p100=10ms", "p40=10ms", "p99=0ms", "p99=10 apples", "p99<10ms"])
def test_wrong_objectives_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="p99=10ms|not a duration"):
        parse_objectives([text])


def test_two_limits_of_a_percentile_are_refused() -> None:
    with pytest.raises(UsageError, match="two limits"):
        parse_objectives(["p99=10ms", "p99=20ms"])


def test_prices() -> None:
    assert parse_price("0.38/h") == 0.38
    for text in ("0.38", "0/h", "$0.38/h", "0.38/d", "-1/h"):
        with pytest.raises(UsageError, match=r"such as 0\.38/h"):
            parse_price(text)


def fields(**given: Any) -> dict[str, Any]:
    return objective_fields(DensityRequest(**given))


def test_blocks_are_long_enough_for_the_percentile() -> None:
    assert fields(slo=("p99=10ms",), rate=300.0) == {
        "objectives": (P99,),
        "fixed_duration": False,
        "duration": 4.0,
        "repeats": 7,
        "price_per_hour": None,
    }
    assert fields(slo=("p99=10ms",), rate=300.0, duration=Duration("9s"), repeats=5)["repeats"] == 5
    options = SimpleNamespace(objectives=(P99,), fixed_duration=False, duration=4.0)
    assert objectives.block_seconds(options, 300) == 4 and objectives.block_seconds(options, 125) == 8
    assert objectives.block_seconds(options, 10) is None
    assert fields() == {}


@pytest.mark.parametrize(
    "given, needed",
    [
        ({"slo": ("p99.9=10ms",), "rate": 200.0}, "--duration 50s --time-budget 31m"),
        ({"slo": ("p99=10ms",), "rate": 5.0}, "--duration 200s"),
        ({"slo": ("p99=10ms",), "rate": 300.0, "duration": Duration("2s")}, "--duration 4s"),
        ({"slo": ("p99.9=10ms",)}, "--duration 20s"),
        ({"price": "0.38/h"}, "--slo p99=10ms"),
    ],
)
def test_requests_are_refused_with_what_they_need(given: dict[str, Any], needed: str) -> None:
    with pytest.raises(UsageError) as error:
        fields(**given)
    assert needed in str(error.value)


def block(
    late: float = 0.0, logged: float = 1200, seconds: list[float] | None = None, transactions: float = 1200, growth: float = 0.0
) -> TrialResult:
    """A block of one database at 300 tps over 4 s."""
    target = TargetResult(
        target="local/db01/pg/bench",
        driver="pgbench",
        transactions=transactions,
        throughput=transactions / 4,
        latency=Latency(mean=2.0 + 1000 * growth, lag_mean=1000 * growth, lag_growth=growth),
        first=0,
        last=4,
        values={"logged_tx": logged, "late_p99_10ms_tx": late},
        series={"logged_tx": [logged / 4] * 4, "late_p99_10ms_tx": seconds or [late / 4] * 4},
    )
    phase = Phase(seconds=4, loads={target.target: Load(clients=2, rate=300, objectives=(P99,))})
    trial = Trial.model_construct(point={"databases": 1}, repeat=0, phases=(phase,))
    return TrialResult.model_construct(
        trial=trial, phases=[PhaseResult(phase="steady", start=0, end=4, overlap=1, targets=[target])], error=None, checks=[]
    )


@pytest.mark.parametrize(
    "trial, failed",
    [
        (block(late=12), ()),
        (block(late=13), ("percentile",)),
        (block(late=12, seconds=[0, 0, 0, 12]), ("share in a second",)),
        (block(late=12, seconds=[2, 2, 2, 6]), ()),
        (block(growth=0.05), ("schedule lag",)),
        (block(transactions=1050, growth=0.1), ("schedule lag", "transactions")),
        (block(transactions=1080), ()),
        (block(transactions=0, logged=0), ("percentile", "transactions")),
    ],
)
def test_a_block_is_judged_by_three_conditions(trial: TrialResult, failed: tuple[str, ...]) -> None:
    assert misses(trial, (P99,), Thresholds()) == failed


@pytest.mark.parametrize(("rate", "share"), [(0.25, 0.0), (300.0, 1.0), (None, 1.0)])
def test_a_database_without_a_transaction_is_late_unless_it_is_by_chance(rate: float | None, share: float) -> None:
    trial = block(transactions=0, logged=0)
    (plan,) = trial.trial.phases
    loads = {target: load.model_copy(update={"rate": rate}) for target, load in plan.loads.items()}
    trial = trial.model_copy(update={"trial": trial.trial.model_copy(update={"phases": (plan.model_copy(update={"loads": loads}),)})})
    assert late_shares(trial, P99, Thresholds()) == [share]
    assert ("percentile" in misses(trial, (P99,), Thresholds())) == bool(share)


def test_rounding() -> None:
    assert objectives.rounded_down(1278) == 1200 and objectives.rounded_down(0.0567) == 0.056 and objectives.rounded_down(7) == 7
