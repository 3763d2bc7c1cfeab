"""Coverage of intervals in simulations with a known truth: fitted models, drift of a soak, dips of a working set, best loads.

Each run has its own seed. Quantities without an interval are counted apart. Two are no coverage and have no goal: ``found`` is the share
of runs that report a dip, and ``set`` that of the sets of best loads with a truly best one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import outcome
from coverage import LEAST, MOST
from coverage import figures as coverage_figures

from pgherd.analysis.best_load import best_load
from pgherd.analysis.bootstrap import bootstrap_fit, draw_medians
from pgherd.analysis.neighbours import mean_contrast, neighbour_contrast
from pgherd.analysis.scaling_model import HINGE, USL, ScalingModel, fit
from pgherd.analysis.stability import steadiness

LOADS = [1.0, 2, 4, 6, 8, 10, 12, 16]
SIZES = [300.0, 400, 500, 600, 700, 800, 900, 1000, 1200]
REPEATS = 3
RUNS = 2000
SHARES = ("found", "set")

Held = dict[str, bool | None]
"""Quantity → whether its interval held the truth. None: there was no interval."""


def model(of: ScalingModel, truth: list[float], last: float, seed: int) -> Held:
    """Fit a model to its own curve: 4 % of noise, and ``last`` at the largest load."""
    x = np.repeat(LOADS, REPEATS)
    clean = of.curve(np.array(truth), x)
    noise = np.where(x == x[-1], last, 0.04) * np.random.default_rng(seed).standard_normal(x.size)
    y = np.maximum(clean * (1 + noise), 0.05 * clean).tolist()
    intervals = bootstrap_fit(fit(of, x.tolist(), y), x.tolist(), y, seed=seed).intervals
    wanted = dict(zip(of.parameters, truth, strict=True))
    if of.name == HINGE.name:  # another process has its own object
        wanted["knee"] = wanted.pop("k")
    return {name: intervals[name][0] <= value <= intervals[name][1] if name in intervals else None for name, value in wanted.items()}


def drift(windows: int, rho: float, seed: int) -> Held:
    """Measure the drift of an autoregressive series that has none."""
    steps = np.random.default_rng(seed).standard_normal(windows).tolist()
    series = itertools.accumulate(steps, lambda before, step: rho * before + (1 - rho**2) ** 0.5 * step)
    found = steadiness([i / 60 for i in range(windows)], [1000 + 20 * value for value in series]).drift
    return {"drift": None if found.low is None or found.high is None else found.low <= 0 <= found.high}


def dip(convexity: float, depth: float, seed: int) -> Held:
    """Look for a dip of this depth at half of 800 MB. ``found`` is whether the interval is below 1."""
    within = [i for i, size in enumerate(SIZES) if 0.45 <= 400 / size <= 0.55]
    truth = 1000 * (0.2 + 0.8 * np.minimum(np.array(SIZES) / 1000, 1) ** convexity)
    truth[within] *= 1 - depth
    repeats = (truth[:, None] * (1 + 0.02 * np.random.default_rng(seed).standard_normal((len(SIZES), REPEATS)))).tolist()
    contrast = neighbour_contrast(SIZES, repeats, within)
    assert contrast is not None
    ratio = mean_contrast([contrast])
    assert ratio.low is not None and ratio.high is not None
    return {"dip": ratio.low <= 1 - depth <= ratio.high, "found": ratio.high < 1}


def best(shape: tuple[float, ...], noise: float, seed: int) -> Held:
    """Find the best of these loads. ``set`` is whether a truly best one is among the candidates."""
    truth = np.array(shape)
    repeats = (truth[:, None] * (1 + noise * np.random.default_rng(seed).standard_normal((len(shape), REPEATS)))).tolist()
    found = best_load([float(np.median(values)) for values in repeats], draw_medians(repeats, seed=seed), REPEATS * len(shape))
    assert found.value.low is not None and found.value.high is not None
    return {
        "peak": found.value.low <= truth.max() <= found.value.high,
        "set": any(truth[i] == truth.max() for i in found.candidates),
    }


def cases() -> Iterator[tuple[str, Callable[[int], Held]]]:
    """Yield each case with the function that simulates one run of it by its seed."""
    for last in (0.04, 0.22):
        yield f"hinge, 4 % and {100 * last:.0f} % last", partial(model, HINGE, [1000.0, 0.0, 8.0], last)
        for kappa in (0.001, 0.0):
            yield f"USL, kappa {kappa:g}, 4 % and {100 * last:.0f} % last", partial(model, USL, [1000.0, 0.05, kappa], last)
    for windows in (5, 10, 20, 30, 60, 240):
        for rho in (0.0, 0.5, 0.8):
            yield f"drift, {windows} windows, rho {rho:g}", partial(drift, windows, rho)
    for convexity in (1, 2, 3):
        for depth in (0.0, 0.055, 0.07):
            yield f"dip of {100 * depth:g} %, convexity {convexity}", partial(dip, convexity, depth)
    for noise in (0.03, 0.1):
        yield f"plateau of four, {100 * noise:.0f} %", partial(best, (100.0, 200.0, 400.0, 400.0, 400.0, 400.0), noise)
        yield f"one peak, {100 * noise:.0f} %", partial(best, (100.0, 200.0, 300.0, 400.0, 330.0, 280.0), noise)


def main() -> None:
    """Simulate, print, write."""
    parser = outcome.parser(__doc__, RUNS, "simulated runs of each case, a tenth of them of USL, which takes 0.25 s a run")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes  [default: 1]")
    options = parser.parse_args()
    runs = options.pairs or (20 if options.quick else RUNS)
    before = outcome.cpu_seconds()
    seed = outcome.seed_of(options)
    raw: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for case, simulate in cases():
            if options.only not in case:
                continue
            count = max(runs // 10, 1) if case.startswith("USL") else runs
            rows = list(pool.map(simulate, range(seed, seed + count), chunksize=8))
            for quantity in rows[0]:
                values = [row[quantity] for row in rows]
                counts = {"held": values.count(True), "missed": values.count(False), "none": values.count(None)}
                raw.append({"case": case, "quantity": quantity, **counts})
                for found in figures(raw[-1:], options.quick):
                    outcome.say(f"{found.name}: {100 * found.value:.1f} %")
    settings = {"runs": runs, "repeats": REPEATS, "goal": f"{LEAST:g} to {MOST:g}"}
    outcome.conclude(
        outcome.Outcome("coverage_models", options.quick, seed, settings, figures(raw, options.quick), raw, outcome.noise_since(before)),
        options,
    )


figures = partial(coverage_figures, shares=SHARES)
"""Figures from ``raw``, and whether it is a quick run."""


if __name__ == "__main__":
    outcome.run(main)
