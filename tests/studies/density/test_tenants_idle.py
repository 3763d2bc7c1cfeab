"""Idle tenants on a simulated host: their trials, and what the analysis makes of readings of known size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgherd.model.analysis import Check
from pgherd.model.result import Latency, PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.propose import propose
from pgherd.studies.density.study import STUDY
from pgherd.studies.density.tenant_mix import TenantClass, class_of
from pgherd.studies.density.tenants import FIRST_QUERY, GAP_S, REFERENCES, mix_phases
from simulated_queue import Queue

MB = 2**20
BASE = {"host_cores": 2, "host_memory": 2**30, "cpu_mode": "quota", "pg_bin": "/pg/bin", "pg_version": "18.6", "clients": 2, "vcpus": 0.25}
IDLE: dict[str, Any] = {"name": "idle", "weight": 1, "activity": {"kind": "idle"}}
BUSY: dict[str, Any] = {"name": "busy", "weight": 1, "rate": 100.0}


@pytest.fixture
def mixed() -> Callable[..., DensityOptions]:
    def build(*classes: dict[str, Any], **extra: Any) -> DensityOptions:
        tenants = tuple(TenantClass(**{**BASE, **one}) for one in classes or (IDLE,))
        return DensityOptions(**{**BASE, "databases": (4,), "duration": 5.0, "repeats": 3, **extra, "tenants": tenants})

    return build


def measured(trial: Trial, *, memory: bool = True, cpu: float = 0.0004) -> TrialResult:
    """A finished trial: server number n has (20 + n) MB, 5 MB of which are page cache, and a first query of n ms."""
    names = [container.name for container in trial.deployment.hosts[0].containers]
    phases, start = [], 0.0
    for phase in trial.phases:
        metrics: dict[str, dict[str, float]] = {}
        for name in names:
            number = int(name[-2:])
            metrics[f"container:{name}"] = {"cpu.usage": cpu, "wakeups": 2.0}
            metrics[f"server:{name}/pg"] = {"autovacuum.runs": 1.0}
            if memory:
                charged = {"memory.usage": (20 + number) * MB, "memory.file": 13.0 * MB, "memory.shmem": 8.0 * MB}
                metrics[f"container:{name}"] |= charged
                whole = metrics.setdefault("run-cgroup", {"memory.usage": 0.0})
                whole["memory.usage"] += 1.01 * charged["memory.usage"]
        targets = [
            TargetResult(
                target=address,
                driver="pgbench",
                transactions=1,
                throughput=0.5,
                first=start,
                last=start,
                latency=Latency(maximum=float(int(address.split("/")[1][-2:])), sampled=1),
                values={"connect_ms": 7.0} if load.ends_itself else {},
            )
            for address, load in phase.loads.items()
        ]
        phases.append(PhaseResult(phase=phase.name, start=start, end=start + phase.seconds, overlap=1, targets=targets, metrics=metrics))
        start += phase.seconds
    check = Check(name="steal", kind="noise", result="pass", observed="o", expected="e")
    return TrialResult(id=trial.key(), trial=trial, started=0, ended=start, phases=phases, checks=[check])


# ---- plan


def test_idle_servers_alone_have_no_search(mixed):
    options = mixed(databases=(2, 4))
    trials = propose(options, []).trials
    assert [trial.point["tenants"] for trial in trials] == [2, 2, 2, 4, 4, 4]
    assert [len(trial.deployment.hosts[0].containers) for trial in trials] == [2, 2, 2, 4, 4, 4]
    results = [measured(trial) for trial in trials]
    assert len(propose(options, results[:4]).trials) == 2 and not propose(options, results).trials
    for trial in trials:
        idle, last = trial.phases
        assert idle.loads == {} and last.name == FIRST_QUERY and len(last.loads) == trial.point["tenants"]
        assert trial.quiet == tuple(container.name for container in trial.deployment.hosts[0].containers)


def test_first_queries_follow_one_another_next_to_the_load_of_others(mixed):
    options = mixed(BUSY, IDLE, databases=(1, 2, 6))
    *before, last = mix_phases(options, 6)
    assert len(before) == 1 and {class_of(address) for address in before[0].loads} == {"busy"}
    assert {address: load for address, load in last.loads.items() if class_of(address) == "busy"} == before[0].loads
    first = [load for address, load in last.loads.items() if class_of(address) == "idle"]
    delays = [float(load.options["delay"]) for load in first]
    assert all(load.ends_itself and load.clients == 1 and load.sampling == 1 and load.rate is None for load in first)
    assert delays == pytest.approx([last.warmup + GAP_S * number for number in range(3)]) and last.seconds >= options.duration
    (trial, *_) = propose(options, []).trials
    assert all(name.startswith("idle-") for name in trial.quiet) and len(trial.quiet) == 1 and trial.wait_events
    assert [len(phases) for phases in (mix_phases(mixed(BUSY), 2), trial.phases)] == [1, 1], "none without idle tenants, or alone"


def test_an_idle_class_has_a_share_of_the_mix_and_nothing_to_keep(mixed):
    options = mixed({**BUSY, "rate": None}, IDLE, databases=tuple(range(1, 30)), repeats=3, time_budget=900.0)
    queue = Queue(propose, options, capacity=1200.0, alone=200.0)
    results, _ = queue.until_stop()
    analysis = STUDY.analyse(options, results)
    assert sum(result.trial.point.get("alone") == "idle" for result in results) == 0
    assert sum("alone" in result.trial.point for result in results) == REFERENCES
    assert "class busy fails first" in analysis.answer and not any("of class idle" in text for text in analysis.details)
    size = analysis.findings["capacity"].value
    rows = {row["tenants"]: row for row in analysis.tables["idle_servers"]}
    assert rows[size]["class_tenants"] + sum(row["class_tenants"] for row in analysis.tables["tenants"] if row["tenants"] == size) == size
    assert {row["class"] for row in analysis.tables["tenants"]} == {"busy"} and "first_query{class=idle}" in analysis.findings


# ---- answer


def analysed(options: DensityOptions, **host: Any) -> Any:
    return STUDY.analyse(options, [measured(trial, **host) for trial in propose(options, []).trials])


def test_what_a_server_takes_and_how_many_fit(mixed):
    analysis = analysed(mixed())
    (row,) = analysis.tables["idle_servers"]
    assert row["memory_charged"].value == 22.5 and row["memory_without_cache"].value == 17.5
    assert row["memory_charged"].low < 21.5 and row["memory_charged"].n == 4, "the interval is over servers"
    assert row["cpu_time"].value == pytest.approx(0.4) and row["wakeups"].value == 2
    assert (row["first_query"].value, row["first_query"].n, row["first_query_max"].value, row["connect"].value) == (2.5, 12, 4, 7)
    assert row["autovacuum_runs"].value == 12
    capacity = analysis.findings["capacity"]
    assert capacity.value == 1024 // 17.5 and capacity.low < capacity.value < capacity.high
    between = f"{capacity.low:.0f}–{capacity.high:.0f}"
    assert analysis.answer == f"58 ({between}) idle servers fit into 1 GB, at 17.5 MB and 0.4 ms/s of CPU; first query 2.5 ms."
    assert len(analysis.answer.split()) <= 20 and analysis.grade == "A"
    assert analysis.findings["memory_of_servers"].value == 90 and analysis.findings["memory_ratio"].value == pytest.approx(1.01)
    assert any("2 cores hold 5,000 idle servers" in text for text in analysis.details)


def test_the_first_trial_after_a_start_does_not_decide(mixed):
    """Autovacuum and the background writer still work in it."""
    options = mixed()
    first, *others = propose(options, []).trials
    analysis = STUDY.analyse(options, [measured(first, cpu=0.01), *map(measured, others)])
    assert analysis.tables["idle_servers"][0]["cpu_time"].value == pytest.approx(0.4)


def test_cpu_may_be_what_is_short(mixed):
    analysis = analysed(mixed(), cpu=0.1)
    assert analysis.findings["capacity"].value == 20 and "fit into 2 cores" in analysis.answer


def test_the_mix_of_two_idle_classes_counts_by_shares(mixed):
    analysis = analysed(mixed({**IDLE, "weight": 3}, {**IDLE, "name": "other"}, databases=(8,)))
    one, other = analysis.tables["idle_servers"]
    assert (one["class_tenants"], other["class_tenants"]) == (6, 2)
    assert analysis.findings["capacity"].value == 1024 // (
        0.75 * one["memory_without_cache"].value + 0.25 * other["memory_without_cache"].value
    )


def test_a_class_that_was_not_measured_is_left_out(mixed):
    options = mixed({**IDLE, "weight": 3}, {**IDLE, "name": "other"}, databases=(1, 8))
    first = propose(options, []).trials[0]
    analysis = STUDY.analyse(options, [measured(first)])
    assert len(analysis.tables["idle_servers"]) == 1 and analysis.findings["capacity"].value == 1024 // 16


def test_without_cgroups_the_rest_is_reported(mixed):
    analysis = analysed(mixed(), memory=False, cpu=0.0)
    assert analysis.findings["capacity"].value is None and analysis.grade == "C"
    assert analysis.answer == "How many idle servers fit is unknown: no cgroup counts their memory."
    assert "--runtime cgroup" in analysis.grade_reason
    (row,) = analysis.tables["idle_servers"]
    assert row["memory_charged"].value is None and row["first_query"].value == 2.5 and row["wakeups"].value == 2
    assert row["cpu_time"].value is None and "tick" in row["cpu_time"].note
    assert "memory_ratio" not in analysis.findings


def test_a_run_without_a_finished_trial_has_no_answer(mixed):
    analysis = STUDY.analyse(mixed(), [])
    assert analysis.answer == "No answer: no trial of idle servers finished." and analysis.grade == "C"
