"""What the presence of pgherd costs loads that run: the same pgbench, second by second with pgherd at work and without it.

A trial is played as any other: pgbench in each server's container, sampling at 1 Hz (files, and SQL to the servers), live
progress on a terminal. By slices of whole seconds, pairs in random order, the whole of pgherd is stopped (SIGSTOP) and
continued (SIGCONT); while it is stopped, what runs is pgbench bare against the same servers. So both sides share the
servers, pgbench and its connections, and differ in nothing but pgherd; throughput.py, which starts pgbench anew for
each side, sees five times the spread.

By default the host is full, as at the last points of a default density run: pgherd has no CPU of its own there, and the
load never stops between slices. ``--databases 1 --vcpus 1`` leaves pgherd a CPU.

Slices change when the first pgbench writes its line for a second; all begin together, and these lines count the transactions. A
slice with pgherd at work begins with a sample at once, so that two seconds hold two or three samples: a little more than 1 Hz.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import deployed
import outcome
import paired
from outcome import Figure
from throughput import load_on

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import PgherdError
from pgherd.runner.execute import phases
from pgherd.runner.progress import RunObserver

_PROGRESS = re.compile(r"^progress: ([\d.]+) s, ([\d.]+) tps", re.MULTILINE)
_BEGIN = 3
"""Seconds at the beginning of each run that are not counted: connections, caches, the ramp-up's own work of pgherd."""
_PATIENCE = 30.0
LEAST, MOST = 0.99, 1.01
"""Goal of the ratio. A load that is faster while pgherd works is disturbed as well."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 450, "pairs of slices")
    parser.add_argument("--slice", type=int, default=2, metavar="S", help="seconds of a slice  [default: 2]")
    parser.add_argument("--run", type=int, default=25, metavar="N", help="pairs in one run of pgbench  [default: 25]")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale  [default: 10]")
    parser.add_argument("--databases", type=int, default=10, help="databases that are loaded at once  [default: 10]")
    parser.add_argument("--vcpus", type=float, default=0.25, help="each database's share of CPU  [default: 0.25]")
    parser.add_argument("--clients", type=int, default=2, help="clients  [default: 2]")
    parser.add_argument("--more", action="store_true", help="add to the pairs of the last result, which had the same settings")
    options = parser.parse_args()
    pairs = options.pairs or (6 if options.quick else 450)
    if options.quick:
        options.slice, options.scale, options.databases = 1, 1, 2
    seed = outcome.seed_of(options)
    rng = random.Random(seed)
    runs = [[rng.random() < 0.5 for _ in range(min(options.run, pairs - begun))] for begun in range(0, pairs, options.run)]
    plans = [[present for first in run for present in sides(options.slice, first)] for run in runs]
    before = outcome.cpu_seconds()
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(hear)
        _end(_played(options, plans, os.fdopen(tell, "w", buffering=1)))
    os.close(tell)
    raw: list[dict[str, Any]] = []
    try:
        with os.fdopen(hear) as told:
            settings = json.loads(told.readline() or "null")
            if settings is None:
                raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            if options.more:
                raw += outcome.blocks_before("presence", options, settings)
            for plan in plans:
                cpu = _slices(pid, Path(json.loads(told.readline())), plan)
                counted = together([seconds(said) for said in json.loads(told.readline())])[_BEGIN : _BEGIN + len(plan)]
                raw += _paired(counted, plan, cpu, options.slice)
                ratio = paired.ratio([pair["present"] for pair in raw], [pair["absent"] for pair in raw])
                if ratio.low is not None and ratio.high is not None:
                    outcome.say(f"{len(raw)} pairs: at work ÷ stopped {ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f})")
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGCONT)
            os.waitpid(pid, 0)
    result = outcome.Outcome("presence", options.quick, seed, settings, figures(raw, options.slice), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def sides(length: int, first: bool) -> tuple[bool, ...]:
    """A pair's seconds: whether pgherd is at work in each; ``first``: in the first half."""
    return (first,) * length + (not first,) * length


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _played(options: argparse.Namespace, plans: list[list[bool]], tell: TextIO) -> int:
    """All of pgherd, in a process of its own: it deploys, and plays a trial for each plan. Tells the settings, and of each
    trial where pgbench writes its progress and, afterwards, what it wrote there. Returns an exit code."""

    def say(thing: object) -> None:
        tell.write(json.dumps(thing) + "\n")

    node = deployed.CountedNode()
    asked = {
        "databases": (options.databases,),
        "scale": options.scale,
        "vcpus": options.vcpus,
        "cpu_mode": "cpuset" if options.vcpus.is_integer() else "quota",
        "clients": options.clients,
    }
    try:
        with deployed.deployed(node, RunObserver(), seed=1, **asked) as up, deployed.watcher() as progress:
            say({"slice seconds": options.slice, "databases": options.databases, **up.settings()})
            progress.planned(len(plans), sum(map(len, plans)))
            for number, plan in enumerate(plans, 1):
                targets = up.targets()
                scratch = up.fleet.scratch / f"trial-{number}"
                node.make_dir(str(scratch), mode=0o711)
                trial = up.trial(dict.fromkeys(targets, load_on(up)), ramp=0.0, seconds=_BEGIN + len(plan) + 2.0)
                progress.trial(trial, number)
                say(str(scratch / "00" / targets[0].replace("/", ".") / "stderr"))
                with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
                    phases.run(node, trial, up.fleet, Path(directory), scratch, progress, up.fleet.watched)
                    say([file.read_text() for file in Path(directory).glob("drivers/*/*/stderr")])
                shutil.rmtree(scratch)
    except KeyboardInterrupt:
        return 130
    except PgherdError as error:
        print(f"presence: {error}", file=sys.stderr)
        return error.exit_code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _slices(pid: int, progress: Path, plan: list[bool]) -> list[float]:
    """Stop and continue pgherd as planned, at each line of progress; its CPU seconds by each second of the plan."""
    used = []
    for number in range(_BEGIN, _BEGIN + len(plan) + 1):
        _await(progress, number)
        used.append(deployed.process_cpu(pid))
        present = plan[number - _BEGIN] if number < _BEGIN + len(plan) else True
        os.kill(pid, signal.SIGCONT if present else signal.SIGSTOP)
    return [after - before for before, after in pairwise(used)]


