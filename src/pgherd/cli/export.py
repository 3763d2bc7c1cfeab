"""``pgherd export``: export a run as OpenMetrics."""

from __future__ import annotations

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
    from pgherd.store.run_directory import RunDirectory

    directory = RunDirectory.find(run, runs)
    if output == "-" and as_json:
        raise UsageError("--output - and --json both write to stdout; give a file")
    record, results = directory.record(), directory.results()
    if not results:
        raise UsageError(f"run {directory.name} has no finished trial to export; resume it with 'pgherd resume {directory.name}'")
    if output == "-":
        write(directory.path, record, results, sys.stdout)
        return 0
    target = Path(output) if output is not None else directory.path / "openmetrics.txt"
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no regular file; --output requires a file, or - for stdout")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        file = open(temporary, "w", encoding="utf-8")  # noqa: SIM115 - only a failure to open it is a usage error
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; choose another --output") from None
    try:
        with file:
            written = write(directory.path, record, results, file)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if as_json:
        about = {"families": written.families, "samples": written.samples, "first": written.first, "last": written.last}
        print_document(
            {"schema": "pgherd/export/2", "run": directory.name, "format": "openmetrics", "file": os.path.abspath(target), **about}
        )
    else:
        answer_console().print(str(target), markup=False, soft_wrap=True)
    return 0
