"""Live searches by latency objective of which the truth is known: a token bucket gives out 800 tokens per second to all databases together.

Each transaction takes a token and sleeps (``pg_sleep``) until it is due. That is a queue with one server and a fixed service time, whatever
the host's speed. The truth is the largest size of which at least half of the blocks pass, in a simulation of that queue with the study's
own conditions. Three series:

- *databases*: ``pgherd density``; the bucket is in a server apart, which the databases reach by dblink.
- *rate*: ``pgherd scaling``; the bucket is in the database.
- *every*: density at every number of databases around the truth, seven blocks each, without a search. Its answer is that of bisection.
  Three numbers on both sides are enough, because further away no block can change an answer. With 2 ms more than the wait for tokens, the
  truth is 15: 93 % of 2,000 simulated blocks pass there, 13 % at 16, and at 11 and 19 (truth ± 4) 100 % and 0 %, as already at 13 and 17.

A try is a hit if its answer is within one step of the truth. Two lanes run at once, *rate* and the others, each on half of the host:
the bucket leaves the CPUs mostly idle.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import command
import outcome
from outcome import Figure

from pgherd.analysis.intervals import share_interval
from pgherd.host.facts import gather
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.studies.scaling.objective import choose_rates

TRIES, FOUND = 10, 9
TOKENS = 800
"""Per second."""
RATE, LIMIT_MS, PERCENTILE, CLIENTS, MOST = 50, 50, 95, 8, 24
"""Of the databases: rate of each, objective, clients of each, largest number."""
AROUND = 3
"""Numbers of databases on both sides of the truth that *every* measures."""
BLOCK_S, MINUTES = 4, 5.0
WARMUP_S = 4
"""Of the databases: each of their clients first connects to the bucket's server, and the queue of that time has to go."""
MEMORY = 0.3
"""Share of the host's memory for each of two lanes."""
SIMULATED = 100
SERIES = ("databases", "rate", "every")
CALM = ("--threshold", "max_background_cpu=1", "--threshold", "max_steal=1")
"""The bucket's server is background load, and the truth does not depend on the CPU."""

BUCKET = f"""CREATE UNLOGGED TABLE bucket (free timestamptz) WITH (fillfactor = 10);
INSERT INTO bucket VALUES (clock_timestamp());
CREATE FUNCTION take() RETURNS float8 LANGUAGE sql AS $$
UPDATE bucket SET free = greatest(free, clock_timestamp()) + interval '{1e6 / TOKENS:g} us'
RETURNING greatest(extract(epoch FROM free - clock_timestamp()), 0)::float8 $$;
"""
REMOTE = """CREATE EXTENSION dblink;
CREATE FUNCTION take() RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE due float8;
BEGIN
  IF dblink_get_connections() IS NULL THEN PERFORM dblink_connect('bucket', '{conninfo}'); END IF;
  SELECT wait INTO due FROM dblink('bucket', 'SELECT take()') AS token(wait float8);
  RETURN due;
END $$;
"""
SCRIPT = "SELECT take() AS due \\gset\nSELECT pg_sleep(:due);\n"


def main() -> None:
    """Try, print, write."""
    parser = outcome.parser(__doc__, TRIES, "tries of each series with a search")
    parser.add_argument("--series", action="append", choices=SERIES, help="only this series; may be given several times  [default: all]")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_MS, metavar="MS", help=f"objective; more on a busy host  [default: {LIMIT_MS}]"
    )
    parser.add_argument("--run-as", metavar="USER", help="user that pgherd's servers run as  [default: pgherd's own choice]")
    options = parser.parse_args()
    tries = options.pairs or (1 if options.quick else TRIES)
    series = options.series or SERIES
    seed, before, one_at_a_time = outcome.seed_of(options), outcome.cpu_seconds(), threading.Lock()
    raw: list[dict[str, Any]] = []
    settings = {"tokens per second": TOKENS, "rate": RATE, "objective": f"p{PERCENTILE} <= {options.limit:g} ms", "clients": CLIENTS}

    def made() -> outcome.Outcome:
        return outcome.Outcome("slo_truth", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))

    with tempfile.TemporaryDirectory(prefix="pgherd-slo-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        with bucket(place) as conninfo:
            remote, local = scripts(place, conninfo)
            lanes = lanes_of(series, tries, options)
            share = half() if len(lanes) > 1 else []

            def work(jobs: Sequence[tuple[str, int]], ended: threading.Event) -> None:
                for name, number in jobs:
                    if ended.is_set():
                        return
                    load = [*(local if name == "rate" else remote), *share]
                    row = tried(place, name, number, load, seed + number, options)
                    with one_at_a_time:
                        raw.append(row)
                        outcome.say(f"{name} {number}: {row['answer']} Truth {row['truth']:g}, {row['seconds']:.0f} s")
                        outcome.store(made(), options)  # an interrupted hour is not lost

            at_once([partial(work, jobs) for jobs in lanes])
    outcome.conclude(made(), options)


def lanes_of(series: Sequence[str], tries: int, options: argparse.Namespace) -> list[list[tuple[str, int]]]:
    """The tries as (series, number): those with the bucket apart, and those with the bucket in the database."""
    apart = [("databases", number) for number in range(tries)] if "databases" in series else []
    apart += [("every", n) for n in numbers(options)] if "every" in series else []
    return [lane for lane in (apart, [("rate", number) for number in range(tries)] if "rate" in series else []) if lane]


def half() -> list[str]:
    """Options for half of the host, which a run takes for itself."""
    facts = gather(LocalNode())
    return ["--host-cores", f"{facts.cores / 2:g}", "--host-memory", f"{MEMORY * facts.memory / 1e6:.0f}MB"]


def at_once(works: Sequence[Callable[[threading.Event], None]]) -> None:
    """Do all works at the same time. The first error sets the event that they get, and is raised."""
    ended = threading.Event()
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(work, ended) for work in works]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            ended.set()
    for future in running:
        future.result()


