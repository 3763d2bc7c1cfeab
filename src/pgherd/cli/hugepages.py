"""``pgherd hugepages``: what do larger pages of shared memory buy?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.database_options import database_options, given_options


def _kinds(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value.split(","))


_OWN = (
    click.option(
        "--pages", callback=_kinds, metavar="KIND,…", help="none, page sizes, thp; the first is the baseline.  [default: all there are]"
    ),
    click.option("--clients", type=int, help="Clients of the database.  [default: 10]"),
    click.option("--metric", metavar="NAME", help="The metric that decides, such as cpu_per_tx.  [default: throughput]"),
    click.option("--blocks", type=int, help="Blocks at most: every kind once, the baseline twice.  [default: by --budget]"),
    click.option("--precision", metavar="SHARE", help="Go on until the interval is at most ± this, such as 2%.  [default: until sure]"),
    click.option("--equivalence", metavar="SHARE", help="Differences up to this are not worth having.  [default: 2%]"),
)


@click.command("hugepages", short_help="What do larger pages of shared memory buy?")
@database_options(
    _OWN,
    without=frozenset({"repeats", "huge_pages"}),
    vcpus="half of the cores",
    memory="what there is, at most 8GB",
    repeats="",
    seconds="4s",
    ramp="2s",
    budget="6m50s",
    state="restarted; fresh for what writes",
)
def command(dry_run: bool, write_scenario: Path | None, no_report: bool, runs: Path, as_json: bool, **given: Any) -> int:
    """Compare one server on ordinary pages, on reserved huge pages of the sizes that the kernel has, and on transparent
    huge pages (experiment E9). Pages are reserved for the time of a trial, and given back; that needs root.

    \b
    pgherd hugepages                          all kinds of pages, in under eight minutes
    pgherd hugepages --dry-run                what that would do
    pgherd hugepages --pages none,1GB --scale 500 --set shared_buffers=16GB --seconds 60s --blocks 6 --yes
    """
    from pgherd.cli.launch import launch

    options = given_options(given)
    return launch("hugepages", options, runs=runs, dry_run=dry_run, scenario=write_scenario, report=not no_report, as_json=as_json)
