"""``pgherd export``: export a run as OpenMetrics."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option
from pgherd.model.errors import UsageError


@click.command("export")
@click.argument("run")
@click.option(
    "--output",
    metavar="FILE|-",
    help="Output file, or - for stdout.  [default: openmetrics.txt in the run's directory]",
)
@runs_option
@json_option
def command(run: str, output: str | None, runs: Path, as_json: bool) -> int:
    """Export the samples and results of a run as OpenMetrics text with timestamps. 'promtool tsdb create-blocks-from
    openmetrics' imports it into Prometheus, so that Grafana can show an old run (docs/howto/monitoring.md). RUN is a name, a
    part of one, a path, or 'last'."""
    from pgherd.export.openmetrics_file import write
    from pgherd.node import files
    from pgherd.store.run_directory import RunDirectory
    from pgherd.study.analyse_run import refreshed

    directory = RunDirectory.find(run, runs)
    if output == "-" and as_json:
        raise UsageError("--output - and --json both write to stdout; give a file")
    results = directory.results()
    record = refreshed(directory.record(), results)
    if not results:
        raise UsageError(f"run {directory.name} has no finished trial to export; resume it with 'pgherd resume {directory.argument}'")
    if output == "-":
        write(directory.path, record, results, sys.stdout)
        return 0
    if output is None and not directory.is_ours():
        raise UsageError(f"{directory.foreign_text()}, and pgherd does not write into it; give --output FILE, or - for stdout")
    target = Path(output) if output is not None else directory.path / "openmetrics.txt"
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no regular file; --output requires a file, or - for stdout")
    with contextlib.ExitStack() as stack:
        try:
            number = stack.enter_context(files.replacing(target))
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}; choose another --output") from None
        with open(number, "w", encoding="utf-8", closefd=False) as file:
            written = write(directory.path, record, results, file)
    if as_json:
        about = {"families": written.families, "samples": written.samples, "first": written.first, "last": written.last}
        print_document(
            {"schema": "pgherd/export/2", "run": directory.name, "format": "openmetrics", "file": os.path.abspath(target), **about}
        )
    else:
        answer_console().print(str(target), markup=False, soft_wrap=True)
    return 0
