"""``pgherd sizes``: how large is a database of a given scale?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import INSTALLED, RUN, options

_OWN = (
    click.option("--scales", callback=whole_numbers, metavar="N,N,…", help="pgbench scale factors to load.  [default: 1,2,5,10,20,50]"),
    click.option("--predict", callback=whole_numbers, metavar="N,N,…", help="Those to predict.  [default: 100,1000,2500,5000,10000]"),
)


@click.command("sizes", short_help="How large is a database of a given scale on this PostgreSQL?")
@options((*_OWN, *INSTALLED, *RUN), without=frozenset({"yes"}), shown="what would be loaded, disk and host changes")
def command(dry_run: bool, write_scenario: Path | None, no_report: bool, runs: Path, as_json: bool, **given: Any) -> int:
    """Load pgbench databases of several scale factors, measure their sizes, and predict others (experiment E10).

    \b
    pgherd sizes
    pgherd sizes --scales 1,10,100 --predict 500,20000
    """
    from pgherd.cli.launch import launch

    asked = {name: value for name, value in given.items() if value is not None}
    return launch("sizes", asked, runs=runs, dry_run=dry_run, scenario=write_scenario, report=not no_report, as_json=as_json)
