"""Shares of the active sessions by class of wait event."""

from __future__ import annotations

import pytest

from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.study.wait_events import largest_difference, wait_row

PLAN = Trial(point={"tenants": 2}, deployment=Deployment(hosts=(Host(),)), phases=(Phase(name="p"),), wait_events=True)


CLASSES = ("cpu", "lock", "lwlock", "io", "ipc", "client", "other")


def trial(**sessions: dict[str, float]) -> TrialResult:
    """A trial with sessions by container and class in a phase of two seconds, and nobody active in one of the same length."""
    waits = {name: {f"waits.{one}": of.get(one, 0.0) for one in CLASSES} for name, of in sessions.items()}
    phases = [
        PhaseResult(phase="p", start=0, end=2, overlap=1, targets=[], metrics={f"server:{name}/pg": one for name, one in found.items()})
        for found in (waits, {name: dict.fromkeys(one, 0.0) for name, one in waits.items()})
    ]
    return TrialResult(id="0001", trial=PLAN, started=0, ended=4, phases=phases)


def test_servers_are_summed_and_shares_averaged_over_trials() -> None:
    first = trial(a={"cpu": 2, "lock": 4}, b={"cpu": 2})
    second = trial(a={"cpu": 4}, b={})
    row = wait_row([first, second])
    assert row["active_sessions"].value == pytest.approx((4 + 2) / 2), "half of the time nobody is active"
    assert (row["on_cpu"].value, row["waits_lock"].value, row["waits_io"].value) == pytest.approx((0.75, 0.25, 0))
    assert wait_row([first, second], lambda server: server == "b/pg")["on_cpu"].value == 1


def test_an_interval_of_a_share_ends_at_1() -> None:
    row = wait_row([trial(a={"cpu": 1, "lock": part}) for part in (0.2, 0.3, 0.1, 0.0)])
    assert row["on_cpu"].high == 1 and 0 < row["on_cpu"].low < row["on_cpu"].value


def test_the_largest_difference_is_named_with_both_rows() -> None:
    rows = {"one": wait_row([trial(a={"cpu": 2, "io": 8})]), "other": wait_row([trial(a={"cpu": 4, "io": 1, "lock": 5})])}
    assert largest_difference(rows) == "Active sessions differ most in the share waiting for I/O: 80 % in one, 10 % in other."
    assert largest_difference({**rows, "other": {}}) == largest_difference({}) == ""


def test_without_samples_or_sessions_there_is_no_row() -> None:
    assert wait_row([]) == wait_row([trial()]) == wait_row([trial(a={})]) == {}
    assert wait_row([trial(a={"cpu": 1})], lambda server: False) == {}
