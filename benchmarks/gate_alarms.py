"""Simulated gates: how often two equal runs are told apart, by the statistics of ``pgherd gate``.

Each study is two runs of the same thing, three repeats at each point, and nothing may be lost (0 %), which is the hardest case. An
alarm at any point or over all points counts once. See docs/howto/ci.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import outcome as result
from numpy.typing import NDArray
from outcome import Figure, Outcome

from pgherd.analysis.two_sample import Pair, change_over_all, changes, joint, judge

STUDIES = 10_000
POINTS = (1, 3, 8)
REPEATS = 3
GOAL = 0.05
METHOD = "share of simulated pairs of runs, Clopper-Pearson; each end is a one-sided 99 % bound"

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, ...]], Floats]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """A standard deviation of 2 %."""
    return np.exp(rng.normal(0, 0.02, shape))


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Student's t with two degrees of freedom."""
    return np.exp(0.01 * rng.standard_t(2, shape))


def bursts(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """One trial in ten is slowed by 5 to 30 %; 1 % of noise besides."""
    slowed = np.where(rng.random(shape) < 0.1, 1 - rng.uniform(0.05, 0.3, shape), 1.0)
    return slowed * np.exp(rng.normal(0, 0.01, shape))


def two_levels(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Half of the trials are 5 % faster, as by where pages or processes happen to lie."""
    return 1 + 0.05 * (rng.random(shape) < 0.5) + rng.normal(0, 1e-4, shape)


NOISES: Mapping[str, Noise] = {
    "normal, 2 %": normal,
    "Student's t, 2 degrees of freedom (no variance at all)": heavy,
    "one trial in ten slowed by 5 to 30 %": bursts,
    "two levels 5 % apart, hardly any noise besides": two_levels,
}


def main() -> None:
    """Simulate, print and write."""
    parser = result.parser(__doc__, STUDIES, "pairs of runs for each kind of noise and number of points")
    options = parser.parse_args()
    studies = options.pairs or (100 if options.quick else STUDIES)
    outcome = Outcome("gate_alarms", options.quick, result.seed_of(options))
    outcome.settings = {"studies": studies, "repeats": REPEATS, "points": list(POINTS), "allowed": 0.0}
    before = result.cpu_seconds()
    rng = np.random.default_rng(outcome.seed)
    for name, noise in NOISES.items():
        result.say(name)
        outcome.raw += [
            {"noise": name, "points": points, "studies": studies, "alarms": alarms(noise, rng, studies, points)} for points in POINTS
        ]
    outcome.figures = figures(outcome.raw)
    outcome.noise = result.noise_since(before)
    result.conclude(outcome, options)


def alarms(noise: Noise, rng: np.random.Generator, studies: int, points: int) -> int:
    """In how many of these pairs of equal runs something is called worse."""
    old, new = (noise(rng, (studies, points, REPEATS)).tolist() for _ in range(2))
    confidence = joint(points + (points > 1))
    return sum(_alarm([Pair(tuple(a), tuple(b)) for a, b in zip(*runs, strict=True)], confidence) for runs in zip(old, new, strict=True))


def _alarm(pairs: Sequence[Pair], confidence: float) -> bool:
    found = [*changes(pairs, confidence), change_over_all(pairs, confidence)]
    return any(change is not None and judge(change, 0.0, "higher") == "regression" for change in found)


def figures(raw: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return one of each kind of noise."""
    return [worst(noise, [row for row in raw if row["noise"] == noise]) for noise in dict.fromkeys(row["noise"] for row in raw)]


def worst(noise: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The number of points with most alarms, against the goal."""
    from scipy.stats import binomtest

    row = max(rows, key=lambda one: one["alarms"])
    found = binomtest(row["alarms"], row["studies"]).proportion_ci(0.98, "exact")
    value, low, high = (100 * part for part in (row["alarms"] / row["studies"], found.low, found.high))
    note = f"the worst of {len(rows)} numbers of points: {row['points']}"
    met = result.met(found, most=GOAL)
    return Figure(f"false alarms, noise: {noise}", value, "%", low, high, row["studies"], METHOD, "upper bound ≤ 5 %", met, note)


if __name__ == "__main__":
    result.run(main)
