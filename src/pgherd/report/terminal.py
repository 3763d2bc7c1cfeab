"""The report on a terminal: answer and grade first, then the table, warnings and next steps.

Imports no plotting library. Everything is printed as text, never as markup, because names may contain brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgherd.model.analysis import Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.report import formatting
from pgherd.report.data_files import Row, columns, leading, notices
from pgherd.report.formatting import MISSING, Cell, compact, finite, half_width, number
from pgherd.store.run_directory import RunDirectory
from pgherd.study.comparison.answers import UNBOUNDED, as_change
from pgherd.study.study import Column, Form, table_view

WIDTH = 100
"""Maximum width of a table in columns of text."""

_STYLE = {"A": "bold green", "B": "bold yellow", "C": "bold red"}


def _share(cell: Cell) -> str:
    value = formatting.percent_value(cell)
    return MISSING if value is None else f"{number(round(value, 1))} %"


def _plus_minus(cell: Cell) -> str:
    """Return ``121.9k ±1.2 %``: the value and half its interval relative to it."""
    value = finite(cell)
    text = compact(value)
    width = half_width(cell) if isinstance(cell, Finding) else None
    return f"{text} ±{width / value * 100:.1f} %" if value and width is not None else text


def _share_plus_minus(cell: Cell) -> str:
    """Return ``85.7 ±1.2``: percent, with half the interval in percentage points."""
    if isinstance(cell, Finding):
        cell = formatting.as_percent(cell)
        width = half_width(cell)
        return formatting.percent(cell).removesuffix(" %") + (f" ±{width:.1f}" if width is not None else "")
    return formatting.percent(cell).removesuffix(" %")


def _tainted(row: Row, name: str) -> str:
    tainted, trials = finite(row.get(name)), finite(row.get("trials"))
    if tainted is None:
        return MISSING
    return f"{tainted:g}/{trials:g}" if trials is not None else f"{tainted:g}"


def _with_unit(row: Row, name: str) -> str:
    """Return ``27.46k tps``: a value with the unit of its row."""
    value = finite(row.get(name))
    return MISSING if value is None else f"{compact(value)} {_text(row.get('unit')) if row.get('unit') else ''}".strip()


def _change(cell: Cell) -> str:
    """Return ``+4.8 % (+3.1 … +6.4 %)``: a ratio as a change, with its interval."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    return as_change(value, finite(cell.low), finite(cell.high))


def _gain(cell: Cell) -> str:
    """Return ``+4.8 (+3.1 … +6.4)``: a change in percent, with its interval."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    low, high = (None if (end := finite(part)) is None else 1 + end / 100 for part in (cell.low, cell.high))
    return as_change(1 + value / 100, low, high).replace(" %", "")


def _published(cell: Cell) -> str:
    """Return the number at the start of a finding's published value."""
    published = cell.published if isinstance(cell, Finding) else None
    return clean(published.split(" ")[0]) if published else MISSING


def _at_most(cell: Cell) -> str:
    """Return ``±1.1 %``: the largest distance of a ratio's interval from 1, or of the ratio without an interval."""
    if not isinstance(cell, Finding):
        return MISSING
    ends = [end for end in (finite(cell.low), finite(cell.high)) if end is not None] or [end for end in (finite(cell),) if end is not None]
    if ends and max(ends) > UNBOUNDED:
        return "unbounded"
    return f"±{100 * max(abs(end - 1) for end in ends):.1f} %" if ends else MISSING


def _times(cell: Cell) -> str:
    """Return ``1.12 (1.08 … 1.17)``: a ratio with its interval."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    low, high = finite(cell.low), finite(cell.high)
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f} … {high:.2f})"


def _between(cell: Cell) -> str:
    """Return ``256 (240 … 271)``: a size with its interval, in whole units."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    low, high = finite(cell.low), finite(cell.high)
    return f"{value:.0f}" if low is None or high is None else f"{value:.0f} ({low:.0f} … {high:.0f})"


def _text(cell: Cell) -> str:
    return MISSING if cell is None else clean(cell)


_FORMATS: Mapping[Form, Callable[[Cell], str]] = {
    "text": _text,
    "number": lambda cell: number(finite(cell)),
    "whole": lambda cell: number(finite(cell), most=0),
    "brief": lambda cell: formatting.brief(finite(cell)),
    "compact": lambda cell: compact(finite(cell)),
    "share": _share,
    "value ±": _plus_minus,
    "share ±": _share_plus_minus,
    "change": _change,
    "gain": _gain,
    "published": _published,
    "times": _times,
    "between": _between,
    "at most": _at_most,
}
_ROW_FORMATS: Mapping[Form, Callable[[Row, str], str]] = {"with unit": _with_unit, "tainted": _tainted}


def _cell_text(column: Column, row: Row) -> str:
    if column.form in _ROW_FORMATS:
        return _ROW_FORMATS[column.form](row, column.key)
    return _FORMATS[column.form](row.get(column.key))


