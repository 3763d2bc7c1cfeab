"""How much of a default ``pgherd density`` is spent measuring, and how long it takes in all.

Runs it once, or takes a run that is there: measuring.py [RUN-DIRECTORY]. Set-up is what comes before the first trial's
load (golden copy, copies, starts, warming); measured are the windows that the numbers come from.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import outcome
from outcome import Figure

from pgherd.host import paths
from pgherd.model.errors import TrialError
from pgherd.store.run_directory import RunDirectory

SHARE, TOTAL = 0.8, 300.0
QUICK = ["--points", "1,2", "--repeats", "1", "--seconds", "4s", "--scale", "1", "--budget", "20s"]


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 1, "runs (there are no pairs)")
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN-DIRECTORY", help="take this run instead of making one")
    options = parser.parse_args()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    for number in range(1 if options.run else options.pairs or 1):
        if options.run:
            raw.append(taken(RunDirectory(options.run), None, first=False))
        else:
            with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as runs:
                raw.append(made(Path(runs), QUICK if options.quick else []))
        outcome.say(f"run {number + 1}: {', '.join(f'{name} {value:.3g}' for name, value in raw[-1].items())}")
    settings = {"arguments": QUICK if options.quick else [], "an earlier run": options.run is not None}
    result = outcome.Outcome("measuring", options.quick, 0, settings, figures(raw, options.quick), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def made(runs: Path, arguments: list[str]) -> dict[str, float]:
    """A run by the command line, with its wall clock."""
    copies = copies_there()
    began = time.time()
    command = [sys.executable, "-m", "pgherd", "density", "--runs", str(runs), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    ended = time.time()
    if done.returncode not in (0, 1):  # 1: finished, but with grade C
        raise TrialError(f"pgherd density ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    return taken(RunDirectory.all(runs)[-1], (began, ended), copies_there() != copies)


def copies_there() -> set[str]:
    """The golden copies that have been made."""
    try:
        return {name for name in os.listdir(paths.cache_dir() / "golden") if not name.startswith(".")}
    except FileNotFoundError:
        return set()


def taken(run: RunDirectory, command: tuple[float, float] | None, first: bool) -> dict[str, float]:
    """What a run says of its time, and the same counted anew from its trials. ``command``: when it began and ended."""
    record = run.record()
    trials = [result for result in run.results() if result.phases]
    if not trials or record.ended is None:
        raise TrialError(f"run {run.name} has no finished trial, or has not ended; it says nothing of its time")
    begin = trials[0].phases[0].start - trials[0].trial.phases[0].ramp
    measured = sum(phase.seconds for result in trials for phase in result.phases)
    ramps = sum(phase.ramp for result in trials for phase in result.trial.phases)
    last = trials[-1].ended
    began, ended = command or (record.started, record.ended)
    return {
        "trials": len(trials),
        "measured s": measured,
        "ramps s": ramps,
        "between trials s": last - begin - measured - ramps,
        "before the first load s": begin - began,
        "after the last trial s": ended - last,
        "total s": ended - began,
        "share by run.json": record.timing["measured"] / record.timing["wall"],
        "share by its trials": measured / (last - begin),
        "share with analysis and report": measured / (ended - begin),
        "golden copy made": float(first),
    }


def figures(raw: list[dict[str, Any]], quick: bool) -> list[Figure]:
    """Shares and seconds; of several runs the worst."""

    def figure(name: str, unit: str = "", *, least: bool = False, goal: str = "", limit: float = 0.0, note: str = "") -> Figure:
        values = [row[name] for row in raw]
        value = min(values) if least else max(values)
        met = None if not goal else value >= limit if least else value <= limit
        return Figure(name, value, unit, n=len(raw), method="the worst run" if len(raw) > 1 else "one run", goal=goal, met=met, note=note)

    share = "" if quick else f"≥ {SHARE:.0%} of the time after set-up"
    return [
        figure("share by run.json", least=True, goal=share, limit=SHARE),
        figure("share by its trials", least=True, goal=share, limit=SHARE, note="the same, counted from the trials' own instants"),
        figure("share with analysis and report", least=True, note="of the time from the first load to the end of the command"),
        figure(
            "total s",
            "s",
            goal="" if quick else f"≤ {TOTAL:g} s",
            limit=TOTAL,
            note="the golden copy was made in it" if any(row["golden copy made"] for row in raw) else "the golden copy was there",
        ),
        *(
            figure(name, unit)
            for name, unit in (("before the first load s", "s"), ("between trials s", "s"), ("after the last trial s", "s"), ("trials", ""))
        ),
    ]


if __name__ == "__main__":
    outcome.run(main)
