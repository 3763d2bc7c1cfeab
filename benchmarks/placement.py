"""Time, memory and quality of `pgherd place` by size, on generated fleets with day-shaped demand.

Each size is placed in a process of its own, on hosts of one class. A fleet has four kinds of days: office hours, evening, night batch
and constant. Sizes are log-normal, and each slot has 5 % of noise.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import outcome
from outcome import Figure

from pgherd.analysis.demand import Array, fold
from pgherd.analysis.host_class import HostClass
from pgherd.analysis.host_plan import PlanOptions, make_plan
from pgherd.analysis.intervals import mean_interval

RESOURCES = ("cpu_cores", "memory_mb", "read_iops", "write_iops")
SIZES = ((1_000, 24), (1_000, 288), (10_000, 24), (10_000, 288), (30_000, 24), (100_000, 24))
GOALS = {(1_000, 24): 2.0, (1_000, 288): 2.0, (10_000, 24): 60.0, (10_000, 288): 60.0}
"""Databases, slots → goal in seconds."""
HOST = HostClass.model_validate(
    {"name": "large", "capacity": {"cpu_cores": 32, "memory_mb": 262144, "read_iops": 40000, "write_iops": 10000}}
)
BOUND_GOAL, MEMORY_GOAL_GB, PEAKS_GOAL = 0.03, 2.0, 1 / 3


def fleet(databases: int, slots: int, seed: int) -> Array:
    """Return the demand of a generated fleet, shape (databases, resources, slots)."""
    random = np.random.default_rng(seed)
    hours = (np.arange(slots) + 0.5) * 24 / slots
    kind = random.choice(4, databases, p=(0.4, 0.25, 0.2, 0.15))
    centre = np.array([13.0, 20.0, 3.0, 12.0])[kind] + random.normal(0, 1.0, databases)
    width = np.array([3.5, 2.5, 1.5, 100.0])[kind] * random.uniform(0.8, 1.2, databases)
    distance = np.abs((hours - centre[:, None] + 12) % 24 - 12)
    day = 0.12 + np.exp(-0.5 * (distance / width[:, None]) ** 2)
    size = np.minimum(random.lognormal(0, 0.8, databases), 6)
    typical = {"cpu_cores": 1.0, "memory_mb": 3000.0, "read_iops": 500.0, "write_iops": 100.0}
    demand = np.empty((databases, len(RESOURCES), slots), np.float32)
    for i, name in enumerate(RESOURCES):
        scale = typical[name] * size * random.lognormal(0, 0.3, databases)
        shape = 0.85 + 0.1 * day if name == "memory_mb" else day * random.lognormal(0, 0.05, (databases, slots))
        demand[:, i] = scale[:, None] * shape
    return demand


def write_fleet(file: Path, databases: int, slots: int, seed: int) -> None:
    """Write a fleet as a demand file for `pgherd place`."""
    demand = fleet(databases, slots, seed)
    with file.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("database", "time", *RESOURCES))
        for database, rows in enumerate(demand):
            for slot in range(slots):
                minute = slot * 1440 // slots
                values = [f"{value:.4g}" for value in rows[:, slot]]
                writer.writerow((f"db{database + 1:04d}", f"{minute // 60:02d}:{minute % 60:02d}", *values))


def measure(databases: int, slots: int, seed: int) -> dict[str, Any]:
    """Place one fleet in this process."""
    demand = fold([f"db{i}" for i in range(databases)], RESOURCES, fleet(databases, slots, seed), range(slots), slots)
    begun, cpu = time.perf_counter(), time.process_time()
    plan = make_plan(demand, [HOST], [], PlanOptions(seed=seed))
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    values = {name: plan.findings[name].value for name in ("hosts", "lower_bound", "hosts_by_peaks", "hosts_by_means")}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"databases": databases, "slots": slots, "seconds": seconds, "cpu_seconds": cpu, "memory_gb": peak, **values}


def main() -> None:
    """Measure all sizes, print, write."""
    parser = outcome.parser(__doc__, 3, "fleets of each size")
    parser.add_argument("--one", nargs=3, type=int, metavar="N", help="databases, slots, seed: measure this one and print it as JSON")
    parser.add_argument(
        "--write-fleet", nargs=4, metavar="VALUE", help="file, databases, slots, seed: write a demand file, measure nothing"
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    if options.write_fleet:
        file, *numbers = options.write_fleet
        write_fleet(Path(file), *map(int, numbers))
        return
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    raw: list[dict[str, Any]] = []
    sizes = ((200, 24),) if options.quick else SIZES
    for databases, slots in sizes:
        for fleet_number in range(options.pairs or (1 if options.quick else 3)):
            command = [sys.executable, __file__, "--one", str(databases), str(slots), str(seed + fleet_number)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "2"})
            raw.append(json.loads(done.stdout))
            outcome.say(f"{databases:,} × {slots}: {raw[-1]['seconds']:.1f} s, {raw[-1]['hosts']:g} hosts")
    result = outcome.Outcome("placement", options.quick, seed, {"sizes": sizes}, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """Return those of each size."""
    sizes = dict.fromkeys((row["databases"], row["slots"]) for row in raw)
    return [figure for databases, slots in sizes for figure in _figures(databases, slots, raw)]


def _figures(databases: int, slots: int, raw: list[dict[str, Any]]) -> list[Figure]:
    rows = [row for row in raw if (row["databases"], row["slots"]) == (databases, slots)]
    name, goal = f"{databases:,} × {slots}", GOALS.get((databases, slots))

    def figure(what: str, unit: str, values: list[float], most: float | None, words: str) -> Figure:
        estimate = mean_interval(values)
        met = None if most is None else outcome.met(estimate, most=most)
        return Figure.of(f"{name}, {what}", unit, estimate, words, met)

    return [
        figure("time", "s", [row["seconds"] for row in rows], goal, f"at most {goal:g} s" if goal else ""),
        figure("memory", "GB", [row["memory_gb"] for row in rows], MEMORY_GOAL_GB, f"at most {MEMORY_GOAL_GB:g} GB"),
        figure("above the bound", "%", [100 * (row["hosts"] / row["lower_bound"] - 1) for row in rows], 100 * BOUND_GOAL, "at most 3 %"),
        figure("hosts ÷ by peaks", "", [row["hosts"] / row["hosts_by_peaks"] for row in rows], 1 - PEAKS_GOAL, "at most 2/3"),
    ]


if __name__ == "__main__":
    outcome.run(main)
