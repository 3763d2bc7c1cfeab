"""Live comparisons of which the truth is known: how often pgherd finds a difference of 5 %, how often it sees one where there is none.

Three series of tries, each try a whole ``pgherd compare`` as a user would run it, five minutes at most:

- *quota*: the variant has 5 % less CPU (``vcpus`` 0.57 against 0.6). The truth is the ratio of the quotas: both use theirs up, also
  where the hypervisor takes some of the CPUs' time, and a transaction costs the same CPU time in both.
- *work*: the scripts make the server put together a string per transaction, of which only the length is sent: of one byte, and of
  some hundred in the variant's. What these cost is established apart from ``compare``, before the tries: pgbench alone, by the
  command line that compare uses, with either script by quick turns (``slices.py``) in one container, its transactions as its own log
  says them, and CPU seconds as the kernel counts them for the container. The string is made so long that it costs about 5 %; the
  truth is what was then measured, with an interval.
- *same*: the variant differs in a setting that nothing here uses (``vacuum_cost_limit``).

A try is a *hit* when its verdict is a difference of the right sign, its interval holds the truth, and its grade is not C (an indication
only); one of *same* is a *false alarm* when its verdict is any difference, whatever its grade. Intervals of shares are Clopper and
Pearson's. A try ends as a user's does: as soon as compare is sure, else with its budget.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import command
import deployed
import outcome
import paired
import slices
from outcome import Figure

from pgherd.drivers.driver import Endpoint
from pgherd.drivers.pgbench import PgbenchDriver
from pgherd.model.load import Load, Script
from pgherd.node.process import environment, wrap
from pgherd.node.protocol import Command
from pgherd.studies.compare import prepare_interleaved
from pgherd.study.comparison import time_slices

TRIES, FOUND, ALARMS = 20, 17, 2
COST = 0.05
QUOTA = 0.6
"""Of the baseline in *quota*, in vCPUs: of one whole vCPU of two it does not use all up in each period while there is steal."""
STARTS, ROUNDS, TURNS, TURN = 15, 10, 10, 0.1
"""Of the calibration: how often pgbench is started anew with either script, rounds of each start, how often either script has its turn
in a round, and for how many seconds. Processes differ in what they cost as long as they live, so that only new ones tell by how much."""
MINUTES = 5.0
BYTES = 450
"""Of the string in the first calibration."""
TUNINGS = 3
"""Short calibrations by which the string's length is found; then a long one tells its cost."""
CALM = ("--threshold", "max_background_cpu=1", "--threshold", "max_steal=1")
"""What else runs on a shared host is what these tries are about, and no reason to call them tainted: without it the noisiest blocks would
be run again or left out. All other checks stay. What there was of it stands in each try's row."""
FULL = 0.98
"""Share of the quota that both sides of *quota* must have used for the ratio of the quotas to be that of their throughputs."""
SERIES = ("quota", "work", "same")
METRIC = {"quota": "throughput", "work": "cpu_per_tx", "same": "throughput"}
SIGN = {"quota": "lower", "work": "higher"}
METHOD = "share of tries, Clopper-Pearson interval"


