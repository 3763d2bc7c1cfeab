"""Density by latency objective: how many databases at a rate keep the objectives (``--slo``). Pure.

The first trials load one database without a rate. Half of its throughput is the default rate, and a given rate must not exceed it. Then
blocks search for the largest number of databases. Containers are created as the search needs them and stay until the end, so their number
grows and those without load are idle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pgherd.analysis import pass_search
from pgherd.model.analysis import Analysis, Finding, Proposal
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.options import DensityOptions, try_more
from pgherd.study import objectives
from pgherd.study.findings import missing
from pgherd.study.objective_analysis import Subject, analyse_search, refused
from pgherd.study.objectives import CLOSED_TRIALS, USUAL_RATE, Search

MOST_FULL = 8
"""Largest number of databases that is tried by default, in multiples of a full host. At half of its throughput, a database uses at most
half of its CPU."""
LOWER_RATES = 10
"""Rates below the given one that are tried if one database misses the objectives, as equal steps."""

Build = Callable[[DensityOptions, int, int, str], Trial]
"""Function of (options, databases, repeat, reason) that returns a trial."""


def choose_sizes(cores: float, vcpus: float, limit: int) -> tuple[int, ...]:
    """Return all numbers of databases that the search may try: up to MOST_FULL full hosts, and at most ``limit``."""
    return tuple(range(1, min(limit, max(2, math.ceil(MOST_FULL * cores / vcpus))) + 1))


def requested_sizes(databases: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers that the search may try: all up to a single number of ``--databases``, or exactly several ones and 1.

    Mixes of idle tenants only have no search.
    """
    return tuple(range(1, databases[0] + 1)) if len(databases) == 1 else tuple(sorted({1, *databases}))


def propose(options: DensityOptions, results: Sequence[TrialResult], build: Build) -> Proposal:
    """Return the next blocks, or the reason to stop."""
    closed = [result for result in results if result.trial.point.get("load") == "closed"]
    missing_trials = CLOSED_TRIALS - sum(not result.tainted for result in closed)
    if missing_trials > 0 and len(closed) < 2 * CLOSED_TRIALS:
        reason = "closed-loop throughput"
        first = [build(_grown(options, results, 1), 1, len(closed) + number, reason) for number in range(missing_trials)]
        trials = tuple(objectives.closed_loop(trial, {"databases": 1}) for trial in first)
        return objectives.within_budget(options, results, trials, "")
    rate = rate_of(options, results)
    fault = _fault(options, results, rate)
    if rate is None or fault:
        return Proposal(stop=fault, max_trials=len(results))
    search = _search(options, results, rate, build)
    trials = objectives.next_blocks(options, search, results)
    if (
        not trials
        and pass_search.border(_tallies(options, search, results))[0] is None
        and (rates := _rates(options, results, rate, build))
    ):
        trials = objectives.next_probes(options, rates, results)
    return objectives.within_budget(options, results, trials, "the search is over")


def rate_of(options: DensityOptions, results: Sequence[TrialResult]) -> float | None:
    """Return the rate of each database: as given, or half of one database's throughput. None if that was not measured."""
    throughput = objectives.closed_throughput(results)
    if options.rate is not None or not throughput:
        return options.rate
    return objectives.rounded_down(USUAL_RATE * throughput)


def _fault(options: DensityOptions, results: Sequence[TrialResult], rate: float | None) -> str:
    """Return why no block can be measured at the rate, or ''."""
    capacity = objectives.closed_throughput(results)
    if rate is None:
        return "one database made no throughput without a rate"
    if capacity is not None and rate > capacity:
        return (
            f"--rate {rate:g} exceeds one database's {capacity:,.0f} tps with {options.clients} clients; give "
            f"--rate {objectives.rounded_down(capacity):g}, or more --vcpus or --clients"
        )
    if objectives.block_seconds(options, rate) is None:
        return objectives.too_few_samples(options.objectives, rate)
    return ""


