"""``pgherd storage``: what do the devices below a server see, and what do checkpoints do to it?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.study_options import COMPARED, run_study

_OWN = (
    click.option("--clients", type=int, help="Clients of the database.  [default: 4 per core, at most 32]"),
    click.option("--checkpoints", type=int, help="Checkpoints that each trial is to hold.  [default: 3; 2 in a comparison]"),
    click.option("--checkpoint-every", metavar="TIME", help="From one checkpoint to the next (checkpoint_timeout).  [default: 30s]"),
    click.option("--compare", metavar="SETTING=V,V", help="Hold values of a setting against each other, the first is the baseline."),
    click.option("--variant", multiple=True, metavar="NAME:KEY=VALUE,…", help="Compare variants, as in 'pgherd compare'."),
    click.option("--io-bound", type=float, metavar="K", help="Random blocks over a database of K × the memory (E13)."),
    *COMPARED,
)


@click.command("io-profile", short_help="What do the devices below a server see, and what do checkpoints do to it?")
@database_options(
    _OWN,
    without=frozenset({"server", "allow_write"}),
    workload="tpcb-like; random-block with --io-bound",
    vcpus="all cores",
    memory="twice the database; 512MB with --io-bound",
    repeats="Trials of one server.  [default: 3]",
    seconds="95s; 65s in a comparison; 20s with --io-bound",
    ramp="5s",
    place="outside",
    budget="as long as that takes",
    state="fresh",
    such=" a comparison",
    blocks="Blocks of a comparison at most.  [default: 6; more with more variants]",
    until="",
    equivalence="5%",
)
def command(**given: Any) -> int:
    """Watch one server's devices through several checkpoints: sizes, bursts, response times, stalls of WAL writing, latency
    inside and outside of checkpoints (experiment E11). With --compare or --variant: what a setting of the checkpoints or
    the WAL changes. With --io-bound: random blocks beyond the memory (E13).

    \b
    pgherd io-profile --wal-dir /mnt/wal         WAL on a device of its own; about six minutes
    pgherd io-profile --wal-on loop:4GB          the same on a loop device that is made for it (it distorts)
    pgherd io-profile --trace                    sizes, patterns and latencies of single requests
    pgherd io-profile --compare checkpoint_completion_target=0.5,0.9
    pgherd io-profile --io-bound 4 --memory 1GB
    pgherd io-profile --io-bound 4 --partitions 2 --variant one:tablespaces-on=/mnt/a --variant two:tablespaces-on="/mnt/a,/mnt/b"
    """
    return run_study("io-profile", given)
