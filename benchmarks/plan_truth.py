"""Predicted against measured CPU, memory and latency class of generated plans of two hosts, which real servers carry out here, scaled down.

Each plan has 10 to 30 databases with day-shaped demand on two hosts, which are full to 60 to 140 % in their fullest slot, so that about
half of the hosts are overloaded. `pgherd place --max-moves 0` predicts, and `--verify 2` measures.

Predictions follow the machine's speed, which a reference database shows in each slot. The figure without it is of the same slots. Classes
are by the curve of the calibration, for p95 within a limit. A class is right if the slot's share of late transactions is as predicted.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import command
import outcome
from outcome import Figure

from pgherd.analysis.intervals import Estimate, mean_interval, share_interval
from pgherd.studies.place_verify.latency import is_right
from pgherd.study.objectives import parse_objectives

PLANS, SLOTS, CORES = 10, 8, 8
"""Plans, slots of each, and cores of a planned host."""
DATABASES, FULL = (5, 15), (0.6, 1.4)
"""Of each host: number of databases, and demand in the fullest slot by capacity."""
MEMORY = (60, 240)
"""Of a database, in MB."""
OBJECTIVE = "p95=10ms"
CLOSE_GOAL, COVERED_GOALS, PREDICTED_GOAL, ALARM_GOAL = 0.9, (0.9, 0.99), 0.9, 0.1


def write_plan(place: Path, seed: int, slots: int, most: int) -> None:
    """Write demand, hosts and placement of a generated plan."""
    chance, rows, placed = random.Random(seed), [], []
    for host in ("host-1", "host-2"):
        many = chance.randint(min(DATABASES[0], most), most)
        demand = [_day(chance, slots) for _ in range(many)]
        factor = chance.uniform(*FULL) * CORES / max(map(sum, zip(*demand, strict=True)))
        for database, day in enumerate(demand):
            name = f"{host}-db{database + 1}"
            placed.append((name, host))
            memory = round(chance.uniform(*MEMORY))
            rows += [(name, slot, round(factor * value, 4), memory) for slot, value in enumerate(day)]
    for file, head, lines in (("demand", ("database", "time", "cpu_cores", "memory_mb"), rows), ("now", ("database", "host"), placed)):
        with (place / f"{file}.csv").open("w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([head, *lines])
    (place / "hosts.yaml").write_text(f"classes:\n  - name: host\n    capacity: {{cpu_cores: {CORES}, memory_mb: 8000}}\n    count: 2\n")


def _day(chance: random.Random, slots: int) -> list[float]:
    centre, width, size = chance.choice((3, 13, 20)) + chance.gauss(0, 1), chance.uniform(2, 4), chance.lognormvariate(0, 0.6)
    hours = [(slot + 0.5) * 24 / slots for slot in range(slots)]
    return [size * (0.2 + math.exp(-0.5 * (((hour - centre + 12) % 24 - 12) / width) ** 2)) for hour in hours]


def verify(number: int, seed: int, quick: bool, cores: float | None) -> dict[str, Any]:
    """Plan and verify. Return the slots of both hosts."""
    with tempfile.TemporaryDirectory(prefix="pgherd-plan-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        write_plan(place, seed + number, 3 if quick else SLOTS, 3 if quick else DATABASES[1])
        words = ["place", str(place / "demand.csv"), "--hosts", str(place / "hosts.yaml"), "--constraints", str(place / "now.csv")]
        words += ["--risk-percent", "99", "--max-moves", "0", "--verify", "2", "--slo", OBJECTIVE, "--seed", str(seed + number), "--json"]
        words += ["--verify-duration", "1s"] if quick else []
        words += ["--verify-cores", str(cores)] if cores is not None else []
        done = command.pgherd([*words, "--runs-dir", str(place / "runs")])
    if done.returncode == 3:
        print(done.stderr, file=sys.stderr)
        sys.exit(3)
    if done.returncode not in (0, 1):
        sys.exit(f"plan {number} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    document = json.loads(done.stdout)
    slots = [
        {
            "host": row["planned_host"],
            "slot": row["slot"],
            **{name: row["predicted_cpu"][name] for name in ("value", "low", "high")},
            "measured": row["measured_cpu"]["value"],
            "without reference": row["predicted_without_reference"],
            "overload predicted": row["overload_predicted"] == "yes",
            "overload measured": row["overload_measured"] == "yes",
            "memory": [row[name] for name in ("predicted_memory", "measured_memory")],
            "class": row["latency_class"],
            "late": row["host_late_share"]["value"],
            "late interval": [row["host_late_share"][end] for end in ("low", "high")],
            "transactions": row["host_late_share"]["n"],
        }
        for row in document["tables"]["slots"]
    ]
    return {"plan": number, "answer": document["answer"], "grade": document["grade"], "slots": slots}


def main() -> None:
    """Verify all plans, print, write."""
    parser = outcome.parser(__doc__, PLANS, "plans")
    parser.add_argument("--cores", type=float, metavar="N", help="cores of this host that a verification may use  [default: all]")
    options = parser.parse_args()
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    plans = options.pairs or (1 if options.quick else PLANS)
    settings = {"slots": SLOTS, "databases of a host": DATABASES, "demand by capacity": FULL, "cores": options.cores}
    raw: list[dict[str, Any]] = []
    for number in range(plans):
        raw.append(verify(number, seed, options.quick, options.cores))
        outcome.say(f"plan {number}: {raw[-1]['answer']}")
        made = outcome.Outcome("plan_truth", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
        outcome.store(made, options)  # an interrupted run is not lost
    outcome.conclude(made, options)


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return error, share of close slots, coverage of the intervals, and found and false overloads of hosts."""
    slots = [slot for plan in raw for slot in plan["slots"]]
    if not slots:
        return []
    hosts: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for plan in raw:
        for slot in plan["slots"]:
            hosts.setdefault((plan["plan"], slot["host"]), []).append(slot)
    over = [(any(s["overload predicted"] for s in one), any(s["overload measured"] for s in one)) for one in hosts.values()]
    errors = [mean_interval([abs(slot["measured"] / slot["value"] - 1) for slot in plan["slots"]]).value for plan in raw if plan["slots"]]
    made = [Figure.of("mean error of CPU", "%", mean_interval(errors).scaled(100), note="mean of each plan")]
    for name, hits, least, most, goal in (
        ("slots within 10 %", [abs(s["measured"] / s["value"] - 1) <= 0.1 for s in slots], CLOSE_GOAL, 1.0, "at least 90 %"),
        ("slots in the interval", [s["low"] <= s["measured"] <= s["high"] for s in slots], *COVERED_GOALS, "90 to 99 %"),
        ("overloaded hosts predicted", [said for said, seen in over if seen], PREDICTED_GOAL, 1.0, "at least 90 %"),
        ("false alarms of hosts", [said for said, seen in over if not seen], 0.0, ALARM_GOAL, "at most 10 %"),
    ):
        if hits and name.startswith("slots"):
            estimate = _of_plans(hits, raw)
            made.append(Figure.of(name, "%", estimate.scaled(100), goal, outcome.met(estimate, least=least, most=most)))
        elif hits:
            estimate = share_interval(sum(hits), len(hits))
            made.append(Figure.of(name, "%", estimate.scaled(100), goal, outcome.met(estimate, least=least, most=most)))
    alone = [abs(s["measured"] / s["without reference"] - 1) <= 0.1 for s in slots]
    note = "without the reference database"
    made.append(Figure.of("slots within 10 %, without", "%", _of_plans(alone, raw).scaled(100), note=note))
    return [*made, *_memory_and_latency(hosts.values())]


