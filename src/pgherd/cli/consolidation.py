"""``pgherd consolidation``: which container for databases that share memory, and how far can it be overcommitted?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import run_study
from pgherd.cli.swap_options import swap_options


def _rates(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        return tuple(float(word[:-1]) / 100 if word.strip().endswith("%") else float(word) for word in value.split(","))
    except ValueError:
        raise click.BadParameter(f"'{value}' is no list of rates; write them as 0,0.3,0.55 or 0,30%,55%.") from None


def _sizes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(word.strip() for word in value.split(","))


_OWN: tuple[Callable[[Any], Any], ...] = (
    click.option("--databases", type=int, help="Databases that share the host.  [default: 2]"),
    click.option(
        "--schemes", callback=whole_numbers, metavar="N,…", help="1: 1/1/M, 2: 1/M/M, 3: M/M/M, 4: 3 and pg_balloon.  [default: all]"
    ),
    click.option(
        "--buffers", callback=whole_numbers, metavar="PERCENT,…", help="Shared buffers, % of a server's memory.  [default: 25,75]"
    ),
    click.option("--rates", callback=_rates, metavar="RATE,…", help="Overcommitment, 1 − available ÷ configured.  [default: 0]"),
    click.option("--warehouses", type=int, help="orders: warehouses of each database, 110 MB each.  [default: 3/4 of its memory]"),
    click.option("--high", type=int, help="Clients of a busy database.  [default: 30]"),
    click.option("--low", type=int, help="Clients of a quiet database.  [default: 2]"),
    click.option(
        "--pattern",
        metavar="NAME|N,N/N,N",
        help="alternating, diurnal, steady, burst, or each database's clients.  [default: alternating]",
    ),
    click.option("--periods", type=int, help="Periods of a trial.  [default: 4]"),
    click.option("--period", metavar="TIME", help="Measured length of each period.  [default: 8s]"),
    click.option("--blocks", type=int, help="How often everything is measured, in mixed order; 3 for an interval.  [default: 1]"),
    *swap_options(kind="zram where overcommitted", size="the configured memory"),
    click.option(
        "--staging", type=click.Choice(["limit", "locked"]), help="Memory withheld by a limit, or by locked memory.  [default: limit]"
    ),
    click.option("--working-set", callback=_sizes, metavar="BUSY[,QUIET]", help="Container memory that a database needs ('working-set')."),
    click.option(
        "--paper", type=click.Choice(["E4", "E5", "E6"]), help="The published set-up: undercommitted, overcommitted, memory at 30 %."
    ),
)


@click.command("consolidation", short_help="Which container for databases that share memory, and how far can it be overcommitted?")
@database_options(
    _OWN,
    without=frozenset({"repeats", "seconds", "huge_pages", "server", "allow_write", "rate", "init"}),
    vcpus="3/4 of the cores, shared out",
    memory="1GB",
    repeats="",
    seconds="",
    ramp="3s",
    place="outside",
    workload="orders",
    budget="none",
    state="fresh",
)
def command(**given: Any) -> int:
    """Run databases whose busy hours differ in one container and server (scheme 1), in one container with a server each (2), in a
    container each (3), and so with a database balloon (4): which does more, and which bears less memory (experiments E4, E5 and E6)?

    --vcpus and --memory are those of a container of one database; a container of all of them has as many vCPUs, and all their memory.
    The workload is orders unless --workload says otherwise; clients run outside the containers.

    \b
    pgherd consolidation --schemes 3 --buffers 25      one scheme's baseline, in three minutes
    pgherd consolidation --dry-run                     what the four schemes would take
    pgherd consolidation --rates 0,0.2,0.4,0.55 --yes  curves of overcommitment, in half an hour
    pgherd consolidation --paper E5 --blocks 3         as published; takes 12 GB, 8 cores and days
    """
    return run_study("consolidation", given)
