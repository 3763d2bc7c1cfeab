"""``pgherd export``: a run for other tools."""

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
    "--openmetrics",
    metavar="FILE|-",
    help="Where the exposition goes; '-' is stdout.  [default: openmetrics.txt in the run's directory]",
)
@runs_option
@json_option
def command(run: str, openmetrics: str | None, runs: Path, as_json: bool) -> int:
    """Write a run's samples and results as OpenMetrics text with timestamps, of which 'promtool tsdb create-blocks-from openmetrics'
    makes blocks for Prometheus: so an old run can be looked at in Grafana (docs/howto/monitoring.md). RUN is a name, a part of one, a path,
    or 'last'."""
    from pgherd.export.openmetrics_file import write
    from pgherd.store.run_directory import RunDirectory

    directory = RunDirectory.find(run, runs)
    if openmetrics == "-" and as_json:
        raise UsageError("--openmetrics - and --json both want stdout; give a file")
    record, results = directory.record(), directory.results()
    if not results:
        raise UsageError(f"run {directory.name} has no finished trial to export; 'pgherd resume {directory.name}' goes on with it")
    if openmetrics == "-":
        write(directory.path, record, results, sys.stdout)
        return 0
    target = Path(openmetrics) if openmetrics is not None else directory.path / "openmetrics.txt"
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no regular file; --openmetrics takes a file, or - for standard output")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        out = open(temporary, "w", encoding="utf-8")  # noqa: SIM115 - only that it cannot be opened is the user's to mend
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; choose another --openmetrics FILE") from None
    try:
        with out:
            written = write(directory.path, record, results, out)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if as_json:
        about = {"families": written.families, "samples": written.samples, "first": written.first, "last": written.last}
        print_document(
            {"schema": "pgherd/export/1", "run": directory.name, "format": "openmetrics", "file": os.path.abspath(target), **about}
        )
    else:
        answer_console().print(str(target), markup=False, soft_wrap=True)
    return 0
