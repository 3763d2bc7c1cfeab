"""Scaling by latency objective: the highest rate at which one server keeps the objectives (``--slo``). Pure.

The first trials measure the server's throughput without a rate, with the largest number of clients. The rates that the search may try are
multiples of about a twentieth of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pgherd.model.analysis import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.scaling.options import ScalingOptions, plural
from pgherd.study import objectives
from pgherd.study.objective_analysis import Subject, analyse_search, refused
from pgherd.study.objectives import CLOSED_TRIALS, USUAL_RATE, Search

STEPS = 20
"""Largest number of rates up to the closed-loop throughput."""
BEYOND = 1.25
"""Largest rate that is tried, as a multiple of the closed-loop throughput, which varies."""

Build = Callable[[ScalingOptions, str, int, int, str], Trial]
"""Function of (options, variant, clients, repeat, reason) that returns a trial."""


def choose_rates(throughput: float) -> tuple[float, ...]:
    """Return the rates that the search may try: multiples of a round step, 1, 2, 2.5 or 5 times a power of ten."""
    raw = throughput / STEPS
    power = 10.0 ** math.floor(math.log10(raw))
    step = min(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return tuple(round(number * step, 10) for number in range(1, math.ceil(BEYOND * throughput / step) + 1))


def propose(options: ScalingOptions, results: Sequence[TrialResult], build: Build) -> Proposal:
    """Return the next blocks, or the reason to stop."""
    clients = options.clients[-1]
    closed = [result for result in results if result.trial.point.get("load") == "closed"]
    missing_trials = CLOSED_TRIALS - sum(not result.tainted for result in closed)
    if missing_trials > 0 and len(closed) < 2 * CLOSED_TRIALS:
        first = [build(options, "", clients, len(closed) + number, "") for number in range(missing_trials)]
        trials = tuple(objectives.closed_loop(trial, {"clients": clients}) for trial in first)
        return objectives.within_budget(options, results, trials, "")
    search = _search(options, results, build)
    if search is None:
        return Proposal(stop=_fault(options, results), max_trials=len(results))
    return objectives.within_budget(options, results, objectives.next_blocks(options, search, results), "the search is over")


def _search(options: ScalingOptions, results: Sequence[TrialResult], build: Build) -> Search | None:
    """Return the search over rates. None if no rate can be measured."""
    throughput, clients = objectives.closed_throughput(results), options.clients[-1]
    if not throughput:
        return None
    rates = tuple(rate for rate in choose_rates(throughput) if objectives.block_seconds(options, rate) is not None)

    def block(rate: float, repeat: int, reason: str) -> Trial:
        trial = build(options, "", clients, repeat, reason)
        seconds = objectives.block_seconds(options, rate) or options.duration
        return objectives.with_objectives(trial, options, rate, seconds, {"rate": rate}, reason)

    def size_of(point: Mapping[str, int | float | str]) -> float | None:
        return float(point["rate"]) if "rate" in point else None

    return Search(rates, USUAL_RATE * throughput, size_of, block) if rates else None


def _fault(options: ScalingOptions, results: Sequence[TrialResult]) -> str:
    throughput = objectives.closed_throughput(results)
    if not throughput:
        return "the server made no throughput without a rate"
    return objectives.too_few_samples(options.objectives, throughput)


def analyse(options: ScalingOptions, results: Sequence[TrialResult], build: Build) -> Analysis:
    """Return the answer: the highest rate that keeps the objectives, its interval, and what fails first."""
    clients = options.clients[-1]
    closed = objectives.closed_finding(results, plural(clients))
    search = _search(options, results, build)
    if search is None or not objectives.blocks_of(search, results):
        return refused(_fault(options, results) if search is None else "no block was measured", results, {"closed_throughput": closed})
    subject = Subject(
        column="rate",
        unit="tps",
        text=lambda rate: f"{rate:,.10g} tps with {plural(clients)} keep",
        short=lambda rate: f"{rate:,.10g} tps",
        total=lambda rate: rate,
        more="higher rates were not tried",
    )
    return analyse_search(options, search, subject, results, {"closed_throughput": closed})
