"""What fails first, costs, and the interval as a finding."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pgherd.analysis.pass_search import PassLimit
from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Container, Deployment, Host, Server
from pgherd.model.load import LatencyObjective, Load, Phase
from pgherd.model.prometheus import PrometheusView
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.objective_analysis import (
    Subject,
    analyse_search,
    capacity_finding,
    costs,
    failing_resource,
    least_objectives,
    rounded_up,
    worst_latency,
)
from pgherd.study.objectives import Search

TARGET = "local/db01/pg/bench"
OPTIONS: Any = SimpleNamespace(thresholds=Thresholds(), host_cores=2)
SUBJECT = Subject(
    "databases", "databases", lambda n: f"{n:g} databases keep", lambda n: f"{n:g} databases", lambda n: 300 * n, "memory holds no more"
)
SEARCH = Search(tuple(map(float, range(1, 41))), 8, lambda point: None, lambda *given: Trial.model_construct())


def block(
    metrics: dict[str, dict[str, float]], p99: float | None = 5.0, pooled: bool = False, external: bool = False, view: bool = False
) -> TrialResult:
    """A block of one database. ``view``: Prometheus has samples of its external server's host."""
    values = {} if p99 is None else {"p99_ms": p99}
    target = TargetResult(target=TARGET, driver="pgbench", transactions=1, throughput=1, first=0, last=4, values=values)
    seen = PrometheusView(container="db01", url="http://p", match="db1", step=1, gaps=0, longest_gap=None, series=[], sparse=[], missing=[],
                          clock_ahead=0, seconds=0)  # fmt: skip
    prometheus = [seen] if view else []
    phase = PhaseResult(phase="steady", start=0, end=4, overlap=1, targets=[target], metrics=metrics, prometheus=prometheus)
    server = Server(bin="/bin", version="18.0", dsn="dbname=app" if pooled or external else None, pooled=pooled)
    container = Container(name="db01", runtime="external" if pooled or external else "process", servers=(server,))
    deployment = Deployment(hosts=(Host(containers=(container,)),))
    trial = Trial(point={"databases": 1}, deployment=deployment, phases=(Phase(loads={TARGET: Load(rate=10)}),))
    return TrialResult.model_construct(trial=trial, phases=[phase], error=None, checks=[])


def host(used: float, iowait: float = 0.0) -> dict[str, float]:
    return {"cpu.online": 2, "cpu.user": used, "cpu.idle": 2 - used - iowait, "cpu.iowait": iowait, "cpu.steal": 0}


