"""``pgherd gate``: fail if a run is worse than its baseline by more than allowed and the data support it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option
from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from pgherd.report.gate import Gate
    from pgherd.report.gate_metrics import MetricLimit

_REGRESSION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")


def regression(text: str) -> float:
    """Return ``5%`` or ``0.05`` as 0.05. Raises UsageError for other texts and for values from 100 % on."""
    match = _REGRESSION.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if value >= 1:
        raise UsageError(f"'{text}' is no allowed regression; write 5% or 0.05")
    return value


def parse_metric(text: str, allowed: float) -> MetricLimit:
    """Parse ``NAME[:ALLOWED][:higher|lower]``. The name of a finding may contain colons.

    Raises:
        UsageError: the name is missing, or the allowed regression is invalid.
    """
    from pgherd.report.gate_metrics import MetricLimit

    name, better = text, None
    head, colon, last = name.rpartition(":")
    if colon and last in ("higher", "lower"):
        name, better = head, last
    head, colon, last = name.rpartition(":")
    if colon and (_REGRESSION.fullmatch(last) or last == "" or last.endswith("%")):
        name, allowed = head, regression(last)
    if not name:
        raise UsageError(f"--metric '{text}' has no metric; write NAME or NAME:5%, such as p95:10%")
    return MetricLimit(name, allowed, better)  # type: ignore[arg-type]  # one of the two words


@click.command("gate")
@click.argument("baseline")
@click.argument("run")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[:ALLOWED][:higher|lower]",
    help="Metric or finding, allowed regression and direction (repeatable).",
)
@click.option("--max-regression", default="5%", show_default=True, metavar="PERCENT", help="Allowed regression where --metric gives none.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write JUnit XML.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a Markdown summary.")
@runs_option
@json_option
def command(
    baseline: str,
    run: str,
    metrics: tuple[str, ...],
    max_regression: str,
    junit: Path | None,
    markdown: Path | None,
    runs: Path,
    as_json: bool,
) -> int:
    """Fail with exit code 1 if RUN is worse than BASELINE by more than allowed and the data support it: the entire interval of
    the change is beyond the limit. An inconclusive regression is reported with the number of repeats that would decide it,
    and exits with 0.

    BASELINE and RUN are two runs of one study: names, parts of names, paths, or 'last'. Metrics: throughput, nopm, cpu_per_tx, p50,
    p95, p99, memory, wal_per_tx, device_bytes_per_tx, context_switches_per_tx, compared at every point that both runs have and over
    all of them, or a finding of the study by its name.

    \b
    pgherd gate main last                                    throughput, 5 % allowed
    pgherd gate main last --metric throughput:3% --metric p95:10%
    pgherd gate main last --metric capacity:2%         a finding
    pgherd gate main last --junit gate.xml --markdown gate.md
    """
    from pgherd.report.gate import gate
    from pgherd.report.gate_metrics import GateRun, MetricLimit, default_metric
    from pgherd.store.run_directory import RunDirectory
    from pgherd.study.analyse_run import refreshed

    allowed = regression(max_regression)
    limits = [parse_metric(text, allowed) for text in metrics]
    names = [limit.name for limit in limits]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"--metric names {', '.join(twice)} more than once; give each only once")

    def read(name: str) -> GateRun:
        directory = RunDirectory.find(name, runs)
        results = directory.results()
        return GateRun(directory.name, refreshed(directory.standing(), results), results)

    old, new = read(baseline), read(run)
    result = gate(old, new, limits or [MetricLimit(default_metric(new.record), allowed)])
    written = _write(result, junit, markdown)
    if as_json:
        print_document(document(result, written))
    else:
        _show(result, written)
    return 1 if result.failed else 0


def _write(result: Gate, junit: Path | None, markdown: Path | None) -> list[Path]:
    """Write the requested files, each completely or not at all."""
    from pgherd.node import files
    from pgherd.report.gate_documents import to_junit, to_markdown

    written = []
    for path, text in ((junit, to_junit), (markdown, to_markdown)):
        if path is None:
            continue
        try:
            files.write_file(path, text(result).encode())
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}; choose another path") from None
        written.append(path)
    return written


def document(result: Gate, written: list[Path]) -> dict[str, Any]:
    """Return the ``--json`` document."""
    return {
        "schema": "pgherd/gate/2",
        "baseline": result.baseline.name,
        "run": result.run.name,
        "study": result.run.record.study,
        "answer": result.answer,
        "result": result.result,
        "failed": result.failed,
        "grades": {run.name: run.record.analysis.grade if run.record.analysis else None for run in (result.baseline, result.run)},
        "tables": {
            "comparison": [
                {
                    "metric": comparison.metric,
                    "point": comparison.point,
                    "baseline": comparison.old,
                    "run": comparison.new,
                    "change": comparison.change,
                    "max_regression": comparison.max_regression,
                    "better_direction": comparison.better_direction,
                    "result": comparison.result,
                    "repeats_needed": comparison.repeats_needed,
                    "reason": comparison.reason,
                }
                for comparison in result.comparisons
            ],
            "differences": [
                {"kind": kind, "name": row[0].text, "baseline": row[1].text, "run": row[2].text}
                for kind, table in result.differences.items()
                for row in table.rows
            ],
        },
        "warnings": list(result.warnings),
        "files": written,
    }


def _show(result: Gate, written: list[Path]) -> None:
    """Print the answer, the warnings and both tables."""
    from rich.table import Table
    from rich.text import Text

    from pgherd.report.formatting import MISSING, finding_value
    from pgherd.report.gate import NOTE, change_text, result_text

    console = answer_console()
    style = "bold red" if result.failed else "bold yellow" if result.result == "inconclusive" else "bold green"
    console.print(Text(result.answer, style=style))
    for warning in result.warnings:
        console.print(Text(f"Warning: {warning}.", style="yellow"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("metric", "at", "baseline", "run", "change", "allowed", "result", "more\nrepeats"):
        table.add_column(head, justify="left" if head in ("metric", "at", "result") else "right", overflow="fold")
    for comparison in result.comparisons:
        values = [MISSING if value is None else finding_value(value) for value in (comparison.old, comparison.new)]
        unit = next((value.unit for value in (comparison.new, comparison.old) if value is not None and value.unit), "")
        label = f"{comparison.label}, {unit}" if unit and not comparison.label.endswith(unit) else comparison.label
        more = "" if comparison.result != "inconclusive" else str(comparison.repeats_needed or MISSING)
        row = [label, comparison.point, *values, change_text(comparison.change), comparison.limit, result_text(comparison), more]
        table.add_row(*(Text(cell, style="bold" if comparison.result == "regression" else "") for cell in row))
    console.print()
    console.print(table)
    console.print(Text(NOTE, style="dim"))
    differing = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("differs", "", result.baseline.name, result.run.name):
        differing.add_column(Text(head), overflow="fold")
    for kind, rows in result.differences.items():
        for name, *cells in rows.rows:
            differing.add_row(*(Text(text) for text in (kind, name.text, *(cell.text for cell in cells))))
    if differing.rows:
        console.print()
        console.print(differing)
    for path in written:
        console.print(Text(f"Written: {path}"), soft_wrap=True)