def _search(options: DensityOptions, results: Sequence[TrialResult], rate: float, build: Build) -> Search:
    seconds = objectives.block_seconds(options, rate) or options.duration

    def block(size: float, repeat: int, reason: str) -> Trial:
        trial = build(_grown(options, results, int(size)), int(size), repeat, reason)
        return objectives.with_objectives(trial, options, rate, seconds, {"databases": int(size)}, reason)

    def size_of(point: Mapping[str, int | float | str]) -> float | None:
        return None if point.keys() != {"databases"} else float(point["databases"])

    return Search(tuple(map(float, options.databases)), 2.0 if options.fleet else max(2.0, math.floor(options.full)), size_of, block)


def _rates(options: DensityOptions, results: Sequence[TrialResult], rate: float, build: Build) -> Search | None:
    """Return the search for a lower rate of one database. None if no lower rate can be measured."""

    def block(size: float, repeat: int, reason: str) -> Trial:
        trial = build(_grown(options, results, 1), 1, repeat, reason)
        seconds = objectives.block_seconds(options, size) or options.duration
        return objectives.with_objectives(trial, options, size, seconds, {"databases": 1, "rate": size}, reason)

    def size_of(point: Mapping[str, int | float | str]) -> float | None:
        return float(point["rate"]) if "rate" in point else None

    rates = [objectives.rounded_down(rate * step / LOWER_RATES, 3) for step in range(1, LOWER_RATES)]
    candidates = tuple(one for one in sorted(set(rates)) if objectives.block_seconds(options, one) is not None)
    return Search(candidates, rate / 2, size_of, block) if candidates else None


def _grown(options: DensityOptions, results: Sequence[TrialResult], databases: int) -> DensityOptions:
    """Return the options for as many containers as any finished trial so far, and at least ``databases``.

    A failed trial is left out: its containers may be why it failed.
    """
    largest = max([databases, *(int(result.trial.point["databases"]) for result in results if result.error is None)])
    return options.model_copy(update={"databases": (largest,)})


def _tallies(options: DensityOptions, search: Search, results: Sequence[TrialResult]) -> dict[float, pass_search.Tally]:
    return objectives.tallies(objectives.blocks_of(search, results), options.objectives, options.thresholds)


# ---- analysis


def analyse(options: DensityOptions, results: Sequence[TrialResult], build: Build) -> Analysis:
    """Return the answer: the largest number of databases that keeps the objectives, its interval, and what fails first."""
    rate, capacity = rate_of(options, results), objectives.closed_throughput(results)
    given = "given" if options.rate is not None else f"{100 * USUAL_RATE:.0f} % of the throughput of one database without a rate"
    findings = {
        "rate": missing("tps per database", "not measured")
        if rate is None
        else Finding(value=rate, unit="tps per database", n=1, note=given),
        "single_database_throughput": objectives.closed_finding(results, f"{options.clients} clients"),
    }
    fault = _fault(options, results, rate)
    if rate is None or fault:
        return refused(fault, results, findings)
    search = _search(options, results, rate, build)
    if not _tallies(options, search, results):
        return refused("no block was measured", results, findings)
    analysis = analyse_search(options, search, _subject(options, results, rate, build), results, findings)
    detail = f"Each database has {rate:g} tps"
    if options.rate is None:
        detail += f", {100 * USUAL_RATE:.0f} % of what one makes without a rate ({capacity:,.0f} tps)"
    return analysis.model_copy(update={"details": [*analysis.details, f"{detail}."]})


def _subject(options: DensityOptions, results: Sequence[TrialResult], rate: float, build: Build) -> Subject:
    alternative = ""
    rates = _rates(options, results, rate, build)
    if rates is not None and (found := pass_search.border(_tallies(options, rates, results))[0]) is not None:
        alternative = f"--rate {found:g}"

    def text(databases: float) -> str:
        return f"{_databases(databases)} at {rate:g} tps keep{'' if databases > 1 else 's'}"

    return Subject("databases", "databases", text, _databases, lambda databases: databases * rate, try_more(options), alternative)


def _databases(count: float) -> str:
    return f"{count:g} database{'' if count == 1 else 's'}"
