"""``pgherd list``: list runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console, runs_option


@click.command("list")
@runs_option
@json_option
def command(runs: Path, as_json: bool) -> None:
    """List runs, oldest first."""
    from pgherd.model.errors import RunDirectoryError
    from pgherd.store.run_directory import RunDirectory

    rows: list[dict[str, Any]] = []
    warnings = []
    for directory in RunDirectory.all(runs):
        try:
            record = directory.record()
        except RunDirectoryError as error:
            warnings.append(str(error))
            continue
        state = "killed" if record.state == "running" and not directory.alive() else record.state
        hosts = ", ".join(dict.fromkeys(facts.hostname for facts in record.hosts.values()))
        rows.append(
            {
                "run": directory.name,
                "study": record.study,
                "state": state,
                "grade": record.analysis.grade if record.analysis else None,
                "trials": len(list((directory.path / "trials").glob("[0-9]*[0-9]/trial.json"))),
                "host": hosts or None,
                "answer": record.analysis.answer if record.analysis else record.error,
                "path": str(directory.path),
            }
        )
    if as_json:
        print_document({"schema": "pgherd/runs/2", "runs": rows, "warnings": warnings})
        return
    for warning in warnings:
        progress_console().print(f"warning: {warning}", markup=False)
    console = answer_console()
    if not rows:
        console.print(
            f"No runs in {runs}. Start one with 'pgherd density', or set another directory with --runs-dir or PGHERD_RUNS.", markup=False
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "grade", "trials", "answer"):
        table.add_column(name, justify="right" if name == "trials" else "left", no_wrap=name != "answer")
    for row in rows:
        table.add_row(row["run"], row["state"], row["grade"] or "–", str(row["trials"]), row["answer"] or "")
    console.print(table)
    unfinished = [row["run"] for row in rows if row["state"] in ("interrupted", "failed", "killed")]
    if unfinished:
        console.print(f"\nResume an unfinished run: pgherd resume {unfinished[-1]}", markup=False)
