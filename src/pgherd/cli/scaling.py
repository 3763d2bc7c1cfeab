"""``pgherd scaling``: how does one server's throughput grow with its clients?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import run_study

_OWN = (
    click.option(
        "--clients", callback=whole_numbers, metavar="N,N,…", help="Numbers of clients.  [default: 1 to 4 per core, and where needed]"
    ),
    click.option(
        "--variant",
        multiple=True,
        metavar="NAME:KEY=VALUE,…",
        help="Hold variants against the first; one alone against none. A key is an option of this verb, or a PostgreSQL setting.",
    ),
)


@click.command("scaling", short_help="How does one server's throughput grow with its clients?")
@database_options(
    _OWN,
    without=frozenset({"rate"}),
    vcpus="all cores, without a quota",
    memory="not limited",
    repeats="Series: how often each number of clients is measured.  [default: 3]",
    seconds="9s",
    ramp="1s",
    place="outside",
    budget="4m20s, more for more trials",
)
def command(**given: Any) -> int:
    """Load one server with more and more clients, and say where it peaks, up to where it scales linearly, and what
    limits it (experiment E3). With variants: whose curve is higher, and by how much.

    \b
    pgherd scaling                            this host, in under five minutes
    pgherd scaling --workload tpcb-like --scale 50
    pgherd scaling --variant old:pg-version=15 --variant new:pg-version=18
    pgherd scaling --variant base --variant big:shared_buffers=1GB --seconds 5s
    pgherd scaling --cluster mine --client-host a            the server and its clients on two hosts of a cluster
    """
    return run_study("scaling", given)
