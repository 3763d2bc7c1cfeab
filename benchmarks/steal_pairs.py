"""Simulated comparisons in time slices while a hypervisor takes CPU time away: how much steal a paired block bears.

Each block has 40 slices of each arm in random order, as `compare` runs them. Steal comes in bursts: within one, all slices lose CPU
time. The mean steal, and the length of a burst in slices, vary. The true ratio is 1.00 or 1.05. The arms lose the same share of their
throughput, or one loses a tenth more, because it needs more CPU for a transaction. See docs/explanation/statistics.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import outcome as result
from false_positives import COVERED, GOAL, share
from outcome import Figure, Outcome
from studies_simulated import Floats, end, intervals, ranks

from pgherd.analysis.intervals import Estimate, median_interval
from pgherd.model.analysis import Thresholds

STUDIES, BLOCKS, SLICES, NOISE, DEPTH = 2000, 12, 40, 0.13, 0.7
"""Studies of each case, blocks of each study, slices of an arm in a block, noise of a slice, and CPU taken within a burst."""
STEAL = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
BURSTS = (0.2, 1.0, 10.0, 100.0)
"""Mean length of a burst, in slices. A block has 80 of the two arms."""
TRUTHS, FURTHER_LOSS = (1.0, 1.05), (0.0, 0.1)
LIMIT, BIAS = Thresholds().max_paired_steal, 0.006
"""Steal at which pgherd drops a paired block, and the bias there that is small enough: less than a third of the equivalence margin."""


def lost(rng: np.random.Generator, studies: int, slices: int, steal: float, burst: float) -> Floats:
    """Return the share of CPU time that each slice loses: bursts of a mean length (slices), with quiet time between them.

    Parts of a tenth of a slice are on or off, as in a Markov chain that starts in its long-run distribution.
    """
    parts = 10
    on = steal / DEPTH
    ends = 1 / max(burst * parts, 1.0)
    begins = min(ends * on / (1 - on), 1.0)
    state = rng.random(studies) < on
    taken = np.zeros((studies, slices))
    for index in range(slices):
        for _ in range(parts):
            state = np.where(state, rng.random(studies) >= ends, rng.random(studies) < begins)
            taken[:, index] += DEPTH * state / parts
    return taken


def logs_of(rng: np.random.Generator, studies: int, steal: float, burst: float, truth: float, further: float) -> tuple[Floats, Floats]:
    """Return log ratios of the variant to the baseline (studies × blocks), and each block's mean steal."""
    logs, means = np.empty((studies, BLOCKS)), np.empty((studies, BLOCKS))
    for block in range(BLOCKS):
        taken = lost(rng, studies, 2 * SLICES, steal, burst)
        rounds = taken.reshape(studies, SLICES, 2)
        rounds = rng.permuted(rounds, axis=2)
        noise = np.exp(rng.normal(0, NOISE, rounds.shape))
        baseline = ((1 - rounds[:, :, 0]) * noise[:, :, 0]).sum(axis=1)
        variant = truth * (np.maximum(1 - (1 + further) * rounds[:, :, 1], 0) * noise[:, :, 1]).sum(axis=1)
        logs[:, block], means[:, block] = np.log(variant / baseline), taken.mean(axis=1)
    return logs, means


def case(rng: np.random.Generator, studies: int, steal: float, burst: float, truth: float, further: float) -> dict[str, Any]:
    """Return how studies of one case ended: false outcomes, coverage and bias of the ratio."""
    logs, means = logs_of(rng, studies, steal, burst, truth, further)
    used = ranks(BLOCKS)
    ended = end(intervals(logs, used), list(used))
    effect = math.log(truth)
    # The last look tells the interval's coverage without the selection by an early stop.
    last = dict([list(used.items())[-1]])
    made = intervals(logs, last)[0]
    bias = median_interval((np.median(logs, axis=1) - effect).tolist())
    assert bias.low is not None and bias.high is not None, "there are six studies or more"
    return {
        "steal": steal,
        "burst": burst,
        "truth": truth,
        "further loss": further,
        "studies": studies,
        "steal in blocks": float(means.mean()),
        "blocks above 2 %": float((means > 0.02).mean()),
        "false": int(np.isin(ended.outcome, (1, -1)).sum()) if truth == 1 else int((ended.outcome == -1).sum()),
        "covered": int(((made[1] <= effect) & (effect <= made[2])).sum()),
        "bias": [math.expm1(end) for end in (bias.value, bias.low, bias.high)],
    }


def figures(rows: list[dict[str, Any]]) -> list[Figure]:
    """Sum up the cases: error rates and coverage where the arms lose the same, and the bias where one loses more."""
    same = [row for row in rows if not row["further loss"]]
    equal, unequal = ([row for row in same if row["truth"] == truth] for truth in TRUTHS)
    worst, least = max(equal, key=lambda row: row["false"]), min(unequal, key=lambda row: row["covered"])
    found = [
        share(
            f"false outcomes, steal up to {STEAL[-1]:.0%}".replace("%", " %"),
            sum(row["false"] for row in equal),
            sum(row["studies"] for row in equal),
        ),
        share("false outcomes, the worst case", worst["false"], worst["studies"], most=GOAL),
        share("ratio 1.05 covered", sum(row["covered"] for row in unequal), sum(row["studies"] for row in unequal)),
        share("ratio 1.05 covered, the worst case", least["covered"], least["studies"], least=COVERED),
    ]
    for steal in (LIMIT, 2 * LIMIT):
        biased = [row for row in rows if row["further loss"] and row["steal"] == steal]
        largest = max(biased, key=lambda row: max(abs(end) for end in row["bias"]))
        sign = math.copysign(1, largest["bias"][0])
        low, value, high = sorted(sign * end for end in largest["bias"])
        n, method = largest["studies"], "median of the studies of the burst length with the largest"
        estimate = Estimate(100 * value, 100 * low, 100 * high, 0.95, n, method)
        goal = (f"± {100 * BIAS:g} %", result.met(estimate, least=-100 * BIAS, most=100 * BIAS)) if steal == LIMIT else ("", None)
        found.append(Figure.of(f"bias if a variant loses a tenth more, {100 * steal:g} % steal", "%", estimate, *goal))
    return found


def main() -> None:
    options = result.parser(__doc__, STUDIES, "studies of each case").parse_args()
    studies = options.pairs or (100 if options.quick else STUDIES)
    outcome = Outcome("steal_pairs", options.quick, result.seed_of(options))
    outcome.settings = {
        "studies": studies,
        "blocks": BLOCKS,
        "slices of an arm": SLICES,
        "noise of a slice": NOISE,
        "taken in a burst": DEPTH,
    }
    before = result.cpu_seconds()
    rng = np.random.default_rng(outcome.seed)
    for further in FURTHER_LOSS:
        for steal in STEAL:
            outcome.raw += [case(rng, studies, steal, burst, truth, further) for burst in BURSTS for truth in TRUTHS]
            result.say(f"steal {steal:.0%}, {further:.0%} more lost by the variant")
    outcome.figures = figures(outcome.raw)
    outcome.noise = result.noise_since(before)
    result.conclude(outcome, options)


if __name__ == "__main__":
    result.run(main)
