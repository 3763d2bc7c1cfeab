"""How much of a default study is spent measuring, and how long it takes in all: density, scaling, compare, hugepages.

Runs each once, or says it of a run that is there: measuring.py [RUN-DIRECTORY]. What the last result says of other studies stays. Set-up is
what comes before the first trial's load (template, copies, starts, warming); measured are the windows that the numbers come
from. What could end sooner because enough is known is told to be sure of nothing, so that each takes as long as a default run ever does.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import outcome
from outcome import Figure

from pgherd.host import paths
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.store.run_directory import RunDirectory

NEVER_SURE = ("--precision", "0.01%")
SAME = ("--variant", "same:vacuum_cost_limit=300", *NEVER_SURE)


@dataclass(frozen=True)
class Kind:
    """A command in its defaults, the share of the time after set-up that it is to measure (None: no goal), the most seconds that it may
    take (None: no goal), and how it is made short."""

    words: tuple[str, ...]
    share: float | None
    total: float | None
    quick: tuple[str, ...]


SMALL = ("--scale", "1", "--duration", "4s")
KINDS = {
    "density": Kind(("density",), 0.8, 300, (*SMALL, "--databases", "1,2", "--repeats", "1", "--time-budget", "20s")),
    "scaling": Kind(("scaling",), None, 300, (*SMALL, "--clients", "1,2", "--repeats", "1", "--time-budget", "15s")),
    "compare": Kind(("compare", *SAME), 0.7, 300, (*SMALL, "--time-budget", "20s")),
    "compare, one at a time": Kind(("compare", *SAME, "--interleave", "trials"), 0.7, 300, (*SMALL, "--time-budget", "20s")),
    "hugepages": Kind(("hugepages", "--yes", *NEVER_SURE), 0.7, 480, (*SMALL, "--page-sizes", "none,2MB", "--time-budget", "20s")),
}
"""What is measured, by name. One at a time, a comparison restarts a server before every trial; side by side, all before every block."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 1, "runs of each (there are no pairs)")
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN-DIRECTORY", help="say it of this run instead; written only with --out")
    parser.add_argument("--study", action="append", choices=KINDS, help="only this one; may be given several times  [default: all]")
    options = parser.parse_args()
    made: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    if options.run:
        earlier(options, before)
        return
    for kind in options.study or KINDS:
        for number in range(options.pairs or 1):
            with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as runs:
                row = measured(Path(runs), [*KINDS[kind].words, *(KINDS[kind].quick if options.quick else ())])
            made.append({"study": kind, "date": day(time.time()), **row})
            outcome.say(f"{kind} {number + 1}: {', '.join(f'{name} {value:.3g}' for name, value in row.items())}")
            outcome.store(result(options, made, before), options)  # what ends the next one does not lose this
    outcome.conclude(result(options, made, before), options)


def earlier(options: argparse.Namespace, before: dict[str, float]) -> None:
    """Print what a run that is there says, whatever its options were: no goal is held against it, and no result changes by it."""
    run = RunDirectory(options.run)
    record = run.record()
    row = {"study": f"{record.study}, an earlier run", "date": day(record.started), **taken(run, None, None)}
    found = result(options, [row], before)
    if options.out:
        outcome.conclude(found, options)
    else:
        outcome.show(found.figures)
        print("\nnothing written; --out FILE keeps it")


def result(options: argparse.Namespace, made: Sequence[dict[str, Any]], before: dict[str, float]) -> outcome.Outcome:
    """What was measured now, beside what the last result says of other studies."""
    settings = {"an earlier run": options.run is not None, "commands": {kind: " ".join(one.words) for kind, one in KINDS.items()}}
    raw = [*others(options, {row["study"] for row in made}), *made]
    return outcome.Outcome("measuring", options.quick, 0, settings, figures(raw, options.quick), raw, outcome.noise_since(before))


