"""The tables of an analysis as CSV. No I/O; the same analysis always gives the same bytes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from pgherd.model.finding import Analysis, Finding
from pgherd.report.formatting import Cell, finite
from pgherd.study.registry import studies

Row = dict[str, Cell]


def columns(rows: Sequence[Row]) -> list[str]:
    """All column names, in the order in which the rows first mention them."""
    return list(dict.fromkeys(name for row in rows for name in row))


def leading(study: str, tables: Mapping[str, Sequence[Row]]) -> str | None:
    """The name of the table that is shown below the answer: the first that the study leads with, else the first of all."""
    known = studies().get(study)
    lead = (known.lead if known is not None else ()) or (study,)
    return next((name for name in lead if name in tables), None) or next(iter(tables), None)


def csv_text(rows: Sequence[Row]) -> str:
    """One table as CSV (RFC 4180, comma, CRLF as the standard says).

    A column in which any row holds a Finding becomes ``NAME``, ``NAME_low``, ``NAME_high`` and ``NAME_unit``; floats
    are written in full (their shortest exact form), what is missing or not finite is an empty field.
    """
    names = columns(rows)
    measured = {name for name in names if any(isinstance(row.get(name), Finding) for row in rows)}
    header = [part for name in names for part in (_parts(name) if name in measured else [name])]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(header)
    for row in rows:
        fields: list[object] = []
        for name in names:
            cell = row.get(name)
            if name not in measured:
                fields.append(_plain(cell))
            elif isinstance(cell, Finding):
                fields += [_plain(cell.value), _plain(cell.low), _plain(cell.high), cell.unit]
            else:
                fields += [_plain(cell), "", "", ""]
        writer.writerow(fields)
    return out.getvalue()


def csv_files(analysis: Analysis) -> dict[str, str]:
    """File name → CSV text of every table that has a row; names keep to letters, digits, ``_``, ``-`` and ``.``."""
    files: dict[str, str] = {}
    for name, rows in sorted(analysis.tables.items()):
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".") or "table"
        while f"{stem}.csv" in files:
            stem += "_"
        if rows:
            files[f"{stem}.csv"] = csv_text(rows)
    return files


def _parts(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high", f"{name}_unit"]


def _plain(cell: Cell) -> object:
    if cell is None or (isinstance(cell, float) and finite(cell) is None):
        return ""
    return cell