@pytest.mark.parametrize(
    "metrics, cause",
    [
        ({"host": host(1.99), "container:db01": {"cpu.periods": 10, "cpu.throttled_periods": 5}}, "CPU"),
        ({"host": host(1.5), "container:db01": {"cpu.periods": 10, "cpu.throttled_periods": 5}}, "CPU quota"),
        ({"host": host(1.7)}, "CPU"),
        ({"host": host(1.95) | {"cpu.online": 8, "cpu.idle": 6.05}, "container:db01": {"cpu.usage": 1.95}}, "CPU"),
        ({"host": host(1.8) | {"cpu.online": 8, "cpu.idle": 6.2}, "container:db01": {"cpu.usage": 1.8}}, "unknown"),
        ({"host": host(1.2), f"driver:{TARGET}": {"cpu.usage": 0.95}}, "client"),
        ({"host": host(0.5, 0.4)}, "disk"),
        ({"host": host(0.5)}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_what_fails_first(metrics: dict[str, dict[str, float]], cause: str) -> None:
    trial = block(metrics)
    assert failing_resource(OPTIONS, trial, trial.phases[0]) == cause


SEEN_HERE = {"container:db01": {"cpu.usage": 1.0}}


@pytest.mark.parametrize(
    "metrics, view, cause",
    [
        ({"host": host(1.99)}, False, "client"),
        (
            {"host": host(1.2) | {"cpu.online": 8, "cpu.idle": 6.8}, "driver:a": {"cpu.usage": 1}, "driver:b": {"cpu.usage": 1}},
            False,
            "client",
        ),
        ({"host": host(1.7)}, False, "unknown"),
        ({"host": host(0.5, 0.4)}, False, "unknown"),
        ({"host": host(1.99), "server:db01/pg": {"waits.cpu": 1.0, "waits.lock": 7.0}}, False, "locks"),
        ({"host": host(1.99), **SEEN_HERE}, False, "CPU"),
        ({"host": host(0.5, 0.4), **SEEN_HERE}, False, "disk"),
        ({"host": host(1.99), "server-host:db01": host(0.5)}, True, "client"),
        ({"host": host(0.5), "server-host:db01": host(1.99)}, True, "CPU"),
        ({"host": host(0.5), "server-host:db01": host(0.5, 0.4)}, True, "disk"),
        ({"host": host(0.5, 0.4), "server-host:db01": host(0.5)}, True, "unknown"),
    ],
)
def test_what_fails_first_on_existing_servers(metrics: dict[str, dict[str, float]], view: bool, cause: str) -> None:
    """This host runs the clients. It is that of the server only if its cgroup is known here."""
    trial = block(metrics, external=True, view=view)
    assert failing_resource(OPTIONS, trial, trial.phases[0]) == cause


def waits(**sessions: float) -> dict[str, dict[str, float]]:
    return {"server:db01/pg": {f"waits.{name}": number for name, number in {"cpu": 0.0, "lock": 0.0, "other": 0.0, **sessions}.items()}}


@pytest.mark.parametrize(
    "used, sessions, cause",
    [
        (0.5, {"other": 1, "lock": 7}, "locks"),
        (0.5, {"other": 1, "lock": 0.3}, "unknown"),
        (1.99, {"cpu": 0.1, "other": 0.9, "lock": 7}, "locks"),
        (1.99, {"cpu": 1, "lock": 7}, "CPU"),
        (1.99, {"cpu": 0.1, "lock": 0}, "CPU"),
        (1.7, {"cpu": 1, "lock": 7}, "locks"),
        (0.5, {"cpu": 0.2, "io": 0.8}, "disk"),
    ],
)
def test_sessions_that_wait_for_locks(used: float, sessions: dict[str, float], cause: str) -> None:
    trial = block({"host": host(used), **waits(**sessions)})
    assert failing_resource(OPTIONS, trial, trial.phases[0]) == cause


@pytest.mark.parametrize(
    "pooled, mean, metrics, cause",
    [
        (True, 80, waits(other=1), "pooler"),
        (False, 80, waits(other=1), "unknown"),
        (True, 80, waits(other=7), "unknown"),
        (True, 80, {}, "unknown"),
        (True, 80, {**waits(other=1), f"driver:{TARGET}": {"cpu.usage": 0.95}}, "client"),
        (True, 12, waits(other=0.9), "unknown"),
    ],
)
def test_transactions_that_wait_before_a_pooler(pooled: bool, mean: float, metrics: dict[str, dict[str, float]], cause: str) -> None:
    """At 100 tps, the mean of the transactions that the clients have started is a tenth of their latency without the lag, in ms."""
    trial = block({"host": host(0.5), **metrics}, pooled=pooled)
    target = trial.phases[0].targets[0].model_copy(update={"throughput": 100, "latency": Latency(mean=mean + 300, lag_mean=300)})
    phase = trial.phases[0].model_copy(update={"targets": [target]})
    assert failing_resource(OPTIONS, trial, phase) == cause


def test_the_worst_database_decides() -> None:
    objective = LatencyObjective(percentile=99, limit_ms=10)
    assert worst_latency(block({}), objective) == 5
    assert worst_latency(block({}, p99=None), objective) is None


def test_findings_of_a_limit() -> None:
    found = capacity_finding(PassLimit(12, 13, 11, 12, 40, 13), SEARCH, SUBJECT)
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
    open_above = costs(0.36, capacity_finding(PassLimit(12, 13, 12, None, 8), SEARCH, SUBJECT), SUBJECT)
    cost, databases = open_above["cost_per_million"], open_above["capacity_per_price"]
    assert (cost.low, cost.high) == (None, cost.value) and (databases.low, databases.high) == (databases.value, None)
    assert all(one.is_open and one.confidence == 0.95 for one in open_above.values())
    never = capacity_finding(PassLimit(40, None, 40, None, 20), SEARCH, SUBJECT)
    assert never.value is None and never.note == "40 databases, the largest measured, keep it; memory holds no more"
    assert (never.low, never.high, never.n) == (40, None, 20), "which is its lower bound"
    assert costs(0.36, never, SUBJECT)["cost_per_million"].value is None
    assert capacity_finding(PassLimit(None, 1, None, 0, 10), SEARCH, SUBJECT).value is None


@pytest.mark.parametrize(
    "late, p99, least, lag, ends",
    [
        ([0, 9, 0, 0], 6.78, 13.7, 0.0, " in every second; p99 ≤ 14 ms works."),
        ([40, 40, 40, 40], 23.1, 23.1, 0.0, ": measured 23.1 ms; p99 ≤ 24 ms works."),
        ([40, 40, 40, 40], 23.1, 31.2, 0.0, ": measured 23.1 ms; p99 ≤ 32 ms works."),
        ([40, 40, 40, 40], 23.1, None, 0.0, ": measured 23.1 ms; raise the limit or lower the rate."),
        ([40, 40, 40, 40], 23.1, 23.1, 0.5, ": measured 23.1 ms; the schedule lag grows: lower the rate."),
    ],
)
def test_the_smallest_size_that_misses_names_what_works(late: list[float], p99: float, least: float | None, lag: float, ends: str) -> None:
    analysis = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [missed(late, p99, least, lag)], {})
    assert analysis.answer == f"1 databases cannot keep p99 ≤ 10 ms{ends}" and analysis.grade == "C"
    assert len(analysis.answer.split()) <= 20
    assert ("With p99 ≤ 24 ms, 1 of them pass." in analysis.details) == ("p99 ≤ 24 ms works" in ends)


STRICT: Any = SimpleNamespace(
    objectives=(LatencyObjective(percentile=99, limit_ms=10),), thresholds=Thresholds(), price_per_hour=None, host_cores=2
)
ONE_OR_TWO = Search((1.0, 2.0), 2.0, lambda point: float(point["databases"]), SEARCH.build)


def missed(
    late: list[float], p99: float, least: float | None, lag: float = 0.0, databases: int = 1, used: float = 0.5, **more: bool
) -> TrialResult:
    """A block of one database that misses p99 ≤ 10 ms. Its point may have another number of databases."""
    values = {"p99_ms": p99, "logged_tx": 1000.0, "late_p99_10ms_tx": math.fsum(late)}
    values |= {} if least is None else {"p99_least_ms": least}
    series = {"logged_tx": [250.0] * 4, "late_p99_10ms_tx": late}
    latency = Latency(mean=2.0, lag_mean=1.0, lag_growth=lag)
    result = block({"host": host(used)}, **more)
    trial = result.trial.model_copy(update={"point": {"databases": databases}})
    (target,) = result.phases[0].targets
    target = target.model_copy(update={"transactions": 40, "values": values, "series": series, "latency": latency})
    return result.model_copy(update={"trial": trial, "phases": [result.phases[0].model_copy(update={"targets": [target]})]})


def test_full_clients_of_an_existing_server_are_no_capacity_of_it() -> None:
    kept = missed([0.0] * 4, 5, 5, external=True)
    blocks = [kept, missed([40.0] * 4, 23, 23, databases=2, used=1.99, external=True)]
    analysis = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, blocks, {})
    assert analysis.answer.endswith("; the clients' CPU fails first.")
    assert analysis.grade_reason == "the clients' CPU fails first, so the servers may keep more"
    assert [row["host_cpu"].value for row in analysis.tables["objective"]] == [None, None], "that of the servers' host is not seen"
    started = missed([40.0] * 4, 23, 23, databases=2, used=1.99)
    analysis = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [missed([0.0] * 4, 5, 5), started], {})
    assert analysis.answer.endswith("; CPU fails first.") and analysis.tables["objective"][1]["host_cpu"].value == pytest.approx(0.995)


