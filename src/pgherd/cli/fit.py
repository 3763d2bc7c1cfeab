"""``pgherd fit``: the scaling models, fitted to anybody's table of load and throughput."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pgherd.cli.output import answer_console, json_option, print_document
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from pgherd.analysis.selection import Selection
    from pgherd.model.finding import Finding

_LOADS = ("load", "n", "databases", "clients", "users", "processors", "threads", "connections")
_THROUGHPUTS = ("throughput", "x", "tps", "measured", "qps", "ops")


def _columns(header: list[str], load: str | None, throughput: str | None, path: Path) -> tuple[int, int]:
    """Which columns hold load and throughput: those asked for, else those of a known name, else the first two."""
    names = [name.strip().lower() for name in header]

    def asked(name: str, option: str) -> int:
        if name.strip().lower() not in names:
            raise UsageError(f"{path} has no column '{name}' (it has {', '.join(header)}); choose one of them with {option}")
        return names.index(name.strip().lower())

    def known(candidates: tuple[str, ...]) -> int | None:
        return next((names.index(name) for name in candidates if name in names), None)

    x = asked(load, "--load") if load else known(_LOADS)
    y = asked(throughput, "--throughput") if throughput else known(_THROUGHPUTS)
    if x is None or y is None:
        if load or throughput or len(header) != 2:
            wanted = "--load and --throughput" if x is None and y is None else "--load" if x is None else "--throughput"
            raise UsageError(f"{path} has the columns {', '.join(header)}; say with {wanted} which to fit")
        x, y = 0, 1
    if x == y:
        raise UsageError(f"{path}: load and throughput are the same column, '{header[x]}'; choose two with --load and --throughput")
    return x, y


def _number(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_table(path: Path, load: str | None = None, throughput: str | None = None) -> tuple[list[float], list[float]]:
    """Loads and throughputs of a CSV file (comma, semicolon or tab; a header line unless the first line is numbers).

    Lines that are empty or begin with ``#`` are skipped; several lines with one load are repeats.

    Raises:
        UsageError: the file cannot be read, has no such columns, or a cell is not a number above zero.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}: {reason}") from None
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")]
    if not numbered:
        raise UsageError(f"{path} is empty; it needs lines of load and throughput")
    first = numbered[0][1]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = list(
            zip((i for i, _ in numbered), csv.reader((line for _, line in numbered), delimiter=delimiter, strict=True), strict=True)
        )
    except (csv.Error, ValueError) as error:
        raise UsageError(f"{path} is not a CSV table: {error}; write one load and its throughput per line") from None
    if len(rows[0][1]) < 2:
        raise UsageError(f"{path} has one column only ('{first.strip()[:60]}'); it needs load and throughput, separated by commas")
    if all(_number(cell) is not None for cell in rows[0][1]):
        header = [f"{i + 1}" for i in range(len(rows[0][1]))]
    else:
        header, rows = [cell.strip() for cell in rows[0][1]], rows[1:]
    x, y = _columns(header, load, throughput, path)
    loads: list[float] = []
    throughputs: list[float] = []
    for line, row in rows:
        for column, values in ((x, loads), (y, throughputs)):
            cell = row[column] if column < len(row) else ""
            value = _number(cell)
            if value is None or value <= 0:
                raise UsageError(f"{path}, line {line}: '{cell.strip()}' under {header[column]} is not a number above zero")
            values.append(value)
    if not loads:
        raise UsageError(f"{path} has a header and no rows; it needs lines of load and throughput")
    return loads, throughputs


def _answer(selection: Selection, findings: dict[str, Finding], largest: float) -> str:
    """One sentence: the chosen model, and what it says of knee and peak."""
    if selection.best is None:
        return f"No model can be chosen: {selection.reason}."
    best = selection.best.model
    others = " and the ".join(fit.model.title for fit in selection.fits if fit.model.name in selection.close)
    text = f"The {best.title} describes these data best ({selection.reason.split(': ', 1)[1]}): "
    if others:
        text = f"The data hardly tell the {best.title} from the {others} (AICc within 2); by the {best.title}, "
    match best.name:
        case "linear":
            text += f"throughput grows in proportion up to {largest:g}, and no knee shows in the data"
        case "hinge":
            second = findings["knee_second_slope"]
            surely = "falls" if (second.high or 0) < 0 else "rises more slowly"
            beyond = surely if (second.low or 0) > 0 or (second.high or 0) < 0 else "rises more slowly or not at all"
            text += f"throughput grows in proportion up to a knee at {_with_interval(findings['knee'])} and {beyond} beyond it"
        case _:
            peak = findings["usl_peak"]
            text += f"throughput peaks at {_with_interval(peak)}" if peak.value is not None else peak.note
    return text + "."


def _with_interval(finding: Finding) -> str:
    text = "–" if finding.value is None else f"{finding.value:.4g}"
    return text if finding.low is None or finding.high is None else f"{text} ({finding.low:.4g} to {finding.high:.4g})"


def _show(selection: Selection, answer: str, warnings: list[str], findings: dict[str, Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from pgherd.model.finding import Finding
    from pgherd.study.scaling_models import model_rows

    console = answer_console()
    console.print(escape(answer))
    table = Table(box=None, pad_edge=False)
    for name in ("model", "parameters", "AICc", "error"):
        table.add_column(name, justify="left" if name in ("model", "parameters") else "right", no_wrap=name != "model")
    for row, fit in zip(model_rows(selection, "load"), selection.fits, strict=True):
        told = str(row["parameters"]).split(", ")
        told += [f"{name} at {_with_interval(cell)}" for name in ("knee", "peak") if isinstance(cell := row[name], Finding) and cell.value]
        aicc = "–" if fit.aicc is None else f"{fit.aicc:.1f}"
        cells = [f"{fit.model.title}{' *' if row['chosen'] else ''}", "\n".join(told), aicc, f"{fit.relative_error:.2%}"]
        table.add_row(*map(escape, cells))
    console.print(table)
    for text in warnings:
        console.print(escape(f"Warning: {text}."))


@click.command("fit")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.csv")
@click.option(
    "--weights",
    type=click.Choice(["relative", "equal"]),
    default="relative",
    show_default=True,
    help="Divide each residual by the measured throughput, so that all loads count alike, or take them as they are.",
)
@click.option("--load", metavar="COLUMN", help="Column with the load (databases, clients, processors).")
@click.option("--throughput", metavar="COLUMN", help="Column with the throughput.")
@json_option
def command(file: Path, weights: Literal["relative", "equal"], load: str | None, throughput: str | None, as_json: bool) -> int:
    """Fit the scaling models to a table of load and throughput.

    A straight line, the Universal Scalability Law and a hinge (linear, then a second slope) are fitted to FILE.csv; the
    small-sample Akaike criterion chooses. Several rows with one load are repeats.
    """
    loads, throughputs = read_table(file, load, throughput)

    from pgherd.analysis.selection import fit_models
    from pgherd.study.scaling_models import model_findings, model_rows, model_warnings

    selection = fit_models(loads, throughputs, weights)
    findings = model_findings(selection, "load", "throughput")
    answer = _answer(selection, findings, max(loads))
    warnings = model_warnings(selection)
    if as_json:
        print_document(
            {
                "schema": "pgherd/fit/1",
                "run": None,
                "study": "fit",
                "answer": answer,
                "grade": None,
                "findings": findings,
                "tables": {"models": model_rows(selection, "load")},
                "trials": [],
                "warnings": warnings,
            }
        )
    else:
        _show(selection, answer, warnings, findings)
    return 0
