"""What the sampled transaction log costs, of which latency percentiles come: pgbench that logs, against the same pgbench without a log.

A log of 5 % costs too little to be seen beside the noise of a shared machine. So every transaction is logged, which costs
twenty times as much: a line costs what it costs, however many are written, and of pgherd's own shares the cost follows.
Progress lines stay on both sides; what they cost is a part of "bare ÷ plain" of throughput.py.

The load is pgbench's select-only, prepared: the shortest of all transactions, beside which a line weighs most.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure
from throughput import LOG, bare

from pgherd.analysis.intervals import Estimate
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.prepare.load import sampling
from pgherd.runner.progress import RunObserver

GOAL = 0.99
ALL = {"--sampling-rate": 0}
"""Without this option every transaction is logged."""
CPU = "container CPU"


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 40, "blocks")
    parser.add_argument("--duration", type=float, default=3.0, help="length of each run  [default: 3]")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale  [default: 10]")
    parser.add_argument("--more", action="store_true", help="add to the blocks of the last result, which had the same settings")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 40)
    seconds, scale = (1.0, 1) if options.quick else (options.duration, options.scale)
    seed = outcome.seed_of(options)
    node = LocalNode()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    with deployed.deployed(node, RunObserver(), seed=1, databases=(1,), scale=scale, vcpus=1, cpu_mode="cpuset", clients=2) as up:
        settings = {"seconds": seconds, **up.settings()}
        if options.more:
            raw += outcome.blocks_before("log_cost", options, settings)
        sides: dict[str, Callable[[], dict[str, float]]] = {
            "no log": lambda: bare(up, node, seconds, LOG),
            "sampled": lambda: bare(up, node, seconds),
            "all": lambda: bare(up, node, seconds, ALL),
        }
        for side in sides.values():
            if CPU not in side():  # and what it says is not counted: caches, the first connections
                raise CapabilityError("the cost is told by the container's CPU time, which needs the cgroup runtime; see 'pgherd doctor'")

        def said(number: int, block: dict[str, dict[str, float]]) -> bool:
            raw.append(block)
            outcome.say(f"block {number}: " + ", ".join(f"{side} {row[CPU]:.2f} CPU s per million" for side, row in block.items()))
            return False

        paired.run_blocks(pairs, random.Random(seed), sides, said)
    result = outcome.Outcome("log_cost", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """Transactions per CPU second with a log ÷ without, so that 1 means no cost."""
    cost = paired.ratio([block["all"][CPU] for block in raw], [block["no log"][CPU] for block in raw])
    direct = paired.ratio([block["no log"][CPU] for block in raw], [block["sampled"][CPU] for block in raw])
    reading, writing = (sampling((), read_only=read_only) for read_only in (True, False))
    name, note = "transactions per CPU second, {} ÷ no log", "from the cost of logging all"
    found = of_share(cost, reading)
    return [
        Figure.of(name.format(f"log of {100 * reading:.0f} %"), "", found, f"≥ {GOAL}", outcome.met(found, least=GOAL), note),
        Figure.of(
            name.format(f"log of {100 * writing:.0f} %"),
            "",
            of_share(cost, writing),
            note=f"{note}; loads that write have it, whose transactions take several times the CPU of the one measured: it costs them less",
        ),
        Figure.of(name.format("all logged"), "", of_share(cost, 1.0)),
        Figure.of(name.format("log of 5 %, compared directly"), "", direct),
    ]


def of_share(cost: Estimate, share: float) -> Estimate:
    """Transactions per CPU second with that share of them logged ÷ without a log; ``cost`` is CPU with all logged ÷ without."""

    def kept(ratio: float | None) -> float | None:
        return None if ratio is None else 1 / (1 + share * (ratio - 1))

    value = kept(cost.value)
    assert value is not None
    return replace(cost, value=value, low=kept(cost.high), high=kept(cost.low))


if __name__ == "__main__":
    outcome.run(main)
