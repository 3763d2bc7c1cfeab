"""Fingerprint of a load: calls, rows, hit ratio, WAL and times by statement, for the comparison of a source with its copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from pgherd.capture.model import Counters, Source
from pgherd.capture.scripts import TAG, ScriptFile, is_control

TOLERANCE = 0.10
"""Relative difference of a copy that counts as equal."""
_Z = 1.96
_MOST = 2**63 - 1
"""Of a counter of the server."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StatementFingerprint(_Record):
    """Counters of one statement in a window. Times are in ms."""

    number: int
    calls: int = Field(ge=0, le=_MOST)
    rows: int = Field(ge=0, le=_MOST)
    hit: int = Field(ge=0, le=_MOST)
    read: int = Field(ge=0, le=_MOST)
    time_ms: float = Field(ge=0)
    wal_bytes: int = Field(ge=0, le=_MOST)
    wal_fpi: int = Field(ge=0, le=_MOST)


class Fingerprint(_Record):
    """Observation of a load. Statement 0 are BEGIN, COMMIT and ROLLBACK together.

    ``scripts`` has the calls of each statement by script. The number of transactions follows from it, because the server counts
    those of active sessions with a delay.
    """

    seconds: float = Field(gt=0)
    scripts: tuple[dict[int, PositiveInt], ...]
    statements: tuple[StatementFingerprint, ...]

    @property
    def transactions(self) -> float:
        """Executions of the scripts, each of which is one transaction."""
        calls = {one.number: one.calls for one in self.statements}
        return sum(sum(calls.get(number, 0) for number in script) / sum(script.values()) for script in self.scripts if script)


class QuantityComparison(_Record):
    """One quantity of source and copy. ``n`` are the calls of the copy. Without ``low`` and ``high`` the interval is unknown.

    The interval (95 %) is that of the ratio of two counts, from their Poisson variances.
    """

    quantity: str
    statement: int | None
    unit: str
    source: float
    copy_: float = Field(serialization_alias="copy")
    ratio: float | None
    low: float | None = None
    high: float | None = None
    n: int
    result: Literal["pass", "fail", "unknown", "not compared"]


def source_fingerprint(source: Source, scripts: Sequence[ScriptFile]) -> Fingerprint:
    """Return the fingerprint of the statements that became scripts."""
    kept = {number for script in scripts for number in script.statements}
    counters = {statement.number: statement.counters for statement in source.statements if statement.number in kept}
    control = [statement.counters for statement in source.statements if is_control(statement.text)]
    return _fingerprint(counters, control, [script.statements for script in scripts], source.seconds)


def copy_fingerprint(source: Fingerprint, statements: Sequence[tuple[str, Counters]], seconds: float) -> Fingerprint:
    """Return the fingerprint of a copy. Its statements have a comment with their number in the source."""
    counters: dict[int, list[Counters]] = {}
    for text, one in statements:
        tag = TAG.match(text)
        if tag is not None:
            counters.setdefault(int(tag[1]), []).append(one)
    control = [one for text, one in statements if is_control(text)]
    return _fingerprint({number: _sum(found) for number, found in counters.items()}, control, source.scripts, seconds)


def _fingerprint(
    counters: Mapping[int, Counters], control: Sequence[Counters], scripts: Sequence[dict[int, int]], seconds: float
) -> Fingerprint:
    all_ = dict(counters) | ({0: _sum(control)} if control else {})
    return Fingerprint(
        seconds=seconds,
        scripts=tuple(scripts),
        statements=tuple(StatementFingerprint(number=number, **vars(one)) for number, one in sorted(all_.items())),
    )


def _sum(counters: Sequence[Counters]) -> Counters:
    return Counters(**{name: sum(getattr(one, name) for one in counters) for name in vars(Counters())})


def compare(source: Fingerprint, copy: Fingerprint) -> list[QuantityComparison]:
    """Compare shares of calls, rows per call, hit ratio and WAL per transaction. Times are shown but not compared."""
    theirs = {one.number: one for one in source.statements if one.number and one.calls}
    copies = {one.number: one for one in copy.statements}
    all_source, all_copy = sum(one.calls for one in theirs.values()), sum(one.calls for number, one in copies.items() if number)
    result: list[QuantityComparison] = []
    for number, one in theirs.items():
        other = copies.get(number, StatementFingerprint(number=number, calls=0, rows=0, hit=0, read=0, time_ms=0, wal_bytes=0, wal_fpi=0))
        result.append(_calls(one, other, all_source, all_copy))
        if other.calls:
            result.append(_ratio("rows", number, "rows/call", one.rows / one.calls, other.rows / other.calls, other.calls))
            times = _ratio("time", number, "ms/call", one.time_ms / one.calls, other.time_ms / other.calls, other.calls)
            result.append(times.model_copy(update={"result": "not compared"}))
    n = round(copy.transactions)
    result.append(_ratio("hit ratio", None, "%", _hit_ratio(source), _hit_ratio(copy), n))
    for quantity, unit, name in (("WAL", "bytes/transaction", "wal_bytes"), ("full pages in WAL", "pages/transaction", "wal_fpi")):
        result.append(_ratio(quantity, None, unit, _per_transaction(source, name), _per_transaction(copy, name), n))
    # Their number depends on the time since the last checkpoint.
    result[-1] = result[-1].model_copy(update={"result": "not compared"})
    return result


def _calls(one: StatementFingerprint, other: StatementFingerprint, all_source: int, all_copy: int) -> QuantityComparison:
    shares = (one.calls / all_source, other.calls / all_copy if all_copy else 0.0)
    result = _ratio("calls", one.number, "% of calls", 100 * shares[0], 100 * shares[1], other.calls)
    if not other.calls:
        return result
    width = exp(_Z * sqrt(max(0.0, (1 - shares[0]) / one.calls + (1 - shares[1]) / other.calls)))
    ratio = shares[1] / shares[0]
    low, high = ratio / width, ratio * width
    apart = high < 1 - TOLERANCE or low > 1 + TOLERANCE
    outcome = "fail" if apart else "pass" if abs(ratio - 1) <= TOLERANCE and width - 1 <= TOLERANCE else "unknown"
    return result.model_copy(update={"low": low, "high": high, "result": outcome})


def _ratio(quantity: str, statement: int | None, unit: str, source: float, copy: float, n: int) -> QuantityComparison:
    if source:
        ratio: float | None = copy / source
        equal = abs(copy / source - 1) <= TOLERANCE
    else:
        ratio, equal = None, copy <= TOLERANCE
    result: Literal["pass", "fail", "unknown"] = "unknown" if n == 0 else "pass" if equal else "fail"
    return QuantityComparison(quantity=quantity, statement=statement, unit=unit, source=source, copy_=copy, ratio=ratio, n=n, result=result)


def _hit_ratio(fingerprint: Fingerprint) -> float:
    hit, read = sum(one.hit for one in fingerprint.statements), sum(one.read for one in fingerprint.statements)
    return 100 * hit / (hit + read) if hit + read else 100.0


def _per_transaction(fingerprint: Fingerprint, name: str) -> float:
    return sum(float(getattr(one, name)) for one in fingerprint.statements) / max(fingerprint.transactions, 1)
