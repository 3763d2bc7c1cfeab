"""The report on a terminal: the answer and its grade first, the table, warnings, where to look further.

Imports no plotting library. Everything is printed as text, never as markup: names may hold brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report import wording
from pgherd.report.tables import Row, columns
from pgherd.report.wording import MISSING, Cell, clean, compact, finite, half_width, number

WIDTH = 100
"""Columns that a table may take."""

_STYLE = {"A": "bold green", "B": "bold yellow", "C": "bold red"}


@dataclass(frozen=True)
class Column:
    """A column of a study's compact table: its head and how it is made from a row."""

    head: str
    text: Callable[[Row], str]
    right: bool = True


def _value(name: str, form: Callable[[Cell], str]) -> Callable[[Row], str]:
    return lambda row: form(row.get(name))


def _share(cell: Cell) -> str:
    value = wording.percent_value(cell)
    return MISSING if value is None else f"{number(round(value, 1))} %"


def _plus_minus(cell: Cell) -> str:
    """``121.9k ±1.2 %``: the value and half its interval relative to it."""
    value = finite(cell)
    text = compact(value)
    width = half_width(cell) if isinstance(cell, Finding) else None
    return f"{text} ±{width / value * 100:.1f} %" if value and width is not None else text


def _share_plus_minus(cell: Cell) -> str:
    """``85.7 ±1.2``: in percent, with half its interval in percent points."""
    if isinstance(cell, Finding):
        cell = wording.as_percent(cell)
        width = half_width(cell)
        return wording.percent(cell).removesuffix(" %") + (f" ±{width:.1f}" if width is not None else "")
    return wording.percent(cell).removesuffix(" %")


def _tainted(row: Row) -> str:
    tainted, trials = finite(row.get("tainted")), finite(row.get("trials"))
    if tainted is None:
        return MISSING
    return f"{tainted:g}/{trials:g}" if trials is not None else f"{tainted:g}"


def _words(cell: Cell) -> str:
    return MISSING if cell is None else clean(cell)


# In order of weight: what a narrow terminal has no room for is left out from the end.
_COMPACT: dict[str, tuple[Column, ...]] = {
    "density": (
        Column("databases", _value("databases", lambda cell: number(finite(cell)))),
        Column("of\ncores", _value("fraction", _share)),
        Column("measured\ntps", _value("throughput", _plus_minus)),
        Column("efficiency\n%", _value("efficiency", _share_plus_minus)),
        Column("in CPU/tx\n%", _value("efficiency_cpu", _share_plus_minus)),
        Column("limited\nby", _value("limited_by", _words), right=False),
        Column("p95\nms", _value("p95", lambda cell: wording.brief(finite(cell)))),
        Column("tainted\ntrials", _tainted),
        Column("perfect\ntps", _value("perfect", lambda cell: compact(finite(cell)))),
    ),
}


def show(console: Console, record: RunRecord, results: Sequence[TrialResult], directory: Path | None = None) -> None:
    """Print the report of one run.

    Args:
        console: where to print; its width wraps texts, tables take at most 100 columns.
        record: the run; without an analysis its state is said in the answer's place.
        results: its trials, which are counted.
        directory: the run's directory, named where more is to be found.
    """
    analysis = record.analysis
    if analysis is None:
        why = f": {clean(record.error)}" if record.error else ""
        _print_wrapped(console, Text(f"No answer: this run is {record.state}{why}.", style="bold"))
    else:
        _print_wrapped(console, Text(clean(analysis.answer), style="bold"))
        grade = Text.assemble((f"Grade {analysis.grade}", _STYLE[analysis.grade]), f": {wording.GRADE_MEANING[analysis.grade]}. ")
        _print_wrapped(console, grade + Text(_trials(results)))
        _print_table(console, record)
    if record.state in ("interrupted", "failed"):
        console.print()
        _print_wrapped(console, Text(f"This run is {record.state}; 'pgherd resume {clean(record.run)}' goes on with it.", style="yellow"))
    _print_list(console, "Warnings", analysis.warnings if analysis else [], "yellow")
    _print_list(console, "Where to look further", [*(analysis.look_at if analysis else []), *_places(record, directory)], "cyan")


