"""Simulated density runs of known truth: how often the 95 % intervals of the answer and of the table hold it.

Each run is a default one on two cores: pgherd's own ``propose`` chooses the trials, a simulated host gives their numbers, and pgherd's own
analysis makes the intervals. Throughput grows to a full host of eight databases and is flat beyond, CPU received follows the cores. Noise
is multiplied on the throughput of a trial. That of the CPU received is the same in all cases, independent and as small as measured, so the
capacity by CPU is one case with several names. A finding without an interval is counted apart: it claims nothing.

A throughput is that of the conditions of its run (docs/explanation/method.md): where the machine drifts, or differs from run to run, the
truth is the mean over the run. How often an interval holds the mean of all runs is shown as well, without a goal: no run can know it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import outcome
from outcome import Figure

from pgherd.analysis.intervals import Estimate
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.curve import DensityCurve, density_curve, density_points
from pgherd.studies.density.options import DensityOptions, choose_points
from pgherd.studies.density.propose import propose

CORES, VCPUS, RATE = 2.0, 0.25, 12_000.0
FULL = 8
SHARE_NOISE = 0.002, 0.01
"""Relative standard deviation of the CPU received, below and from 90 % of a full host on, as measured."""
LOST = 0.01
"""Share of a full host's CPU that the platform takes."""
RUNS = 2000
LEAST, MOST = 0.93, 0.97

# Copied for each trial: building them anew was half of the time.
_TARGET = TargetResult.model_construct(driver="pgbench", first=0.0)
_PHASE = PhaseResult.model_construct(overlap=1.0, skew=None)
_TRIAL = TrialResult.model_construct(id="t")

Noise = Callable[[random.Random, Sequence[int]], tuple[list[float], list[float]]]
"""Factors of the trials of one run, from the numbers of databases in the order of the trials, and the part of each that is the machine's
condition at that time."""
OF_ALL_RUNS = "throughput at 10, mean of all runs"


def independent(base: float, at: dict[int, float] | None = None) -> Noise:
    """Log-normal noise of mean 1, of another size at some numbers of databases."""

    def draw(rng: random.Random, order: Sequence[int]) -> tuple[list[float], list[float]]:
        sizes = [math.sqrt(math.log1p((at or {}).get(n, base) ** 2)) for n in order]
        return [rng.lognormvariate(-size * size / 2, size) for size in sizes], [1.0] * len(order)

    return draw


def two_levels(points: Sequence[int], dwell: float = 1.0, base: float = 0.03) -> Noise:
    """Two levels, 25 % above and below, at these points. ``dwell``: mean number of such trials until the level is drawn anew."""

    def draw(rng: random.Random, order: Sequence[int]) -> tuple[list[float], list[float]]:
        fast, factors = rng.random() < 0.5, []
        for n in order:
            if n in points and rng.random() < 1 / dwell:
                fast = rng.random() < 0.5
            factors.append(rng.gauss(1, base) * ((1.25 if fast else 0.75) if n in points else 1.0))
        return factors, [1.0] * len(order)

    return draw


def drift(size: float = 0.09, minutes: float = 2.0, base: float = 0.03) -> Noise:
    """AR(1) over the trials, 11 s each, with this standard deviation and correlation time, and independent noise."""

    def draw(rng: random.Random, order: Sequence[int]) -> tuple[list[float], list[float]]:
        keep = math.exp(-11 / (60 * minutes))
        level, conditions = rng.gauss(0, size), []
        for _ in order:
            level = keep * level + math.sqrt(1 - keep * keep) * rng.gauss(0, size)
            conditions.append(math.exp(level))
        return [condition * rng.gauss(1, base) for condition in conditions], conditions

    return draw


def between_runs(size: float = 0.08, base: float = 0.04) -> Noise:
    """A factor of the whole run, and independent noise."""

    def draw(rng: random.Random, order: Sequence[int]) -> tuple[list[float], list[float]]:
        run = math.exp(rng.gauss(0, size))
        return [run * rng.gauss(1, base) for _ in order], [run] * len(order)

    return draw