def main() -> None:
    """Calibrate, try, print, write."""
    parser = outcome.parser(__doc__, TRIES, "tries of each series")
    parser.add_argument("--series", action="append", choices=SERIES, help="only this series; may be given several times  [default: all]")
    parser.add_argument("--time-budget", default=None, metavar="TIME", help="of each try  [default: compare's own, about 4m20s]")
    parser.add_argument("--more", action="store_true", help="go on: add tries to those of the last result until there are --pairs of each")
    options = parser.parse_args()
    wanted = options.pairs or (1 if options.quick else TRIES)
    budget = options.time_budget or ("25s" if options.quick else None)
    series = tuple(options.series or SERIES)
    settings = {
        "budget of a try": budget or "compare's default",
        "trials": f"{prepare_interleaved.MEASURED_S:g} s of each side, by turns of {time_slices.SLICE_S:g} s, "
        f"after {prepare_interleaved.WARMUP_S:g} s",
        "cost aimed at": COST,
        "quota": f"{QUOTA:g} vCPUs, given out every {time_slices.QUOTA_PERIOD_S:g} s",
        "metrics": METRIC,
    }
    raw = outcome.blocks_before("known_truth", options, settings) if options.more else []
    made = outcome.Outcome("known_truth", options.quick, outcome.seed_of(options), settings, raw=raw)
    before = outcome.cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="pgherd-known-truth-") as directory:
        os.chmod(directory, 0o755)
        place = Path(directory)
        truth = next((row for row in raw if row["series"] == "calibration"), None)
        if "work" in series and truth is None:
            truth = calibrated(place, made.seed, *((3, 1) if options.quick else (STARTS, ROUNDS)))
            raw.append(truth)
            keep(made, raw, wanted, before, options)
        order = [name for name in series for _ in range(wanted - sum(row["series"] == name for row in raw))]
        random.Random(made.seed).shuffle(order)  # so that a noisy hour falls on all of them
        for number, name in enumerate(order, 1):
            row = tried(place, name, truth, budget, made.seed + len(raw))
            raw.append(row)
            outcome.say(
                f"{number} of {len(order)}, {name}: {row['verdict']} {row['ratio']} (truth {row['truth']:.4f}), {row['seconds']:.0f} s"
            )
            keep(made, raw, wanted, before, options)
    made.figures, made.noise = figures(raw, wanted), outcome.noise_since(before)
    outcome.conclude(made, options)


def keep(made: outcome.Outcome, raw: Sequence[Mapping[str, Any]], wanted: int, before: dict[str, float], options: Any) -> None:
    """Write what there is so far: an interrupted hour is not lost, and --more goes on. The try in which it was interrupted is."""
    made.figures, made.noise = figures(raw, wanted), outcome.noise_since(before)
    outcome.store(made, options)