def _trials(results: Sequence[TrialResult]) -> str:
    """How many trials there were, and how many of them do not count fully."""
    unfinished = sum(result.error is not None for result in results)
    tainted = sum(result.tainted for result in results) - unfinished
    text = f"{len(results)} trial{'' if len(results) == 1 else 's'}"
    parts = [part for count, part in ((tainted, f"{tainted} tainted"), (unfinished, f"{unfinished} not finished")) if count]
    return f"{text}, {' and '.join(parts)}." if parts else f"{text}, none tainted."


def _print_table(console: Console, record: RunRecord) -> None:
    assert record.analysis is not None
    held = {name: rows for name, rows in record.analysis.tables.items() if rows}
    name = record.study if record.study in held else next(iter(held), None)
    if name is None:
        return
    table, left_out = compact_table(name, held[name], min(WIDTH, console.width))
    console.print()
    console.print(table)
    if left_out:
        more = f"{left_out} more column{'' if left_out == 1 else 's'} of this table"
        console.print(Text(f"{more} had no room here; the report has all.", style="dim"))


def compact_table(name: str, rows: Sequence[Row], width: int = WIDTH) -> tuple[Table, int]:
    """A table in at most ``width`` columns of text, and how many of its columns had no room."""
    chosen = list(_COMPACT.get(name, ()))
    if not chosen:
        for title in columns(rows):
            right = any(isinstance(row.get(title), Finding | int | float) for row in rows)
            chosen.append(Column(_head(title, rows), _value(title, _any), right))
    lines = [[column.text(row) for column in chosen] for row in rows]
    fit, used = 0, 0
    for index, column in enumerate(chosen):
        used += 2 + max(*map(len, column.head.split("\n")), 0, *(len(line[index]) for line in lines))
        if used - 2 > width and fit:
            break
        fit = index + 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for column in chosen[:fit]:
        table.add_column(Text(column.head), justify="right" if column.right else "left", overflow="fold")
    for line in lines:
        table.add_row(*(Text(text, overflow="fold") for text in line[:fit]))
    return table, len(chosen) - fit


def _head(column: str, rows: Sequence[Row]) -> str:
    units = {cell.unit for row in rows if isinstance(cell := row.get(column), Finding)}
    unit = units.pop() if len(units) == 1 else ""
    return wording.label(column) + (f", {clean(unit)}" if unit else "")


def _any(cell: Cell) -> str:
    if isinstance(cell, Finding):
        return _plus_minus(cell)
    return number(finite(cell)) if isinstance(cell, int | float) else _words(cell)


def _print_list(console: Console, head: str, lines: Sequence[str], style: str) -> None:
    if not lines:
        return
    console.print()
    console.print(Text(head, style=f"bold {style}"))
    for line in lines:
        _print_wrapped(console, Text(clean(line)), first="  - ", rest="    ")


def _print_wrapped(console: Console, text: Text, *, first: str = "", rest: str = "") -> None:
    """Print a paragraph wrapped with a hanging indent, without trailing blanks."""
    for index, line in enumerate(text.wrap(console, max(20, min(console.width, WIDTH) - len(first)))):
        line.rstrip()
        console.print(Text(rest if index else first) + line, soft_wrap=True)


def _places(record: RunRecord, directory: Path | None) -> list[str]:
    places = []
    if directory is not None:
        report = directory / "report.html"
        places.append(f"{report}: figures, verdicts, host facts, all settings" if report.is_file() else f"{directory}: the run's raw files")
    places.append(f"pgherd show {clean(record.run)} TRIAL --commands: a script that repeats a trial without pgherd")
    return places
