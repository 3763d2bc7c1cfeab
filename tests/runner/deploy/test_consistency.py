from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgherd.model.deployment import Database
from pgherd.model.errors import TrialError
from pgherd.runner.deploy.consistency import insist_consistent

ORDERS = Database(name="shop", workload="orders")


class Server:
    """Answers with the twelve conditions, of which ``broken`` do not hold."""

    name = "db01/pg"

    def __init__(self, broken: dict[int, int] | None = None, error: Exception | None = None) -> None:
        self.broken, self.error = broken or {}, error
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []

    def sql(self, statement: str, parameters: Any = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        self.asked.append((database, statement))
        if statement.startswith("SELECT"):
            return []
        if self.error:
            raise self.error
        return [(number, self.broken.get(number, 0), "district 1.7") for number in range(1, 13)]

    def disconnect(self, databases: Any = ()) -> None:
        self.closed.extend(databases)


def test_a_consistent_database_passes_and_is_left() -> None:
    server = Server()
    insist_consistent(server, ORDERS)
    assert {database for database, _ in server.asked} == {"shop"}
    assert server.closed == ["shop"]


def test_a_violation_names_database_condition_and_example() -> None:
    server = Server({4: 2, 9: 1})
    with pytest.raises(TrialError, match=r"database shop of server db01/pg contradicts itself .*condition 4 .*district 1\.7; condition 9"):
        insist_consistent(server, ORDERS)
    assert server.closed == ["shop"]


def test_what_cannot_be_asked_fails_the_trial_too() -> None:
    with pytest.raises(TrialError, match="cannot be checked: gone"):
        insist_consistent(Server(error=psycopg.OperationalError("gone")), ORDERS)


def test_a_workload_without_rules_is_not_asked() -> None:
    server = Server({1: 1})
    insist_consistent(server, Database(workload="pgbench"))
    assert server.asked == []
