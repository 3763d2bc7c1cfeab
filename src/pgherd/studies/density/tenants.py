"""Density of a mix of tenants (``--tenants``): the largest number whose classes all keep what they need. Pure.

The first trials load one tenant of each class alone, as the reference of its class. Then blocks search for the largest number of tenants.
A block passes if every class keeps its objectives and its rate. A class with neither keeps ``--efficiency`` of its throughput alone.
An idle class is in the mix, but has nothing to keep and no trials alone. If all classes are idle, there is no search.
Imports no scientific library, because it runs between the trials.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pgherd.analysis import pass_search
from pgherd.analysis.intervals import mean_interval
from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Deployment, Host
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.density.objective import MOST_FULL
from pgherd.studies.density.tenant_mix import TenantClass, class_of, draw, phases_of, shares, tenant_names
from pgherd.study import objectives as judged
from pgherd.study.database_options import target
from pgherd.study.objectives import START_S, TAINTED_ATTEMPTS, Search

if TYPE_CHECKING:
    from pgherd.studies.density.options import DensityOptions

REFERENCES = 3
"""Trials of one tenant of each class alone."""
IDLE_SERVERS = 8
"""Default number of servers if all classes are idle."""
FIRST_QUERY = "first-query"
"""Last phase of a trial with idle tenants."""
GAP_S = 0.25
"""Seconds between the first queries of two idle tenants, so that they do not slow each other down."""
EFFICIENCY = "efficiency"
"""Condition that a class without rate and objective misses."""
End = Literal["value", "high", "low"]
ENDS: tuple[End, ...] = ("value", "high", "low")
"""The throughput of a class alone, and the ends of its interval."""


def propose(options: DensityOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the next trials, or the reason to stop."""
    if only_idle(options.tenants):
        return judged.within_budget(options, results, _missing_idle(options, results), "all numbers of idle servers are measured")
    references = _missing_references(options, results)
    if references:
        return judged.within_budget(options, results, references, "")
    fault = fault_alone(options, results)
    if fault:
        return Proposal(stop=fault, max_trials=len(results))
    search = search_of(options, results)
    blocks, tallies = judged.blocks_of(search, results), tallies_of(options, search, results)
    sizes = pass_search.next_sizes(search.candidates, tallies, options.repeats, search.first)
    trials = judged.build_blocks(search, sizes, blocks, "search for the largest number of tenants")
    if not trials:
        trials = judged.build_blocks(search, _closer_sizes(options, search, results), blocks, judged.CLOSER)
    return judged.within_budget(options, results, trials, "the search is over")


def largest_mix(
    requested: Sequence[int] | None, cores: float, classes: Sequence[tuple[float, float, int]], budget: int, seed: int
) -> tuple[int, int]:
    """Return the largest number of tenants to try, and how many of the first 2 × that number memory holds.

    Args:
        requested: numbers of tenants that the user gives.
        cores: the cores of the host.
        classes: weight, vCPUs and memory (bytes) of each class.
        budget: memory of the host in bytes.
        seed: the seed of the mix.
    """
    parts = shares([weight for weight, _, _ in classes])
    mean = sum(float(part) * vcpus for part, (_, vcpus, _) in zip(parts, classes, strict=True))
    wanted = max(requested) if requested else max(2, math.ceil(MOST_FULL * cores / mean))
    used = itertools.accumulate(classes[index][2] for index in draw(parts, 2 * wanted, seed))
    return wanted, sum(total <= budget for total in used)


def only_idle(classes: Sequence[TenantClass]) -> bool:
    """Return whether no class has a load."""
    return all(one.idle for one in classes)


def _missing_idle(options: DensityOptions, results: Sequence[TrialResult]) -> tuple[Trial, ...]:
    """Return the remaining trials of idle servers, by number."""
    search, done = search_of(options, results), Counter(result.trial.point["tenants"] for result in results)
    return tuple(search.build(size, repeat, "planned") for size in search.candidates for repeat in range(done[size], options.repeats))


def _missing_references(options: DensityOptions, results: Sequence[TrialResult]) -> tuple[Trial, ...]:
    """Return the trials alone that each class still needs, in random order. Tainted ones are repeated once."""
    trials = []
    for one in (one for one in options.tenants if not one.idle):
        done = references_of(results, one)
        clean = sum(not result.tainted for result in done)
        wanted = min(REFERENCES - clean, 2 * REFERENCES - len(done))
        trials += [_reference(options, results, one, len(done) + number) for number in range(wanted)]
    random.Random(f"alone {options.seed} {len(results)}").shuffle(trials)
    return tuple(trials)


def references_of(results: Sequence[TrialResult], one: TenantClass) -> list[TrialResult]:
    """Return the trials of one tenant of a class alone."""
    return [result for result in results if result.trial.point.get("alone") == one.name]


def _reference(options: DensityOptions, results: Sequence[TrialResult], one: TenantClass, repeat: int) -> Trial:
    names = [name for name, _ in tenant_names(options.tenants, max(options.databases), options.seed)]
    alone = next(name for name in names if class_of(target(name)) == one.name)
    point: dict[str, int | float | str] = {"alone": one.name}
    phase = _phase(options, "steady", {target(alone): one.tenant_load()}, reference_seconds(one, options.duration))
    return _trial(options, _largest(options, results, smallest_complete(options)), (phase,), point, repeat, "reference")


