"""Latency objectives: their options, the judgement of a block, and the search for the largest size that keeps them. Pure.

A block is one short trial at one size: a number of databases at a rate, or a rate of one server. It passes if three conditions hold:

- Every database keeps every objective: of its transactions, at least the percentile's share takes no longer than the limit. So the worst
  database's percentile decides.
- In every second, of all databases' transactions at least that share does (Weathervane's rule), less three standard deviations.
- Every database keeps its rate: its transactions are not fewer than due, and its schedule lag does not grow.

``analysis.pass_search`` chooses the sizes. Imports no scientific library, because it runs between the trials.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from pgherd.analysis import pass_search
from pgherd.analysis.pass_search import Tally
from pgherd.model.analysis import Finding, Proposal, Thresholds
from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.load import LatencyObjective, Load
from pgherd.model.result import PhaseResult, TargetResult, TrialResult, clean_or_all
from pgherd.model.trial import Trial
from pgherd.model.units import parse_seconds
from pgherd.study.findings import missing
from pgherd.study.option import StudyRequest, option

BLOCK_S = 4.0
"""Default length of a block in seconds."""
MAX_BLOCK_S = 10.0
"""Longest block that pgherd chooses. Longer ones would leave too few in the default time."""
BLOCKS = 7
"""Default number of blocks of each of the two sizes that decide the answer. With 7 of 7 a size passes for certain."""
MIN_LATE = 10
"""Transactions that may be late in a block. With fewer, a percentile cannot be shown."""
USUAL_RATE = 0.5
"""Default rate as a share of the closed-loop throughput of one database."""
CLOSED_TRIALS = 2
"""Trials without a rate, which measure the closed-loop throughput."""
OVERHEAD_S = 2.0
"""Assumed time of a trial's start and end, in seconds."""
PROBE_BLOCKS = 3
"""Blocks of each of the two sizes that decide a further question: the objective doubled, or a lower rate."""
CLOSER = "narrows the answer's interval"
"""Reason of blocks next to the two sizes that decide."""
TAINTED_ATTEMPTS = 2
"""Attempts after which the tainted blocks of a size count, if it has no clean one."""
START_S = 0.03
"""Time in the warm-up for the start of each driver, in seconds, so that a short block has the load of all."""
LOG_LINES = 500
"""Maximum log lines per second: per database with a rate, or per client that runs the user's scripts."""

Miss = Literal["percentile", "share in a second", "schedule lag", "transactions"]
"""Condition that a block fails."""

_SLO = re.compile(r"p(\d+(?:\.\d+)?)\s*=\s*(\d.*?[a-z])", re.ASCII)
_PRICE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*h", re.ASCII)


class ObjectiveRequest(StudyRequest):
    """Options of a search by latency objective, as the user gives them."""

    slo: tuple[str, ...] = option((), "Latency objective to size for (repeatable).", metavar="pN=TIME", repeated=True, web=True)
    price: str | None = option(None, "Price of the host per hour, for the cost with --slo.", metavar="PRICE/h", web=True)


class ObjectiveOptions(Model):
    """Complete options of a search by latency objective. Without objectives there is none."""

    objectives: tuple[LatencyObjective, ...] = ()
    fixed_duration: bool = Field(False, description="the user gave the length of a block")
    price_per_hour: float | None = Field(None, gt=0)


class SearchOptions(Protocol):
    """Options that the search uses, see ``ObjectiveOptions`` and ``study.database_options.DatabaseOptions``."""

    @property
    def objectives(self) -> tuple[LatencyObjective, ...]: ...
    @property
    def fixed_duration(self) -> bool: ...
    @property
    def duration(self) -> float: ...
    @property
    def repeats(self) -> int: ...
    @property
    def time_budget(self) -> float | None: ...
    @property
    def thresholds(self) -> Thresholds: ...


# ---- options


