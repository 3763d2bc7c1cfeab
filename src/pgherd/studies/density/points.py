"""Trials grouped by number of databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.result import TrialResult
from pgherd.studies.density.options import DensityOptions
from pgherd.study.repeats import Repeats, repeats


@dataclass(frozen=True)
class Point(Repeats):
    """All trials of one number of databases."""

    databases: int


def group(options: DensityOptions, results: Sequence[TrialResult]) -> list[Point]:
    """Points that have at least one finished trial, by number of databases."""
    by_databases: dict[int, list[TrialResult]] = {}
    for result in results:
        databases = result.trial.point.get("databases")
        if isinstance(databases, int):
            by_databases.setdefault(databases, []).append(result)
    points = []
    for databases, trials in sorted(by_databases.items()):
        found = repeats(options, trials)
        if found is not None:
            points.append(Point(found.used, found.tried, found.tainted, found.failed, databases))
    return points


def plural(databases: float) -> str:
    """``1 database``, ``8 databases``."""
    return f"{databases:g} database{'' if databases == 1 else 's'}"
