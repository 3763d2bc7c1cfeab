"""Several runs in one page: overlaid curves, results next to each other, and differences between the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.node import files
from pgherd.report import formatting, html_model, run_differences, write_report
from pgherd.report.formatting import MISSING, Cell, finite
from pgherd.report.html_model import CellText, Table
from pgherd.study.study import SideBySide, studies

Run = tuple[str, RunRecord, Sequence[TrialResult]]


def overlay(runs: Sequence[Run], out: Path) -> Path:
    """Write one page over several runs (name, record, results) to ``out`` atomically.

    Raises:
        UsageError: there is no run, or ``out`` is not writable.
    """
    if not runs:
        raise UsageError("no run given; name two or more, such as 'pgherd report RUN1 RUN2'")
    text = render(runs)
    try:
        files.write_file(out, text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; choose another file for the page") from None
    return out


def render(runs: Sequence[Run]) -> str:
    """Return the page as text."""
    return write_report.environment().get_template("overlay.html.j2").render(content(runs))


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the contents of the page by the names in its template."""
    from pgherd.report import drawing  # imports altair, which is slow

    named = _named(runs)
    pairs = [(name, record) for name, record, _ in named]
    figures, left_out = [], {}
    tables_of_runs = {table for _, record in pairs if record.analysis for table in record.analysis.tables}
    overlays = [(study, study.module(study.overlays).OVERLAYS) for study in studies().values() if study.overlays]
    shown = [(study, builders) for study, builders in overlays if study.name in tables_of_runs]
    if not shown:  # the page explains why the first kind is missing
        shown = overlays[:1]
    for name, builder in ((name, builder) for _, builders in shown for name, builder in builders.items()):
        try:
            figure = builder(pairs)
            figures.append(drawing.RenderedFigure(f"overlay-{name}", figure, drawing.svg(figure, prefix=f"overlay-{name}")))
        except drawing.FigureUnavailable as reason:
            left_out[name] = str(reason)
    tables = [_summary(named)]
    tables += [table for study in studies().values() if study.side_by_side and (table := _points(pairs, study.side_by_side))]
    tables.append(_findings(pairs))
    differences = run_differences.differences(pairs)
    study_names = sorted({record.study for _, record in pairs})
    warnings = [f"These runs are of different studies ({', '.join(map(clean, study_names))}): only common results are compared."]
    return {
        "title": f"{len(named)} run{'' if len(named) == 1 else 's'} of {', '.join(map(formatting.label, study_names))} side by side",
        "runs": [clean(name) for name, _ in pairs],
        "tables": [(table, _CAPTIONS[table.name]) for table in tables],
        "warnings": warnings if len(study_names) > 1 else [],
        "figures": [(figure.name, figure.figure.title, figure.caption, write_report.inline(figure)) for figure in figures],
        "left_out": left_out,
        "differences": differences,
        "same": run_differences.same_kinds(differences),
    }


_CAPTIONS = {
    "runs": "The runs and their answers",
    "points": "By number of databases. Small print: 95 % confidence interval.",
    "findings": "Findings. Small print: 95 % confidence interval.",
}


def _named(runs: Sequence[Run]) -> list[tuple[str, RunRecord, Sequence[TrialResult]]]:
    """Return the runs with unique names: a repeated name gets a number."""
    seen: set[str] = set()
    named = []
    for name, record, results in runs:
        unique = name if name not in seen else next(f"{name} ({i})" for i in count(2) if f"{name} ({i})" not in seen)
        seen.add(unique)
        named.append((unique, record, results))
    return named


def _summary(runs: Sequence[Run]) -> Table:
    rows = []
    for name, record, results in runs:
        tainted = sum(result.tainted for result in results)
        answer = clean(record.analysis.answer) if record.analysis else formatting.no_answer(record.state, record.error)
        grade = record.analysis.grade if record.analysis else MISSING
        trials = f"{len(results)}, {tainted} tainted" if tainted else str(len(results))
        rows.append(
            (CellText(clean(name)), CellText(answer), CellText(grade), CellText(trials), CellText(formatting.instant(record.started)))
        )
    return Table("runs", ("run", "answer", "grade", "trials", "started"), tuple(rows))


def _points(runs: Sequence[tuple[str, RunRecord]], view: SideBySide) -> Table | None:
    """Return a table with one row per point and the columns of each run, or None without such a table."""
    by_run = []
    for name, record in runs:
        rows = record.analysis.tables.get(view.table, []) if record.analysis else []
        by_run.append((name, {finite(row.get(view.key)): row for row in rows}))
    points = sorted({point for _, rows in by_run for point in rows if point is not None})
    if not points:
        return None
    heads = [view.key]
    for column in view.columns:
        heads += [
            f"{formatting.label(column)}{'' if formatting.is_percent_column(column) else ', tps'}: {clean(name)}" for name, _ in by_run
        ]
    lines = []
    for point in points:
        line = [CellText(formatting.number(point), numeric=True)]
        for column in view.columns:
            line += [_number(rows.get(point, {}).get(column), share=formatting.is_percent_column(column)) for _, rows in by_run]
        lines.append(tuple(line))
    return Table("points", tuple(heads), tuple(lines))


def _findings(runs: Sequence[tuple[str, RunRecord]]) -> Table:
    """Return finding × run of all findings."""
    findings_of = [record.analysis.findings if record.analysis else {} for _, record in runs]
    names = list(dict.fromkeys(name for findings in findings_of for name in findings))
    rows = []
    for name in names:
        units = {findings[name].unit for findings in findings_of if name in findings}
        cells = [_number(findings.get(name), unit=len(units) > 1) for findings in findings_of]
        rows.append((CellText(formatting.label(name)), CellText(clean(units.pop()) if len(units) == 1 else ""), *cells))
    return Table("findings", ("finding", "unit", *(clean(name) for name, _ in runs)), tuple(rows))


def _number(value: Cell, *, share: bool = False, unit: bool = False) -> CellText:
    """Return a cell of a numeric column, also for a missing value."""
    return replace(html_model.cell(value, share=share, unit=unit), numeric=True)