def parse_objectives(texts: Sequence[str]) -> tuple[LatencyObjective, ...]:
    """Return the objectives of texts such as ``p99=10ms`` or ``p95=5ms,p99=10ms`` (the web form). Raises UsageError."""
    objectives: dict[str, LatencyObjective] = {}
    for text in ",".join(texts).split(","):
        match = _SLO.fullmatch(text.strip().lower())
        if match is None:
            raise UsageError(f"--slo {text}: write a percentile and a limit with its unit, such as p99=10ms")
        percentile, limit = float(match[1]), 1000 * parse_seconds(match[2])
        if not 50 <= percentile < 100 or limit <= 0:
            raise UsageError(f"--slo {text}: the percentile is at least 50 and below 100, and the limit above 0, such as p99=10ms")
        objective = LatencyObjective(percentile=percentile, limit_ms=limit)
        if objective.name in objectives:
            raise UsageError(f"--slo {text}: {objective.name} has two limits; give one of them")
        objectives[objective.name] = objective
    return tuple(objectives.values())


def objective_text(objectives: Sequence[LatencyObjective]) -> str:
    """Return the objectives as text, such as ``p95 ≤ 5 ms and p99 ≤ 10 ms``."""
    return " and ".join(map(str, objectives))


def short_text(objectives: Sequence[LatencyObjective]) -> str:
    """Return the objectives in few words, such as ``p99 ≤ 10 ms`` or ``p95/p99 ≤ 5/10 ms``."""
    names, limits = ("/".join(texts) for texts in zip(*((one.name, f"{one.limit_ms:g}") for one in objectives), strict=True))
    return f"{names} ≤ {limits} ms"


def describe_search(options: SearchOptions, sizes: str) -> list[str]:
    """Return a sentence on the search for the plan, or nothing without an objective. ``sizes`` are those that it may try."""
    if not options.objectives:
        return []
    blocks = f"blocks of {options.duration:g} s{'' if options.fixed_duration else ' or more'}, {options.repeats} at the two deciding ones"
    return [f"Search for {objective_text(options.objectives)} over {sizes}, after the closed-loop trials: {blocks}."]


def parse_price(text: str) -> float:
    """Return the price per hour of a text such as ``0.38/h``. Raises UsageError."""
    match = _PRICE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--price {text}: write a price above 0 per hour, such as 0.38/h")
    return float(match[1])


def objective_fields(request: Any) -> dict[str, Any]:
    """Return the fields of a study's complete options for a request with ``--slo``: objectives, price, and length and number of blocks.

    ``request`` is a request of databases that is also an ``ObjectiveRequest``.

    Raises:
        UsageError: an option is wrong, or the blocks are too short for the objectives.
    """
    if not request.slo:
        if request.price is not None:
            raise UsageError("--price needs an objective; give one with --slo, such as --slo p99=10ms")
        return {}
    objectives = parse_objectives(request.slo)
    fixed = "duration" in request.model_fields_set
    seconds = float(request.duration) if fixed else BLOCK_S
    rate = request.rate or float(LOG_LINES)  # a higher one does not log more
    if shortest_block(objectives, rate) > (seconds if fixed else MAX_BLOCK_S):
        raise UsageError(too_few_samples(objectives, rate))
    return {
        "objectives": objectives,
        "fixed_duration": fixed,
        "duration": seconds,
        "repeats": request.planned_repeats(BLOCKS),
        "price_per_hour": None if request.price is None else parse_price(request.price),
    }


def shortest_block(objectives: Sequence[LatencyObjective], rate: float) -> float:
    """Return the seconds in which a database at this rate logs enough transactions for every percentile."""
    logged = rate * rate_sampling(rate)
    return max(math.ceil(MIN_LATE / (objective.allowed * logged) - 1e-6) for objective in objectives)


def block_seconds(options: SearchOptions, rate: float) -> float | None:
    """Return the length of a block at this rate. None: it would be too long, or is too short as given."""
    needed = shortest_block(options.objectives, rate)
    if options.fixed_duration:
        return options.duration if needed <= options.duration else None
    return max(options.duration, needed) if needed <= MAX_BLOCK_S else None


