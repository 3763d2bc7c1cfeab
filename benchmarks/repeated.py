"""Whether what `pgherd show RUN TRIAL --repro-script` prints repeats the trial: throughput of the script against pgherd's own trial.

Each pair is a whole `pgherd density` of one trial, and a whole run of the script that was made from a first such trial: each deploys its
databases anew, loads them for the same time, and takes all back.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import command
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import Estimate
from pgherd.model.errors import TrialError

LOW, HIGH = 0.95, 1.05
SUM = re.compile(r"^sum: ([0-9.]+) tps$", re.MULTILINE)


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "pairs")
    parser.add_argument("--databases", type=int, default=2, help="databases of the trial  [default: 2]")
    parser.add_argument("--duration", type=float, help="length of each load  [default: 10; --quick: 2]")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 20)
    seconds = options.duration or (2.0 if options.quick else 10.0)
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as name:
        place = Path(name)
        words = ["density", "--databases", str(options.databases), "--duration", f"{seconds:g}s", "--warmup", "2s", "--time-budget", "1s"]
        words += ["--no-report", "--runs-dir", name]
        measured(place, words)  # its golden copy is made once, as a script's files are: neither is in the load
        script = place / "repeat.sh"
        script.write_text(said(["show", "last", "1", "--repro-script", "--runs-dir", name]))

        def note(number: int, pair: dict[str, float]) -> bool:
            raw.append(dict(pair))
            outcome.say(f"{number}: " + ", ".join(f"{side} {rate:,.0f} tps" for side, rate in pair.items()))
            return False

        sides = {"script": lambda: repeated(script), "pgherd": lambda: measured(place, words)}
        paired.run_blocks(pairs, random.Random(seed), sides, note)
    settings = {"databases": options.databases, "seconds": seconds}
    ratio = paired.ratio([row["script"] for row in raw], [row["pgherd"] for row in raw])
    figures = [figure(ratio, options.quick)]
    outcome.conclude(outcome.Outcome("repeated", options.quick, seed, settings, figures, raw, outcome.noise_since(before)), options)


def figure(ratio: Estimate, quick: bool) -> Figure:
    """The ratio, which is to lie near 1 with its whole interval."""
    goal = ("", None) if quick else (f"{LOW:g} to {HIGH:g}", outcome.met(ratio, least=LOW, most=HIGH))
    return Figure.of("throughput, the printed script ÷ pgherd", "", ratio, *goal)


def said(words: list[str]) -> str:
    """What a verb printed. Raises TrialError where it failed."""
    done = command.pgherd(words)
    if done.returncode not in (0, 1):
        raise TrialError(f"pgherd {words[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def measured(place: Path, words: list[str]) -> float:
    """Transactions per second of all databases together in the first trial of a run."""
    said(words)
    run = max(place.glob("*/run.json"), key=lambda file: file.stat().st_mtime).parent
    trial = json.loads((run / "trials/0001/trial.json").read_text())
    if trial["error"]:
        raise TrialError(f"the trial failed: {trial['error']}")
    return sum(target["throughput"] for phase in trial["phases"] for target in phase["targets"])


def repeated(script: Path) -> float:
    """Transactions per second of all databases together by the script. Raises TrialError where it failed."""
    done = command.to_its_end(["sh", str(script)])
    found = SUM.search(done.stdout)
    if done.returncode != 0 or not found:
        raise TrialError(f"the script ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return float(found[1])


if __name__ == "__main__":
    outcome.run(main)
