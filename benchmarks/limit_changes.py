"""A memory limit that is halved, quartered and restored under load: pg_balloon against native pools.

Each case is a whole `pgherd balloon limits` with several trials of each pool: with and without swap in compressed memory, with and without
updates, at once and in steps; and in a virtual machine, whose balloon device changes its memory. A trial changes the limit eight times,
after a phase that only starts new connections, as each change does. Goals are for pg_balloon. Compared is with the best native pool for
each limit: one for the smallest, the middle and the largest.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import command
import outcome
from outcome import Figure

from pgherd.analysis.block_ratios import paired_ratio
from pgherd.analysis.intervals import LEAST, Estimate, median_interval, share_interval
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.store.run_directory import RunDirectory
from pgherd.studies.balloon_limits.analyse import limited_after, p99_of, recovered_after, slowest, steady, zram
from pgherd.studies.balloon_limits.options import BALLOON

AT_ONCE = (100, 100, 50, 100, 25, 100, 50, 100, 25, 100)
IN_STEPS = (100, 100, 75, 50, 100, 75, 50, 35, 25, 100)
UPDATES = ("--updates", "10")
CASES = {
    "none": ("no swap", ("--swap", "none"), AT_ONCE),
    "zram": ("swap in zram", ("--swap", "zram"), AT_ONCE),
    "none-updates": ("no swap, 10 % updates", ("--swap", "none", *UPDATES), AT_ONCE),
    "zram-updates": ("swap in zram, 10 % updates", ("--swap", "zram", *UPDATES), AT_ONCE),
    "none-steps": ("no swap, in steps", ("--swap", "none"), IN_STEPS),
    "guest": ("guest with virtio-balloon", ("--runtime", "vm"), AT_ONCE),
}
"""Case → its name in figures, its options, and the limit of each phase in percent."""
UNCHANGED = 1
"""Number of the phase that only starts new connections."""
TRIALS = 3
"""In all cases together, each pool goes through 144 changes, 78 of them to lower limits, in five hours."""
LEAST_CHANGES = 100
"""Changes after which no kill, no refusal and no late transaction are a result."""
RATIO = 0.97
"""Goal of the steady throughput, as a share of that of the best native pool."""
AFTER_LESS_S, AFTER_MORE_S = 3.0, 5.0
"""Goals of the time to 90 % of the steady throughput after a limit of half or more, and after a larger limit."""
MOST_MS = 100.0
"""Goal of the slowest transaction after a change, if no transaction of the phase without a change took longer."""
OF_TRIALS = "median of each trial's changes"

Row = Mapping[str, Any]


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, TRIALS, "trials of each pool and case")
    parser.add_argument("--case", action="append", choices=list(CASES), help="case to measure (repeatable)  [default: all]")
    parser.add_argument("--more", action="store_true", help="keep the other cases of the last result, which had the same settings")
    parser.add_argument("--pools", default="small,middle,large,balloon", help="pools  [default: small,middle,large,balloon]")
    parser.add_argument("--memory", default="1GB", help="largest limit  [default: 1GB]")
    parser.add_argument("--duration", type=float, default=16.0, metavar="S", help="seconds between two changes  [default: 16]")
    options = parser.parse_args()
    if options.quick:
        options.memory, options.duration, options.case, options.pools = "256MB", 3.0, ["zram"], BALLOON
    trials = options.pairs or (1 if options.quick else TRIALS)
    seed = outcome.seed_of(options)
    settings = {"memory": options.memory, "pools": options.pools, "seconds": options.duration, "trials of a pool and case": trials}
    settings |= {"limits, %": list(AT_ONCE), "limits in steps, %": list(IN_STEPS)}
    cases = options.case or list(CASES)
    raw: list[dict[str, Any]] = []
    if options.more:
        raw = [row for row in outcome.blocks_before("limit_changes", options, settings) if row["case"] not in cases]
    before = outcome.cpu_seconds()
    for case in cases:
        raw += measured(case, options, trials, seed)
        made = outcome.Outcome("limit_changes", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
        outcome.store(made, options)  # an interrupted hour is not lost
    outcome.conclude(made, options)


def measured(case: str, options: Any, trials: int, seed: int) -> list[dict[str, Any]]:
    """Return a row for each trial of one run."""
    name, given, limits = CASES[case]
    words = ["balloon", "limits", *given, "--pools", options.pools, "--memory", options.memory]
    words += ["--limits", ",".join(map(str, limits)), "--duration", f"{options.duration:g}s", "--repeats", str(trials)]
    words += ["--seed", str(seed), "--yes", "--no-report", "--json"]
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
        done = command.pgherd([*words, "--runs-dir", f"{directory}/runs"])
        if done.returncode not in (0, 1):
            outcome.say(done.stderr.strip())
            raise SystemExit(done.returncode)
        outcome.say(f"{name}: {json.loads(done.stdout)['answer']}")
        return [row_of(case, result) for result in RunDirectory.all(Path(directory) / "runs")[-1].results()]


def row_of(case: str, result: TrialResult) -> dict[str, Any]:
    """Return a trial's row. A trial that an OOM kill ended has no phases."""
    return {
        "case": case,
        "pool": result.trial.point["pool"],
        "repeat": result.trial.repeat,
        "killed": bool(result.oom_kills),
        "error": None if result.oom_kills else result.error,
        "tainted": result.tainted,
        "phases": [phase_of(phase) for phase in result.phases],
    }


