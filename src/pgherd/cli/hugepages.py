"""``pgherd hugepages``: what do larger pages of shared memory buy?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.study_options import COMPARED, run_study


def _kinds(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value.split(","))


_OWN = (
    click.option(
        "--pages", callback=_kinds, metavar="KIND,…", help="none, page sizes, thp; the first is the baseline.  [default: all there are]"
    ),
    click.option("--clients", type=int, help="Clients of the database.  [default: 10]"),
    *COMPARED,
)


@click.command("hugepages", short_help="What do larger pages of shared memory buy?")
@database_options(
    _OWN,
    without=frozenset({"repeats", "huge_pages"}),
    vcpus="half of the cores",
    memory="what there is, at most 8GB",
    repeats="",
    seconds="7s",
    ramp="1s",
    budget="6m50s",
    state="restarted; fresh for what writes",
    such=", such as cpu_per_tx",
    blocks="Blocks at most: every kind once, the baseline twice.  [default: by --budget]",
    until="  [default: until sure]",
    equivalence="2%",
)
def command(**given: Any) -> int:
    """Compare one server on ordinary pages, on reserved huge pages of the sizes that the kernel has, and on transparent
    huge pages (experiment E9). Pages are reserved for the time of a trial, and given back; that needs root.

    \b
    pgherd hugepages                          all kinds of pages, in under eight minutes
    pgherd hugepages --dry-run                what that would do
    pgherd hugepages --pages none,1GB --scale 500 --set shared_buffers=16GB --seconds 60s --blocks 6 --yes
    """
    return run_study("hugepages", given)