def too_few_samples(objectives: Sequence[LatencyObjective], rate: float) -> str:
    """Return why the blocks cannot show the percentiles, and the time that they would need."""
    seconds = shortest_block(objectives, rate)
    highest = max(objectives, key=lambda objective: objective.percentile)
    total, logged = 5 * BLOCKS * (seconds + 1 + OVERHEAD_S), rate * rate_sampling(rate)
    return (
        f"--slo {highest.name}: {logged:g} logged transactions per second are too few; give --duration {seconds:g}s --time-budget "
        f"{math.ceil(total / 60)}m"
    )


def rate_sampling(rate: float) -> float:
    """Return the fraction of transactions to log at this rate."""
    return min(1.0, LOG_LINES / rate)


# ---- one block


QUEUE = 5
"""Increase of the queue, in transactions of all clients, that a database that keeps up may have in a window. Of simulated databases with
half of their capacity in use at 10/s, none fails; of those that achieve 66 % of the rate, 2 % pass."""


def lag_excess(target: TargetResult, load: Load, seconds: float) -> float | None:
    """Return the growth of the schedule lag per second in a window. 0 if a short queue explains it, None if it was not measured.

    Lag has none of the variation of random arrivals' number, but a database that keeps up has a queue of a few transactions,
    which may be longer at the end of a short window.
    """
    found = target.latency
    if found.lag_growth is None or found.lag_mean is None or found.mean is None:
        return None
    service = max(found.mean - found.lag_mean, 0.0) / 1000 / load.clients
    return found.lag_growth if found.lag_growth * seconds > QUEUE * service else 0.0


def least_completed(due: float, share: float) -> float:
    """Return the least number of completed transactions of a database that keeps its rate: a share, less three standard deviations.

    pgbench schedules transactions as a Poisson process, so their number in a window varies by its square root.
    """
    return share * due - 3 * math.sqrt(due)


def misses(result: TrialResult, objectives: Sequence[LatencyObjective], thresholds: Thresholds) -> tuple[Miss, ...]:
    """Return the conditions that a finished block fails, the first one first. Empty: it passes.

    A percentile is that of a database over all phases. The other conditions hold in each phase.
    """
    found: dict[Miss, None] = {}
    if any(share > objective.allowed for objective in objectives for share in late_shares(result, objective, thresholds)):
        found["percentile"] = None
    for plan, phase in zip(result.trial.phases, result.phases, strict=False):
        for objective in objectives:
            if any(late > objective.most_late(logged) for logged, late in by_second(phase, objective)):
                found["share in a second"] = None
        for target in phase.targets:
            load = plan.loads.get(target.target)
            if load is None or load.rate is None:
                continue
            if (lag_excess(target, load, phase.seconds) or 0.0) > 1 - thresholds.min_rate_achieved:
                found["schedule lag"] = None
            if target.transactions < least_completed(load.rate * phase.seconds, thresholds.min_rate_achieved):
                found["transactions"] = None
    return tuple(found)


def late_shares(part: TrialResult, objective: LatencyObjective, thresholds: Thresholds) -> list[float]:
    """Return the share of late transactions of each database over all phases. A database that made none has only late ones.

    If so few are due that it makes none by chance, or if none of its transactions is in the sample, the share is unknown, which is no
    miss.
    """
    logged: Counter[str] = Counter()
    made: Counter[str] = Counter()
    late: Counter[str] = Counter()
    due: defaultdict[str, float] = defaultdict(float)
    for plan, phase in zip(part.trial.phases, part.phases, strict=False):
        for target in phase.targets:
            load = plan.loads.get(target.target)
            if load is not None and load.rate is not None:
                due[target.target] += load.rate * phase.seconds
            logged[target.target] += round(target.values.get("logged_tx", 0.0))
            late[target.target] += round(target.values.get(f"late_{objective.key}_tx", 0.0))
            made[target.target] += target.throughput > 0
    starved = {
        name for name in logged if not made[name] and (name not in due or least_completed(due[name], thresholds.min_rate_achieved) > 0)
    }
    return [late[name] / count if count else float(name in starved) for name, count in logged.items()]


def by_second(phase: PhaseResult, objective: LatencyObjective) -> list[tuple[float, float]]:
    """Return (logged, late) transactions of all databases in each whole second."""
    logged, late = (
        [math.fsum(values) for values in zip(*(target.series.get(name, []) for target in phase.targets), strict=False)]
        for name in ("logged_tx", f"late_{objective.key}_tx")
    )
    return list(zip(logged, late, strict=False))


