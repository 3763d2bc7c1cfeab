"""The ``--json`` document and the CSV tables of a run. No I/O: the same analysis always gives the same bytes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pgherd.model.analysis import Analysis, Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import Cell, finite
from pgherd.study.study import studies
from pgherd.workloads.bundled_scripts import NOTICES


def notices(record: RunRecord) -> list[str]:
    """Return the notices of all workloads in the run's options and variants, and what changed during the run."""
    workloads = dict.fromkeys(_workloads(record.options))
    return [*(NOTICES[name] for name in workloads if name in NOTICES), *record.resumed_on_changed_host]


def _workloads(options: object) -> list[str]:
    if isinstance(options, dict):
        names = [options["workload"]] if isinstance(options.get("workload"), str) else []
        return names + [name for value in options.values() for name in _workloads(value)]
    return [name for value in options for name in _workloads(value)] if isinstance(options, list | tuple) else []


Row = dict[str, Cell]


def columns(rows: Sequence[Row]) -> list[str]:
    """Return all column names in the order of their first use."""
    return list(dict.fromkeys(name for row in rows for name in row))


def leading(study: str, tables: Mapping[str, Sequence[Row]]) -> str | None:
    """Return the name of the table shown below the answer: the study's leading table, otherwise the first one."""
    study_object = studies().get(study)
    lead = (study_object.lead if study_object is not None else ()) or (study,)
    return next((name for name in lead if name in tables), None) or next(iter(tables), None)


def csv_text(rows: Sequence[Row]) -> str:
    """Return one table as CSV (RFC 4180: comma, CRLF).

    A column with a Finding in any row becomes ``NAME``, ``NAME_low``, ``NAME_high`` and ``NAME_unit``. Floats have their shortest exact
    form.
    A missing value or one that is not finite is an empty field.
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
    """Return file name → CSV text of every table with rows. Names have only letters, digits, ``_``, ``-`` and ``.``."""
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


VERSION = 2
"""Version of the document's schema. Added fields do not increase it, a changed meaning does."""


def document(record: RunRecord, results: Sequence[TrialResult]) -> dict[str, Any]:
    """Return the JSON document of one run. Numbers that are not finite are null.

    Keys: ``schema`` (``pgherd/STUDY/2``), ``run``, ``study``, ``state``, ``error`` (why the run did not finish, or null), ``answer`` and
    ``grade`` (both null without an analysis), ``details`` [sentence], ``grade_reason`` (null if the grade is that of the trials),
    ``findings`` {name: finding}, ``tables`` {name: [row]} in which a measured cell is a finding, ``trials`` [{id, point, repeat, tainted,
    error, checks}], ``warnings``, ``notices``, ``next_steps``. A finding has value, unit, low, high, confidence, n, method, note,
    experiment and published.
    """
    analysis = record.analysis
    return {
        "schema": f"pgherd/{record.study}/{VERSION}",
        "run": record.run,
        "study": record.study,
        "state": record.state,
        "error": record.error,
        "answer": analysis.answer if analysis else None,
        "details": analysis.details if analysis else [],
        "grade": analysis.grade if analysis else None,
        "grade_reason": (analysis.grade_reason if analysis else "") or None,
        "findings": {name: _json_finding(finding) for name, finding in analysis.findings.items()} if analysis else {},
        "tables": {name: [{key: _json_value(cell) for key, cell in row.items()} for row in rows] for name, rows in analysis.tables.items()}
        if analysis
        else {},
        "trials": [_json_trial(result) for result in results],
        "warnings": list(analysis.warnings) if analysis else [],
        "notices": notices(record),
        "next_steps": list(analysis.next_steps) if analysis else [],
    }


def document_text(record: RunRecord, results: Sequence[TrialResult]) -> str:
    """Return the document as indented strict JSON with a final newline."""
    return json.dumps(document(record, results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json_trial(result: TrialResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "point": {name: _json_value(value) for name, value in result.trial.point.items()},
        "repeat": result.trial.repeat,
        "tainted": result.tainted,
        "error": result.error,
        "checks": [check.model_dump(mode="json") for check in result.checks],
    }


def _json_finding(finding: Finding) -> dict[str, Any]:
    return {name: _json_value(value) for name, value in finding.model_dump(mode="python").items()}


def _json_value(cell: Cell) -> Any:
    if isinstance(cell, Finding):
        return _json_finding(cell)
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return cell
