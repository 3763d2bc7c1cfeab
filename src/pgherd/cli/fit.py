"""``pgherd fit``: fit scaling models to a CSV file of load and throughput."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pgherd.cli.output import answer_console, json_option, print_document
from pgherd.model.errors import UsageError
from pgherd.node.files import UnsafeFileError, read_input

if TYPE_CHECKING:
    from pgherd.analysis.model_selection import ModelSelection
    from pgherd.model.analysis import Finding

_MAX_FILE_BYTES = 16 * 2**20
_LOADS = ("load", "n", "databases", "clients", "users", "processors", "threads", "connections")
_THROUGHPUTS = ("throughput", "x", "tps", "measured", "qps", "ops")


def _columns(header: list[str], load: str | None, throughput: str | None, path: Path) -> tuple[int, int]:
    """Return the columns of load and throughput.

    Requested columns come first, then columns with a common name, then the only two columns of the file.
    """
    names = [name.strip().lower() for name in header]

    def requested(name: str, option: str) -> int:
        if name.strip().lower() not in names:
            raise UsageError(f"{path} has no column '{name}' (it has {', '.join(header)}); choose with {option}")
        return names.index(name.strip().lower())

    def by_name(candidates: tuple[str, ...]) -> int | None:
        return next((names.index(name) for name in candidates if name in names), None)

    x = requested(load, "--load-column") if load else by_name(_LOADS)
    y = requested(throughput, "--throughput-column") if throughput else by_name(_THROUGHPUTS)
    if x is None or y is None:
        if load or throughput or len(header) != 2:
            missing = [option for option, column in (("--load-column", x), ("--throughput-column", y)) if column is None]
            raise UsageError(f"{path} has the columns {', '.join(header)}; choose with {' and '.join(missing)}")
        x, y = 0, 1
    if x == y:
        raise UsageError(
            f"{path}: load and throughput are the same column, '{header[x]}'; choose two with --load-column and --throughput-column"
        )
    return x, y


def _number(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_table(path: Path, load: str | None = None, throughput: str | None = None) -> tuple[list[float], list[float]]:
    """Read loads and throughputs from a CSV file, separated by comma, semicolon or tab. The header line is optional.

    Empty lines and those that start with ``#`` are skipped. Lines with equal load are repeats.

    Raises:
        UsageError: the file cannot be read, the columns are missing, or a cell is not a number above zero.
    """
    try:
        text = read_input(path, _MAX_FILE_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, UnsafeFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text" if isinstance(error, ValueError) else error
        raise UsageError(f"cannot read {path}: {reason}") from None
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")]
    if not numbered:
        raise UsageError(f"{path} is empty; it requires lines of load and throughput")
    first = numbered[0][1]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = list(
            zip((i for i, _ in numbered), csv.reader((line for _, line in numbered), delimiter=delimiter, strict=True), strict=True)
        )
    except (csv.Error, ValueError) as error:
        raise UsageError(f"{path} is not a CSV table: {error}; write one load and its throughput per line") from None
    if len(rows[0][1]) < 2:
        raise UsageError(f"{path} has one column only ('{first.strip()[:60]}'); it requires load and throughput, separated by commas")
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
        raise UsageError(f"{path} has a header and no rows; it requires lines of load and throughput")
    return loads, throughputs


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


def _show(selection: ModelSelection, answer: str, warnings: list[str], findings: dict[str, Finding]) -> None:
    from rich.table import Table

    from pgherd.model.analysis import Finding
    from pgherd.study.scaling_models import model_rows

    console = answer_console()
    console.print(answer)
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
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.csv")
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
    """Fit scaling models to a CSV file of load and throughput.

    The models are linear, the Universal Scalability Law, and piecewise linear with two segments. The small-sample Akaike
    criterion (AICc) selects one. Rows with equal load are repeats.
    """
    loads, throughputs = read_table(file, load_column, throughput_column)

    from pgherd.analysis.model_selection import fit_models
    from pgherd.study.scaling_models import model_findings, model_rows, model_warnings

    selection = fit_models(loads, throughputs, weights)
    findings = model_findings(selection, "load", "throughput")
    answer = _answer(selection, findings, max(loads))
    warnings = model_warnings(selection)
    if as_json:
        print_document(
            {
                "schema": "pgherd/fit/2",
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