CASES: dict[str, Noise] = {
    "3 % noise": independent(0.03),
    "8 % noise": independent(0.08),
    "20 % noise": independent(0.20),
    "4 %, and 25 % at the last point": independent(0.04, {12: 0.25}),
    "4 %, and 25 % at ten databases": independent(0.04, {10: 0.25}),
    "4 %, and 25 % from a full host on": independent(0.04, dict.fromkeys(range(8, 13), 0.25)),
    "two levels at the last two points": two_levels((11, 12)),
    "two levels from a full host on": two_levels(range(8, 13)),
    "the same, over three trials": two_levels(range(8, 13), dwell=3),
    "drift of 9 % over minutes": drift(),
    "8 % between runs": between_runs(),
}


def true_throughput(n: int) -> float:
    """Throughput of n databases, in transactions per second."""
    return min(n, FULL) * RATE


def true_share(n: float) -> float:
    """CPU received ÷ CPU allocated."""
    return min(1.0, FULL * (1 - LOST) / n)


def crossing(at: float, share: Callable[[float], float]) -> float:
    """The number of databases at which a falling share is ``at``."""
    low, high = 1.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) >= at else (low, middle)
    return low


def simulated(seed: int, noise: Noise) -> tuple[DensityCurve, float]:
    """The curve of one run: its trials by ``propose``, its numbers by the truth and the noise. And the mean of its conditions."""
    options = DensityOptions(
        host_cores=CORES,
        host_memory=2**33,
        vcpus=VCPUS,
        cpu_mode="quota",
        runtime="cgroup",
        pg_bin="/pg",
        pg_version="18",
        databases=choose_points(CORES, VCPUS),
        time_budget=300.0,
        seed=seed,
    )
    rng, shares = random.Random(seed), np.random.default_rng(seed)
    results: list[TrialResult] = []
    clock = 0.0
    # The factors are drawn for more trials than there will be, in the order of the plan and of the crossing after it.
    first = [int(trial.point["databases"]) for trial in propose(options, []).trials]
    factors, conditions = noise(rng, [*first, *([9, 10] * 10)])
    while (proposal := propose(options, results)).trials:
        for trial in proposal.trials:
            results.append(_result(trial, factors[len(results)], shares, clock))
            clock = results[-1].ended
    return density_curve(options, density_points(options, results)), math.fsum(conditions[: len(results)]) / len(results)


def _result(trial: Trial, factor: float, rng: np.random.Generator, started: float) -> TrialResult:
    n = int(trial.point["databases"])
    phase, seconds = trial.phases[0], trial.phases[0].seconds
    size = SHARE_NOISE[n >= 0.9 * FULL]
    cores = min(true_share(n) * (1 + size * rng.standard_normal()), 1.0) * VCPUS
    throughput = true_throughput(n) * factor / n
    targets = [
        _TARGET.model_copy(update={"target": target, "transactions": throughput * seconds, "throughput": throughput, "last": seconds})
        for target in phase.loads
    ]
    metrics = {f"container:{target.split('/')[1]}": {"cpu.usage": cores} for target in phase.loads}
    times = {"phase": phase.name, "start": started, "end": started + seconds}
    result = _PHASE.model_copy(update={**times, "targets": targets, "metrics": metrics})
    return _TRIAL.model_copy(update={"trial": trial, "started": started, "ended": started + trial.seconds() + 0.4, "phases": [result]})


