"""CPU of the host in a phase's result."""

from __future__ import annotations

import pytest

from pgherd.model.load import Load
from pgherd.model.result import DATABASE, MIXED, PhaseResult, StatementCounters, TrialResult, counted, counted_by
from pgherd.model.trial import Trial


def busy(**host: float) -> float | None:
    metrics = {"host": {f"cpu.{name}": value for name, value in host.items()}} if host else {}
    return PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[], metrics=metrics).busy_cores()


def test_idle_time_tells_what_ticks_miss() -> None:
    """A captured second of 4 databases under a quota: the kinds add up to 1.87 of 2 CPUs."""
    kinds = {"user": 0.55, "nice": 0.0, "system": 0.35, "irq": 0.0, "softirq": 0.01, "steal": 0.01, "idle": 0.94, "iowait": 0.01}
    assert busy(**kinds, online=2.0) == pytest.approx(1.04)
    assert busy(**kinds) == pytest.approx(0.91)


def test_what_was_not_seen_is_none() -> None:
    assert busy() is None
    assert busy(online=2.0, idle=1.0) is None


def test_counters_that_were_reset_count_from_zero() -> None:
    after = StatementCounters(calls=3, rows=10, time_ms=9.0)
    assert after.since(StatementCounters(calls=1, rows=4, time_ms=5.0)) == StatementCounters(calls=2, rows=6, time_ms=4.0)
    assert after.since(StatementCounters(calls=1, rows=1000, time_ms=50.0)) == after.since(StatementCounters(calls=7)) == after
    assert after.since(StatementCounters(calls=1, time_ms=50.0)) == after.since(None) == after


def result(*drivers):
    hosts = [{"name": f"h{number}"} for number in range(len(drivers))]
    loads = {host["name"]: Load(driver=driver) for host, driver in zip(hosts, drivers, strict=True)}
    trial = Trial.model_validate({"point": {}, "deployment": {"hosts": hosts}, "phases": [{"loads": loads}]})
    return TrialResult(id="0001", trial=trial, started=0, ended=1)


def test_each_driver_counts_something_else():
    assert counted([result("pgbench")]) == DATABASE and DATABASE.unit == "tps"
    assert counted([result("fio"), result("fio", "fio")]).unit == "IOPS"
    assert counted([result("iperf3")]).many == "bytes" and counted([result("command")]).one == "run"


def test_together_they_count_nothing_that_could_be_named():
    assert counted([result("fio"), result("pgbench")]) == MIXED


def test_where_nothing_is_loaded_it_is_transactions():
    assert counted([]) == counted([result()]) == DATABASE == counted_by("an unknown driver")
