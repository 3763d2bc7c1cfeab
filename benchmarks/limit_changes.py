"""A memory limit that is halved, quartered and restored under load: pg_balloon against native pools.

Each run is a whole `pgherd balloon limits` with several trials of each pool, once with swap in compressed memory and once without swap.
A trial changes the limit eight times, after a phase that only starts new connections, as each change does. Goals are for pg_balloon.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import command
import outcome
from outcome import Figure

from pgherd.analysis.intervals import Estimate, share_interval
from pgherd.studies.balloon_limits.options import BALLOON

LIMITS = (100, 100, 50, 100, 25, 100, 50, 100, 25, 100)
CHANGES = len(LIMITS) - 2
TRIALS = 7
"""With both kinds of swap, each pool goes through 112 changes in three hours."""
LEAST_CHANGES = 100
RATIO = 0.97
"""Goal of the steady throughput, as a share of that of the best native pool."""
AFTER_LESS_S, AFTER_MORE_S = 3.0, 5.0
"""Goals of the time to 90 % of the steady throughput after a smaller and after a larger limit."""
ADDED_MS = 100.0
"""Goal of the slowest transaction, beyond the slowest of the phase without a change."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, TRIALS, "trials of each pool and swap")
    parser.add_argument("--swap", action="append", choices=["zram", "none"], help="swap of a run (repeatable)  [default: zram and none]")
    parser.add_argument("--more", action="store_true", help="keep the other kind of swap of the last result, which had the same settings")
    parser.add_argument("--pools", default="small,large,balloon", help="pools  [default: small,large,balloon]")
    parser.add_argument("--memory", default="1GB", help="largest limit  [default: 1GB]")
    parser.add_argument("--duration", type=float, default=16.0, metavar="S", help="seconds between two changes  [default: 16]")
    options = parser.parse_args()
    if options.quick:
        options.memory, options.duration, options.swap, options.pools = "256MB", 3.0, ["zram"], "balloon"
    trials = options.pairs or (1 if options.quick else TRIALS)
    seed = outcome.seed_of(options)
    settings = {"memory": options.memory, "limits, %": list(LIMITS), "seconds": options.duration, "trials of a pool": trials}
    swaps = options.swap or ["zram", "none"]
    raw: list[dict[str, Any]] = []
    if options.more:
        raw = [row for row in outcome.blocks_before("limit_changes", options, settings) if row["swap"] not in swaps]
    before = outcome.cpu_seconds()
    for swap in swaps:
        raw += measured(swap, options, trials, seed)
        made = outcome.Outcome("limit_changes", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
        outcome.store(made, options)  # an interrupted hour is not lost
    outcome.conclude(made, options)


def measured(swap: str, options: Any, trials: int, seed: int) -> list[dict[str, Any]]:
    """Return a row for each pool and change of one run, with the pool's kills."""
    words = ["balloon", "limits", "--pools", options.pools, "--swap", swap, "--memory", options.memory, "--repeats", str(trials)]
    words += ["--limits", ",".join(map(str, LIMITS)), "--duration", f"{options.duration:g}s", "--seed", str(seed), "--yes"]
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory:
        done = command.pgherd([*words, "--no-report", "--json", "--runs-dir", f"{directory}/runs"])
    if done.returncode not in (0, 1):
        outcome.say(done.stderr.strip())
        raise SystemExit(done.returncode)
    document = json.loads(done.stdout)
    outcome.say(f"swap {swap}: {document['answer']}")
    killed = {row["pool"]: row for row in document["tables"]["pools"]}
    return [
        {"swap": swap, **row, "killed": _first(killed[row["pool"]]["killed"]), "trials": killed[row["pool"]]["trials"]}
        for row in document["tables"]["balloon-limits"]
    ]


def _first(text: str) -> int:
    """Return the first number of a text such as '2 of 13'. An empty one has none: no trial ended."""
    return int(text.partition(" ")[0] or 0)


def _last(text: str) -> int:
    """Return the last number of such a text."""
    return int(text.rpartition(" ")[2] or 0)


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Kills and refused changes by pool, then throughput, time to recover and latency by swap and pool."""
    changed = [row for row in raw if row["number"] > 1]
    made = []
    for pool in dict.fromkeys(row["pool"] for row in changed):
        made += _counts(f"pool {pool}", [row for row in changed if row["pool"] == pool], judged=pool == BALLOON)
    for case in dict.fromkeys((row["swap"], row["pool"]) for row in changed):
        rows = [row for row in changed if (row["swap"], row["pool"]) == case]
        name, judged = f"{'swap in zram' if case[0] == 'zram' else 'no swap'}, pool {case[1]}", case[1] == BALLOON
        for row in rows[: CHANGES // 2]:  # the second half repeats the first
            again = rows[row["number"] - 2 + CHANGES // 2]
            for one, when in ((row, ""), (again, ", again")):
                made += _of_change(f"{name}, {one['change'].partition(': ')[2]}{when}", one, judged=judged)
    return made


def _counts(name: str, rows: Sequence[Mapping[str, Any]], *, judged: bool) -> list[Figure]:
    trials = {row["swap"]: (row["killed"], row["trials"]) for row in rows}.values()
    changes = sum(_last(row["refused"]) for row in rows)
    made = []
    for words, count, n in (
        ("trials with an OOM kill", sum(killed for killed, _ in trials), sum(n for _, n in trials)),
        ("refused changes", sum(_first(row["refused"]) for row in rows), changes),
    ):
        if not n:
            continue
        share = share_interval(count, n)
        percent = replace(share, value=100 * share.value, low=100 * (share.low or 0.0), high=100 * (share.high or 0.0))
        met = False if count else True if changes >= LEAST_CHANGES else None
        goal = ("none", met) if judged else ("", None)
        made.append(Figure.of(f"{name}: {words}", "%", percent, *goal, note=f"{count} of {n}, in {changes} changes"))
    return made


def _of_change(name: str, row: Mapping[str, Any], *, judged: bool) -> list[Figure]:
    less = not row["change"].endswith("to 100 %")
    most = AFTER_LESS_S if less else AFTER_MORE_S
    made = []
    for column, words, unit, goal, least, greatest in (
        ("native_ratio", "of the best native pool", "ratio", f"at least {RATIO:g}", RATIO, math.inf),
        ("recovered_after", "time to 90 %", "s", f"at most {most:g}", -math.inf, most),
        ("p99_change_ratio", "p99, of that without a change", "ratio", "", -math.inf, math.inf),
        ("slowest_added", "slowest transaction, added", "ms", f"at most {ADDED_MS:g}", -math.inf, ADDED_MS),
    ):
        cell = row[column]
        if cell["value"] is None:
            continue
        found = Estimate(cell["value"], cell["low"], cell["high"], cell["confidence"], cell["n"], cell["method"], cell["note"] or "")
        met = found.value <= greatest if column == "slowest_added" else outcome.met(found, least=least, most=greatest)
        judgement = (goal, met) if judged and goal else ("", None)
        made.append(Figure.of(f"{name}: {words}", unit, found, *judgement))
    return made


if __name__ == "__main__":
    outcome.run(main)
