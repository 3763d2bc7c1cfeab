"""``pgherd resume``: go on with a run that was interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from pgherd.cli.metrics_options import metrics_options
from pgherd.cli.output import json_option, runs_option


@click.command("resume")
@click.argument("run")
@click.option("--no-report", is_flag=True, help="Skip the HTML report ('pgherd report' makes it later).")
@metrics_options
@runs_option
@json_option
def command(run: str, no_report: bool, runs: Path, as_json: bool) -> int:
    """Go on with a run that was interrupted or killed, after the trials that are finished. RUN is a name, a part of
    one, a path, or 'last'."""
    from pgherd.cli.launch import resume
    from pgherd.store.run_directory import RunDirectory

    return resume(RunDirectory.find(run, runs), report=not no_report, as_json=as_json)
