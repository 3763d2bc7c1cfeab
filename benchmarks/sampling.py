"""What pgherd uses of the CPU while it watches: its own process and its sampling backends, at 1 Hz, with 8 and with 40 databases.

All databases are up under a light open load (a driver of each is watched too), and trials are played as any other, with
live progress on a terminal. Two ways to see it: the trial's own metrics ('pgherd' and 'backend:…', from /proc/PID/stat,
which a report shows), and the CPU-time clocks of the same processes, read just before and after the measured time.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import deployed
import outcome
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.load import Load
from pgherd.runner.execute import phases

GOALS = {8: 1.0, 40: 3.0}
"""Databases → per cent of one core."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 5, "trials with each number of databases")
    parser.add_argument("--duration", type=float, default=20.0, help="measured time of each trial  [default: 20]")
    parser.add_argument("--rate", type=float, default=5.0, help="transactions per second of each database  [default: 5]")
    parser.add_argument("--databases", type=int, nargs="+", metavar="N", help="numbers of databases  [default: 8 40; --quick: 3 8]")
    options = parser.parse_args()
    trials = options.pairs or (2 if options.quick else 5)
    seconds = 5.0 if options.quick else options.duration
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    settings: dict[str, Any] = {"seconds": seconds, "rate": options.rate, "scale": 1, "period": 1.0}
    before = outcome.cpu_seconds()
    for databases in options.databases or ([3, 8] if options.quick else list(GOALS)):
        node = deployed.CountedNode()
        asked = {"databases": (databases,), "scale": 1, "clients": 1, "rate": options.rate, "seed": 1}
        with deployed.watcher() as progress, deployed.deployed(node, progress, **asked) as up:
            settings |= {"postgres": up.options.pg_version, "runtime": up.options.runtime}
            for number in range(-1, trials):
                found = trial(up, node, seconds, progress)
                if number < 0:
                    continue  # connects the sampling backends, which stay
                raw.append({"databases": databases, **found})
                outcome.say(
                    f"{databases} databases: pgherd {found['pgherd']:.2f} %, backends {found['backends']:.2f} % of a core by its metrics; "
                    f"{found['pgherd by clock']:.2f} % and {found['backends by clock']:.2f} % by the clocks"
                )
    result = outcome.Outcome("sampling", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def trial(up: deployed.Deployed, node: deployed.CountedNode, seconds: float, progress: Any) -> dict[str, float]:
    """One trial; everything in per cent of one core, but the CPU beside the measured time, which is in seconds."""
    load = Load(scripts=up.options.scripts, rate=up.options.rate, sampling=up.options.sampling)
    one = up.trial(dict.fromkeys(up.targets(), load), ramp=1.0, seconds=seconds)
    scratch = up.fleet.scratch / "trial"
    node.make_dir(str(scratch), mode=0o711)
    begins = node.used()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory, _noted(progress, node) as started:
        played, _ = phases.run(node, one, up.fleet, Path(directory), scratch, progress, up.fleet.watched)
    ends = node.used()
    shutil.rmtree(scratch)
    assert started and node.over is not None
    wall = node.over.at - started[0].at
    metrics = played[0].metrics
    return {
        "pgherd": 100 * metrics["pgherd"]["cpu.usage"],
        "backends": 100 * sum(found["cpu.usage"] for entity, found in metrics.items() if entity.startswith("backend:")),
        "pgherd by clock": 100 * (node.over.own - started[0].own) / wall,
        "backends by clock": 100 * (node.over.backends - started[0].backends) / wall,
        "CPU s before and after": (ends.own - begins.own) - (node.over.own - started[0].own),
        "s after": ends.at - node.over.at,
    }


class _noted:
    """Notes what has been used when the phase's drivers have been started."""

    def __init__(self, progress: Any, node: deployed.CountedNode) -> None:
        self._progress, self._node = progress, node
        self._notes: list[deployed.Used] = []

    def __enter__(self) -> list[deployed.Used]:
        self._progress.phase = lambda *_: self._notes.append(self._node.used())
        return self._notes

    def __exit__(self, *_: object) -> None:
        del self._progress.phase


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """Own CPU and its parts by number of databases."""
    made = []
    for databases in sorted({row["databases"] for row in raw}):
        rows = [row for row in raw if row["databases"] == databases]
        goal = GOALS.get(databases)
        metrics = mean_interval([row["pgherd"] + row["backends"] for row in rows])
        clocks = mean_interval([row["pgherd by clock"] + row["backends by clock"] for row in rows])
        own = mean_interval([row["pgherd by clock"] for row in rows])
        told = f"≤ {goal:g} %" if goal else ""
        unit, each = "% of a core", f"{databases} databases"
        made += [
            Figure.of(f"{each}, by CPU clocks", unit, clocks, told, outcome.met(clocks, most=goal) if goal else None),
            Figure.of(f"{each}, by the trial's metrics", unit, metrics, told, outcome.met(metrics, most=goal) if goal else None),
            Figure.of(f"{each}, pgherd's process alone", unit, own, note="by its CPU clock"),
            Figure.of(
                f"{each}, beside the measured time", "CPU s per trial", mean_interval([row["CPU s before and after"] for row in rows])
            ),
        ]
    return made


if __name__ == "__main__":
    outcome.run(main)