def test_a_size_whose_trials_fail_is_named() -> None:
    kept = missed([0.0] * 4, 5, 5)
    failed = missed([], 5, 5, databases=2).model_copy(update={"phases": [], "error": "no memory"})
    analysis = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [kept, failed, failed], {})
    assert analysis.answer == "1 databases keep p99 ≤ 10 ms, the largest measured (without a lower bound)."
    assert analysis.grade_reason == "trials with 2 databases did not finish"
    assert analysis.next_steps == ["trials with 2 databases did not finish: remove the cause, which the warnings name, and measure again"]
    search = Search((1.0, 2.0, 3.0), 2.0, ONE_OR_TWO.size_of, ONE_OR_TWO.build)
    between = analyse_search(STRICT, search, SUBJECT, [kept, failed, failed, missed([40.0] * 4, 23, 23, databases=3)], {})
    assert between.grade_reason == analysis.grade_reason and between.next_steps == analysis.next_steps
    certain = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [*[kept] * 7, failed, failed], {})
    assert certain.answer == "At least 1 databases keep p99 ≤ 10 ms; trials with 2 databases did not finish."
    once = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [*[kept] * 7, failed], {})
    assert once.answer == "At least 1 databases keep p99 ≤ 10 ms; --time-budget ended the search."


def test_at_least_is_a_size_that_passes_for_certain() -> None:
    ones, twos = [missed([0.0] * 4, 5, 5)] * 7, [missed([0.0] * 4, 5, 5, databases=2)] * 4
    failed = [missed([40.0] * 4, 23, 23, databases=2)] * 3
    analysis = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [*ones, *twos, *failed], {})
    assert analysis.answer == "2 databases keep p99 ≤ 10 ms, the largest measured (95 %: from 1)."
    assert analysis.next_steps == ["the interval is wide: raise --min-repeats and --time-budget for more blocks"]
    advised = replace(SUBJECT, more="--databases 4 also tries more")
    assert analyse_search(STRICT, ONE_OR_TWO, advised, [*ones, *twos, *failed], {}).next_steps == [*analysis.next_steps, advised.more]
    certain = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [*ones, *twos, *twos], {})
    assert certain.answer == "At least 2 databases keep p99 ≤ 10 ms; memory holds no more." and certain.next_steps == []


