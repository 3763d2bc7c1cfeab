"""Parts of reading a server that need none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pgherd.capture import source
from pgherd.capture.model import Counters, Statement, Type

INTS = Type("pg_catalog", "_int4", element=Type("pg_catalog", "int4"))


def test_counters_increase_or_were_reset():
    assert Counters(calls=10, rows=5).since(Counters(calls=4, rows=5)) == Counters(calls=6)
    assert Counters(calls=3, rows=2).since(Counters(calls=9, rows=9)) == Counters(calls=3, rows=2)
    evicted = Counters(calls=3, rows=10, time_ms=9.0)
    assert evicted.since(Counters(calls=1, rows=1000, time_ms=50.0)) == evicted
    assert Counters(calls=3, time_ms=9.0).since(Counters(calls=1, time_ms=50.0)) == Counters(calls=3, time_ms=9.0)
    assert Counters(calls=3, time_ms=0.3).since(Counters(calls=3, time_ms=0.1 + 0.2)).calls == 0, "no call, but another order of a sum"
    assert source.sum_counters([Counters(calls=1), Counters(calls=2, read=3)]) == Counters(calls=3, read=3)


def test_queries_of_a_capture_are_not_load(monkeypatch):
    snapshots = iter([{1: Counters(calls=5)}, {1: Counters(calls=9), 2: Counters(calls=300), 3: Counters(calls=1)}])
    monkeypatch.setattr(source, "_counters", lambda *_: next(snapshots))
    monkeypatch.setattr(source, "_transactions", lambda _: 7)
    monkeypatch.setattr(source, "_texts", lambda *_: {1: "SELECT 1", 2: "SELECT /* pgherd capture */ query FROM pg_stat_activity"})
    found, _, transactions, _ = source._observe(SimpleNamespace(), SimpleNamespace(), 0.0, lambda _: None)
    assert found == {1: Counters(calls=4), 3: Counters(calls=1)} and transactions == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1 FROM t WHERE a IN ($1 /*, ... */) AND b = $2 /* x */", "SELECT 1 FROM t WHERE a = ANY ($1) AND b = $2"),
        ("SELECT 1 FROM t WHERE a not  in /* x */ ($1 /*, ... */)", "SELECT 1 FROM t WHERE a <> ALL ($1)"),
        ("SELECT f(ARRAY[$1 /*, ... */]::int[])", "SELECT f($1::int[])"),
        ("SELECT 1 FROM t WHERE a = ANY (ARRAY[$2 /*, ... */])", "SELECT 1 FROM t WHERE a = ANY ($2)"),
        ("SELECT f($1 /*, ... */)", "SELECT f($1, ...)"),
        ("SELECT 1 FROM t WHERE a IN ($1, $2)", "SELECT 1 FROM t WHERE a IN ($1, $2)"),
    ],
)
def test_a_list_without_its_elements_becomes_an_array(text, expected):
    assert source.without_lists(text) == expected


@pytest.mark.parametrize(
    ("text", "kind", "shortened"),
    [
        ("SELECT 1 FROM t WHERE a IN ($1 /*, ... */)", INTS, False),
        ("SELECT ARRAY[$1 /*, ... */]", INTS.element, True),  # a text without its array
        ("SELECT unnest(ARRAY[$1 /*, ... */])", None, True),  # refused
        ("SELECT $1", INTS.element, False),
    ],
)
def test_a_list_has_one_element_if_no_array_is_accepted(monkeypatch, text, kind, shortened):
    tried = []

    def analysed(_, number, code, counters, __):
        tried.append(code)
        return Statement(number, code, counters, () if kind is None else (kind,), error="refused" if kind is None else "")

    monkeypatch.setattr(source, "_analysed", analysed)
    (found,) = source._analyse(SimpleNamespace(), {7: text}, [(7, Counters(calls=1))], {})
    assert found.shortened == shortened and len(tried) == 1 + shortened
    assert found.text == (text.replace("/*, ... */", " ") if shortened else source.without_lists(text))


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
