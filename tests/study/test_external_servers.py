"""Tables of external servers."""

from __future__ import annotations

from typing import Any

import pytest

from pgherd.model.analysis import Analysis
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, ServerStatements, StatementUse, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.external_servers import HIDDEN, with_external_servers


def use(queryid: str, text: str, calls: int, time_ms: float) -> StatementUse:
    return StatementUse(queryid=queryid, text=text, calls=calls, time_ms=time_ms, rows=2 * calls, wal_bytes=100 * calls)


def trial(statements: dict[str, ServerStatements], **metrics: float) -> TrialResult:
    plan = Trial(point={"servers": 2}, deployment=Deployment(hosts=(Host(),)), phases=(Phase(name="p"),))
    servers = {f"server:{name}/pg": {"waits.cpu": 1.0, **metrics} for name in ("a", "b")}
    waits = {f"{name}/pg": {"cpu": [1.0]} for name in ("a", "b")}
    phase = PhaseResult(phase="p", start=0, end=10, overlap=1, targets=[], metrics=servers, statements=statements, waits=waits)
    return TrialResult(id="0001", trial=plan, started=0, ended=1, phases=[phase])


def tables(*results: TrialResult) -> dict[str, list[dict[str, Any]]]:
    return with_external_servers(Analysis(answer="", grade="A"), results).tables


def test_one_statement_on_two_servers_is_one_row() -> None:
    found = {
        "a/pg": ServerStatements(seconds=10, calls=30, time_ms=60.0, top=[use("1", "SELECT $1", 20, 40.0), use("", "", 1, 20.0)]),
        "b/pg": ServerStatements(seconds=10, calls=10, time_ms=40.0, top=[use("2", "SELECT $1", 10, 30.0)]),
    }
    first, second = tables(trial(found))["statements"]
    assert first["statement"] == "SELECT $1" and second["statement"] == HIDDEN
    values = {name: cell.value for name, cell in first.items() if hasattr(cell, "value")}
    assert values["time_share"] == pytest.approx(0.7) and values["calls"] == 3 and values["mean_time"] == pytest.approx(70 / 30)
    assert values["rows_per_call"] == 2 and values["wal_per_call"] == 100


def test_activity_sums_servers_and_takes_the_largest_lag() -> None:
    metrics = {"checkpoint.timed": 0.01, "checkpoint.requested": 0.02, "wal.bytes": 2e6, "replication.replay_lag_bytes": 3 * 2**20}
    (row,) = tables(trial({}, **metrics), trial({}, **metrics))["server_activity"]
    assert row["servers"] == 2 and row["checkpoints"].value == pytest.approx(2 * 0.03 * 60) and row["wal_rate"].value == pytest.approx(4)
    assert row["replay_lag_bytes"].value == 3 and "replay_lag" not in row, "not shown to this user"
    assert row["checkpoints"].n == 2


def test_servers_of_pgherd_have_no_such_tables() -> None:
    result = trial({})
    (phase,) = result.phases
    private = phase.model_copy(update={"metrics": {"server:a/pg": {"wal.bytes": 1.0, "waits.cpu": 1.0}}, "waits": {}})
    assert tables(result.model_copy(update={"phases": [private]})) == {}
