"""``pgherd sizes``: how large is a database of a given scale?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import INSTALLED, RUN, options, run_study

_OWN = (
    click.option("--scales", callback=whole_numbers, metavar="N,N,…", help="pgbench scale factors to load.  [default: 1,2,5,10,20,50]"),
    click.option("--predict", callback=whole_numbers, metavar="N,N,…", help="Those to predict.  [default: 100,1000,2500,5000,10000]"),
)


@click.command("database-size", short_help="How large is a database of a given scale on this PostgreSQL?")
@options((*_OWN, *INSTALLED, *RUN), without=frozenset({"yes"}), shown="what would be loaded, disk and host changes")
def command(**given: Any) -> int:
    """Load pgbench databases of several scale factors, measure their sizes, and predict others (experiment E10).

    \b
    pgherd sizes
    pgherd database-size --scales 1,10,100 --predict 500,20000
    """
    return run_study("database-size", given)