def phase_of(phase: PhaseResult) -> dict[str, Any]:
    """Return what a phase came to: tps, s, ms and MB."""
    return {
        "tps": steady(phase),
        "recovered": recovered_after(phase),
        "limited": limited_after(phase),
        "p99": p99_of(phase),
        "slowest": slowest(phase),
        "zram": zram(phase),
    }


def changes(row: Row) -> Iterator[tuple[int, int, Row]]:
    """Yield the limit before, the limit after, and the phase of each change of a trial."""
    *_, limits = CASES[row["case"]]
    for number, phase in enumerate(row["phases"]):
        if number > UNCHANGED:
            yield limits[number - 1], limits[number], phase


def counted(raw: Sequence[Row]) -> list[Row]:
    """Return the finished trials, without the tainted ones of a case and pool that has at least ``LEAST`` clean ones."""
    finished = [row for row in raw if row["phases"]]
    clean = Counter((row["case"], row["pool"]) for row in finished if not row["tainted"])
    return [row for row in finished if not row["tainted"] or clean[row["case"], row["pool"]] < LEAST]


def figures(raw: Sequence[Row]) -> list[Figure]:
    """Kills and refused limits of each pool, then pg_balloon's throughput, recovery and latency."""
    made = []
    for pool in dict.fromkeys(row["pool"] for row in raw):
        made += _counts(f"pool {pool}", [row for row in raw if row["pool"] == pool], judged=pool == BALLOON)
    used = counted(raw)
    balloon = [row for row in used if row["pool"] == BALLOON]
    if balloon:
        made += _ratios(used, raw) + _recovery(balloon) + _latency(balloon) + _zram(used)
    return made


def _counts(name: str, rows: Sequence[Row], *, judged: bool) -> list[Figure]:
    """Kills and refusals. A larger limit is never refused, so the lower ones are counted."""
    changed = [(before, after, phase) for row in rows for before, after, phase in changes(row)]
    lower = [phase for before, after, phase in changed if after < before]
    failed = sum(row.get("error") is not None for row in rows)
    made = []
    for words, hits in (
        ("trials with an OOM kill", [row["killed"] for row in rows]),
        ("refused lower limits", [phase["limited"] is None for phase in lower]),
    ):
        if not hits:
            continue
        share = share_interval(sum(hits), len(hits))
        percent = replace(share, value=100 * share.value, low=100 * (share.low or 0.0), high=100 * (share.high or 0.0))
        met = False if any(hits) else True if len(changed) >= LEAST_CHANGES and not failed else None
        goal = ("none", met) if judged else ("", None)
        note = f"{sum(hits)} of {len(hits)}, in {len(lower)} lower limits"
        note += f"; {failed} trials failed for another reason" if failed else ""
        made.append(Figure.of(f"{name}: {words}", "%", percent, *goal, note=note))
    return made