def reference_seconds(one: TenantClass, seconds: float) -> float:
    """Return the length of a trial of a class alone: at least ``seconds``, and enough for its objectives."""
    enough = judged.block_seconds(one, one.rate or float(judged.LOG_LINES)) if one.objectives else None
    return max(seconds, enough or 0.0)


def smallest_complete(options: DensityOptions) -> int:
    """Return the smallest number of tenants with one of each class."""
    names = [one.name for _, one in tenant_names(options.tenants, max(options.databases), options.seed)]
    return 1 + max(names.index(one.name) for one in options.tenants)


def search_of(options: DensityOptions, results: Sequence[TrialResult]) -> Search:
    """Return the search over the numbers of tenants."""

    def block(size: float, repeat: int, reason: str) -> Trial:
        containers = _largest(options, results, int(size))
        return _trial(options, containers, mix_phases(options, int(size)), {"tenants": int(size)}, repeat, reason)

    def size_of(point: Mapping[str, int | float | str]) -> float | None:
        return float(point["tenants"]) if "tenants" in point else None

    return Search(tuple(map(float, options.databases)), max(2.0, math.floor(options.full)), size_of, block)


def _largest(options: DensityOptions, results: Sequence[TrialResult], tenants: int) -> int:
    """Return the number of containers: at least ``tenants`` and as many as in any trial so far, because they stay until the end.

    A failed trial is left out: its containers may be why it failed.
    """
    return max([tenants, *(len(result.trial.deployment.hosts[0].containers) for result in results if result.error is None)])


def mix_phases(options: DensityOptions, tenants: int) -> tuple[Phase, ...]:
    """Return the phases of a block. In each, every tenant has the load of its activity, or none. In a last one, idle tenants have theirs.

    A rate of less than one transaction in a phase is none, because pgbench would wait for it after the phase.
    """
    named = tenant_names(options.tenants, tenants, options.seed)
    counts, number = Counter(one.name for _, one in named), phases_of(options.tenants)
    phases = []
    for index in range(number):
        loads, seen = {}, Counter[str]()
        for name, one in named:
            factor = one.activity.factor(seen[one.name], counts[one.name], index, number, options.seed)
            seen[one.name] += 1
            if factor > 0 and (one.rate is None or factor * one.rate * options.duration >= 1):
                loads[target(name)] = one.tenant_load(factor)
        phases.append(_phase(options, "steady" if number == 1 else f"phase{index + 1:02d}", loads, options.duration))
    idle = [(target(name), one) for name, one in named if one.idle]
    return (*phases, _first_queries(options, phases[-1].loads, idle)) if idle else tuple(phases)


def _first_queries(options: DensityOptions, loads: Mapping[str, Load], idle: Sequence[tuple[str, TenantClass]]) -> Phase:
    """Return the phase in which one idle tenant after the other has its first query. The loads of the others go on."""
    begin = options.warmup + START_S * (len(loads) + len(idle))
    first = {address: one.first_query(begin + GAP_S * number) for number, (address, one) in enumerate(idle)}
    seconds = GAP_S * len(idle) + 1
    return _phase(options, FIRST_QUERY, {**loads, **first}, max(seconds, options.duration) if loads else seconds)


def _phase(options: DensityOptions, name: str, loads: dict[str, Load], seconds: float) -> Phase:
    return Phase(name=name, warmup=options.warmup + START_S * len(loads), seconds=seconds, loads=loads)


def _trial(
    options: DensityOptions,
    containers: int,
    phases: tuple[Phase, ...],
    point: dict[str, int | float | str],
    repeat: int,
    reason: str,
) -> Trial:
    """Return a trial with the first tenants of the mix as containers. Those without load are idle."""
    named = tenant_names(options.tenants, containers, options.seed)
    host = Host(
        cores=options.host_cores,
        memory=options.host_memory,
        labels=options.labels,
        containers=tuple(one.container(name) for name, one in named),
    )
    return Trial(
        point=point,
        repeat=repeat,
        reason=reason,
        deployment=Deployment(hosts=(host,), volumes=options.volumes),
        state=options.start_state,
        phases=phases,
        quiet=tuple(name for name, one in named if one.idle),
        wait_events=True,
    )


# ---- judgement of a block


def part_of(result: TrialResult, name: str) -> TrialResult:
    """Return a result with the tenants of one class only."""
    phases = [
        phase.model_copy(update={"targets": [found for found in phase.targets if class_of(found.target) == name]})
        for phase in result.phases
    ]
    return result.model_copy(update={"phases": phases})


