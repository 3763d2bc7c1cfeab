"""Several runs in one page: their curves over each other, their numbers side by side, and what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import formatting, html_model, html_render, run_differences
from pgherd.report.formatting import MISSING, Cell, clean, finite
from pgherd.report.html_model import CellText, Table
from pgherd.store.run_directory import RunDirectory
from pgherd.study.registry import studies
from pgherd.study.study import SideBySide

Run = tuple[str, RunRecord, Sequence[TrialResult]]


def overlay(runs: Sequence[Run], out: Path) -> Path:
    """Write one page over several runs (name, record, results) to ``out``; it appears whole or not at all.

    Raises:
        UsageError: there is no run, or ``out`` cannot be written.
    """
    if not runs:
        raise UsageError("there is no run to lay over another; name two or more, such as 'pgherd report RUN1 RUN2'")
    text = render(runs)
    try:
        RunDirectory(out.parent).write(out.name, text.encode())
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}; choose another place for the page") from None
    return out


def render(runs: Sequence[Run]) -> str:
    """The page as text."""
    return html_render.environment().get_template("overlay.html.j2").render(content(runs))


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """What the page shows, by the names that its template has for it."""
    from pgherd.report import drawing  # altair, only now

    named = _named(runs)
    pairs = [(name, record) for name, record, _ in named]
    drawn, left_out = [], {}
    tables_of_runs = {table for _, record in pairs if record.analysis for table in record.analysis.tables}
    overlays = [(study, study.module(study.overlays).OVERLAYS) for study in studies().values() if study.overlays]
    shown = [(study, builders) for study, builders in overlays if study.name in tables_of_runs]
    if not shown:  # say at least why the first kind is missing
        shown = overlays[:1]
    for name, builder in ((name, builder) for _, builders in shown for name, builder in builders.items()):
        try:
            figure = builder(pairs)
            drawn.append(drawing.RenderedFigure(f"overlay-{name}", figure, drawing.svg(figure, prefix=f"overlay-{name}")))
        except drawing.FigureUnavailable as reason:
            left_out[name] = str(reason)
    tables = [_summary(named)]
    tables += [table for study in studies().values() if study.side_by_side and (table := _points(pairs, study.side_by_side))]
    tables.append(_findings(pairs))
    differing = run_differences.differences(pairs)
    questions = sorted({record.study for _, record in pairs})
    warnings = [f"These runs answer different questions ({', '.join(map(clean, questions))}): only what both have is set side by side."]
    return {
        "title": f"{len(named)} run{'' if len(named) == 1 else 's'} of {', '.join(map(formatting.label, questions))} side by side",
        "runs": [clean(name) for name, _ in pairs],
        "tables": [(table, _CAPTIONS[table.name]) for table in tables],
        "warnings": warnings if len(questions) > 1 else [],
        "figures": [(one.name, one.figure.title, one.caption, html_render.inline(one)) for one in drawn],
        "left_out": left_out,
        "differences": differing,
        "same": run_differences.same_kinds(differing),
    }


_CAPTIONS = {
    "runs": "The runs and their answers",
    "points": "By number of databases; the small line is the interval",
    "findings": "Findings side by side; the small line is the interval",
}


def _named(runs: Sequence[Run]) -> list[tuple[str, RunRecord, Sequence[TrialResult]]]:
    """The runs under names that differ: a second one of a name gets a number."""
    seen: set[str] = set()
    named = []
    for name, record, results in runs:
        chosen = name if name not in seen else next(f"{name} ({i})" for i in count(2) if f"{name} ({i})" not in seen)
        seen.add(chosen)
        named.append((chosen, record, results))
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
    """A row for each point, the columns of each run in turn; None where no run has the table."""
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
    """Finding × run, of all findings that any run has."""
    held = [record.analysis.findings if record.analysis else {} for _, record in runs]
    names = list(dict.fromkeys(name for findings in held for name in findings))
    rows = []
    for name in names:
        units = {findings[name].unit for findings in held if name in findings}
        cells = [_number(findings.get(name), unit=len(units) > 1) for findings in held]
        rows.append((CellText(formatting.label(name)), CellText(clean(units.pop()) if len(units) == 1 else ""), *cells))
    return Table("findings", ("finding", "unit", *(clean(name) for name, _ in runs)), tuple(rows))


def _number(value: Cell, *, share: bool = False, unit: bool = False) -> CellText:
    """A cell among numbers, also where it is missing."""
    return replace(html_model.cell(value, share=share, unit=unit), numeric=True)