def _ratios(used: Sequence[Row], raw: Sequence[Row]) -> list[Figure]:
    """Steady throughput at each limit, a pair for each case and repeat: the mean of the trial's phases with this limit."""
    made = []
    for words, fits in (
        ("at 100 %, before any change", lambda number, before, after: number == UNCHANGED),
        *((f"at {limit} %", partial(_of_limit, limit)) for limit in sorted(set(AT_ONCE), reverse=True)),
    ):
        pairs = {
            case: list(_pairs([row for row in used if row["case"] == case], [row for row in raw if row["case"] == case], fits))
            for case in dict.fromkeys(row["case"] for row in used)
        }
        every = [pair for of_case in pairs.values() for pair in of_case]
        if not every:
            continue
        found, goal = _ratio(every), f"at least {RATIO:g}"
        met = outcome.met(found, least=RATIO) if found.value else False
        made.append(Figure.of(f"{words}, all cases: throughput, of the best native pool", "ratio", found, goal, met))
        for case, of_case in pairs.items():
            if of_case and len(pairs) > 1:
                name = f"{words}, {CASES[case][0]}: throughput, of the best native pool"
                made.append(Figure.of(name, "ratio", _ratio(of_case)))
    return made


def _ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return the ratio of pairs; 0 without an interval if pg_balloon stood still in one."""
    still = sum(tps <= 0 for tps, _ in pairs)
    if still:
        return Estimate(0.0, None, None, None, len(pairs), "", f"no ratio: no transaction with pg_balloon in {still} of {len(pairs)} pairs")
    return paired_ratio(*zip(*pairs, strict=True))


def _of_limit(limit: int, number: int, before: int, after: int) -> bool:
    return number > UNCHANGED and after == limit


def _pairs(used: Sequence[Row], raw: Sequence[Row], fits: Callable[[int, int, int], bool]) -> Iterator[tuple[float, float]]:
    """Yield the throughput of pg_balloon and of the best native pool in each repeat of a case that both have.

    A native pool is none of them if a trial was killed, or if it did not keep to one of these limits. pg_balloon's repeats in which it did
    not keep to one are left out.
    """
    steady_of: dict[str, dict[int, float]] = {}
    unable = {row["pool"] for row in raw if row["killed"]}
    for row in sorted(used, key=lambda row: row["repeat"]):
        limits = CASES[row["case"]][-1]
        there = [phase for number, phase in enumerate(row["phases"]) if number and fits(number, limits[number - 1], limits[number])]
        refused = any(phase["limited"] is None for phase in there)
        if refused and row["pool"] != BALLOON:
            unable.add(row["pool"])
        if there and not refused:
            steady_of.setdefault(row["pool"], {})[row["repeat"]] = fmean(phase["tps"] for phase in there)
    native = [of_pool for pool, of_pool in steady_of.items() if pool != BALLOON and pool not in unable]
    if native:
        best = max(native, key=lambda of_pool: fmean(of_pool.values()))
        balloon = steady_of.get(BALLOON, {})
        yield from ((balloon[repeat], other) for repeat, other in best.items() if repeat in balloon and other > 0)


def _recovery(rows: Sequence[Row]) -> list[Figure]:
    made = []
    for words, goal, chosen in (
        ("to half or more of it", AFTER_LESS_S, lambda before, after: before / 2 <= after < before),
        ("to a quarter", None, lambda before, after: after < before / 2),
        ("to a larger one", AFTER_MORE_S, lambda before, after: after > before),
    ):
        by_trial = [[phase for before, after, phase in changes(row) if chosen(before, after)] for row in rows]
        seen = [[phase["recovered"] for phase in of_trial if phase["recovered"] is not None] for of_trial in by_trial]
        times = [time for of_trial in seen for time in of_trial]
        if not times:
            continue
        # Changes of one trial have the server and the load in common.
        found, judged = median_interval([median(of_trial) for of_trial in seen if of_trial]), ("", None)
        note = OF_TRIALS
        if goal is not None:
            note = f"{sum(time <= goal for time in times)} of {len(times)} changes within the goal; {note}"
            judged = (f"at most {goal:g}", outcome.met(found, most=goal))
        made.append(Figure.of(f"limit changed {words}: median time to 90 %", "s", found, *judged, note=note))
        made.append(Figure(f"limit changed {words}: longest time to 90 %", max(times), "s", n=len(times), method="maximum"))
        phases = [phase for of_trial in by_trial for phase in of_trial]
        limited = [math.inf if phase["limited"] is None else phase["limited"] for phase in phases]
        each = [
            median(math.inf if phase["limited"] is None else phase["limited"] for phase in of_trial) for of_trial in by_trial if of_trial
        ]
        taken = median_interval(each)
        if math.isfinite(taken.value) and max(limited) > 0.1:
            never = limited.count(math.inf)
            if never:
                taken = replace(taken, low=None, high=None, note=f"no interval: not in time in {never} of {len(limited)}")
            name = f"limit changed {words}: time until the kernel took it"
            made.append(Figure.of(name, "s", taken, note=f"longest in time {max(filter(math.isfinite, limited)):.1f} s"))
    return made


def _latency(rows: Sequence[Row]) -> list[Figure]:
    """The slowest transaction of all changes, without trials in which one was as slow without a change: those are stalls of the host."""
    slowest_of, late = [], 0
    ratios: dict[str, list[float]] = {"lower": [], "larger": []}  # a value of each trial: its changes have their reference in common
    for row in rows:
        without, of_trial = row["phases"][UNCHANGED], {words: [] for words in ratios}
        for before, after, phase in changes(row):
            if phase["p99"] and without["p99"]:
                of_trial["lower" if after < before else "larger"].append(phase["p99"] / without["p99"])
            if None not in (phase["slowest"], without["slowest"]) and without["slowest"] <= MOST_MS:
                slowest_of.append(phase["slowest"])
                late += phase["slowest"] > MOST_MS
        for words, values in of_trial.items():
            ratios[words] += [median(values)] if values else []
    made = []
    if slowest_of:
        largest = Estimate(max(slowest_of), None, None, None, len(slowest_of), "largest of the changes", "no interval: it is an extreme")
        met = False if late else True if len(slowest_of) >= LEAST_CHANGES else None
        note = f"{late} of {len(slowest_of)} changes had one above the goal"
        made.append(Figure.of("slowest transaction after a change", "ms", largest, f"at most {MOST_MS:g}", met, note=note))
    for words, values in ratios.items():
        if values:
            name = f"limit changed to a {words} one: p99, of the phase without a change"
            made.append(Figure.of(name, "ratio", median_interval(values), note=OF_TRIALS))
    return made


def _zram(raw: Sequence[Row]) -> list[Figure]:
    """Memory of the compressed swap at the smallest limit. It is charged to no limit, so that a pool in swap has more than its limit."""
    made = []
    for pool in dict.fromkeys(row["pool"] for row in raw):
        by_trial = [
            [phase["zram"] for _, after, phase in changes(row) if after == min(AT_ONCE) and phase["zram"] is not None]
            for row in raw
            if row["pool"] == pool
        ]
        used = [median(of_trial) for of_trial in by_trial if of_trial]
        if used:
            name = f"pool {pool} at {min(AT_ONCE)} %: memory of compressed swap, beyond the limit"
            made.append(Figure.of(name, "MB", median_interval(used), note=OF_TRIALS))
    return made


if __name__ == "__main__":
    outcome.run(main)
