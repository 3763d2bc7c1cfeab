"""Reading the tables of a scaling analysis for figures: one series of rows for each variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.finding import Analysis, Finding
from pgherd.report.chart_style import SERIES
from pgherd.report.data_files import Row
from pgherd.report.formatting import bounds, clean, finite

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "circle")
LABEL = 24
"""Longest name beside a curve; longer ones are cut."""


@dataclass(frozen=True)
class Series:
    """One variant's rows, ascending by clients, with its name ('' where there are no variants), colour and point shape."""

    name: str
    rows: tuple[Row, ...]
    colour: str
    shape: str

    def finding(self, analysis: Analysis, name: str) -> Finding | None:
        """The variant's own finding of this name."""
        return analysis.findings.get(f"{name}.{self.name}" if self.name else name)

    @property
    def shown(self) -> str:
        """The name where there is room for few letters."""
        name = clean(self.name)
        return name if len(name) <= LABEL else f"{name[: LABEL - 1]}…"

    @property
    def best(self) -> Row:
        """The row with the highest throughput."""
        return max(self.rows, key=lambda row: finite(row.get("throughput")) or 0.0)


def series(analysis: Analysis, table: str, *needed: str) -> list[Series]:
    """Each variant's rows of a table that have a number under any of these columns; variants without any are left out."""
    rows = [row for row in analysis.tables.get(table, []) if finite(row.get("clients")) is not None]
    names = list(dict.fromkeys(str(row.get("variant", "")) for row in rows))
    found = []
    for index, name in enumerate(names):
        own = [row for row in rows if row.get("variant", "") == name and any(finite(row.get(column)) is not None for column in needed)]
        if own:
            place = index % len(SERIES)
            found.append(Series(name, tuple(sorted(own, key=clients)), SERIES[place], SHAPES[place]))
    return found


def clients(row: Row) -> float:
    """The row's number of clients."""
    return finite(row["clients"]) or 0.0


def last(found: Sequence[Series]) -> float:
    """The largest number of clients of all."""
    return max(clients(row) for one in found for row in one.rows)


def points(rows: Sequence[Row], column: str, scale: float = 1.0) -> list[dict[str, float | None]]:
    """x (clients), y, low and high of the rows that have a number in this column, divided by ``scale``."""
    found: list[dict[str, float | None]] = []
    for row in rows:
        value = finite(row.get(column))
        if value is not None:
            low, high = (None if bound is None else bound / scale for bound in bounds(row[column]))
            found.append({"x": clients(row), "y": value / scale, "low": low, "high": high})
    return found
