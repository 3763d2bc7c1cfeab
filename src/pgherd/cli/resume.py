"""``pgherd resume``: resume an interrupted run."""

from __future__ import annotations

from pathlib import Path

import click

from pgherd.cli.metrics_options import metrics_options
from pgherd.cli.output import json_option, runs_option


@click.command("resume")
@click.argument("run")
@click.option("--no-report", is_flag=True, help="Do not write the HTML report.")
@metrics_options
@runs_option
@json_option
def command(run: str, no_report: bool, runs: Path, as_json: bool) -> int:
    """Resume an interrupted or killed run after its finished trials. RUN is a name, a part of one, a path, or 'last'."""
    from pgherd.cli.run_study import resume
    from pgherd.store.run_directory import RunDirectory

    return resume(RunDirectory.find(run, runs), report=not no_report, as_json=as_json)