def day(instant: float) -> str:
    """The day of a row: a result may hold studies of several days. ``instant`` is in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.gmtime(instant))


def others(options: argparse.Namespace, again: Collection[str]) -> list[dict[str, Any]]:
    """What the last result says of studies that were not measured now."""
    file = options.out or outcome.RESULTS / "measuring.json"
    if options.quick or (options.run and not options.out) or not file.is_file():
        return []
    return [row for row in json.loads(file.read_text())["raw"] if row["study"] not in again]


def measured(runs: Path, words: Sequence[str]) -> dict[str, float]:
    """A run by the command line, with its wall clock."""
    copies = copies_there()
    began = time.time()
    done = command.pgherd([*words, "--runs-dir", str(runs)])
    ended = time.time()
    if done.returncode not in (0, 1):  # 1: finished, but with grade C
        raised = CapabilityError if done.returncode == CapabilityError.exit_code else TrialError
        raise raised(f"pgherd {words[0]} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    return taken(RunDirectory.all(runs)[-1], (began, ended), copies_there() != copies)


def copies_there() -> set[str]:
    """The templates that have been made."""
    try:
        return {name for name in os.listdir(paths.cache_dir() / "golden") if not name.startswith(".")}
    except FileNotFoundError:
        return set()


def taken(run: RunDirectory, called: tuple[float, float] | None, first: bool | None) -> dict[str, float]:
    """What a run says of its time, and the same counted anew from its trials. ``called``: when the command began and
    ended; ``first``: whether the template was made in it (None: not known)."""
    record = run.record()
    trials = [result for result in run.results() if result.phases]
    if not trials or record.ended is None:
        raise TrialError(f"run {run.name} has no finished trial, or has not ended; it says nothing of its time")
    begin = trials[0].phases[0].start - trials[0].trial.phases[0].warmup
    measured = sum(phase.seconds for result in trials for phase in result.phases)
    ramps = sum(phase.warmup for result in trials for phase in result.trial.phases)
    last = trials[-1].ended
    began, ended = called or (record.started, record.ended)
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
    } | ({} if first is None else {"template made": float(first)})


def figures(raw: Sequence[dict[str, Any]], quick: bool) -> list[Figure]:
    """Shares and seconds of each study; of several runs the worst."""
    names = sorted({row["study"] for row in raw}, key=lambda name: ([*KINDS, name].index(name), name))
    return [figure for name in names for figure in _of(name, [row for row in raw if row["study"] == name], quick)]


def _of(study: str, rows: Sequence[dict[str, Any]], quick: bool) -> list[Figure]:
    kind = KINDS.get(study, Kind((), None, None, ()))

    def figure(name: str, unit: str = "", *, least: bool = False, limit: float | None = None, note: str = "") -> Figure:
        values = [row[name] for row in rows]
        value = min(values) if least else max(values)
        goal = "" if limit is None or quick else f"≥ {limit:.0%} of the time after set-up" if least else f"≤ {limit:g} s"
        met = None if not goal or limit is None else value >= limit if least else value <= limit
        method = "the worst run" if len(rows) > 1 else "one run"
        return Figure(f"{study}: {name}", value, unit, n=len(rows), method=method, goal=goal, met=met, note=note)

    made = [row["template made"] for row in rows if "template made" in row]
    copied = (
        "the template was made in it"
        if any(made)
        else "the template was there"
        if made
        else "whether a template was made in it is not known"
    )
    return [
        figure("share by run.json", least=True, limit=kind.share),
        figure("share by its trials", least=True, limit=kind.share, note="the same, counted from the trials' own instants"),
        figure("share with analysis and report", least=True, note="of the time from the first load to the end of the command"),
        figure("total s", "s", limit=kind.total, note=copied),
        *(
            figure(name, unit)
            for name, unit in (("before the first load s", "s"), ("between trials s", "s"), ("after the last trial s", "s"), ("trials", ""))
        ),
    ]


if __name__ == "__main__":
    outcome.run(main)
