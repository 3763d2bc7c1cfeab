"""What drivers count as a transaction: a number per second needs its right unit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pgherd.model.result import TrialResult


class Counted(NamedTuple):
    """``unit`` of a rate per second, and what ``one`` of them is, and ``many`` are."""

    unit: str
    one: str
    many: str


DATABASE: Final = Counted("tps", "transaction", "transactions")
MIXED: Final = Counted("1/s", "count", "counts")
"""Drivers that count different things: their sum means nothing."""

_COUNTED = {
    "pgbench": DATABASE,
    "fio": Counted("IOPS", "I/O", "I/Os"),
    "iperf3": Counted("bytes/s", "byte", "bytes"),
    "command": Counted("runs/s", "run", "runs"),
}


def counted_by(driver: str) -> Counted:
    """What a driver counts; a transaction where that is not known."""
    return _COUNTED.get(driver, DATABASE)


def counted(results: Iterable[TrialResult]) -> Counted:
    """What the trials' drivers counted; a transaction where there was none."""
    found = {counted_by(load.driver) for result in results for phase in result.trial.phases for load in phase.loads.values()}
    if len(found) > 1:
        return MIXED
    return found.pop() if found else DATABASE
