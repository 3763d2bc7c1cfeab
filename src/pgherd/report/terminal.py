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
from pgherd.report.notices import notices
from pgherd.report.tables import Row, columns, leading
from pgherd.report.wording import MISSING, Cell, clean, compact, finite, half_width, number
from pgherd.studies.compare.words import UNBOUNDED, as_change

WIDTH = 100
"""Columns that a table may take."""

_STYLE = {"A": "bold green", "B": "bold yellow", "C": "bold red"}


@dataclass(frozen=True)
class Column:
    """A column of a study's compact table: its head and how it is made from a row."""

    head: str
    text: Callable[[Row], str]
    right: bool = True
    needs: str = ""  # a column that only some runs' tables have


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


def _with_unit(name: str) -> Callable[[Row], str]:
    """``27.46k tps``: a value with the unit that its row names."""

    def text(row: Row) -> str:
        value = finite(row.get(name))
        return MISSING if value is None else f"{compact(value)} {_words(row.get('unit')) if row.get('unit') else ''}".strip()

    return text


def _change(cell: Cell) -> str:
    """``+4.8 % (+3.1 … +6.4 %)``: a ratio as a change, with its interval."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    return as_change(value, finite(cell.low), finite(cell.high))


def _gain(cell: Cell) -> str:
    """``+4.8 (+3.1 … +6.4)``: a change in percent, with its interval."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    low, high = (None if (end := finite(part)) is None else 1 + end / 100 for part in (cell.low, cell.high))
    return as_change(1 + value / 100, low, high).replace(" %", "")


def _published(name: str) -> Callable[[Row], str]:
    """The number that begins the published figure of a finding."""

    def text(row: Row) -> str:
        cell = row.get(name)
        beside = cell.published if isinstance(cell, Finding) else None
        return clean(beside.split(" ")[0]) if beside else MISSING

    return text


def _at_most(cell: Cell) -> str:
    """``±1.1 %``: the farthest that a ratio's interval reaches from 1; without an interval the ratio itself."""
    if not isinstance(cell, Finding):
        return MISSING
    ends = [end for end in (finite(cell.low), finite(cell.high)) if end is not None] or [end for end in (finite(cell),) if end is not None]
    if ends and max(ends) > UNBOUNDED:
        return "unbounded"
    return f"±{100 * max(abs(end - 1) for end in ends):.1f} %" if ends else MISSING