def tried(place: Path, series: str, truth: Mapping[str, Any] | None, budget: str | None, seed: int) -> dict[str, Any]:
    """One ``pgherd compare``, and what it said."""
    words = {
        "quota": ["--variant", f"base:vcpus={QUOTA:g}", "--variant", f"dear:vcpus={QUOTA * (1 - COST):g}"],
        "same": ["--variant", "base", "--variant", "same:vacuum_cost_limit=300"],
    }
    if series == "work":
        assert truth is not None
        plain, dear = scripts(place, int(truth["bytes"]))
        words["work"] = ["--read-only", "--variant", f"base:script={plain}", "--variant", f"dear:script={dear}"]
    whole = ["compare", *words[series], *CALM, "--metric", METRIC[series], "--seed", str(seed), "--no-report", "--json"]
    whole += ["--runs-dir", str(place / "runs"), *(["--time-budget", budget] if budget else [])]
    before, began = outcome.cpu_seconds(), time.monotonic()
    done = command.pgherd(whole)
    seconds = time.monotonic() - began
    shutil.rmtree(place / "runs", ignore_errors=True)
    if done.returncode not in (0, 1):
        sys.exit(f"compare ended with exit code {done.returncode}; --more goes on after the tries that are kept:\n{done.stderr}")
    document = json.loads(done.stdout)
    rows = {row["metric"]: row for row in document["tables"].get("comparison", [])}
    row = rows.get(METRIC[series], {"outcome": "inconclusive", "conclusion": document["answer"]})
    right = 1 - COST if series == "quota" else float(truth["ratio"]) if series == "work" and truth else 1.0
    return {
        "series": series,
        "decision": row["outcome"],
        "verdict": row["conclusion"],
        "ratio": ends(row.get("ratio_to_baseline")),
        "floor": ends(row.get("aa_ratio")),
        "truth": right,
        "cores": cores(rows),
        "blocks": document["findings"].get("blocks", {"value": 0})["value"],
        "seconds": seconds,
        "noise": outcome.noise_since(before),
        "seed": seed,
        "grade": document["grade"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": outcome.commit(),
    }


def ends(finding: Mapping[str, Any] | None) -> list[float | None]:
    """A finding's value, low and high; all None where there is none."""
    return [None if finding is None else finding[name] for name in ("value", "low", "high")]


def cores(rows: Mapping[str, Mapping[str, Any]]) -> list[float | None]:
    """The CPUs that the baseline's and the variant's containers used, by their mean throughput and CPU per transaction."""
    found: list[float | None] = []
    for side in ("baseline", "value"):
        tps, cost = (rows[metric][side]["value"] if metric in rows else None for metric in ("throughput", "cpu_per_tx"))
        found.append(None if tps is None or cost is None else tps * cost / 1000)
    return found


def holds(row: Mapping[str, Any]) -> bool:
    """Whether a try's interval holds the truth; one without an interval excludes nothing, but says nothing either."""
    _, low, high = row["ratio"]
    return low is not None and high is not None and low <= row["truth"] <= high


def hit(row: Mapping[str, Any]) -> bool:
    """Whether a try has found the difference that there is, of the right size."""
    return found_it(row) and holds(row)


def found_it(row: Mapping[str, Any]) -> bool:
    """Whether a try has claimed the difference that there is, of whatever size."""
    return row["decision"] == SIGN[row["series"]] and row["grade"] != "C"


def figures(raw: Sequence[Mapping[str, Any]], wanted: int) -> list[Figure]:
    """Hits, false alarms, coverage of the truth, with exact intervals; what a try takes."""
    found: list[Figure] = []
    for row in raw:
        if row["series"] == "calibration":
            method = "pgbench alone by turns in one container, Hodges-Lehmann on the log ratios of its starts"
            note = f"a string of {row['bytes']} bytes"
            found.append(
                Figure("work: true cost of a transaction", row["ratio"], "×", row["low"], row["high"], row["pairs"], method, note=note)
            )
    for name in SERIES:
        rows = [row for row in raw if row["series"] == name]
        if not rows:
            continue
        n = len(rows)
        if name == "same":
            alarms = sum(row["decision"] in ("higher", "lower") for row in rows)
            met = alarms * TRIES <= ALARMS * n if n >= TRIES else None
            found.append(share("same: false alarms", alarms, n, f"≤ {ALARMS} of {TRIES}", met))
        else:
            hits = sum(map(hit, rows))
            met = hits * TRIES >= FOUND * n if n >= TRIES else None
            found.append(share(f"{name}: found, with an interval that holds the truth", hits, n, f"≥ {FOUND} of {TRIES}", met))
            found.append(share(f"{name}: found", sum(map(found_it, rows)), n))
        found.append(share(f"{name}: interval holds the truth", sum(map(holds, rows)), n))
        found.append(share(f"{name}: A/A pair differs from itself", sum(_differs(row["floor"]) for row in rows), n))
        if name == "quota":
            found += full(rows)
        middle = sorted(row["seconds"] for row in rows)[n // 2]
        longest, blocks = max(row["seconds"] for row in rows), sorted(row["blocks"] for row in rows)[n // 2]
        note = f"the longest {longest:.0f} s; {blocks:.0f} blocks (median)"
        met, goal = longest <= 60 * MINUTES if n >= wanted else None, f"≤ {60 * MINUTES:.0f} s each"
        found.append(Figure(f"{name}: seconds of a try", middle, "s", n=n, method="median", goal=goal, met=met, note=note))
    return found


def full(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """How much of the smaller share of their quotas the two sides used, in the worst try: what the truth of *quota* rests on."""
    quotas = (QUOTA, QUOTA * (1 - COST))
    shares = [min(used / quota for used, quota in zip(row["cores"], quotas, strict=True)) for row in rows if None not in row["cores"]]
    if not shares:
        return []
    least, short = min(shares), sum(share < FULL for share in shares)
    note = f"of {short} the truth is not sure: they used less than {FULL:.0%}" if short else "both sides used theirs up"
    return [Figure("quota: share of the quota that was used", 100 * least, "%", n=len(shares), method="the worst try", note=note)]


def _differs(ratio: Sequence[float | None]) -> bool:
    _, low, high = ratio
    return low is not None and high is not None and not low <= 1 <= high


def share(name: str, hits: int, n: int, goal: str = "", met: bool | None = None) -> Figure:
    """A share in per cent with its exact interval at 95 %."""
    from scipy.stats import binomtest

    found = binomtest(hits, n).proportion_ci(0.95, "exact")
    return Figure(name, 100 * hits / n, "%", 100 * found.low, 100 * found.high, n, METHOD, goal, met, f"{hits} of {n}")


def scripts(place: Path, size: int) -> tuple[Path, Path]:
    """A select of one row and of the length of a string made of what it read: of one byte, and of ``size``.

    They differ in the length alone, so that what is dearer is proportional to it.
    """
    files = []
    for name, length in {"plain": 1, "dear": size}.items():
        files.append(place / f"{name}.sql")
        columns = f"abalance, octet_length(repeat(chr(65 + aid % 26), {length}))"
        files[-1].write_text(f"\\set aid random(1, 100000 * :scale)\nSELECT {columns} FROM pgbench_accounts WHERE aid = :aid;\n")
        files[-1].chmod(0o644)
    return files[0], files[1]


def calibrated(place: Path, seed: int, starts: int, rounds: int) -> dict[str, Any]:
    """How much more CPU a transaction costs with the string, measured without ``compare``; the string made so that it is about 5 %."""
    node = deployed.CountedNode()
    with deployed.watcher() as progress, deployed.deployed(node, progress, databases=(1,), vcpus=1.0, scale=10) as up:
        size, weight, weighted_cost = BYTES, 0.0, 0.0
        for few in (*[max(3, starts // 3)] * TUNINGS, starts):
            rng, files, rows = random.Random(f"{seed} {size}"), scripts(place, size), []
            for _ in range(few):
                played = _by_turns(up, node, files, rounds, rng)
                rows.append({name: fmean(row[name] for row in played) for name in played[0]})
            estimate = paired.ratio([row["dear cpu"] for row in rows], [row["plain cpu"] for row in rows])
            cost = estimate.value - 1
            outcome.say(f"calibration: a string of {size} bytes costs {cost:.2%}, {few} starts of pgbench")
            if few < starts:  # the cost of a byte by all calibrations so far: least squares through nothing for no bytes
                weight, weighted_cost = weight + size * size, weighted_cost + size * cost
                each = weighted_cost / weight
                size = round(min(COST / each, size * 4)) if each > 0 else size * 4
    ends = {"ratio": estimate.value, "low": estimate.low, "high": estimate.high}
    return {"series": "calibration", "bytes": size, **ends, "pairs": starts, "raw": rows}


def _by_turns(up: deployed.Deployed, node: Any, files: tuple[Path, Path], rounds: int, rng: random.Random) -> list[dict[str, float]]:
    """CPU seconds of the container per transaction with the plain and with the dear script, round by round."""
    (target,) = up.targets()
    reach, sides = up.fleet.endpoint(target), dict(zip(("plain", "dear"), files, strict=True))

    def cpu() -> float:
        if (used := deployed.containers_cpu(node, up.fleet.view())) is None:
            sys.exit("the container's CPU is not counted here; this needs the cgroup runtime")
        return used

    def load(file: Path) -> slices.Load:
        output = up.fleet.scratch / f"calibration-{file.stem}"
        shutil.rmtree(output, ignore_errors=True)
        node.make_dir(str(output), mode=0o700, user=up.fleet.account)
        endpoint = Endpoint(target, reach.bin, reach.host, reach.port, reach.database, reach.user, str(output), scale=reach.scale)
        wanted = Load(clients=2, threads=1, scripts=(Script(source=str(file)),), protocol="prepared", sampling=slices.SAMPLING)
        argv = PgbenchDriver().argv(wanted, endpoint, slices.longest(rounds, TURNS, TURN))
        inside = wrap(Command(argv, join=reach.handle.join, cpus=reach.handle.cpus, user=up.fleet.account))
        with (output / "progress").open("w") as file_of_progress:
            running = subprocess.Popen(
                inside, env=environment({}), cwd="/", stdin=subprocess.DEVNULL, stdout=file_of_progress, stderr=subprocess.STDOUT, text=True
            )
        return slices.Load(running, output, cpu)

    return slices.measured({side: partial(load, file) for side, file in sides.items()}, rounds, turns=TURNS, seconds=TURN, rng=rng)


if __name__ == "__main__":
    outcome.run(main)
