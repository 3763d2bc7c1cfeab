"""``pgherd network``: how much does a link carry by parallel streams, and what bounds it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.output import whole_numbers
from pgherd.cli.study_options import MEASURED, RUN, given_options, options

_OWN = (
    click.option("--to", multiple=True, metavar="HOST[:PORT]", help="Where 'iperf3 --server' runs; may be given several times."),
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
    (*_OWN, *MEASURED, *RUN),
    without=frozenset({"yes"}),
    program="iperf3",
    repeats="Trials of each number of streams.  [default: 3]",
    seconds="6s",
    ramp="2s",
    shown="links, trials, order, time and host changes",
)
def command(dry_run: bool, write_scenario: Path | None, no_report: bool, runs: Path, as_json: bool, **given: Any) -> int:
    """Measure TCP throughput with iperf3 by the number of parallel streams (experiment E14): retransmits, round trip times idle and
    under load, streams needed for 90 % of the best, and whether one stream is bound by latency or by bandwidth.

    \b
    pgherd network --to db2                  'iperf3 --server' runs on db2
    pgherd network --to db2 --to db3:5300 --streams 1,2,4,8,16,32
    pgherd network --namespaces --limit 200M
    """
    from pgherd.cli.launch import launch

    asked = given_options(given)
    return launch("network", asked, runs=runs, dry_run=dry_run, scenario=write_scenario, report=not no_report, as_json=as_json)
