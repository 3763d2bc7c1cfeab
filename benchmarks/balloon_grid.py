"""The balloon against guessing: two databases with opposite rhythms, a 75 % pool with the balloon, and the best of four static pools.

Two servers in control groups of half a gigabyte each, below a limit for both that is some way short of that. One of them is
busy and the other nearly idle, in turn. Each block of a cell runs every pool once in a random order (each order is followed by its
reverse). The best static pool is chosen on one half of the blocks and compared on the other half, and the other way
round, so that no luck is counted as its own proof; 75 % without the balloon is always among them. Another static pool that has made
less than nine tenths of the best one in each of a cell's blocks, two at least, is not run again there: a block of a cell tells throughputs
apart by four per cent or so. Each block is written as it ends.

    balloon_grid.py                                                the cells that the balloon is held to
    balloon_grid.py --rates 0,15,30,45,55 --mix reads,updates --content compressible,random --pairs 10
    balloon_grid.py --more --pairs 4                               four more blocks, also after an interruption
    balloon_grid.py --oracle --rates 30 --storage limited          also a balloon whose targets are set by who knows the rhythm, as a
                                                                   result of its own (balloon_oracle)
    balloon_grid.py --anew --pairs 6                               blocks of a balloon that has changed since; static pools have not

Needs root, control groups, and zram for storage 'fast'. A run takes 2.5 phases and twenty seconds; a block of one cell two to five of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import outcome
import paired
from balloon_pair import MB, Cell, Pair, Run, place_for, swap
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.errors import TrialError, UsageError

POOLS = (10, 25, 50, 75)
STATIC = tuple(f"{pool} %" for pool in POOLS)
BALLOON, ORACLE = "75 % + balloon", "75 % + oracle"
SIDES = (*STATIC, BALLOON, ORACLE)
ALWAYS = ("75 %", BALLOON, ORACLE)
"""What runs in each block: all have the pool that the balloon starts from."""
GOAL, LEAST, P99, MORE, SOON = 0.95, 0.90, 1.25, 1.5, 2.0
HOPELESS = 0.9
"""Of the best static pool's throughput: whoever makes less in each block cannot be the best."""
DATA = 0.6
"""Bytes of data in each database, as a share of its container."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 8, "blocks of each cell, an even number")
    parser.add_argument("--rates", default="0,30,55", metavar="%,…", help="how far the memory is overcommitted  [default: 0,30,55]")
    parser.add_argument("--storage", default="fast,limited", help="fast: as it is, zram; limited: 2000 reads/s, swap file  [default: both]")
    parser.add_argument("--mix", default="updates", metavar="KIND,…", help="reads, updates (10 %% of all)  [default: updates]")
    parser.add_argument("--content", default="compressible", metavar="KIND,…", help="compressible, random  [default: compressible]")
    parser.add_argument("--phase", default="20", metavar="S,…", help="seconds for which one is busy  [default: 20]")
    parser.add_argument("--phases", type=int, default=2, help="counted phases of a run, after half of one that is not  [default: 2]")
    parser.add_argument("--container", type=int, default=512, metavar="MB", help="memory of each container  [default: 512; --quick: 256]")
    parser.add_argument("--clients", type=int, default=6, help="clients of the busy one  [default: 6]")
    parser.add_argument("--kind", choices=("system", "embedded"), default="system", help="which PostgreSQL  [default: system]")
    parser.add_argument("--place", type=Path, metavar="DIR", help="where data and swap file lie, on a disk  [default: /var/tmp]")
    parser.add_argument(
        "--oracle", action="store_true", help="also a balloon whose targets are set at each switch: what costs the mechanism"
    )
    parser.add_argument("--set", dest="own", action="append", default=[], metavar="NAME=VALUE", help="a setting below pg_balloon.")
    parser.add_argument("--more", action="store_true", help="add blocks to the last result, which had the same settings")
    parser.add_argument("--anew", action="store_true", help="as --more, but what is there only says which static pools need not run again")
    options = parser.parse_args()
    blocks = options.pairs or (2 if options.quick else 8)
    if blocks % 2:
        raise UsageError(
            f"--pairs {blocks} is odd: the pool is chosen on one half of the blocks and compared on the other; give an even number"
        )
    cells = list(cells_of(options))
    container = (256 if options.quick else options.container) * MB
    settings = {
        "container MB": container // MB, "data MB": round(container * DATA / MB), "clients": options.clients, "phases": 1 if options.quick
        else options.phases, "kind": options.kind, "own": sorted(options.own), "zram": "charged", "oracle": options.oracle,
    }  # fmt: skip
    name = "balloon_oracle" if options.oracle else "balloon_grid"
    raw: list[dict[str, Any]] = []
    if options.more or options.anew:
        raw = outcome.blocks_before(name, options, settings)
    if options.anew:
        raw = [row | {"former": True} for row in raw]
    seed, before = outcome.seed_of(options), outcome.cpu_seconds()
    rng = random.Random(seed)

    def outcome_so_far() -> outcome.Outcome:
        return outcome.Outcome(name, options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))

    own = dict(one.split("=", 1) for one in options.own)
    for content, storage in product(dict.fromkeys(cell.content for cell in cells), dict.fromkeys(cell.storage for cell in cells)):
        here = [cell for cell in cells if (cell.content, cell.storage) == (content, storage)]
        with place_for(options.place) as place:
            pair = Pair(place, options.kind, container, int(container * DATA), content, options.clients)
            try:
                with swap(storage, 4 * container, place) as pair.zram:
                    for row in measured(pair, here, blocks, settings["phases"], own, rng, raw, options.oracle):
                        raw.append(row)
                        outcome.store(outcome_so_far(), options)  # what ends the next block does not lose this one
            finally:
                pair.close()
    outcome.conclude(outcome_so_far(), options)


def cells_of(options: Any) -> Iterable[Cell]:
    """The cells that were asked for; raises UsageError for words that are none."""
    known = {"storage": ("fast", "limited"), "mix": ("reads", "updates"), "content": ("compressible", "random")}
    given: dict[str, list[str]] = {}
    for name, words in known.items():
        given[name] = getattr(options, name).split(",")
        for word in given[name]:
            if word not in words:
                raise UsageError(f"--{name} {word}: choose from {', '.join(words)}")
    if options.quick:
        return [Cell(30, "fast", "updates", content, 4.0) for content in given["content"]]
    try:
        rates, lengths = [int(word) for word in options.rates.split(",")], [float(word) for word in options.phase.split(",")]
    except ValueError:
        raise UsageError(f"--rates {options.rates} and --phase {options.phase} are lists of numbers, such as 0,30,55 and 20") from None
    if not all(0 <= rate <= 70 for rate in rates) or not all(length >= 4 for length in lengths):
        raise UsageError(f"--rates {options.rates} must be from 0 to 70, and --phase {options.phase} at least 4")
    return [Cell(*one) for one in product(rates, given["storage"], given["mix"], given["content"], lengths)]


def measured(
    pair: Pair,
    cells: Sequence[Cell],
    blocks: int,
    phases: int,
    own: dict[str, str],
    rng: random.Random,
    raw: Sequence[dict[str, Any]],
    oracle: bool = False,
) -> Iterator[dict[str, Any]]:
    """Run all blocks of these cells, block by block, so that what drifts hits all cells alike; ``raw`` are all blocks so far."""
    sides = SIDES if oracle else SIDES[:-1]
    orders = {cell: list(paired.orders(blocks, sides, rng)) for cell in cells}
    for block in range(blocks):
        for cell in rng.sample(list(cells), len(cells)):
            so_far = [row for row in raw if row["cell"] == str(cell)]
            number, out = 1 + len(present(so_far)), hopeless(so_far)
            runs: dict[str, Run] = {}
            for side in orders[cell][block]:
                if side in out:
                    continue
                pool = int(side.split(" ")[0])
                runs[side] = pair.run(cell, pair.container * pool // 100, side not in STATIC, phases, own, oracle=side == ORACLE)
                outcome.say(f"{cell}, block {number}, {side}: {runs[side].throughput:,.0f} tps, p99 {runs[side].p99:.1f} ms")
            if broken := sum(run.broken for run in runs.values()):
                raise TrialError(f"pg_balloon_check() found {broken} buffers that break a rule, where none may: a defect of pg_balloon")
            row: dict[str, Any] = {"cell": str(cell), "block": number}
            for side, run in runs.items():
                row |= {f"{side} tps": run.throughput, f"{side} p99 ms": run.p99, f"{side} phases": run.tps}
                row |= {f"{side} half after s": run.half_after, f"{side} killed": run.killed, f"{side} zram MB": run.zram // MB}
            yield row


def hopeless(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Static pools that are not run again in a cell with these blocks: each was far from the best one in all of them, in two at least."""

    def lost(side: str, row: dict[str, Any]) -> bool:
        best = max(row[f"{other} tps"] for other in ran(row) if other in STATIC)
        return side not in ran(row) or bool(row[f"{side} tps"] < HOPELESS * best)

    return tuple(side for side in SIDES if side not in ALWAYS and len(rows) > 1 and all(lost(side, row) for row in rows))


