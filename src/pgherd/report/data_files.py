"""The ``--json`` document and the CSV tables of a run. No I/O: the same analysis always gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pgherd.model.finding import Analysis, Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import Cell, finite
from pgherd.study.registry import studies
from pgherd.workloads.shipped import NOTICES


def notices(record: RunRecord) -> list[str]:
    """The notices of all workloads that the run's options name, of its arms too, each once; and on which other host it was resumed."""
    found = dict.fromkeys(_workloads(record.options))
    return [*(NOTICES[name] for name in found if name in NOTICES), *record.resumed]


def _workloads(options: object) -> list[str]:
    if isinstance(options, dict):
        own = [options["workload"]] if isinstance(options.get("workload"), str) else []
        return own + [name for value in options.values() for name in _workloads(value)]
    return [name for value in options for name in _workloads(value)] if isinstance(options, list | tuple) else []


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
    header = [part for name in names for part in (_interval_columns(name) if name in measured else [name])]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(header)
    for row in rows:
        fields: list[object] = []
        for name in names:
            cell = row.get(name)
            if name not in measured:
                fields.append(_csv_value(cell))
            elif isinstance(cell, Finding):
                fields += [_csv_value(cell.value), _csv_value(cell.low), _csv_value(cell.high), cell.unit]
            else:
                fields += [_csv_value(cell), "", "", ""]
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


def _interval_columns(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high", f"{name}_unit"]


def _csv_value(cell: Cell) -> object:
    if cell is None or (isinstance(cell, float) and finite(cell) is None):
        return ""
    return cell


VERSION = 1
"""Of the document's schema: a field keeps its meaning; what is added does not raise it."""


def document(record: RunRecord, results: Sequence[TrialResult]) -> dict[str, Any]:
    """The document of one run, JSON-able; numbers that are not finite are null.

    Keys: ``schema`` (``pgherd/STUDY/1``), ``run``, ``study``, ``state``, ``answer``, ``grade`` (both null while there is no
    analysis), ``findings`` {name: finding}, ``tables`` {name: [row]} in which a measured cell is a finding, ``trials``
    [{id, point, repeat, tainted, error, verdicts}], ``warnings``, ``notices``, ``look_at``. A finding has all of value, unit, low,
    high, confidence, n, method, note, experiment, published.
    """
    analysis = record.analysis
    return {
        "schema": f"pgherd/{record.study}/{VERSION}",
        "run": record.run,
        "study": record.study,
        "state": record.state,
        "answer": analysis.answer if analysis else None,
        "grade": analysis.grade if analysis else None,
        "findings": {name: _json_finding(finding) for name, finding in analysis.findings.items()} if analysis else {},
        "tables": {name: [{key: _json_value(cell) for key, cell in row.items()} for row in rows] for name, rows in analysis.tables.items()}
        if analysis
        else {},
        "trials": [_json_trial(result) for result in results],
        "warnings": list(analysis.warnings) if analysis else [],
        "notices": notices(record),
        "look_at": list(analysis.look_at) if analysis else [],
    }


def document_text(record: RunRecord, results: Sequence[TrialResult]) -> str:
    """The document as indented JSON with a final newline; strict JSON, no NaN."""
    return json.dumps(document(record, results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json_trial(result: TrialResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "point": {name: _json_value(value) for name, value in result.trial.point.items()},
        "repeat": result.trial.repeat,
        "tainted": result.tainted,
        "error": result.error,
        "verdicts": [verdict.model_dump(mode="json") for verdict in result.verdicts],
    }


def _json_finding(finding: Finding) -> dict[str, Any]:
    return {name: _json_value(value) for name, value in finding.model_dump(mode="python").items()}


def _json_value(cell: Cell) -> Any:
    if isinstance(cell, Finding):
        return _json_finding(cell)
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return cell
