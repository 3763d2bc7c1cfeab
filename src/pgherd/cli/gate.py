"""``pgherd gate``: fail where a run is worse than its baseline by more than is allowed, and the data support it."""

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

_SHARE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")


def share(text: str) -> float:
    """``5%`` or ``0.05`` as 0.05; raises UsageError for anything else, and for 100 % and more."""
    match = _SHARE.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if value >= 1:
        raise UsageError(f"'{text}' is not a share that may be lost; write it as 5% or 0.05")
    return value


def wanted(text: str, allowed: float) -> MetricLimit:
    """``NAME[:ALLOW][:higher|lower]``; a finding's name may hold colons of its own.

    Raises:
        UsageError: there is no name, or the share cannot be read.
    """
    from pgherd.report.gate_metrics import MetricLimit

    name, better = text, None
    head, colon, last = name.rpartition(":")
    if colon and last in ("higher", "lower"):
        name, better = head, last
    head, colon, last = name.rpartition(":")
    if colon and (_SHARE.fullmatch(last) or last == "" or last.endswith("%")):
        name, allowed = head, share(last)
    if not name:
        raise UsageError(f"--metric '{text}' names no metric; write NAME or NAME:5%, such as p95:10%")
    return MetricLimit(name, allowed, better)  # type: ignore[arg-type]  # one of the two words


@click.command("gate")
@click.argument("baseline")
@click.argument("run")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[:ALLOW][:higher|lower]",
    help="A metric or finding, what of it may be lost, and of a finding which is better, where pgherd does not know it.",
)
@click.option("--allow", default="5%", show_default=True, metavar="SHARE", help="What may be lost where a metric does not say it.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the result as JUnit XML.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a summary for a pull request.")
@runs_option
@json_option
def command(
    baseline: str, run: str, metrics: tuple[str, ...], allow: str, junit: Path | None, markdown: Path | None, runs: Path, as_json: bool
) -> int:
    """Exit 1 if RUN is worse than BASELINE by more than is allowed and the data support it: the whole interval of the change
    lies beyond what is allowed. Worse but not for certain is said, with how many repeats would tell, and exits 0.

    BASELINE and RUN are two runs of one study: names, parts of names, paths, or 'last'. Metrics: throughput, new_orders_per_minute,
    cpu_per_tx, p50, p95, p99, memory, wal_per_tx, io_per_tx, switches_per_tx, compared at every point that both runs have and
    over all of them, or a finding of the study by its name.

    \b
    pgherd gate main last                                    throughput, 5 % may be lost
    pgherd gate main last --metric throughput:3% --metric p95:10%
    pgherd gate main last --metric databases_held:2%         a finding
    pgherd gate main last --junit gate.xml --markdown gate.md
    """
    from pgherd.report.gate import gate
    from pgherd.report.gate_metrics import MetricLimit, Run, default_metric
    from pgherd.store.run_directory import RunDirectory

    allowed = share(allow)
    asked = [wanted(text, allowed) for text in metrics]
    names = [one.name for one in asked]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"--metric names {', '.join(twice)} more than once; give each one share that may be lost")

    def side(name: str) -> Run:
        directory = RunDirectory.find(name, runs)
        return Run(directory.name, directory.record(), directory.results())

    old, new = side(baseline), side(run)
    found = gate(old, new, asked or [MetricLimit(default_metric(new.record), allowed)])
    written = _write(found, junit, markdown)
    if as_json:
        print_document(document(found, written))
    else:
        _show(found, written)
    return 1 if found.failed else 0


def _write(found: Gate, junit: Path | None, markdown: Path | None) -> list[Path]:
    """Write the files that were asked for, each whole or not at all."""
    from pgherd.report.gate_documents import to_junit, to_markdown
    from pgherd.store.run_directory import RunDirectory

    written = []
    for path, text in ((junit, to_junit), (markdown, to_markdown)):
        if path is None:
            continue
        try:
            RunDirectory(path.parent).write(path.name, text(found).encode())
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}; choose another place for it") from None
        written.append(path)
    return written


def document(found: Gate, written: list[Path]) -> dict[str, Any]:
    """The ``--json`` document."""
    return {
        "schema": "pgherd/gate/1",
        "baseline": found.baseline.name,
        "run": found.run.name,
        "study": found.run.record.study,
        "answer": found.answer,
        "verdict": found.outcome,
        "failed": found.failed,
        "grades": {side.name: side.record.analysis.grade if side.record.analysis else None for side in (found.baseline, found.run)},
        "tables": {
            "comparison": [
                {
                    "metric": one.metric,
                    "point": one.point,
                    "baseline": one.old,
                    "run": one.new,
                    "change": one.change,
                    "allowed": one.allowed,
                    "better": one.better,
                    "verdict": one.verdict,
                    "more": one.more,
                    "why": one.why,
                }
                for one in found.comparisons
            ],
            "differences": [
                {"kind": kind, "name": row[0].text, "baseline": row[1].text, "run": row[2].text}
                for kind, table in found.differences.items()
                for row in table.rows
            ],
        },
        "warnings": list(found.warnings),
        "files": written,
    }


def _show(found: Gate, written: list[Path]) -> None:
    """The sentence, the warnings, both tables."""
    from rich.table import Table
    from rich.text import Text

    from pgherd.report.formatting import MISSING, half_width, number
    from pgherd.report.gate import NOTE, change_text, verdict_text

    console = answer_console()
    style = "bold red" if found.failed else "bold yellow" if found.outcome == "cannot tell" else "bold green"
    console.print(Text(found.answer, style=style))
    for warning in found.warnings:
        console.print(Text(f"Warning: {warning}.", style="yellow"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("metric", "at", "baseline", "run", "change", "allowed", "verdict", "more\nrepeats"):
        table.add_column(head, justify="left" if head in ("metric", "at", "verdict") else "right", overflow="fold")
    for one in found.comparisons:
        values = [MISSING if side is None else number(side.value, half_width(side) or None) for side in (one.old, one.new)]
        unit = next((side.unit for side in (one.new, one.old) if side is not None and side.unit), "")
        label = f"{one.label}, {unit}" if unit and not one.label.endswith(unit) else one.label
        more = "" if one.verdict != "cannot tell" else str(one.more or MISSING)
        row = [label, one.point, *values, change_text(one.change), one.limit, verdict_text(one), more]
        table.add_row(*(Text(cell, style="bold" if one.verdict == "worse" else "") for cell in row))
    console.print()
    console.print(table)
    console.print(Text(NOTE, style="dim"))
    differing = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("differs", "", found.baseline.name, found.run.name):
        differing.add_column(Text(head), overflow="fold")
    for kind, rows in found.differences.items():
        for name, *sides in rows.rows:
            differing.add_row(*(Text(words) for words in (kind, name.text, *(cell.text for cell in sides))))
    if differing.rows:
        console.print()
        console.print(differing)
    for path in written:
        console.print(Text(f"Written: {path}"), soft_wrap=True)
