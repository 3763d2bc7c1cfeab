"""``pgherd exec``: any command, in repeats, with sampling and verdicts as any study has them."""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.cluster_options import cluster_options
from pgherd.cli.study_options import MEASURED, RUN, options, run_study

_OWN = (
    click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND…"),
    click.option("--value", multiple=True, metavar="NAME=REGEX", help="Read a number from its output: the last match, or its group."),
    click.option("--unit", multiple=True, metavar="NAME=UNIT", help="The unit of that number."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment, beside PATH, LC_ALL=C and TZ=UTC."),
    click.option("--cwd", metavar="DIR", help="Where it is started.  [default: here]"),
    click.option("--privileged", is_flag=True, default=None, help="As root: run it as root, not under the servers' account."),
    click.option("--timeout", metavar="TIME", help="The longest that it may take where it ends by itself.  [default: 10m]"),
)


@click.command(
    "exec", short_help="What does any command take, and what does it do to this host?", context_settings={"allow_interspersed_args": False}
)
@options(
    (*_OWN, *MEASURED, cluster_options, *RUN),
    without=frozenset({"seed", "placement", "yes"}),
    program="the command",
    repeats="How often it is run.  [default: 5]",
    seconds="it ends by itself",
    ramp="none",
    shown="the command, trials and how long they may take",
)
def command(**given: Any) -> int:
    """Run any command several times, as given and without a shell, and watch the host meanwhile: how long it takes, what it
    prints (--value), its CPU, the host's CPU and memory, its devices. It has to end with exit code 0. With --seconds it runs
    on, and is ended by SIGTERM after that time.

    \b
    pgherd exec -- sha256sum /var/lib/large-file
    pgherd exec --value 'time=copied, ([\\d.]+) s' --unit time=s -- dd if=/dev/zero of=/dev/null bs=1M count=50k
    pgherd exec --seconds 30s --ramp 5s -- stress-ng --cpu 2
    """
    return run_study("exec", given)
