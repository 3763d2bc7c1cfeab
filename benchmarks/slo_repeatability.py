"""Whether searches by latency objective on one host agree: ten runs of ``pgherd density --rate 300 --slo p99=50ms``, one after another.

The runs are as a user starts them, with the default time budget. Answers agree if they differ by at most one database.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command
import outcome
from outcome import Figure
from repeatability import ends

from pgherd.analysis.intervals import share_interval

RUNS, AGREEING = 10, 9
RATE, OBJECTIVE = 300, "p99=50ms"
MINUTES = 5.0


def main() -> None:
    """Run, print, write."""
    parser = outcome.parser(__doc__, RUNS, "runs")
    parser.add_argument("--more", action="store_true", help="add to the runs that the result already has")
    options = parser.parse_args()
    runs = options.pairs or (2 if options.quick else RUNS)
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    settings: dict[str, Any] = {"rate": RATE, "objective": OBJECTIVE}
    raw = outcome.blocks_before("slo_repeatability", options, settings) if options.more else []
    with tempfile.TemporaryDirectory(prefix="pgherd-slo-") as directory:
        for number in range(1, runs + 1):
            raw.append(measured(Path(directory), seed + number, options.quick))
            row = raw[-1]
            outcome.say(f"{number} of {runs}: {row['answer']} Grade {row['grade']}, {row['seconds']:.0f} s")
            made = outcome.Outcome("slo_repeatability", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
            outcome.store(made, options)  # an interrupted hour is not lost
    outcome.conclude(made, options)


def measured(place: Path, seed: int, quick: bool) -> dict[str, Any]:
    """One run, and its answer."""
    words = ["density", "--rate", str(RATE), "--slo", OBJECTIVE, "--seed", str(seed), "--no-report", "--json"]
    words += ["--databases", "1,2", "--time-budget", "30s", "--min-repeats", "1"] if quick else []
    began = time.monotonic()
    done = command.pgherd([*words, "--runs-dir", str(place / "runs")])
    seconds = time.monotonic() - began
    shutil.rmtree(place / "runs", ignore_errors=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"density ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    document = json.loads(done.stdout)
    return {
        "answer": document["answer"],
        "grade": document["grade"],
        "reason": document["grade_reason"],
        "capacity": ends(document["findings"].get("capacity")),
        "capacity doubled": ends(document["findings"].get("capacity_doubled")),
        "tainted": sum(trial["tainted"] for trial in document["trials"]),
        "trials": len(document["trials"]),
        "seconds": seconds,
    }


def figures(raw: Sequence[dict[str, Any]]) -> list[Figure]:
    """Answers that agree, intervals that hold the median answer, and the longest run. An open answer agrees with none."""
    answers, n = [row["capacity"][0] for row in raw if row["capacity"][0] is not None], len(raw)
    near = agreeing(answers)
    goal, met = f"at least {AGREEING} of {RUNS}", near * RUNS >= AGREEING * n if n >= RUNS else None
    made = [Figure.of("answers within one database of each other", "ratio", share_interval(near, n), goal, met, f"{near} of {n}")]
    if answers:
        middle = statistics.median_low(answers)
        made.append(Figure("median answer", middle, "databases", min(answers), max(answers), len(answers), "range of the answers"))
        bounded = [row["capacity"] for row in raw if None not in row["capacity"]]
        holding = sum(low <= middle <= high for _, low, high in bounded)
        note = f"{holding} of {len(bounded)}"
        if bounded:
            made.append(Figure.of("intervals that hold the median answer", "ratio", share_interval(holding, len(bounded)), note=note))
    longest = max(row["seconds"] for row in raw)
    made.append(Figure("longest run", longest, "s", n=n, goal=f"at most {60 * MINUTES:.0f} s", met=longest <= 60 * MINUTES))
    return made


def agreeing(answers: Sequence[float]) -> int:
    """The largest number of answers that differ by at most one."""
    return max((sum(low <= answer <= low + 1 for answer in answers) for low in answers), default=0)


if __name__ == "__main__":
    outcome.run(main)