def _of_plans(hits: Sequence[bool], plans: Sequence[Mapping[str, Any]]) -> Estimate:
    """Return a share of all slots with an interval over the plans, each of which has one calibration.

    If the plans do not differ, their number alone bounds the share, as that of a single outcome of each.
    """
    left = iter(hits)
    shares = [statistics.fmean(itertools.islice(left, len(plan["slots"]))) for plan in plans if plan["slots"]]
    found = mean_interval(shares)
    if found.low is None or found.high is None:
        return found
    if len(set(shares)) > 1:
        return replace(found, high=min(found.high, 1.0))
    bounds = share_interval(round(found.value * len(shares)), len(shares))
    low, high = min(bounds.low or 0.0, found.value), max(bounds.high or 1.0, found.value)
    return replace(found, low=low, high=high, method=bounds.method, note="")


def _memory_and_latency(hosts: Iterable[Sequence[Mapping[str, Any]]]) -> list[Figure]:
    """Return the error of the memory of a host, and how often a class is right, and undecided."""
    pairs = [[slot["memory"] for slot in one] for one in hosts]
    errors = [statistics.fmean(abs(measured / predicted - 1) for predicted, measured in one) for one in pairs]
    made = [Figure.of("mean error of memory", "%", mean_interval(errors).scaled(100), note="mean of each host")] if errors else []
    objective = parse_objectives([OBJECTIVE])[0]
    slots = [slot for one in hosts for slot in one if slot["late"] is not None and slot["class"]]
    verdicts = [is_right(slot["class"], _late(slot), objective) for slot in slots]
    decided = [right for right in verdicts if right is not None]
    for name, hits in (("latency classes right", decided), ("latency classes open", [right is None for right in verdicts])):
        if hits:
            note = "of the slots whose class is decided" if hits is decided else "near the limit, or too few transactions"
            made.append(Figure.of(name, "%", share_interval(sum(hits), len(hits)).scaled(100), note=note))
    return made


def _late(slot: Mapping[str, Any]) -> Estimate:
    """Return the late share of a slot. Results without its interval have that of independent transactions, which is narrower."""
    share, n = slot["late"], slot["transactions"]
    if "late interval" not in slot:
        return replace(share_interval(round(share * n), n), value=share)
    low, high = slot["late interval"]
    return Estimate(share, low, high, 0.95, n, "")


if __name__ == "__main__":
    outcome.run(main)
