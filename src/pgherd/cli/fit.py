"""``pgherd fit``: fit scaling models to a table of load and throughput."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pgherd.cli.output import answer_console, json_option, print_document
from pgherd.model.errors import UsageError
from pgherd.model.units import Mark, parse_number
from pgherd.prepare.text_tables import decimal_mark, read_text_table, require_width

if TYPE_CHECKING:
    from pgherd.analysis.model_selection import ModelSelection
    from pgherd.model.analysis import Finding

_LOADS = ("load", "n", "databases", "clients", "users", "processors", "threads", "connections")
_LEAST = 1e-100
"""Smallest number. The squares of it and of its inverse are numbers, too."""
_THROUGHPUTS = ("throughput", "x", "tps", "measured", "qps", "ops")


@dataclass(frozen=True)
class LoadTable:
    """Loads and throughputs of a table, the names of their columns, the decimal mark, and warnings."""

    loads: list[float]
    throughputs: list[float]
    columns: tuple[str, str]
    mark: Mark = "."
    warnings: tuple[str, ...] = ()


def _columns(header: list[str], load: str | None, throughput: str | None, source: str) -> tuple[int, int]:
    """Return the columns of load and throughput.

    Requested columns come first, then columns with a common name, then the only two columns of the table.
    """
    names = [name.strip().lower() for name in header]

    def requested(name: str, option: str) -> int:
        if names.count(name.strip().lower()) != 1:
            fault = f"several columns '{name}'" if name.strip().lower() in names else f"no column '{name}'"
            raise UsageError(f"{source} has {fault} (it has {', '.join(header)}); choose with {option}")
        return names.index(name.strip().lower())

    def by_name(candidates: tuple[str, ...], option: str) -> int | None:
        matches = [number for number, name in enumerate(names) if name in candidates]
        if len(matches) > 1:
            raise UsageError(
                f"{source}: {' and '.join(header[number] for number in matches)} may each be the {option.split('-')[2]}; "
                f"choose with {option}"
            )
        return matches[0] if matches else None

    x = requested(load, "--load-column") if load else by_name(_LOADS, "--load-column")
    y = requested(throughput, "--throughput-column") if throughput else by_name(_THROUGHPUTS, "--throughput-column")
    if x is None or y is None:
        if load or throughput or len(header) != 2:
            missing = [option for option, column in (("--load-column", x), ("--throughput-column", y)) if column is None]
            raise UsageError(f"{source} has the columns {', '.join(header)}; choose with {' and '.join(missing)}")
        x = 0 if x is None and y != 0 else 1 if x is None else x
        y = 1 - x
    if x == y:
        raise UsageError(
            f"{source}: load and throughput are the same column, '{header[x]}'; choose two with --load-column and --throughput-column"
        )
    return x, y


def read_table(path: Path, load: str | None = None, throughput: str | None = None) -> LoadTable:
    """Read loads and throughputs from a file, or from standard input (``-``). The header line is optional.

    Columns are separated by commas, semicolons, tabs or blanks. Empty lines and those that start with ``#`` are skipped. Lines
    with equal load are repeats. A line without load and throughput (``0,0``) is left out, with a warning.

    Raises:
        UsageError: the file cannot be read, the columns are missing or unclear, or a cell is not a number above zero.
    """
    table = read_text_table(path, "load and throughput", "one load and its throughput")
    source, rows = table.source, table.rows
    first_line, first = rows[0]
    numeric = [parse_number(cell, ".") is not None or parse_number(cell, ",") is not None for cell in first]
    if all(numeric):
        header = [f"{i + 1}" for i in range(len(first))]
    elif any(numeric):
        raise UsageError(
            f"{source}, line {first_line}: '{first[numeric.index(True)].strip()}' is a number and '{first[numeric.index(False)].strip()}' "
            "is none, so this is neither a header nor a row; write the names of all columns into the first line"
        )
    else:
        header, rows = [cell.strip() for cell in first], rows[1:]
    for line, row in rows:
        require_width(source, line, row, len(header))
    x, y = _columns(header, load, throughput, source)
    mark = decimal_mark([[(line, row[column]) for line, row in rows if column < len(row)] for column in (x, y)], table.separator, source)
    pairs: list[tuple[float, float]] = []
    zero: list[int] = []
    for line, row in rows:
        texts = [row[column].strip() if column < len(row) else "" for column in (x, y)]
        values = [parse_number(text, mark) for text in texts]
        if values == [0, 0]:
            zero.append(line)
            continue
        for text, value, column in zip(texts, values, (x, y), strict=True):
            if value is None or not _LEAST <= value <= 1 / _LEAST:
                reason = "is not a number above zero" if value is None or value < _LEAST else f"is above {1 / _LEAST:g}"
                raise UsageError(f"{source}, line {line}: '{text}' under {header[column]} {reason}")
        pairs.append((values[0] or 0.0, values[1] or 0.0))
    if not pairs:
        raise UsageError(f"{source} has a header and no rows; it requires lines of load and throughput")
    warnings = [f"without load and throughput, and left out: line {', '.join(map(str, zero))}"] if zero else []
    return LoadTable([load for load, _ in pairs], [rate for _, rate in pairs], (header[x], header[y]), mark, tuple(warnings))


def _answer(selection: ModelSelection, findings: dict[str, Finding], largest: float) -> str:
    """Return one sentence on the selected model, its knee and its peak."""
    if selection.best is None:
        return f"No model can be selected: {selection.reason}."
    best = selection.best.model
    others = " and ".join(fit.model.title for fit in selection.fits if fit.model.name in selection.close)
    text = f"Best model: {best.title} ({selection.reason.split(': ', 1)[1]}): "
    if others:
        text = f"The data hardly distinguish {best.title} from {others} (AICc within 2). With {best.title}, "
    match best.name:
        case "linear":
            text += f"throughput grows in proportion up to {largest:g}, and the data show no knee"
        case "piecewise-linear":
            second = findings["slope_after_knee"]
            certain = "falls" if (second.high or 0) < 0 else "rises more slowly"
            beyond = certain if (second.low or 0) > 0 or (second.high or 0) < 0 else "rises more slowly or not at all"
            text += f"throughput grows in proportion up to a knee at {_with_interval(findings['knee'])} and {beyond} beyond it"
        case _:
            peak = findings["usl_peak_load"]
            text += f"throughput peaks at {_with_interval(peak)}" if peak.value is not None else peak.note
    return text + "."


def _with_interval(finding: Finding) -> str:
    text = "–" if finding.value is None else f"{finding.value:.4g}"
    return text if finding.low is None or finding.high is None else f"{text} ({finding.low:.4g} to {finding.high:.4g})"


def _show(selection: ModelSelection, answer: str, columns: str, warnings: list[str], findings: dict[str, Finding]) -> None:
    from rich.table import Table

    from pgherd.model.analysis import Finding
    from pgherd.study.scaling_models import model_rows

    console = answer_console()
    console.print(answer)
    console.print(columns, highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("model", "parameters", "AICc", "error"):
        table.add_column(name, justify="left" if name in ("model", "parameters") else "right", no_wrap=name != "model")
    for row, fit in zip(model_rows(selection, "load"), selection.fits, strict=True):
        parameters = str(row["parameters"]).split(", ")
        parameters += [
            f"{name} at {_with_interval(cell)}" for name in ("knee", "peak") if isinstance(cell := row[name], Finding) and cell.value
        ]
        aicc = "–" if fit.aicc is None else f"{fit.aicc:.1f}"
        cells = [f"{fit.model.title}{' *' if row['selected'] else ''}", "\n".join(parameters), aicc, f"{fit.relative_error:.2%}"]
        table.add_row(*cells)
    console.print(table)
    for text in warnings:
        console.print(f"Warning: {text}.")


@click.command("fit")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--weights",
    type=click.Choice(["relative", "equal"]),
    default="relative",
    show_default=True,
    help="Weight residuals relatively or equally.",
)
@click.option("--load-column", metavar="COLUMN", help="Load column (databases, clients, processors).")
@click.option("--throughput-column", metavar="COLUMN", help="Throughput column.")
@json_option
def command(
    file: Path, weights: Literal["relative", "equal"], load_column: str | None, throughput_column: str | None, as_json: bool
) -> int:
    """Fit scaling models to a table of load and throughput in FILE, or on standard input (-).

    The models are linear, the Universal Scalability Law, and piecewise linear with two segments. The small-sample Akaike
    criterion (AICc) selects one. Rows with equal load are repeats.
    """
    table = read_table(file, load_column, throughput_column)

    from pgherd.analysis.model_selection import fit_models
    from pgherd.study.scaling_models import model_findings, model_rows, model_warnings

    selection = fit_models(table.loads, table.throughputs, weights)
    findings = model_findings(selection, "load", "throughput")
    answer = _answer(selection, findings, max(table.loads))
    warnings = [*table.warnings, *model_warnings(selection)]
    if as_json:
        print_document(
            {
                "schema": "pgherd/fit/2",
                "run": None,
                "study": "fit",
                "answer": answer,
                "columns": dict(zip(("load", "throughput"), table.columns, strict=True)),
                "grade": None,
                "findings": findings,
                "tables": {"models": model_rows(selection, "load")},
                "trials": [],
                "warnings": warnings,
            }
        )
    else:
        comma = ", with decimal commas" if table.mark == "," else ""
        _show(selection, answer, f"Columns: load {table.columns[0]}, throughput {table.columns[1]}{comma}.", warnings, findings)
    return 0
