"""Parts of reading a server that need none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pgherd.capture import source
from pgherd.capture.model import Counters


def test_counters_increase_or_were_reset():
    assert Counters(calls=10, rows=5).since(Counters(calls=4, rows=5)) == Counters(calls=6)
    assert Counters(calls=3, rows=2).since(Counters(calls=9, rows=9)) == Counters(calls=3, rows=2)
    assert source.sum_counters([Counters(calls=1), Counters(calls=2, read=3)]) == Counters(calls=3, read=3)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["SELECT f(1, 'it''s', NULL)"], {1: ("1",), 2: ("it's",)}),
        (["SELECT f(1, $1, 7.5);", "SELECT f(2, $1, 7.5)"], {1: ("1", "2"), 3: ("7.5",)}),
        (["SELECT g(1, 2, 3)", "SELECT f(1, now(), 3)"], {}),
    ],
)
def test_constants_of_running_statements(texts, expected):
    assert source.observed_constants("SELECT f($1, $2, $3)", texts) == expected


@pytest.mark.parametrize("text", ["select 1", "  (SELECT 1)", "\n( \tSelect 1"])
def test_the_first_word_follows_blanks_and_parentheses(text):
    assert source._first_word(text) == "select"


def test_constants_that_accept_no_parameter_become_casts():
    assert source._typed_constants("now() - INTERVAL $1 > date $2") == "now() - CAST($1 AS INTERVAL) > CAST($2 AS date)"
    assert source._arithmetic("a + $1, $2 / $4, f($5)") == [0, 1700, 0, 1700]


@pytest.mark.parametrize(("version", "timeout"), [(160009, {}), (170000, {"transaction_timeout": "0"})])
def test_no_timeout_of_the_role_ends_the_window(version, timeout, monkeypatch):
    made = {}

    def execute(statement, parameters=()):
        made.update([parameters[:2]] if parameters else [])

    monkeypatch.setattr(source, "_rows", lambda *_: [{"nspname": "public", "granted": True}])
    source._begin(SimpleNamespace(info=SimpleNamespace(server_version=version), execute=execute))
    assert {name: value for name, value in made.items() if "transaction" in name} == {"idle_in_transaction_session_timeout": "0", **timeout}
