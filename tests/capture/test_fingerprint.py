"""Comparison of fingerprints with known answers."""

from __future__ import annotations

from pgherd.capture.fingerprint import Fingerprint, StatementFingerprint, compare, copy_fingerprint
from pgherd.capture.model import Counters


def counters(number: int, calls: int, **more: float) -> StatementFingerprint:
    return StatementFingerprint(
        **(
            {"number": number, "calls": calls, "rows": calls, "hit": calls, "read": 0, "time_ms": calls}
            | {"wal_bytes": 0, "wal_fpi": 0}
            | more
        )
    )


def fingerprint(*statements: StatementFingerprint) -> Fingerprint:
    scripts = tuple({one.number: 1} for one in statements if one.number)
    return Fingerprint(seconds=10, scripts=scripts, statements=statements)


def results(source: Fingerprint, copy: Fingerprint) -> dict[tuple[str, int | None], str]:
    return {(row.quantity, row.statement): row.result for row in compare(source, copy)}


def test_equal_loads_agree():
    one = fingerprint(counters(1, 30_000, wal_bytes=10**6), counters(2, 10_000))
    assert set(results(one, one).values()) == {"pass", "not compared"}
    rows = {(row.quantity, row.statement): row for row in compare(one, one)}
    assert rows["calls", 1].source == 75 and rows["hit ratio", None].copy_ == 100 and rows["WAL", None].copy_ == 25
    low, high = rows["calls", 2].low, rows["calls", 2].high
    assert low is not None and high is not None and 0.97 < low < 1 < high < 1.03


def test_differences_beyond_ten_per_cent_fail():
    source = fingerprint(counters(1, 30_000, wal_bytes=30_000), counters(2, 10_000))
    copy = fingerprint(counters(1, 20_000, rows=25_000, wal_bytes=60_000, read=10_000), counters(2, 20_000))
    assert results(source, copy) == {
        ("calls", 1): "fail",
        ("rows", 1): "fail",
        ("time", 1): "not compared",
        ("calls", 2): "fail",
        ("rows", 2): "pass",
        ("time", 2): "not compared",
        ("hit ratio", None): "fail",
        ("WAL", None): "fail",
        ("full pages in WAL", None): "not compared",
    }


def test_few_calls_and_missing_statements_are_unknown():
    source = fingerprint(counters(1, 30_000), counters(2, 30))
    assert results(source, fingerprint(counters(1, 30_000), counters(2, 30)))["calls", 2] == "unknown"
    missing = results(source, fingerprint(counters(1, 30_000)))
    assert missing["calls", 2] == "unknown" and ("rows", 2) not in missing


def test_nothing_to_compare_with_zero():
    source, copy = fingerprint(counters(1, 10_000, rows=0)), fingerprint(counters(1, 10_000))
    assert results(source, source)["rows", 1] == "pass" and results(source, copy)["rows", 1] == "fail"


def test_a_statement_without_calls_is_not_compared():
    source = fingerprint(counters(1, 0, hit=0), counters(2, 10_000))
    assert {statement for _, statement in results(source, source)} == {2, None}


def test_statements_of_a_copy_are_known_by_their_comment():
    source = Fingerprint(seconds=1, scripts=({1: 1, 2: 2},), statements=(counters(1, 10), counters(2, 20)))
    assert source.transactions == 10
    texts = [("SELECT /* pgherd 1 */ 1", Counters(calls=3)), ("SELECT /* pgherd 1 */  1", Counters(calls=2)), ("BEGIN", Counters(calls=5))]
    copy = copy_fingerprint(source, [*texts, ("(with /* pgherd 2 */ a", Counters(calls=10)), ("SELECT 'other'", Counters(calls=99))], 1.0)
    assert {one.number: one.calls for one in copy.statements} == {0: 5, 1: 5, 2: 10} and copy.transactions == 5
