"""How far a trial of default length is from the long run: the load's first seconds against later ones of the same uninterrupted load.

A density trial has a warm-up of 1 s and a load of 9 s. Here the load goes on, and its seconds after 20 s stand for the long run. Servers
and options are those of `pgherd density`: 10 databases are more than fit on two cores, 5 are below a full host.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command
import outcome
import paired
from outcome import Figure

import pgherd
from pgherd.model.errors import TrialError

FIRST_S, LATER_S = 9, 20
"""Length of a default trial, and the second from which on the load counts as settled."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 12, "trials of each number of databases")
    parser.add_argument("--databases", type=int, nargs="+", default=[5, 10], help="databases that are loaded  [default: 5 10]")
    parser.add_argument("--duration", type=int, default=50, metavar="S", help="seconds of the load  [default: 50]")
    options = parser.parse_args()
    if options.quick:
        options.databases, options.duration = [2], LATER_S + 2
    trials = options.pairs or (2 if options.quick else 12)
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    settings = {"warm-up seconds": 1, "seconds": options.duration}
    raw: list[dict[str, Any]] = []
    for databases in options.databases:
        raw += measured(databases, trials, options.duration, seed)
        made = outcome.Outcome("settling", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
        outcome.store(made, options)  # an interrupted hour is not lost
    outcome.conclude(made, options)


def measured(databases: int, trials: int, seconds: int, seed: int) -> list[dict[str, Any]]:
    """Transactions of all databases by second, in each trial of one run.

    Raises:
        TrialError: the run or a trial failed.
    """
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as name:
        words = ["density", "--databases", str(databases), "--repeats", str(trials), "--warmup", "1s", "--duration", f"{seconds}s"]
        words += ["--time-budget", f"{2 * trials * (seconds + 1)}s", "--seed", str(seed), "--no-report", "--runs-dir", name]
        done = command.pgherd(words)
        if done.returncode not in (0, 1):
            raise TrialError(f"pgherd density ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        results = pgherd.open_run(next(Path(name).glob("*/run.json")).parent).results
    rows = []
    for result in results:
        if result.error:
            raise TrialError(f"a trial failed: {result.error}")
        (phase,) = result.phases
        series = [sum(second) for second in zip(*(target.per_second for target in phase.targets), strict=False)]
        if len(phase.targets) == databases and len(series) > LATER_S:
            rows.append({"databases": databases, "tainted": result.tainted, "by second": series})
            first, later = parts(series)
            outcome.say(f"{databases} databases, {len(rows)}: first {FIRST_S} s {first:,.0f} tps, after {LATER_S} s {later:,.0f} tps")
    return rows


def parts(series: Sequence[float]) -> tuple[float, float]:
    """Mean throughput of a default trial's seconds, and of the settled ones."""
    return statistics.fmean(series[:FIRST_S]), statistics.fmean(series[LATER_S:])


def figures(raw: Sequence[dict[str, Any]]) -> list[Figure]:
    """The ratio of each number of databases. It has no goal: it is the bias that docs/explanation/method.md names."""
    made = []
    for databases in sorted({row["databases"] for row in raw}):
        pairs = [parts(row["by second"]) for row in raw if row["databases"] == databases]
        ratio = paired.ratio([first for first, _ in pairs], [later for _, later in pairs])
        made.append(Figure.of(f"throughput of {databases} databases, first {FIRST_S} s ÷ after {LATER_S} s", "", ratio))
    return made


if __name__ == "__main__":
    outcome.run(main)