def _times(cell: Cell) -> str:
    """``1.12 (1.08 … 1.17)``: a ratio with its interval."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    low, high = finite(cell.low), finite(cell.high)
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f} … {high:.2f})"


def _between(cell: Cell) -> str:
    """``256 (240 … 271)``: a size with its interval, in whole units."""
    value = finite(cell)
    if value is None or not isinstance(cell, Finding):
        return MISSING
    low, high = finite(cell.low), finite(cell.high)
    return f"{value:.0f}" if low is None or high is None else f"{value:.0f} ({low:.0f} … {high:.0f})"


def _words(cell: Cell) -> str:
    return MISSING if cell is None else clean(cell)


# In order of weight: what a narrow terminal has no room for is left out from the end.
_COMPACT: dict[str, tuple[Column, ...]] = {
    "hugepages": (
        Column("pages", _value("pages", _words), right=False),
        Column("measured\ntps", _value("throughput", _plus_minus)),
        Column("gain\n%", _value("gain", _gain)),
        Column("published\n(E9) %", _published("gain")),
        Column("verdict", _value("verdict", _words), right=False),
        Column("on huge\npages", _value("backed", _share)),
        Column("faults\n/tx", _value("faults", lambda cell: wording.brief(finite(cell)))),
        Column("TLB misses\n/tx", _value("tlb_misses", lambda cell: wording.brief(finite(cell)))),
        Column("page tables\nMB", _value("page_tables", lambda cell: wording.brief(finite(cell)))),
        Column("pages\nreserved", _value("reserved", lambda cell: number(finite(cell)))),
    ),
    "working-set": (
        Column("varied", _value("varied", _words), right=False),
        Column("clients", _value("clients", lambda cell: number(finite(cell)))),
        Column("working\nset, MB", _value("working_set", _between)),
        Column("shape", _value("shape", _words), right=False),
        Column("by misses\nMB", _value("by_misses", _between)),
        Column("in use\nMB", _value("by_use", lambda cell: number(finite(cell), most=0))),
        Column("plateau\ntps", _value("plateau", lambda cell: compact(finite(cell)))),
        Column("tainted\ntrials", _tainted),
        Column("no waiting\nfrom, MB", _value("by_pressure", lambda cell: number(finite(cell)))),
    ),
    "comparison": (
        Column("variant", _value("variant", _words), right=False),
        Column("metric", _value("metric", _words), right=False),
        Column("change", _value("ratio", _change)),
        Column("verdict", _value("verdict", _words), right=False),
        Column("A/A", _value("floor", _at_most)),
        Column("baseline", _with_unit("baseline")),
    ),
    "consolidation": (
        Column("buffers\n%", _value("buffers", lambda cell: number(finite(cell)))),
        Column("over-\ncommit", _value("rate", _share)),
        Column("scheme", _value("what", _words), right=False),
        Column("measured", _value("throughput", _plus_minus)),
        Column("of own\nbaseline", _value("normalised", _times), needs="normalised"),
        Column("to the\nfirst", _value("ratio", _times)),
        Column("to it,\ncorrected", _value("corrected_ratio", _times), needs="corrected_ratio"),
        Column("corrected\n(E4)", _value("corrected", _plus_minus)),
        Column("variation\n%", _value("variation", lambda cell: wording.brief(finite(cell)))),
        Column("CPU\n%", _value("cpu_used", lambda cell: number(finite(cell)))),
        Column("per used\ncore", _value("per_core", lambda cell: compact(finite(cell)))),
        Column("published\n(E4)", _published("throughput")),
        Column("tainted\ntrials", _tainted),
    ),
    "disk": (
        Column("volume", _value("volume", _words), right=False),
        Column("test", _value("test", _words), right=False),
        Column("IOPS", _value("iops", _plus_minus)),
        Column("MB/s", _value("bandwidth", lambda cell: wording.brief(finite(cell)))),
        Column("mean\nms", _value("latency", lambda cell: wording.brief(finite(cell)))),
        Column("limited\nby", _value("limited_by", _words), right=False),
        Column("cached", _value("from_cache", _words), right=False),
        Column("steady", _value("steady", _words), right=False),
        Column("hosts\ndiffer by", _value("imbalance", _share), needs="imbalance"),
        Column("p99\nms", _value("p99", lambda cell: wording.brief(finite(cell)))),
        Column("tainted\ntrials", _tainted),
    ),
    "density": (
        Column("databases", _value("databases", lambda cell: number(finite(cell)))),
        Column("of\ncores", _value("fraction", _share)),
        Column("measured\ntps", _value("throughput", _plus_minus)),
        Column("new orders\n/min", _value("notpm", _plus_minus), needs="notpm"),
        Column("efficiency\n%", _value("efficiency", _share_plus_minus)),
        Column("in CPU/tx\n%", _value("efficiency_cpu", _share_plus_minus)),
        Column("limited\nby", _value("limited_by", _words), right=False),
        Column("p95\nms", _value("p95", lambda cell: wording.brief(finite(cell)))),
        Column("tainted\ntrials", _tainted),
        Column("perfect\ntps", _value("perfect", lambda cell: compact(finite(cell)))),
    ),
    "storage": (
        Column("server", _value("server", _words), right=False),
        Column("measured\ntps", _value("throughput", _plus_minus)),
        Column("IOPS", _value("iops", _plus_minus), needs="iops"),
        Column("under 1 ms\n%", _value("under_1ms", _share_plus_minus), needs="iops"),
        Column("checkpoints\na trial", _value("checkpoints", lambda cell: wording.brief(finite(cell)))),
        Column("stalls\na trial", _value("stalls", lambda cell: wording.brief(finite(cell)))),
        Column("of them in\ncheckpoints", _value("stalls_in_checkpoints", lambda cell: wording.brief(finite(cell)))),
        Column("WAL/tx\nkB", _value("wal_per_tx", _plus_minus)),
        Column("p95 ms\ninside", _value("p95_inside", lambda cell: wording.brief(finite(cell)))),
        Column("p95 ms\noutside", _value("p95_outside", lambda cell: wording.brief(finite(cell)))),
    ),
    "scaling": (
        Column("variant", _value("variant", _words), right=False, needs="variant"),
        Column("clients", _value("clients", lambda cell: number(finite(cell)))),
        Column("measured\ntps", _value("throughput", _plus_minus)),
        Column("new orders\n/min", _value("notpm", _plus_minus), needs="notpm"),
        Column("to the\nfirst", _value("ratio", _times), needs="ratio"),
        Column("of\nlinear", _value("efficiency_linear", _share)),
        Column("limited\nby", _value("limited_by", _words), right=False),
        Column("p95\nms", _value("p95", lambda cell: wording.brief(finite(cell)))),
        Column("server CPU\n/tx, ms", _value("server_cpu_per_tx", lambda cell: wording.brief(finite(cell)))),
        Column("pgbench's\nCPU", _value("client_share", _share)),
        Column("tainted\ntrials", _tainted),
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
        _print_wrapped(console, Text(wording.no_answer(record.state, record.error), style="bold"))
    else:
        _print_wrapped(console, Text(clean(analysis.answer), style="bold"))
        grade = Text.assemble(
            (f"Grade {analysis.grade}", _STYLE[analysis.grade]), f": {wording.grade_meaning(analysis.grade, len(results))}. "
        )
        _print_wrapped(console, grade + Text(_trials(results)))
        _print_table(console, record)
    _print_list(console, "Notice", notices(record), "yellow")
    if record.state in ("interrupted", "failed"):
        console.print()
        text = f"This run is {record.state}; 'pgherd resume {clean(record.run)}' goes on with it"
        if analysis is None and results:
            text += f", 'pgherd report {clean(record.run)}' says what its finished trials show"
        _print_wrapped(console, Text(f"{text}.", style="yellow"))
    _print_list(console, "Warnings", analysis.warnings if analysis else [], "yellow")
    _print_list(console, "Where to look further", [*(analysis.look_at if analysis else []), *_places(record, directory)], "cyan")


def _trials(results: Sequence[TrialResult]) -> str:
    """How many trials there were, and how many of them do not count fully; nothing where there were none, which the grade says."""
    if not results:
        return ""
    unfinished = sum(result.error is not None for result in results)
    tainted = sum(result.tainted for result in results) - unfinished
    text = f"{len(results)} trial{'' if len(results) == 1 else 's'}"
    parts = [part for count, part in ((tainted, f"{tainted} tainted"), (unfinished, f"{unfinished} not finished")) if count]
    return f"{text}, {' and '.join(parts)}." if parts else f"{text}, none tainted."


def _print_table(console: Console, record: RunRecord) -> None:
    assert record.analysis is not None
    held = {name: rows for name, rows in record.analysis.tables.items() if rows}
    name = leading(record.study, held)
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
    chosen = [column for column in _COMPACT.get(name, ()) if not column.needs or any(column.needs in row for row in rows)]
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
        said, called, command = clean(line).partition(": pgherd ")
        _print_wrapped(console, Text(f"{said}:" if called else said), first="  - ", rest="    ")
        if called:  # a command to be copied: on a line of its own, and not broken
            console.print(Text(f"    pgherd {command}"), soft_wrap=True)


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
