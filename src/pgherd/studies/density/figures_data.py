"""Reading the tables of a density analysis for figures: rows with numbers, their bounds, the point that fits the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pgherd.model.finding import Analysis, Finding
from pgherd.report.data_files import Row
from pgherd.report.formatting import bounds, finite


def rows_with(analysis: Analysis, table: str, *needed: str) -> list[Row]:
    """The table's rows that have a number under any of these columns, by number of databases."""
    rows = [row for row in analysis.tables.get(table, []) if finite(row.get("databases"))]
    return sorted((row for row in rows if any(finite(row.get(name)) is not None for name in needed)), key=databases)


def databases(row: Row) -> float:
    """The row's number of databases."""
    return finite(row["databases"]) or 0.0


def at_full(rows: Sequence[Row]) -> Row:
    """The row of the largest point that gives out no more than all cores; the last row where none says its fraction."""
    within = [row for row in rows if (finite(row.get("fraction")) or math.inf) <= 1 + 1e-9]
    return within[-1] if within else rows[-1]


def numbers(rows: Sequence[Row], *names: str) -> list[float]:
    """All values and interval ends in these columns."""
    return [x for row in rows for name in names for x in (finite(row.get(name)), *bounds(row.get(name))) if x is not None]


def share_point(row: Row, column: str, shift: float = 0.0) -> dict[str, float | None]:
    """A share as a point of a figure: x is the number of databases (moved by ``shift``), y, low and high are in percent."""
    cell = row[column]
    times = 1.0 if isinstance(cell, Finding) and cell.unit == "%" else 100.0
    low, high = (None if bound is None else bound * times for bound in bounds(cell))
    value = finite(cell)
    return {"x": databases(row) + shift, "y": None if value is None else value * times, "low": low, "high": high}


def reach(points: Sequence[Mapping[str, float | None]], low: float = 80, high: float = 105) -> tuple[float, float]:
    """An axis in percent that holds all values and intervals, and at least ``low`` to ``high``."""
    held = [value for point in points for name in ("y", "low", "high") if (value := point.get(name)) is not None]
    return math.floor(min([low, *held]) / 10) * 10, math.ceil(max([high, *held]) / 5) * 5
