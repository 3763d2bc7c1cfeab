"""``pgherd network``: how much does a link carry by parallel streams, and what bounds it?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.cluster_options import cluster_options
from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import MEASURED, RUN, listed, options, run_study

_OWN = (
    click.option("--to", multiple=True, metavar="HOST[:PORT]", help="Where 'iperf3 --server' runs; may be given several times."),
    click.option("--between", callback=listed, metavar="HOST,HOST,…", help="--cluster: between these hosts only.  [default: all]"),
    click.option("--port", type=int, help="--cluster: where iperf3's servers listen during trials.  [default: 5201]"),
    click.option("--namespaces", is_flag=True, default=None, help="Between two network namespaces of this host (root only)."),
    click.option("--limit", metavar="RATE", help="--namespaces: let so many bits per second through, such as 200M."),
    click.option("--delay", metavar="TIME", help="--namespaces: hold every packet up, each way, such as 5ms."),
    click.option(
        "--streams", callback=whole_numbers, metavar="N,N,…", help="Parallel TCP streams; 1 is always among them.  [default: 1,2,4,8,16]"
    ),
    click.option("--reverse", is_flag=True, default=None, help="The far end sends."),
    click.option("--window", metavar="SIZE", help="Socket buffers.  [default: the kernel tunes them]"),
    click.option("--congestion", metavar="NAME", help="TCP's congestion control.  [default: the system's]"),
)


@click.command("network", short_help="How much does a link carry by parallel streams, and what bounds it?")
@options(
    (*_OWN, *MEASURED, cluster_options, *RUN),
    without=frozenset({"placement", "yes"}),
    program="iperf3",
    repeats="Trials of each number of streams.  [default: 3]",
    seconds="6s",
    ramp="2s",
    shown="links, trials, order, time and host changes",
)
def command(**given: Any) -> int:
    """Measure TCP throughput with iperf3 by the number of parallel streams (experiment E14): retransmits, round trip times idle and
    under load, streams needed for 90 % of the best, and whether one stream is bound by latency or by bandwidth.

    \b
    pgherd network --to db2                  'iperf3 --server' runs on db2
    pgherd network --to db2 --to db3:5300 --streams 1,2,4,8,16,32
    pgherd network --cluster mine            from every host of a cluster to every other
    pgherd network --namespaces --limit 200M
    """
    return run_study("network", given)
