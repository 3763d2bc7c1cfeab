"""The constants of pg_balloon's controller that matter in the simulation, each halved and doubled on two real servers.

controller_constants.py simulates all of them. Here pg_balloon is built with each change of those that have an effect there. Each block runs
the controller as shipped and every change in one cell of balloon_grid.py, in a random order (each order is followed by its reverse). A run
takes 70 seconds, so a block of six constants takes a quarter of an hour. Each block is written as it ends.

Needs root, control groups and zram.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import outcome
import paired
from balloon_grid import DATA
from balloon_pair import MB, Cell, Pair, place_for, swap
from controller_constants import CONSTANTS, FACTORS, SHIPPED, changed
from outcome import Figure

from pgherd.model.errors import TrialError
from pgherd.postgres import pg_balloon
from pgherd.postgres.pg_balloon import BalloonLibrary

RATE = 30
"""Percentage by which the memory is overcommitted: the balloon is held to most goals there."""
POOL_SHARE, CLIENTS = 0.75, 6
MEASURED = {"tps": "throughput", "p99 ms": "p99", "half after s": "time to half of the throughput"}
"""Column of a run → its name in the figures."""


def main() -> None:
    """Build, measure, print, write."""
    parser = outcome.parser(__doc__, 6, "blocks")
    parser.add_argument(
        "--constant",
        action="append",
        metavar="NAME",
        help="change this constant only (repeatable)  [default: those with a simulated effect]",
    )
    options = parser.parse_args()
    blocks = options.pairs or (1 if options.quick else 6)
    names = options.constant or with_effect()[: 1 if options.quick else None]
    cell = Cell(RATE, phase=4.0) if options.quick else Cell(RATE)
    container, phases = (256 if options.quick else 512) * MB, 1 if options.quick else 2
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    settings = {"cell": str(cell), "container MB": container // MB, "clients": CLIENTS, "phases": phases, "constants": names}
    raw: list[dict[str, Any]] = []

    def so_far() -> outcome.Outcome:
        return outcome.Outcome("controller_constants_real", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))

    with place_for(None) as place:
        pair = Pair(place, "system", container, int(container * DATA), cell.content, CLIENTS)
        try:
            built = libraries(pair, place, names)
            with swap(cell.storage, 4 * container, place) as pair.zram:
                for rows in measured(pair, cell, phases, built, paired.orders(blocks, list(built), random.Random(seed))):
                    raw += rows
                    outcome.store(so_far(), options)
        finally:
            pair.close()
    outcome.conclude(so_far(), options)


def with_effect() -> list[str]:
    """Return the constants with an effect in the last result of the simulation."""
    return list(json.loads((outcome.RESULTS / "controller_constants.json").read_text())["settings"]["effects"])


def libraries(pair: Pair, place: Path, names: Sequence[str]) -> dict[str, BalloonLibrary]:
    """Return pg_balloon as shipped, and built below ``place`` with each change of these constants."""
    shipped, file = pg_balloon.sources(), f"src/{CONSTANTS}"
    made = {SHIPPED: pair.library}
    for name in names:
        for change in FACTORS:
            outcome.say(f"building with {name} {change}")
            content = shipped | {file: changed(shipped[file].decode(), name, change).encode()}
            side = pg_balloon.ensure_balloon(pair.node, pair.installation, str(place), account=pair.account, content=content)
            made[f"{name} {change}"] = side
    return made


def measured(
    pair: Pair, cell: Cell, phases: int, built: Mapping[str, BalloonLibrary], orders: Iterator[Sequence[str]]
) -> Iterator[list[dict[str, Any]]]:
    """Run blocks, and yield the rows of each. Raises TrialError if the balloon's rules do not hold."""
    for block, order in enumerate(orders, 1):
        rows = []
        for side in order:
            pair.library = built[side]
            run = pair.run(cell, int(pair.container * POOL_SHARE), balloon=True, phases=phases)
            if run.broken:
                raise TrialError(f"pg_balloon_check() found {run.broken} buffers that break a rule, with {side}")
            outcome.say(f"block {block}, {side}: {run.throughput:,.0f} tps, p99 {run.p99:.1f} ms")
            row = {"tps": run.throughput, "p99 ms": run.p99, "half after s": fmean(run.half_after), "killed": run.killed}
            rows.append({"block": block, "side": side, **row})
        yield rows


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return each change's measurements, as ratios to those of the controller as shipped in the same block."""
    shipped = {row["block"]: row for row in raw if row["side"] == SHIPPED}
    made = []
    for side in dict.fromkeys(row["side"] for row in raw if row["side"] != SHIPPED):
        rows = [row for row in raw if row["side"] == side]
        for column, name in MEASURED.items():
            ratio = paired.ratio([row[column] for row in rows], [shipped[row["block"]][column] for row in rows])
            made.append(Figure.of(f"{side}: {name} ÷ as shipped", "", ratio))
    return made


if __name__ == "__main__":
    outcome.run(main)
