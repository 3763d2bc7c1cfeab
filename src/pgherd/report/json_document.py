"""The ``--json`` document: what a program reads instead of the report. Imports no plotting library."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import Cell
from pgherd.report.data_files import notices

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
        "findings": {name: _finding(finding) for name, finding in analysis.findings.items()} if analysis else {},
        "tables": {name: [{key: _cell(cell) for key, cell in row.items()} for row in rows] for name, rows in analysis.tables.items()}
        if analysis
        else {},
        "trials": [_trial(result) for result in results],
        "warnings": list(analysis.warnings) if analysis else [],
        "notices": notices(record),
        "look_at": list(analysis.look_at) if analysis else [],
    }


def document_text(record: RunRecord, results: Sequence[TrialResult]) -> str:
    """The document as indented JSON with a final newline; strict JSON, no NaN."""
    return json.dumps(document(record, results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _trial(result: TrialResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "point": {name: _cell(value) for name, value in result.trial.point.items()},
        "repeat": result.trial.repeat,
        "tainted": result.tainted,
        "error": result.error,
        "verdicts": [verdict.model_dump(mode="json") for verdict in result.verdicts],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {name: _cell(value) for name, value in finding.model_dump(mode="python").items()}


def _cell(cell: Cell) -> Any:
    if isinstance(cell, Finding):
        return _finding(cell)
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return cell