def _await(progress: Path, lines: int) -> None:
    """Wait until pgbench has written so many lines of progress."""
    until = time.monotonic() + _PATIENCE + lines
    while not progress.exists() or len(_PROGRESS.findall(progress.read_text())) < lines:
        assert time.monotonic() < until, f"pgbench wrote no {lines} lines of progress"
        time.sleep(0.005)


def seconds(said: str) -> list[tuple[float, float]]:
    """Of each line of progress: the seconds since the one before it, and transactions per second."""
    lines = [(float(line[1]), float(line[2])) for line in _PROGRESS.finditer(said)]
    starts = [lines[0][0] - 1.0, *(at for at, _ in lines)]
    return [(at - begun, tps) for (at, tps), begun in zip(lines, starts, strict=False)]


def together(drivers: Sequence[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Of each line number: the first driver's seconds, and the rates of all drivers added up."""
    return [(lines[0][0], sum(tps for _, tps in lines)) for lines in zip(*drivers, strict=False)]


def _paired(counted: list[tuple[float, float]], plan: list[bool], cpu: list[float], length: int) -> Iterator[dict[str, float]]:
    for start in range(0, len(plan), 2 * length):
        found: dict[str, float] = {}
        for side, wanted in (("present", True), ("absent", False)):
            chosen = [index for index in range(start, start + 2 * length) if plan[index] is wanted]
            lasted = sum(counted[index][0] for index in chosen)
            found[side] = sum(counted[index][0] * counted[index][1] for index in chosen) / lasted
            found[f"pgherd CPU {side}"] = sum(cpu[index] for index in chosen) / lasted
        yield found | {"present first": float(plan[start])}


def figures(raw: list[dict[str, Any]], length: int) -> list[Figure]:
    """The ratio, so that 1 means no disturbance in either direction; and that the sides were what they are called."""
    found = paired.ratio([pair["present"] for pair in raw], [pair["absent"] for pair in raw])
    met = outcome.met(found, least=LEAST, most=MOST)
    goal, note = f"{LEAST:g} to {MOST:g}", f"pairs of {length} s within running loads"
    made = [Figure.of("throughput, pgherd at work ÷ stopped", "", found, goal, met, note)]
    for side, name in (("present", "at work"), ("absent", "stopped")):
        used = mean_interval([100 * pair[f"pgherd CPU {side}"] for pair in raw])
        made.append(Figure.of(f"pgherd's own process, {name}", "% of a core", used))
    return made


if __name__ == "__main__":
    outcome.run(main)
