"""``pgherd working-set``: how much memory does a load need?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import run_study
from pgherd.cli.swap_options import swap_options


def _words(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(part.strip() for part in value.split(","))


_OWN: tuple[Callable[[Any], Any], ...] = (
    click.option("--clients", callback=whole_numbers, metavar="N,N,…", help="Loads: each has a working set of its own.  [default: 30,2]"),
    click.option("--sweeps", callback=_words, metavar="memory,buffers", help="What is varied.  [default: both, memory first]"),
    click.option("--buffers", metavar="SIZE", help="shared_buffers while memory is varied.  [default: half of the database]"),
    click.option(
        "--difference", metavar="SIZE", help="Memory beyond shared_buffers while these are varied.  [default: from the first sweep]"
    ),
    click.option("--points", type=int, help="Sizes of each curve to begin with.  [default: 6]"),
    click.option("--memory-sizes", callback=_words, metavar="SIZE,…", help="These container sizes and no others."),
    click.option("--buffer-sizes", callback=_words, metavar="SIZE,…", help="These sizes of shared_buffers and no others."),
    click.option("--precision", metavar="SHARE", help="Go on until each knee is known to ± this.  [default: 5%]"),
    click.option("--configured", metavar="SIZE", help="Memory that each database would be given, for the headroom."),
    *swap_options(kind="the host's", size="the largest container"),
    click.option("--paper", type=click.Choice(["E7"]), help="The published set-up: order entry, 30 warehouses, 4 GB; takes ten hours."),
)


@click.command("working-set", short_help="How much memory does a load need?")
@database_options(
    _OWN,
    without=frozenset({"memory", "server", "allow_write", "rate", "huge_pages"}),
    vcpus="all cores, without a quota",
    memory="",
    repeats="How often each size is measured to begin with.  [default: 1]",
    seconds="3s",
    ramp="1500ms",
    place="outside",
    workload="random-block",
    budget="4m25s, more for more trials",
    state="restarted; fresh for what writes",
)
def command(**given: Any) -> int:
    """Give a server less and less memory, and say from where on its throughput suffers: the knee of the curve is the
    working set (experiment E7), of the container's memory and of shared buffers, for each number of clients. It also
    says how much memory the databases together leave over, and up to which rate overcommitting them is honest.

    \b
    pgherd working-set                        a table of 128 MB, in under five minutes
    pgherd working-set --scale 512 --zipf 1.2 --precision 3%
    pgherd working-set --workload orders --scale 2 --clients 30,2 --budget 20m
    pgherd working-set --sweeps memory --buffers 256MB --clients 8
    """
    return run_study("working-set", given)