def held(seed: int, noise: Noise) -> dict[str, bool | None]:
    """Whether each interval of one run holds the truth. None: there is no interval."""
    curve, condition = simulated(seed, noise)
    index = {int(n): i for i, n in enumerate(curve.loads)}
    found: dict[str, bool | None] = {}
    for name, basis, truth in (
        ("capacity by CPU", "cpu", crossing(0.85, true_share)),
        ("capacity by throughput", "reference", FULL / 0.85),
    ):
        capacity = curve.capacity(basis)  # type: ignore[arg-type]
        upper = math.inf if capacity.open else capacity.high
        found[name] = None if capacity.low is None or upper is None else capacity.low <= truth <= upper
    for n in (9, 10):
        found[f"efficiency at {n}"] = _holds(curve.efficiency(index[n], "reference"), FULL / n)
        found[f"throughput at {n}"] = _holds(curve.throughput(index[n]), condition * true_throughput(n))
    found["reference"] = _holds(curve.reference, condition * RATE)
    found[OF_ALL_RUNS] = _holds(curve.throughput(index[10]), true_throughput(10))
    return found


def _holds(estimate: Estimate, truth: float) -> bool | None:
    return None if estimate.low is None or estimate.high is None else estimate.low <= truth <= estimate.high


def one(seed: int, case: str) -> dict[str, bool | None]:
    """One run of a case, for a worker process."""
    return held(seed, CASES[case])


def main() -> None:
    """Simulate, print, write."""
    parser = outcome.parser(__doc__, RUNS, "simulated runs of each case")
    parser.add_argument("--case", action="append", choices=tuple(CASES), help="only this case; may be given several times")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes  [default: 1]")
    options = parser.parse_args()
    runs = options.pairs or (20 if options.quick else RUNS)
    before = outcome.cpu_seconds()
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for case in options.case or CASES:
            rows = list(pool.map(partial(one, case=case), range(seed, seed + runs), chunksize=10))
            for quantity in rows[0]:
                values = [row[quantity] for row in rows]
                raw.append(
                    {
                        "case": case,
                        "quantity": quantity,
                        "held": values.count(True),
                        "missed": values.count(False),
                        "none": values.count(None),
                    }
                )
                for found in figures(raw[-1:], options.quick):
                    outcome.say(f"{found.name}: {100 * found.value:.1f} % {found.note}")
    settings = {"runs": runs, "points": list(choose_points(CORES, VCPUS)), "goal": f"{LEAST:g} to {MOST:g}"}
    outcome.conclude(
        outcome.Outcome("coverage", options.quick, seed, settings, figures(raw, options.quick), raw, outcome.noise_since(before)), options
    )


def figures(raw: Sequence[Mapping[str, Any]], quick: bool, shares: Sequence[str] = (OF_ALL_RUNS,)) -> list[Figure]:
    """Return a figure for each quantity that has an interval in some run. Those in ``shares`` have no goal."""
    made = []
    for row in raw:
        values = [True] * row["held"] + [False] * row["missed"] + [None] * row["none"]
        made.append(figure(f"{row['case']}: {row['quantity']}", values, quick or row["quantity"] in shares))
    return [one for one in made if one is not None]


def figure(name: str, values: Sequence[bool | None], without_goal: bool) -> Figure | None:
    """Share of the intervals that hold the truth, with a 95 % interval of that share (Wilson). None: no run has an interval."""
    made, hits = len(values) - values.count(None), values.count(True)
    if not made:
        return None
    absent = f"no interval in {100 * values.count(None) / len(values):.0f} % of the runs" if values.count(None) else ""
    share, z = hits / made, 1.96
    middle, half = share + z * z / (2 * made), z * math.sqrt(share * (1 - share) / made + z * z / (4 * made * made))
    low, high = (middle - half) / (1 + z * z / made), (middle + half) / (1 + z * z / made)
    estimate = Estimate(share, low, high, 0.95, made, "share of intervals that hold the truth, Wilson interval")
    if without_goal:
        return Figure.of(name, "ratio", estimate, note=absent)
    return Figure.of(name, "ratio", estimate, f"{LEAST:g} to {MOST:g}", outcome.met(estimate, least=LEAST, most=MOST), absent)


if __name__ == "__main__":
    outcome.run(main)
