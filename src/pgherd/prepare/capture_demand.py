"""Demand from directories of ``pgherd capture``: the rate and the WAL of each database in its window."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError, field_validator

from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.model.units import MB_PER_SECOND
from pgherd.node.files import UnsafeFileError, read_input
from pgherd.prepare.fleet_files import folded

if TYPE_CHECKING:
    from pgherd.analysis.demand import Cost, Demand

FILE = "capture.json"
_MAX_BYTES = 16 * 2**20
_MOST = 2**63 - 1
"""Largest counter of PostgreSQL."""


class _Counters(BaseModel):
    """Counters of statements, the part of them that a demand needs."""

    calls: int = Field(ge=0, le=_MOST)
    wal_bytes: int = Field(ge=0, le=_MOST)


class _Fingerprint(BaseModel):
    seconds: float = Field(ge=0.1, allow_inf_nan=False)
    statements: tuple[_Counters, ...] = Field(min_length=1)

    @field_validator("statements")
    @classmethod
    def _called(cls, statements: tuple[_Counters, ...]) -> tuple[_Counters, ...]:
        if not any(one.calls for one in statements):
            raise ValueError("no statement was called")
        return statements


class _Capture(BaseModel):
    """The part of a capture that a demand needs. ``total`` are all statements, ``fingerprint`` those that the copy has."""

    rate: float = Field(gt=0, le=1e12, allow_inf_nan=False)
    fingerprint: _Fingerprint
    total: _Counters


def read_captures(directories: Sequence[Path], percentile: float, costs: Sequence[Cost]) -> Demand:
    """Return the demand of captured databases, each called after its directory. Its rate in the window counts all day.

    Statements that the copy lacks are in the upper bounds: their WAL as it was, and their cost like that of the others for each call.

    Raises:
        UsageError: a directory is none of a capture, two have one name, or there is no run with the cost of a transaction.
    """
    import numpy as np

    from pgherd.analysis.demand import RATE

    captures: dict[str, _Capture] = {}
    for directory in directories:
        name = clean(directory.resolve().name)
        if name in captures:
            raise UsageError(f"two captures are called {name}, the name of their directory; rename {directory}")
        captures[name] = _read(directory)
    if not costs:
        raise UsageError(
            f"{directories[0]} has no CPU, which PostgreSQL does not count; run the command in its {FILE}, and give the run with "
            "--demand-run"
        )
    high, low = (np.empty((len(captures), 2, 1), np.float32) for _ in range(2))
    for number, one in enumerate(captures.values()):
        kept, seconds = one.fingerprint.statements, one.fingerprint.seconds
        calls, wal = sum(each.calls for each in kept), sum(each.wal_bytes for each in kept)
        high[number, :, 0] = max(one.total.wal_bytes, wal) / seconds / MB_PER_SECOND, one.rate * max(one.total.calls / calls, 1)
        low[number, :, 0] = wal / seconds / MB_PER_SECOND, one.rate
    shortest = min(one.fingerprint.seconds for one in captures.values())
    notes = [f"The rate of a capture is that of its window ({shortest:.0f} s at least), and counts all day"]
    names = list(captures)
    return folded(f"the capture {names[0]}", names, ["wal_mb_s", RATE], high, [0], 1, percentile, low=low, costs=costs, notes=notes)


def _read(directory: Path) -> _Capture:
    file = directory / FILE
    try:
        return _Capture.model_validate(json.loads(read_input(file, _MAX_BYTES)))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; name a demand file or the directory of a capture") from None
    except (ValueError, ValidationError, UnsafeFileError, RecursionError):
        raise UsageError(f"{file} is not a file of this version of pgherd capture; make a new capture") from None
