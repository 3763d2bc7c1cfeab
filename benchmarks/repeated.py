"""Whether what `pgherd show RUN TRIAL --repro-script` prints repeats the trial: throughput of the script against pgherd's own trial.

Each pair is a whole `pgherd density` of one trial, and a whole run of the script that was made from a first such trial: each deploys its
databases anew, loads them for the same time, and takes all back.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import command
import outcome
import paired
from outcome import Figure

from pgherd.model.errors import TrialError

LOW, HIGH = 0.95, 1.05
SUM = re.compile(r"^sum: ([0-9.]+) tps$", re.MULTILINE)


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 20, "pairs of each number of databases")
    parser.add_argument("--databases", type=int, nargs="+", default=[1, 8, 10], help="databases of the trial  [default: 1 8 10]")
    parser.add_argument("--duration", type=float, default=9.0, help="length of each load  [default: 9]")
    parser.add_argument("--more", action="store_true", help="add to the pairs of the last result, which had the same settings")
    options = parser.parse_args()
    if options.quick:
        options.databases, options.duration = [2], 2.0
    pairs = options.pairs or (2 if options.quick else 20)
    seed = outcome.seed_of(options)
    settings = {"seconds": options.duration}
    raw = outcome.blocks_before("repeated", options, settings) if options.more else []
    before = outcome.cpu_seconds()

    def made() -> outcome.Outcome:
        return outcome.Outcome("repeated", options.quick, seed, settings, figures(raw, options.quick), raw, outcome.noise_since(before))

    for databases in options.databases:
        with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as name:
            place = Path(name)
            words = ["density", "--databases", str(databases), "--repeats", "1", "--duration", f"{options.duration:g}s", "--warmup", "2s"]
            words += ["--time-budget", "1s", "--no-report", "--runs-dir", name]
            measured(place, words)  # its template is made once, as a script's files are: neither is in the load
            script = place / "repeat.sh"
            script.write_text(said(["show", "last", "1", "--repro-script", "--runs-dir", name]))

            def note(number: int, pair: dict[str, float], databases: int = databases) -> bool:
                raw.append({"databases": databases, **pair})
                outcome.say(f"{databases} databases, {number}: " + ", ".join(f"{side} {rate:,.0f} tps" for side, rate in pair.items()))
                if number >= paired.FEW:
                    outcome.store(made(), options)  # an interrupted hour is not lost
                return False

            sides = {"script": partial(repeated, script), "pgherd": partial(measured, place, words)}
            paired.run_blocks(pairs, random.Random(seed), sides, note)
    outcome.conclude(made(), options)


def figures(raw: list[dict[str, Any]], quick: bool) -> list[Figure]:
    """The ratio of each number of databases, which is to lie near 1 with its whole interval."""
    result = []
    for databases in sorted({row["databases"] for row in raw}):
        rows = [row for row in raw if row["databases"] == databases]
        ratio = paired.ratio([row["script"] for row in rows], [row["pgherd"] for row in rows])
        goal = ("", None) if quick else (f"{LOW:g} to {HIGH:g}", outcome.met(ratio, least=LOW, most=HIGH))
        result.append(Figure.of(f"throughput of {databases} databases, the printed script ÷ pgherd", "", ratio, *goal))
    return result


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