def test_a_starved_database_is_late() -> None:
    result = missed([0.0] * 4, 5, None)
    (target,) = result.phases[0].targets
    starved = target.model_copy(update={"throughput": 0.0, "transactions": 0.0, "values": {}, "series": {}})
    result = result.model_copy(update={"phases": [result.phases[0].model_copy(update={"targets": [starved]})]})
    (row,) = analyse_search(STRICT, ONE_OR_TWO, SUBJECT, [result], {}).tables["objective"]
    assert row["late_share"].value == 1 and row["misses"] == "percentile"


def test_the_smallest_limit_is_one_that_half_of_the_blocks_keep() -> None:
    late = [40.0] * 4
    blocks = [missed(late, p99, least) for p99, least in ((21, 21), (22, 29), (23, 23), (30, 33))]
    assert least_objectives(STRICT, blocks) == (LatencyObjective(percentile=99, limit_ms=23),)
    behind = missed(late, 20, 20, lag=0.5)
    assert least_objectives(STRICT, [*blocks, behind]) == (LatencyObjective(percentile=99, limit_ms=29),), "three of five"
    assert least_objectives(STRICT, [*blocks[:1], behind, behind]) == ()


def test_several_limits_are_kept_by_the_same_blocks() -> None:
    """Each limit alone is kept by half of the blocks, but both by none."""
    objectives = (LatencyObjective(percentile=95, limit_ms=5), LatencyObjective(percentile=99, limit_ms=10))
    options = SimpleNamespace(**{**vars(STRICT), "objectives": objectives})
    blocks = [missed([40.0] * 4, p99, p99) for p99 in (20, 20, 40, 40)]
    for result, p95 in zip(blocks, (12.0, 12.0, 6.0, 6.0), strict=True):
        result.phases[0].targets[0].values["p95_least_ms"] = p95
    assert [objective.limit_ms for objective in least_objectives(options, blocks)] == [12, 40]


def test_limits_are_rounded_up() -> None:
    assert rounded_up(3.41) == 3.5 and rounded_up(23.0) == 23 and rounded_up(0.111) == 0.12