def show(console: Console, record: RunRecord, results: Sequence[TrialResult], directory: Path | None = None) -> None:
    """Print the report of one run.

    Args:
        console: output. Its width wraps texts. Tables have at most 100 columns of text.
        record: the run. Without an analysis its state is printed in place of the answer.
        results: the run's trials, which are counted.
        directory: the run's directory, printed as the location of all files.
    """
    analysis = record.analysis
    if analysis is None:
        _print_wrapped(console, Text(formatting.no_answer(record.state, record.error), style="bold"))
    else:
        _print_wrapped(console, Text(clean(analysis.answer), style="bold"))
        meaning = formatting.grade_text(analysis, len(results))
        grade = Text.assemble((f"Grade {analysis.grade}", _STYLE[analysis.grade]), f": {meaning}. ")
        _print_wrapped(console, grade + Text(_trials(results)))
        for sentence in analysis.details:
            _print_wrapped(console, Text(clean(sentence)))
        _print_table(console, record)
    _print_list(console, "Notice", notices(record), "yellow")
    if record.state in ("interrupted", "failed"):
        steps = [f"resume it: pgherd resume {_argument(record, directory)}"]
        if analysis is None and results:
            steps.append(f"report its finished trials: pgherd report {_argument(record, directory)}")
        _print_list(console, f"This run is {record.state}", steps, "yellow")
    _print_list(console, "Warnings", analysis.warnings if analysis else [], "yellow")
    _print_list(console, "Next steps", [*(analysis.next_steps if analysis else []), *_files(record, directory)], "cyan")


def _trials(results: Sequence[TrialResult]) -> str:
    """Return the number of trials, and of tainted and unfinished ones, or '' without trials."""
    if not results:
        return ""
    unfinished = sum(result.error is not None for result in results)
    tainted = sum(result.tainted for result in results) - unfinished
    text = f"{len(results)} trial{'' if len(results) == 1 else 's'}"
    parts = [part for count, part in ((tainted, f"{tainted} tainted"), (unfinished, f"{unfinished} not finished")) if count]
    return f"{text}, {' and '.join(parts)}." if parts else f"{text}, none tainted."


def _print_table(console: Console, record: RunRecord) -> None:
    assert record.analysis is not None
    tables = {name: rows for name, rows in record.analysis.tables.items() if rows}
    name = leading(record.study, tables)
    if name is None:
        return
    table, left_out = compact_table(name, tables[name], min(WIDTH, console.width))
    console.print()
    console.print(table)
    if left_out:
        more = f"{left_out} more column{'' if left_out == 1 else 's'} of this table"
        console.print(Text(f"{more} in the report.", style="dim"))


def compact_table(name: str, rows: Sequence[Row], width: int = WIDTH) -> tuple[Table, int]:
    """Return a table in at most ``width`` columns of text, and the number of its columns that did not fit."""
    shown_columns = [column for column in table_view(name).columns if not column.needs or any(column.needs in row for row in rows)]
    if shown_columns:
        lines = [[_cell_text(column, row) for column in shown_columns] for row in rows]
        left_aligned = {column.head for column in shown_columns if column.form == "text"}
    else:
        shown_columns = [Column(_head(title, rows), title) for title in columns(rows)]
        lines = [[_any(row.get(column.key)) for column in shown_columns] for row in rows]
        left_aligned = {
            column.head for column in shown_columns if not any(isinstance(row.get(column.key), Finding | int | float) for row in rows)
        }
    fit, used = 0, 0
    for index, column in enumerate(shown_columns):
        used += 2 + max(*map(len, column.head.split("\n")), 0, *(len(line[index]) for line in lines))
        if used - 2 > width and fit:
            break
        fit = index + 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for column in shown_columns[:fit]:
        table.add_column(Text(column.head), justify="left" if column.head in left_aligned else "right", overflow="fold")
    for line in lines:
        table.add_row(*(Text(text, overflow="fold") for text in line[:fit]))
    return table, len(shown_columns) - fit


def _head(column: str, rows: Sequence[Row]) -> str:
    units = {cell.unit for row in rows if isinstance(cell := row.get(column), Finding)}
    unit = units.pop() if len(units) == 1 else ""
    return formatting.label(column) + (f", {clean(unit)}" if unit else "")


def _any(cell: Cell) -> str:
    if isinstance(cell, Finding):
        return _plus_minus(cell)
    return number(finite(cell)) if isinstance(cell, int | float) else _text(cell)


def _print_list(console: Console, head: str, lines: Sequence[str], style: str) -> None:
    if not lines:
        return
    console.print()
    console.print(Text(head, style=f"bold {style}"))
    for line in lines:
        text, has_command, command = clean(line).partition(": pgherd ")
        _print_wrapped(console, Text(f"{text}:" if has_command else text), first="  - ", rest="    ")
        if has_command:  # a command has a separate, unbroken line, so that it can be copied
            console.print(Text(f"    pgherd {command}"), soft_wrap=True)


def _print_wrapped(console: Console, text: Text, *, first: str = "", rest: str = "") -> None:
    """Print a wrapped paragraph with a hanging indent, without trailing blanks."""
    for index, line in enumerate(text.wrap(console, max(20, min(console.width, WIDTH) - len(first)))):
        line.rstrip()
        console.print(Text(rest if index else first) + line, soft_wrap=True)


def _argument(record: RunRecord, directory: Path | None) -> str:
    """Return the run as an argument of a command."""
    return clean(record.run if directory is None else RunDirectory(directory).argument)


def _files(record: RunRecord, directory: Path | None) -> list[str]:
    hints = []
    if directory is not None:
        report = directory / "report.html"
        hints.append(f"{report}: figures, checks, host facts, all settings" if report.is_file() else f"{directory}: the run's raw files")
    hints.append(f"script that repeats a trial without pgherd: pgherd show {_argument(record, directory)} TRIAL --repro-script")
    return hints