# ---- the search


@dataclass(frozen=True)
class Search:
    """Search for the largest size that keeps the objectives.

    Attributes:
        candidates: ascending sizes that can be measured.
        first: the size that is measured after the smallest one.
        size_of: the size of a trial of this search, from its point. None: it is of another one.
        build: ``build(size, repeat, reason)`` returns a block.
    """

    candidates: tuple[float, ...]
    first: float
    size_of: Callable[[Mapping[str, int | float | str]], float | None]
    build: Callable[[float, int, str], Trial]


def blocks_of(search: Search, results: Sequence[TrialResult]) -> dict[float, list[TrialResult]]:
    """Return the trials of a search by size."""
    blocks: dict[float, list[TrialResult]] = {}
    for result in results:
        size = search.size_of(result.trial.point)
        if size is not None:
            blocks.setdefault(size, []).append(result)
    return dict(sorted(blocks.items()))


def used_blocks(trials: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the clean trials of a size, or the tainted ones if there is no clean one."""
    return clean_or_all([trial for trial in trials if trial.error is None and trial.phases])


def tallies(
    blocks: Mapping[float, Sequence[TrialResult]], objectives: Sequence[LatencyObjective], thresholds: Thresholds
) -> dict[float, Tally]:
    """Return the number of passing blocks by size. While a size has no clean block, tainted ones count only after two attempts."""
    found = {}
    for size, trials in blocks.items():
        used = used_blocks(trials)
        if all(trial.tainted for trial in used) and len(trials) < TAINTED_ATTEMPTS:
            used = []
        passed = sum(not misses(trial, objectives, thresholds) for trial in used)
        found[size] = Tally(passed, len(used), len(trials))
    return found


def next_blocks(options: SearchOptions, search: Search, results: Sequence[TrialResult]) -> tuple[Trial, ...]:
    """Return the next blocks of a search: for the objectives, twice their limits, and a closer interval. Empty: it is over."""
    trials = _next(options, search, results, options.objectives, options.repeats, f"search for {objective_text(options.objectives)}")
    limits = pass_search.border(tallies(blocks_of(search, results), options.objectives, options.thresholds))
    if trials or None in limits:
        return trials
    doubled = [objective.doubled for objective in options.objectives]
    probes = _next(options, search, results, doubled, PROBE_BLOCKS, f"search for {objective_text(doubled)}, the double")
    return probes or _outer(options, search, results)


def next_probes(options: SearchOptions, search: Search, results: Sequence[TrialResult]) -> tuple[Trial, ...]:
    """Return the next blocks of a search that only has to find a size that works. Empty: it is over."""
    reason = f"search for a lower rate that keeps {objective_text(options.objectives)}"
    return _next(options, search, results, options.objectives, PROBE_BLOCKS, reason)


def _next(
    options: SearchOptions,
    search: Search,
    results: Sequence[TrialResult],
    objectives: Sequence[LatencyObjective],
    enough: int,
    reason: str,
) -> tuple[Trial, ...]:
    blocks = blocks_of(search, results)
    sizes = pass_search.next_sizes(search.candidates, tallies(blocks, objectives, options.thresholds), enough, search.first)
    return build_blocks(search, sizes, blocks, reason)


def _outer(options: SearchOptions, search: Search, results: Sequence[TrialResult]) -> tuple[Trial, ...]:
    blocks = blocks_of(search, results)
    sizes = pass_search.next_outer_sizes(search.candidates, tallies(blocks, options.objectives, options.thresholds), options.repeats)
    return build_blocks(search, sizes, blocks, CLOSER)


def build_blocks(search: Search, sizes: Sequence[float], blocks: Mapping[float, Sequence[TrialResult]], reason: str) -> tuple[Trial, ...]:
    """Return a trial of each size, numbered after the blocks that exist."""
    trials: list[Trial] = []
    for size in sizes:
        repeat = len(blocks.get(size, ())) + sum(search.size_of(trial.point) == size for trial in trials)
        trials.append(search.build(size, repeat, reason))
    return tuple(trials)


def within_budget(options: SearchOptions, results: Sequence[TrialResult], trials: Sequence[Trial], over: str) -> Proposal:
    """Return the trials that fit into the time budget, or the reason to stop: ``over`` if no trial is left."""
    if not trials:
        return Proposal(stop=over, max_trials=len(results))
    extra = [result.ended - result.started - result.trial.seconds() for result in results if result.error is None]
    overhead = max(statistics.median(extra), 0.0) if extra else OVERHEAD_S
    remaining = math.inf if options.time_budget is None else options.time_budget
    remaining -= sum(max(result.ended - result.started, 0.0) for result in results)
    fitting = []
    for trial in trials:
        remaining -= trial.seconds() + overhead
        if remaining >= 0 or not results:
            fitting.append(trial)
    if not fitting:
        return Proposal(stop=f"the budget of {options.time_budget:g} s is used up", max_trials=len(results))
    shortest = min(trial.seconds() for trial in trials)
    most = None if options.time_budget is None else len(results) + len(fitting) + max(0, math.floor(remaining / (shortest + 1)))
    return Proposal(trials=tuple(fitting), max_trials=most)


def closed_throughput(results: Sequence[TrialResult]) -> float | None:
    """Return the mean closed-loop throughput of the trials without a rate, over databases. None without a finished one."""
    values = [target.throughput for result in closed_trials(results) for phase in result.phases for target in phase.targets]
    return math.fsum(values) / len(values) if values else None


def closed_trials(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the trials without a rate that count: the clean ones, or the tainted ones if there is none."""
    return list(used_blocks([result for result in results if result.trial.point.get("load") == "closed"]))


def closed_finding(results: Sequence[TrialResult], clients: str) -> Finding:
    """Return the closed-loop throughput as a finding. ``clients`` are named in its note."""
    throughput, trials = closed_throughput(results), closed_trials(results)
    if throughput is None:
        return missing("tps", "not measured")
    tainted = ", only tainted ones" if any(trial.tainted for trial in trials) else ""
    many = f"{len(trials)} trial{'' if len(trials) == 1 else 's'}"
    return Finding(value=throughput, unit="tps", n=len(trials), note=f"without a rate, with {clients}; no interval: {many}{tainted}")


def rounded_down(value: float, digits: int = 2) -> float:
    """Return a positive number rounded down to significant digits: 1,278 becomes 1,200."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return round(math.floor(value / unit + 1e-9) * unit, 10)


def with_objectives(trial: Trial, options: SearchOptions, rate: float, seconds: float, point: Mapping[str, Any], reason: str) -> Trial:
    """Return a trial as a block: each load at a rate, with the objectives and twice their limits counted. Its rate cannot taint it."""
    objectives = (*options.objectives, *(objective.doubled for objective in options.objectives))
    (phase,) = trial.phases

    def paced(load: Load) -> Load:
        counted = any(script.name is not None for script in load.scripts)  # by name, from a complete log
        return load.model_copy(update={"rate": rate, "sampling": 1.0 if counted else rate_sampling(rate), "objectives": objectives})

    loads = {target: paced(load) for target, load in phase.loads.items()}
    return trial.model_copy(
        update={
            "point": dict(point),
            "reason": reason,
            "phases": (phase.model_copy(update={"loads": loads, "seconds": seconds, "warmup": phase.warmup + START_S * len(loads)}),),
            "validity_checks": tuple(check for check in trial.validity_checks if check in ("cached", "io-bound")),
        }
    )


def closed_loop(trial: Trial, point: Mapping[str, Any]) -> Trial:
    """Return a trial without a rate, which measures the closed-loop throughput."""
    (phase,) = trial.phases
    loads = {target: load.model_copy(update={"rate": None}) for target, load in phase.loads.items()}
    checks = tuple(check for check in trial.validity_checks if check in ("cached", "io-bound"))
    reason = "closed-loop throughput"
    return trial.model_copy(
        update={
            "point": {**point, "load": "closed"},
            "reason": reason,
            "phases": (phase.model_copy(update={"loads": loads}),),
            "validity_checks": checks,
        }
    )
