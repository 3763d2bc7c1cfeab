"""``pgherd disk``: how many I/Os does a volume take, how fast, and what limits it?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.cluster_options import cluster_options
from pgherd.cli.study_options import MEASURED, RUN, TRACE, listed, options, run_study

_OWN = (
    click.option(
        "--volume",
        multiple=True,
        metavar="[NAME=]DIR|loop:SIZE[@DIR]|device:/dev/X",
        help="What is measured; may be given several times.  [default: where servers' data would lie]",
    ),
    click.option(
        "--allow-format", multiple=True, metavar="/dev/X", help="This empty device may be formatted; its name is asked for again."
    ),
    click.option("--tests", callback=listed, metavar="NAME,…", help="Some tests only, such as random-read,single-write.  [default: all]"),
    click.option("--rate", metavar="READS,WRITES", help="A mix at fixed rates too, I/Os per second of each volume, such as 70,30."),
    click.option("--rwmixread", type=int, metavar="PERCENT", hidden=True),
    click.option("--size", metavar="SIZE", help="Size of the file on each volume.  [default: 2GB, a quarter of what is free at most]"),
    click.option("--depth", type=int, help="Random I/Os in flight on each volume.  [default: 32]"),
    click.option("--sequential-depth", type=int, help="Sequential I/Os in flight.  [default: 8]"),
    click.option("--jobs", type=int, help="fio jobs that share a volume's I/Os.  [default: 1]"),
    click.option("--engine", type=click.Choice(["libaio", "io_uring", "psync"]), help="fio's engine.  [default: libaio]"),
    click.option("--buffered", is_flag=True, default=None, help="Through the page cache, even where direct I/O is possible."),
    click.option("--together/--no-together", default=None, help="All volumes at once too.  [default: yes]"),
    click.option("--check-depth/--no-check-depth", default=None, help="Twice the depth too: is the depth the limit?  [default: yes]"),
    TRACE,
)


@click.command("disk", short_help="How many I/Os does a volume take, how fast, and what limits it?")
@options(
    (*_OWN, *MEASURED, cluster_options, *RUN),
    without=frozenset({"placement"}),
    program="fio",
    repeats="Trials of each test on each volume.  [default: 3]",
    seconds="6s",
    ramp="2s",
    shown="volumes, hosts, trials, order, time, disk and host changes",
)
def command(**given: Any) -> int:
    """Measure volumes with fio (experiment E12): 8 kB random and 1 MB sequential reads and writes, one I/O at a time, and
    mixes at fixed rates. Each figure says what limited it, and whether it came from a cache. Written is only to files that
    pgherd makes, in a directory of its own.

    \b
    pgherd disk                                        where servers' data would lie
    pgherd disk --volume data=/mnt/a --volume wal=/mnt/b
    pgherd disk --volume /mnt/a --rate 70,30 --tests mix,single-read
    pgherd disk --volume device:/dev/nvme1n1 --allow-format /dev/nvme1n1
    pgherd disk --cluster mine                         on all hosts of a cluster at once
    """
    return run_study("disk", given)
