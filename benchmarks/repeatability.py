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
"""Goal of the half width of the throughput efficiency next to the crossing. Where throughput has two modes, its range is reported and the
capacity by CPU is to be this certain."""


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
        "range": ranges(document["tables"].get("modes", [])),
    }


def ranges(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Lowest and highest throughput of a trial by number of databases, over the modes."""
    found: dict[str, list[float]] = {}
    for row in rows:
        low, high = found.get(str(row["databases"]), [math.inf, 0.0])
        found[str(row["databases"])] = [min(low, row["lowest_throughput"]), max(high, row["highest_throughput"])]
    return found


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
        goal = (f"at least {LEAST} of {RUNS}", hits * RUNS >= LEAST * len(raw)) if len(raw) >= RUNS else ("", None)
        made.append(Figure(f"{words}: intervals that hold it", hits, "runs", n=len(bounded), goal=goal[0], met=goal[1]))
        if bounded:
            width = mean_interval([high - low for _, low, high in bounded])
            goal = ("at most 1", outcome.met(width, most=1)) if name == "capacity_by_cpu" else ("", None)
            made.append(Figure.of(f"{words}: width of the interval", "databases", width, *goal))
        answers = [math.floor(value) for value in values]
        spread = max(answers) - min(answers)
        made.append(
            Figure(f"{words}: largest difference of two answers", spread, "databases", n=len(values), goal="at most 1", met=spread <= 1)
        )
    certain = [("capacity by cpu", "capacity_by_cpu"), *((f"throughput efficiency at {n}", f"efficiency at {n}") for n in (9, 10))]
    for words, name in certain:
        widths = half_widths([row.get(name, [None] * 3) for row in raw])
        if len(widths) >= 3:
            width = mean_interval(widths)
            goal = f"at most {WIDTH:g}" + (", or the next two" if name == "capacity_by_cpu" else "")
            made.append(Figure.of(f"half width of the {words}", "ratio", width, goal, outcome.met(width, most=WIDTH)))
    for n in ("9", "10"):
        spread = [high / low for row in raw if n in row.get("range", {}) for low, high in [row["range"][n]] if low > 0]
        if len(spread) >= 3:
            made.append(Figure.of(f"range of the modes: highest ÷ lowest trial of a run at {n}", "", mean_interval(spread)))
    return made


def half_widths(found: list[list[float | None]]) -> list[float]:
    """Half width ÷ value of each interval."""
    return [(high - low) / 2 / value for value, low, high in found if value and low is not None and high is not None]


if __name__ == "__main__":
    outcome.run(main)
