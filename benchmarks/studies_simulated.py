"""Simulated comparisons: trials with noise as machines have it, in the order a study runs them, many studies at once."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgherd.analysis import group_sequential
from pgherd.analysis.group_sequential import bounds

Floats = NDArray[np.float64]

REAL = Path(__file__).parent / "results" / "throughput.json"
SEGMENT = 30
"""Consecutive real trials that are kept together: their autocorrelation reaches over about ten."""


def iid(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """Independent, with heavy tails: Student's t with four degrees of freedom, scaled to a standard deviation of one."""
    return rng.standard_t(4, (studies, trials)) / math.sqrt(2)


def drift(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """Trial noise, plus a trend and a slow wave over the run of several times its size."""
    at = np.linspace(-0.5, 0.5, trials)
    trend, wave, phase = rng.normal(0, 6, (studies, 1)), rng.normal(0, 2, (studies, 1)), rng.uniform(0, 2 * np.pi, (studies, 1))
    return rng.normal(0, 1, (studies, trials)) + trend * at + wave * np.sin(4 * np.pi * at + phase)


def autocorrelated(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """AR(1) with a coefficient of 0.8 and heavy tails; a standard deviation of one."""
    made = iid(rng, studies, trials)
    for i in range(1, trials):
        made[:, i] = 0.8 * made[:, i - 1] + 0.6 * made[:, i]
    return made


def bursts(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """Half the noise, and bursts of foreign load: one begins at every 25th trial on average, lasts four, and costs two to eight
    standard deviations."""
    made, left, depth = rng.normal(0, 0.5, (studies, trials)), np.zeros(studies), np.zeros(studies)
    for i in range(trials):
        begins = (left <= 0) & (rng.random(studies) < 0.04)
        left = np.where(begins, rng.geometric(0.25, studies), left)
        depth = np.where(begins, rng.uniform(2, 8, studies), depth)
        made[:, i] -= np.where(left > 0, depth, 0)
        left -= 1
    return made


def stalls(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """A quiet machine on which one trial in seven stalls and loses six standard deviations: as skewed as can be."""
    return rng.normal(0, 0.2, (studies, trials)) - 6 * (rng.random((studies, trials)) < 1 / 7)


def louder(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """Noise that grows, or dies down, ninefold in the course of the study."""
    exponent = np.where(rng.random((studies, 1)) < 0.5, 1, -1) * np.linspace(-1, 1, trials)
    return rng.normal(0, 1, (studies, trials)) * 3.0**exponent


def everything(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """Drift, autocorrelation with heavy tails, and bursts, added up."""
    return (drift(rng, studies, trials) + autocorrelated(rng, studies, trials) + bursts(rng, studies, trials)) / math.sqrt(3)


def real(rng: np.random.Generator, studies: int, trials: int) -> Floats:
    """The committed throughput benchmark's trials in the order they ran, each side's median taken out, in segments of 30
    drawn at random. Not scaled: the logarithm of throughput."""
    level = real_series()
    starts = rng.integers(0, len(level), (studies, math.ceil(trials / SEGMENT)))
    index = (starts[:, :, None] + np.arange(SEGMENT)) % len(level)
    return level[index.reshape(studies, -1)[:, :trials]]


def real_series() -> Floats:
    """Log throughput of the committed benchmark's single trials, less the median of their side."""
    blocks: list[dict[str, Any]] = json.loads(REAL.read_text())["raw"]
    middle = {side: float(np.median([math.log(block[side]["tps"]) for block in blocks])) for side in blocks[0]}
    return np.array([math.log(block[side]["tps"]) - middle[side] for block in blocks for side in block])


MODELS = {
    "independent": iid,
    "drift": drift,
    "autocorrelated": autocorrelated,
    "bursts": bursts,
    "stalls": stalls,
    "changing size": louder,
    "all together": everything,
    "real": real,
}


ARMS = 3
"""Trials of a block: the variant, the baseline, and the baseline again."""


def log_ratios(noise: Floats, rng: np.random.Generator, both: bool = False) -> Floats:
    """The variant ÷ the baseline of each block, as log ratios (studies × blocks), when nothing differs but the noise.

    ``noise``: studies × trials in the order of time. Each block runs its arms in an order drawn anew. ``both``: against the
    geometric mean of the block's two baselines.
    """
    blocks = rng.permuted(noise.reshape(len(noise), -1, ARMS), axis=2)
    return blocks[:, :, 0] - (blocks[:, :, 1:].mean(axis=2) if both else blocks[:, :, 1])


def in_turn(model: str, rng: np.random.Generator, studies: int, most: int, hosts: int, noise: float) -> Floats:
    """Log ratios of studies whose blocks take turns on hosts, when nothing differs: each host has its own course of noise, of a size
    between a third and three times ``noise`` (of the real one: of that)."""
    logs = np.empty((studies, most))
    for host in range(hosts):
        own = logs[:, host::hosts]
        size = (1.0 if model == "real" else noise) * 3.0 ** rng.uniform(-1, 1, (studies, 1))
        own[:] = log_ratios(MODELS[model](rng, studies, ARMS * own.shape[1]), rng) * size
    return logs


def intervals(logs: Floats, ranks: dict[int, int]) -> Floats:
    """The rank interval of each study at each look, as `sequential` makes it: looks × 3 × studies, estimate, low and high.

    ``ranks``: by number of blocks, which smallest Walsh average bounds the interval.
    """
    made = np.empty((len(ranks), 3, len(logs)))
    for look, (blocks, rank) in enumerate(ranks.items()):
        first, second = np.triu_indices(blocks)
        count = len(first)
        middle = [(count - 1) // 2, count // 2]
        for part in np.array_split(np.arange(len(logs)), max(1, len(logs) * count // 2_000_000)):
            averages = (logs[part][:, first] + logs[part][:, second]) / 2
            averages.partition(sorted({rank - 1, count - rank, *middle}), axis=1)
            made[look, 0, part] = averages[:, middle].mean(axis=1)
            made[look, 1, part], made[look, 2, part] = averages[:, rank - 1], averages[:, count - rank]
    return made


def ranks(most: int, ends: int | None = None) -> dict[int, int]:
    """By number of blocks, the rank of each look of a study of at most ``most`` blocks that can decide something. ``ends``: of one
    whose budget ends with this block, the final look's included."""
    schedule = [blocks for blocks in group_sequential.analysis_schedule(most) if ends is None or blocks < ends]
    portions = [group_sequential.spent(blocks, most) for blocks in schedule]
    if ends is not None:
        schedule, portions = [*schedule, ends], [*portions, group_sequential.ALPHA]
    return {bound.pairs: bound.rank for bound in bounds(tuple(schedule), tuple(portions)) if bound.rank}


@dataclass(frozen=True)
class Ended:
    """How each of many studies ended: 1 higher, -1 lower, 2 equivalent, 0 cannot tell; blocks used; estimate and interval then,
    as log ratios."""

    outcome: NDArray[np.int64]
    blocks: NDArray[np.int64]
    estimate: Floats
    low: Floats
    high: Floats

    def share(self, *outcomes: int) -> float:
        """The share of studies that ended with one of these outcomes."""
        return float(np.isin(self.outcome, outcomes).mean())


def outcomes(low: Floats, high: Floats, equivalence: float) -> NDArray[np.int64]:
    """`group_sequential.interval_outcome` for many."""
    margin = math.log1p(equivalence)
    return np.select([low > 0, high < 0, (low >= -margin) & (high <= margin)], [1, -1, 2], 0)


def end(made: Floats, blocks: Sequence[int], effect: float = 0.0, precision: float | None = None, equivalence: float = 0.02) -> Ended:
    """Where the rule stops each study. ``made``: intervals without a difference (looks × 3 × studies); ``effect``: the log of the
    true ratio, which on this scale only shifts them."""
    estimate, low, high = np.moveaxis(made + effect, 1, 0)
    stops = outcomes(low, high, equivalence) != 0 if precision is None else (high - low) / 2 <= math.log1p(precision)
    stops[-1] = True
    at = stops.argmax(axis=0), np.arange(made.shape[2])
    return Ended(outcomes(low[at], high[at], equivalence), np.asarray(blocks)[at[0]], estimate[at], low[at], high[at])


def end_by_budget(logs: Floats, most: int, ends: NDArray[np.int64]) -> Ended:
    """Where each study ends whose budget lasts for so many blocks (at least six), if the rule does not stop it before."""
    parts, index = [], []
    for last in np.unique(ends).tolist():
        which = np.flatnonzero(ends == last)
        scheduled = {blocks: rank for blocks, rank in ranks(most).items() if blocks <= last}
        final = {last: ranks(most, last).get(last, 0)}
        both = [(blocks, rank) for blocks, rank in (*scheduled.items(), *final.items()) if rank]
        made = np.concatenate([intervals(logs[which], dict([one])) for one in both]) if both else np.empty((0, 3, len(which)))
        parts.append(end(made, [blocks for blocks, _ in both]))
        index.append(which)
    order = np.argsort(np.concatenate(index))
    return Ended(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in Ended.__dataclass_fields__))
