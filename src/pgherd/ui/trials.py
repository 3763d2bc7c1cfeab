"""A run's trials by id and point, without reading the whole of each: enough to choose one."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.report.formatting import clean, point_text
from pgherd.store.run_directory import RunDirectory

_HEAD = 4096
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class TrialLine:
    """A finished trial: its id, its point in words (empty where the file does not begin as we write it), its directory.

    ``size`` is the sum of the point's numbers, by which the largest of a run's points is found.
    """

    id: str
    point: str
    directory: Path
    size: float = 0.0

    @property
    def words(self) -> str:
        """``0007: databases 4``."""
        return f"{self.id}: {self.point}" if self.point else self.id


def trial_lines(directory: RunDirectory) -> list[TrialLine]:
    """All finished trials in the order in which they ran."""
    files = sorted((directory.path / "trials").glob("[0-9]*/trial.json"))
    found = []
    for file in files:
        if file.parent.name.isdecimal():
            point = _point(file)
            size = sum(value for value in point.values() if isinstance(value, int | float) and math.isfinite(value))
            found.append(TrialLine(file.parent.name, clean(point_text(point)), file.parent, size))
    return found


def trial_line(directory: RunDirectory, trial: str) -> TrialLine:
    """One of them.

    Raises:
        UsageError: the run has no such trial.
    """
    lines = trial_lines(directory)
    found = next((line for line in lines if line.id == trial), None)
    if found is None:
        raise UsageError(f"run {directory.name} has no finished trial '{clean(trial)[:40]}'")
    return found


def read_trial(line: TrialLine) -> TrialResult:
    """All of a trial.

    Raises:
        UsageError: its file cannot be read.
    """
    try:
        return TrialResult.model_validate_json((line.directory / "trial.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"trial {line.id} cannot be read: {clean(str(error).splitlines()[0])}") from None


def _point(file: Path) -> dict[str, int | float | str]:
    """The point stands near the beginning of what we write: the rest, which may be long, is not read."""
    try:
        with open(file, "rb") as opened:
            head = opened.read(_HEAD).decode(errors="replace")
        begin = head.index('"point"')
        point, _ = _DECODER.raw_decode(head, head.index("{", begin))
        return {str(name): value for name, value in point.items() if isinstance(value, int | float | str)}
    except (OSError, ValueError, AttributeError):
        return {}