def present(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the blocks that a former balloon was measured in."""
    return [row for row in rows if not row.get("former")]


def ran(row: dict[str, Any]) -> tuple[str, ...]:
    """The sides that were run in a block."""
    return tuple(side for side in SIDES if f"{side} tps" in row)


def compared(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Each block of a cell with the static pool that did best on the other half of its blocks (odd and even ones), of those that
    were run in all blocks."""
    candidates = [side for side in STATIC if all(side in ran(row) for row in rows)]
    halves = [[row for row in rows if row["block"] % 2 == parity] for parity in (0, 1)]
    found = []
    for here, other in (halves, halves[::-1]):
        if other:
            best = max(candidates, key=lambda side: sum(row[f"{side} tps"] for row in other))
            found += [(row, best) for row in here]
    return found


def figures(raw: Sequence[dict[str, Any]]) -> list[Figure]:
    """Of each cell: throughput and p99 against the best static pool, the gain over the same pool, and how soon it is fast."""
    made = []
    for cell in dict.fromkeys(row["cell"] for row in raw):
        rows = [row for row in present(raw) if row["cell"] == cell]
        pairs = compared(rows)
        if not pairs:
            continue
        out = ", ".join(side for side in STATIC if any(side not in ran(row) for row in rows))
        chosen = " and ".join(dict.fromkeys(best for _, best in pairs)) + (
            f"; not run in all blocks, being far behind: {out}" if out else ""
        )
        tps = paired.ratio([row[f"{BALLOON} tps"] for row, _ in pairs], [row[f"{best} tps"] for row, best in pairs])
        goal = f"≥ {GOAL}, lower bound ≥ {LEAST}"
        made.append(Figure.of(f"{cell}: throughput ÷ best static pool", "", tps, goal, at_least(tps, GOAL, LEAST), f"best: {chosen}"))
        p99 = paired.ratio([row[f"{BALLOON} p99 ms"] for row, _ in pairs], [row[f"{best} p99 ms"] for row, best in pairs])
        made.append(Figure.of(f"{cell}: p99 ÷ best static pool's", "", p99, f"≤ {P99}", outcome.met(p99, most=P99)))
        same = paired.ratio([row[f"{BALLOON} tps"] for row in rows], [row["75 % tps"] for row in rows])
        held = cell.startswith("55 %, limited")
        words, met = (f"≥ {MORE}", outcome.met(same, least=MORE)) if held else ("", None)
        made.append(Figure.of(f"{cell}: throughput ÷ same pool without balloon", "", same, words, met, killed(rows)))
        soon = mean_interval([sum(row[f"{BALLOON} half after s"]) / len(row[f"{BALLOON} half after s"]) for row in rows])
        words, met = (f"≤ {SOON}", outcome.met(soon, most=SOON)) if "fast" in cell else ("", None)
        made.append(Figure.of(f"{cell}: after a switch at half of the steady throughput", "s", soon, words, met))
        if all(ORACLE in ran(row) for row in rows):
            made += _of_oracle(cell, pairs)
    return made


def _of_oracle(cell: str, pairs: Sequence[tuple[dict[str, Any], str]]) -> list[Figure]:
    """What the mechanism reaches whose targets are set at each switch, and what the controller reaches of that."""
    made = []
    for unit, words in (("tps", "throughput"), ("p99 ms", "p99")):
        oracle = [row[f"{ORACLE} {unit}"] for row, _ in pairs]
        static = paired.ratio(oracle, [row[f"{best} {unit}"] for row, best in pairs])
        made.append(Figure.of(f"{cell}: {words} of the oracle ÷ best static pool", "", static))
        controller = paired.ratio([row[f"{BALLOON} {unit}"] for row, _ in pairs], oracle)
        made.append(Figure.of(f"{cell}: {words} ÷ oracle", "", controller))
    soon = [sum(row[f"{ORACLE} half after s"]) / len(row[f"{ORACLE} half after s"]) for row, _ in pairs]
    made.append(Figure.of(f"{cell}: the oracle after a switch at half of its steady throughput", "s", mean_interval(soon)))
    return made


def killed(rows: Sequence[dict[str, Any]]) -> str:
    """In how many phases the kernel killed something of a server, by pool; empty if in none."""
    said = []
    for side in SIDES:
        there = [row for row in rows if side in ran(row)]
        if count := sum(row[f"{side} killed"] for row in there):
            said.append(f"{side}: killed for want of memory in {count} of {sum(len(row[f'{side} phases']) for row in there)} phases")
    return ", ".join(said)


def at_least(found: Any, goal: float, bound: float) -> bool | None:
    """Met: the value reaches the goal, and its lower bound the bound. Missed: even its upper bound does not. Else nobody can say."""
    if found.high is not None and found.high < goal:
        return False
    return True if found.value >= goal and found.low is not None and found.low >= bound else None


if __name__ == "__main__":
    outcome.run(main)
