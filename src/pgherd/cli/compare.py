"""``pgherd compare``: which variant is faster, by how much, and is that sure?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from pgherd.cli.database_options import database_options
from pgherd.cli.study_options import COMPARED, run_study

_OWN = (
    click.argument("scenarios", nargs=-1, type=click.Path(dir_okay=False, path_type=Path)),
    click.option(
        "--variant",
        multiple=True,
        metavar="NAME:KEY=VALUE,…",
        help="What is compared; the first is the baseline. A key is an option (vcpus, pg-bin, protocol, …) or a setting.",
    ),
    click.option(
        "--arms",
        "arrangement",
        type=click.Choice(["side-by-side", "one-at-a-time"]),
        help="All variants' servers up at once, loaded by turns, or one up at a time.  [default: side by side where honest]",
    ),
    click.option("--clients", type=int, help="Clients of the database.  [default: two per vCPU, at least 2]"),
    *COMPARED,
)


@click.command("compare", short_help="Which variant is faster, by how much, and is that sure?")
@database_options(
    _OWN,
    without=frozenset({"repeats"}),
    vcpus="half of the cores",
    memory="what there is, at most 8GB",
    repeats="",
    seconds="2.5s of each side by side, else 5s; 8s for fresh, 3s for warm servers",
    ramp="0.3s side by side, else 0.5s",
    budget="4m20s for two variants",
    state="warm side by side, else restarted; fresh for what writes",
    such=", such as p95 or cpu_per_tx",
    blocks="Blocks at most: every variant once, the baseline twice.  [default: by --budget]",
    until="  [default: until sure]",
    equivalence="2%",
)
def command(scenarios: tuple[Path, ...], **given: Any) -> int:
    """Compare two or more variants of a server, or scenario files of any study that compares nothing itself: trials in shuffled
    blocks, ratios block by block, and the baseline against itself beside them. One --variant alone is compared with the request
    without changes.

    \b
    pgherd compare --variant big:shared_buffers=1GB
    pgherd compare --variant old:pg-version=15 --variant new:pg-version=18 --metric p95
    pgherd compare before.yaml after.yaml --precision 2%
    pgherd compare --cluster mine --variant big:shared_buffers=1GB     blocks in turn on the hosts of a cluster
    """
    return run_study("compare", given, **({"arms": _arms(scenarios)} if scenarios else {}))


def _arms(files: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Scenario files as arms, each under its file's name."""
    from pgherd.cli.scenarios import read_scenario

    found = []
    for file in files:
        scenario = read_scenario(file)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).strip("-.")[:40] or "scenario"
        found.append({"name": name, "study": scenario.study, "options": scenario.options})
    return found