def numbers(options: argparse.Namespace) -> list[int]:
    """The numbers of databases of *every*."""
    middle = round(true_size([float(n) for n in range(1, MOST + 1)], RATE, 2.0, options.limit))
    return [middle] if options.quick else list(range(middle - AROUND, middle + AROUND + 1))


@contextlib.contextmanager
def bucket(place: Path) -> Iterator[str]:
    """A server with the bucket; yields its connection string."""
    installation = installations.choose(LocalNode())
    account = "nobody" if os.geteuid() == 0 else None  # pgherd's servers need an account without other processes
    home = place / "bucket"
    home.mkdir()
    if account is not None:
        shutil.chown(home, account)
    home.chmod(0o755)

    def run(*words: str, text: str | None = None) -> None:
        as_account = ["runuser", "-u", account, "--"] if account is not None else []
        subprocess.run([*as_account, *words], input=text, text=True, check=True, cwd="/", stdout=subprocess.DEVNULL)

    data, binaries = str(home / "data"), installation.bin
    run(f"{binaries}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
    settings = f"-c listen_addresses='' -c unix_socket_directories={home} -c max_connections=500 -c fsync=off -c autovacuum=off"
    run(f"{binaries}/pg_ctl", "-D", data, "-l", str(home / "log"), "-w", "-o", settings, "start")
    try:
        run(f"{binaries}/psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", str(home), "-U", "postgres", "-d", "postgres", text=BUCKET)
        yield f"host={home} user=postgres dbname=postgres"
    finally:
        run(f"{binaries}/pg_ctl", "-D", data, "-m", "immediate", "stop")


def scripts(place: Path, conninfo: str) -> tuple[list[str], list[str]]:
    """Options of a load that takes tokens from the server apart, and from its own database."""
    texts = {"take.sql": SCRIPT, "remote.sql": REMOTE.format(conninfo=conninfo), "local.sql": BUCKET}
    for name, text in texts.items():
        (place / name).write_text(text)
        (place / name).chmod(0o644)
    load = ["--script", str(place / "take.sql")]
    return [*load, "--init-script", str(place / "remote.sql")], [*load, "--init-script", str(place / "local.sql")]


def tried(place: Path, series: str, number: int, load: Sequence[str], seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One search by pgherd, or its measurement of one number of databases, and the truth."""
    words = ["scaling" if series == "rate" else "density", *load, "--slo", f"p{PERCENTILE}={options.limit:g}ms", *CALM, "--seed", str(seed)]
    if series == "rate":
        words += ["--clients", "64"]
    else:
        sizes = range(1, MOST + 1) if series == "databases" else (number,)
        words += ["--rate", str(RATE), "--clients", str(CLIENTS), "--databases", ",".join(map(str, sizes)), "--cpu-mode", "none"]
        words += ["--warmup", f"{WARMUP_S}s"]
    words += ["--time-budget", "90s", "--min-repeats", "3"] if options.quick else []
    words += ["--run-as", options.run_as] if options.run_as else []
    began, runs = time.monotonic(), place / f"runs of {series}"  # of one lane
    done = command.pgherd([*words, "--no-report", "--json", "--runs-dir", str(runs)])
    shutil.rmtree(runs, ignore_errors=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{series} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    document = json.loads(done.stdout)
    rows, column = document["tables"].get("objective", []), "rate" if series == "rate" else "databases"
    latency = min((row[f"p{PERCENTILE}"]["value"] for row in rows if row[f"p{PERCENTILE}"]["value"] is not None), default=0.0)
    base_ms = max(0.0, latency - 1000 / TOKENS)
    if series == "rate":
        candidates = list(choose_rates(document["findings"]["closed_throughput"]["value"]))
        truth = true_size(candidates, None, base_ms, options.limit)
        step = candidates[1] - candidates[0]
    else:
        truth, step = true_size([float(n) for n in range(1, MOST + 1)], RATE, base_ms, options.limit), 1.0
    capacity = document["findings"]["capacity"]
    kept = [row[column] for row in rows if row["keeps"] == "yes"]
    return {
        "series": series,
        "number": number,
        "answer": document["answer"],
        "grade": document["grade"],
        "capacity": [capacity[name] for name in ("value", "low", "high")],
        "open": "upper bound not reached" in capacity["note"],
        "largest kept": max(kept, default=0),
        "truth": truth,
        "step": step,
        "base ms": base_ms,
        "blocks": len(document["trials"]),
        "seconds": time.monotonic() - began,
    }


# ---- the truth


def true_size(candidates: Sequence[float], rate: float | None, base_ms: float, limit_ms: float) -> float:
    """The largest size of which at least half of the simulated blocks pass. ``rate`` None: one database, and the size is its rate."""
    low, high = 0, len(candidates)
    while high - low > 1:  # the share of passing blocks falls with the size
        middle = (low + high) // 2
        size = candidates[middle - 1]
        databases, each = (int(size), rate) if rate is not None else (1, size)
        rng = random.Random(f"{size} {base_ms:.2f}")
        passed = sum(passes(rng, databases, float(each or 0.0), base_ms, limit_ms) for _ in range(SIMULATED))
        low, high = (middle, high) if 2 * passed >= SIMULATED else (low, middle)
    return candidates[low - 1] if low else 0.0


def passes(rng: random.Random, databases: int, each: float, base_ms: float, limit_ms: float) -> bool:
    """Whether a simulated block passes: Poisson arrivals at one server with a fixed service time, judged as the study does."""
    total, gap, allowed = databases * each, 1 / TOKENS, 1 - PERCENTILE / 100
    logged, late, by_second = [0] * databases, [0] * databases, [[0, 0] for _ in range(BLOCK_S)]
    at = free = -1.0  # a second of warm-up
    while True:
        at += rng.expovariate(total)
        free = max(free, at) + gap
        if free >= BLOCK_S:
            break
        if free < 0:
            continue
        database, is_late = rng.randrange(databases), 1000 * (free - at) + base_ms > limit_ms
        logged[database] += 1
        late[database] += is_late
        by_second[int(free)][0] += 1
        by_second[int(free)][1] += is_late
    if any(count > allowed * of for count, of in zip(late, logged, strict=True)):
        return False
    if total > TOKENS * 1.02:
        return False
    return all(count <= allowed * of + 3 * math.sqrt(allowed * of) for of, count in by_second)


# ---- figures


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Hits, coverage and duration of the searches, and whether measuring every number gives the same answer."""
    made = []
    for name in ("databases", "rate"):
        rows = [row for row in raw if row["series"] == name]
        if not rows:
            continue
        n = len(rows)
        near = sum(row["capacity"][0] is not None and abs(row["capacity"][0] - row["truth"]) <= 1.001 * row["step"] for row in rows)
        holds = sum(row["capacity"][0] is not None and row["capacity"][1] <= row["truth"] <= upper(row) for row in rows)
        goal, met = f"at least {FOUND} of {TRIES}", near * TRIES >= FOUND * n if n >= TRIES else None
        made.append(
            Figure.of(f"{name}: answers within one step of the truth", "ratio", share_interval(near, n), goal, met, f"{near} of {n}")
        )
        made.append(Figure.of(f"{name}: intervals that hold the truth", "ratio", share_interval(holds, n), note=f"{holds} of {n}"))
        longest = max(row["seconds"] for row in rows)
        made.append(Figure(f"{name}: longest try", longest, "s", n=n, goal=f"at most {60 * MINUTES:.0f} s", met=longest <= 60 * MINUTES))
    every = [row for row in raw if row["series"] == "every"]
    searched = [row["capacity"][0] for row in raw if row["series"] == "databases" and row["capacity"][0] is not None]
    if every:
        kept = max((row["number"] for row in every if row["largest kept"] >= row["number"]), default=0)
        made.append(Figure("every: largest number that keeps the objective", kept, "databases", n=len(every)))
        if searched:
            same = sorted(searched)[len(searched) // 2]
            goal = "the median answer by bisection"
            apart = abs(kept - same)
            made.append(Figure("every: difference from bisection", apart, "databases", n=len(searched), goal=goal, met=apart == 0))
    return made


def upper(row: Mapping[str, Any]) -> float:
    """The upper end of a try's interval; infinite if it is open."""
    return math.inf if row["open"] else float(row["capacity"][2])


if __name__ == "__main__":
    os.umask(0o022)
    outcome.run(main)
