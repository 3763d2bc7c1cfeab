"""``pgherd sizes``: how large is a database of a given scale?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.output import json_option, runs_option, whole_numbers


@click.command("sizes", short_help="How large is a database of a given scale on this PostgreSQL?")
@click.option("--scales", callback=whole_numbers, metavar="N,N,…", help="pgbench scale factors to load.  [default: 1,2,5,10,20,50]")
@click.option("--predict", callback=whole_numbers, metavar="N,N,…", help="Those to predict.  [default: 100,1000,2500,5000,10000]")
@click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench.")
@click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL on this machine by its major version, or 'embedded'.")
@click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as.")
@click.option("--dry-run", is_flag=True, help="Show what would be loaded, disk and host changes; do nothing.")
@click.option("--write-scenario", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write this command as a scenario.")
@click.option("--no-report", is_flag=True, help="Skip the HTML report ('pgherd report' makes it later).")
@runs_option
@json_option
def command(dry_run: bool, write_scenario: Path | None, no_report: bool, runs: Path, as_json: bool, **given: Any) -> int:
    """Load pgbench databases of several scale factors, measure their sizes, and predict others (experiment E10).

    \b
    pgherd sizes
    pgherd sizes --scales 1,10,100 --predict 500,20000
    """
    from pgherd.cli.launch import launch

    options = {name: value for name, value in given.items() if value is not None}
    return launch("sizes", options, runs=runs, dry_run=dry_run, scenario=write_scenario, report=not no_report, as_json=as_json)
