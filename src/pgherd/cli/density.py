"""``pgherd density``: how many databases does this host hold?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import run_study

_OWN = (
    click.option("--points", callback=whole_numbers, metavar="N,N,…", help="Numbers of databases.  [default: E1's fractions, past 100 %]"),
    click.option("--clients", type=int, help="Clients of each database.  [default: two per vCPU, at least 2]"),
    click.option("--at", type=float, help="Say how many databases are held at this efficiency.  [default: 0.85]"),
    click.option("--intent", type=click.Choice(["cpu-bound", "io-bound"]), help="What it is meant to be bound by.  [default: cpu-bound]"),
    click.option("--soak", metavar="TIME", help="Hold the last point for this long and judge steadiness."),
)


@click.command("density", short_help="How many databases does this host hold?")
@database_options(
    _OWN,
    vcpus="4, or cores/8 on hosts of fewer than 32",
    memory="an equal share",
    repeats="Trials per point; the one-database point gets two more.  [default: 3]",
    seconds="9s",
    ramp="1s",
    budget="4m20s, more for more points",
)
def command(**given: Any) -> int:
    """Deploy databases on this host, add them one by one until the cores are used and beyond, and say how many it
    holds, how far from perfect it scales, and why (experiments E1 and E2).

    \b
    pgherd density                            this host, in under five minutes
    pgherd density --dry-run                  what that would do
    pgherd density --points 1,8,16 --vcpus 2 --scale 100
    pgherd density --cluster mine             on all hosts of a cluster
    """
    return run_study("density", given)
