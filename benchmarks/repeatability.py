"""Whether default runs of ``pgherd density`` on one host agree: ten runs, one after another, by the command line as a user calls it.

The value of all runs together is their mean. It is compared with each run's own 95 % interval, and the answers with one another.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import command
import outcome
from outcome import Figure

from pgherd.analysis.intervals import mean_interval

RUNS = 10
LEAST = 9
"""Number of ten intervals that are to hold the value of all runs together."""
WIDTH = 0.08
"""Goal of the half width of the throughput efficiency next to the crossing."""


def main() -> None:
    """Run, print, write."""
    parser = outcome.parser(__doc__, RUNS, "default runs")
    parser.add_argument("--more", action="store_true", help="add to the runs that the result already has")
    options = parser.parse_args()
    runs = options.pairs or (2 if options.quick else RUNS)
    seed = outcome.seed_of(options)
    before = outcome.cpu_seconds()
    raw = outcome.document_before("repeatability", options, {}, "--more", free=("runs",))["raw"] if options.more else []
    with tempfile.TemporaryDirectory(prefix="pgherd-repeatability-") as directory:
        for number in range(1, runs + 1):
            raw.append(measured(Path(directory), seed + number, options.quick))
            row = raw[-1]
            outcome.say(f"{number} of {runs}: {row['answer']} Grade {row['grade']}: {row['reason'] or 'no doubt'}")
            made = outcome.Outcome("repeatability", options.quick, seed, {"runs": len(raw)}, figures(raw), raw, outcome.noise_since(before))
            outcome.store(made, options)  # an interrupted hour is not lost
    outcome.conclude(made, options)


def measured(place: Path, seed: int, quick: bool) -> dict[str, Any]:
    """One run, and what it answered."""
    words = ["density", "--seed", str(seed), "--no-report", "--json", "--runs-dir", str(place / "runs")]
    words += ["--time-budget", "20s", "--duration", "2s"] if quick else []
    done = command.pgherd(words)
    shutil.rmtree(place / "runs", ignore_errors=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"density ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    document = json.loads(done.stdout)
    findings, rows = document["findings"], document["tables"].get("density", [])
    near = [row for row in rows if row["databases"] in (9, 10)]
    return {
        "answer": document["answer"],
        "grade": document["grade"],
        "reason": document["grade_reason"],
        "tainted": sum(trial["tainted"] for trial in document["trials"]),
        "trials": len(document["trials"]),
        **{name: ends(findings.get(name)) for name in ("capacity", "capacity_by_cpu", "capacity_by_throughput", "cost_ratio")},
        **{f"efficiency at {row['databases']}": ends(row["efficiency"]) for row in near},
        "throughput": {str(row["databases"]): ends(row["throughput"]) for row in rows},
    }


def ends(finding: dict[str, Any] | None) -> list[float | None]:
    """Value, low and high of a finding; None for what it lacks."""
    return [finding.get(name) for name in ("value", "low", "high")] if finding else [None, None, None]


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """Intervals that hold the common value, and the spread of the answers, for both capacities."""
    made = []
    for name in ("capacity_by_cpu", "capacity_by_throughput"):
        values = [row[name][0] for row in raw if row[name][0] is not None]
        if len(values) < 2:
            continue
        together = mean_interval(values)
        words = name.replace("_", " ")
        made.append(Figure.of(f"{words}, all runs together", "databases", together))
        bounded = [row[name] for row in raw if row[name][0] is not None and None not in row[name]]
        hits = sum(low <= together.value <= high for _, low, high in bounded)
        goal = (f"at least {LEAST} of {RUNS}", hits >= LEAST) if len(raw) >= RUNS else ("", None)
        made.append(Figure(f"{words}: intervals that hold it", hits, "runs", n=len(bounded), goal=goal[0], met=goal[1]))
        answers = [math.floor(value) for value in values]
        spread = max(answers) - min(answers)
        made.append(
            Figure(f"{words}: largest difference of two answers", spread, "databases", n=len(values), goal="at most 1", met=spread <= 1)
        )
    for n in (9, 10):
        widths = [
            (high - low) / 2 / value
            for row in raw
            for value, low, high in [row.get(f"efficiency at {n}", [None] * 3)]
            if value and None not in (low, high)
        ]
        if len(widths) >= 3:
            width = mean_interval(widths)
            met = outcome.met(width, most=WIDTH)
            made.append(Figure.of(f"half width of the throughput efficiency at {n}", "ratio", width, f"at most {WIDTH:g}", met))
    return made


if __name__ == "__main__":
    outcome.run(main)
