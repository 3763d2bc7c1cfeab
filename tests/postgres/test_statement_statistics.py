"""Texts and increases of statements. The server's part is in tests/it/test_observed_server.py."""

import pytest

from pgherd.model.result import StatementCounters
from pgherd.postgres.statement_statistics import increase, public_text


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("SELECT $1\n  FROM t", "SELECT $1 FROM t"),
        ("/* route */ -- x\n (SELECT 1)", "(SELECT 1)"),
        ("with a as (select $1) update t set b = $2", "with a as (select $1) update t set b = $2"),
        ("ALTER ROLE a PASSWORD 'secret'", "ALTER …"),
        ("/* SELECT */ CALL pay('secret')", "CALL …"),
        ("COMMIT", "COMMIT"),
        ("", ""),
        ("SELECT " + "x" * 5000, "SELECT " + "x" * 993 + "…"),
    ],
)
def test_a_text_is_kept_if_it_has_no_constants(text: str, public: str) -> None:
    assert public_text(text) == public


def test_an_increase_counts_what_ended_and_orders_it_by_time() -> None:
    before = {"1": StatementCounters(calls=5, time_ms=50.0), "2": StatementCounters(calls=9), "4": StatementCounters(calls=7)}
    after = {
        "1": StatementCounters(calls=7, time_ms=60.0, rows=2),
        "2": StatementCounters(calls=9),
        "3": StatementCounters(calls=1, time_ms=30.0),
        "4": StatementCounters(calls=2, time_ms=1.0),
    }
    found = increase(before, after)
    assert list(found) == ["3", "1", "4"], "an unused statement is left out"
    assert found["1"] == StatementCounters(calls=2, time_ms=10.0, rows=2)
    assert found["4"].calls == 2, "it was reset"