def tenant_throughputs(result: TrialResult, one: TenantClass, *, relative: bool = False) -> list[float]:
    """Return the throughput of each tenant of a class over the phases in which it had a load.

    ``relative``: as if its rate were that of the class in all phases, so that tenants of different activity can be compared.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for plan, phase in zip(result.trial.phases, part_of(result, one.name).phases, strict=False):
        for tenant in phase.targets:
            rate = plan.loads[tenant.target].rate
            factor = rate / one.rate if relative and rate is not None and one.rate is not None else 1.0
            found.setdefault(tenant.target, []).append((tenant.throughput, factor))
    return [math.fsum(value for value, _ in parts) / math.fsum(factor for _, factor in parts) for parts in found.values()]


def alone_throughput(results: Sequence[TrialResult], one: TenantClass) -> list[float]:
    """Return the throughput of one tenant of a class alone in each trial that counts."""
    return [value for result in judged.used_blocks(references_of(results, one)) for value in tenant_throughputs(result, one)]


def _alone(results: Sequence[TrialResult], one: TenantClass, end: End) -> float | None:
    """Return the mean throughput of one tenant of a class alone, or an end of its interval. None without a trial."""
    values = alone_throughput(results, one)
    if end == "value" or not values:
        return statistics.fmean(values) if values else None
    found = mean_interval(values)
    return (found.low or 0.0) if end == "low" else math.inf if found.high is None else found.high


def misses(
    options: DensityOptions, results: Sequence[TrialResult], result: TrialResult, one: TenantClass, end: End = "value"
) -> tuple[str, ...]:
    """Return the conditions that a class fails in a finished block, the first one first. Empty: it passes, or has no tenant there.

    ``end`` is that of the throughput alone.
    """
    if one.idle:
        return ()
    part = part_of(result, one.name)
    found: list[str] = [*judged.misses(part, one.objectives, options.thresholds)]
    if one.rate is None and not one.objectives and "alone" not in result.trial.point:
        alone, here = _alone(results, one, end), tenant_throughputs(result, one)
        if here and alone and statistics.fmean(here) < options.efficiency * alone:
            found.append(EFFICIENCY)
    return tuple(found)


def tallies_of(
    options: DensityOptions, search: Search, results: Sequence[TrialResult], end: End = "value"
) -> dict[float, pass_search.Tally]:
    """Return the number of blocks by size in which every class passes, by this ``end`` of the throughput of each class alone."""
    tallies = {}
    for size, trials in judged.blocks_of(search, results).items():
        used = judged.used_blocks(trials)
        if all(trial.tainted for trial in used) and len(trials) < TAINTED_ATTEMPTS:
            used = []
        passed = sum(not any(misses(options, results, trial, one, end) for one in options.tenants) for trial in used)
        tallies[size] = pass_search.Tally(passed, len(used), len(trials))
    return tallies


def limit_of(options: DensityOptions, search: Search, results: Sequence[TrialResult]) -> pass_search.PassLimit:
    """Return the largest passing number, with its interval.

    All blocks are compared with the same trials alone. So a number passes for certain if it does by the upper end of the throughput alone,
    and fails for certain if it does by the lower end.
    """
    found, strict, lenient = (pass_search.pass_limit(search.candidates, tallies_of(options, search, results, end)) for end in ENDS)
    return replace(found, low=strict.low, high=lenient.high, refuted=lenient.refuted)


def _closer_sizes(options: DensityOptions, search: Search, results: Sequence[TrialResult]) -> list[float]:
    """Return the numbers whose blocks can narrow the interval of a search that is over.

    After those next to the limit, these are the limits by the ends of the throughput alone.
    """
    tallies, strict, lenient = (tallies_of(options, search, results, end) for end in ENDS)
    sizes = pass_search.next_outer_sizes(search.candidates, tallies, options.repeats)
    passing, failing = pass_search.border(tallies)
    if sizes or passing is None or failing is None or pass_search.border(strict)[0] is None:
        return sizes
    below = [size for size in search.candidates if size <= passing]
    above = [size for size in search.candidates if failing <= size <= failing + pass_search.OUTWARD]
    return [
        *pass_search.next_sizes(below, strict, options.repeats, passing),
        *pass_search.next_sizes(above, lenient, options.repeats, failing),
    ]


def fault_alone(options: DensityOptions, results: Sequence[TrialResult]) -> str:
    """Return which class misses what it needs even alone, or ''."""
    for one in (one for one in options.tenants if not one.idle):
        used = judged.used_blocks(references_of(results, one))
        failed = [names[0] for result in used if (names := misses(options, results, result, one))]
        if not used:
            return f"no trial of class {one.name} alone finished"
        if 2 * len(failed) > len(used):
            throughput = statistics.fmean(alone_throughput(results, one))
            return f"class {one.name} misses {needs(options, one)} even alone, by {failed[0]}; it makes {throughput:,.0f} tps"
    return ""


def who_keeps(one: TenantClass) -> str:
    """Return whether each tenant has to keep what a class needs, or all on average."""
    return "Each" if one.objectives or one.rate is not None else "On average, each"


def needs(options: DensityOptions, one: TenantClass) -> str:
    """Return what a class has to keep, as text."""
    if one.idle:
        return "nothing"
    parts = [judged.objective_text(one.objectives)] if one.objectives else []
    parts += [f"{one.rate:g} tps"] if one.rate is not None else []
    return " at ".join(parts) or f"{100 * options.efficiency:g} % of its throughput alone"
