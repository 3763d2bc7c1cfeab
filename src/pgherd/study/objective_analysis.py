"""Analysis of a search by latency objective: answer, interval, what fails first, cost, and the table of all sizes. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pgherd.analysis import pass_search
from pgherd.analysis.intervals import mean_interval, median_interval, share_interval
from pgherd.analysis.pass_search import PassLimit
from pgherd.model.analysis import OPEN_END, Analysis, Finding
from pgherd.model.load import LatencyObjective
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.study import objectives as judged
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import grade_of, judge_answer, qualify_answer, trial_warnings
from pgherd.study.objectives import Search, SearchOptions, objective_text, short_text
from pgherd.study.observation import HERE, clients_fill_host, seen_hosts, used_share

Row = dict[str, Finding | str | int | float | None]

THROTTLED, CROWDED, WAITING = 0.05, 0.8, 0.1
"""Shares from which a resource counts as the cause: quota periods with throttled tasks, used CPUs of the host, CPU time waiting for I/O."""
QUEUED = 0.3
"""Share of the busy sessions that wait for locks, or for I/O, or of the transactions that wait before a pooler, from which these count."""
WANTED_CPU = 0.5
"""Sessions on a CPU or ready to run, from which a full CPU is the cause, whatever others wait for."""
ROUNDED = 2
"""Significant digits of a proposed limit."""
_MORE_BLOCKS = "the interval is wide: raise --min-repeats and --time-budget for more blocks"


class ObjectiveStudyOptions(SearchOptions, Protocol):
    """Options of a study of databases with objectives."""

    @property
    def price_per_hour(self) -> float | None: ...
    @property
    def host_cores(self) -> float: ...


@dataclass(frozen=True)
class Subject:
    """The sizes of a search in words.

    Attributes:
        column: name of the size in points and tables, such as ``databases``.
        unit: unit of the size.
        text: a size as the subject of a sentence, with its verb, such as ``12 databases at 300 tps keep``.
        short: a size in words, such as ``13 databases``.
        total: transactions per second at a size.
        more: why no larger size was measured, and what to do.
        alternative: another size of the same study that keeps the objective, if the smallest one does not. '' if there is none.
    """

    column: str
    unit: str
    text: Callable[[float], str]
    short: Callable[[float], str]
    total: Callable[[float], float]
    more: str
    alternative: str = ""


def analyse_search(
    options: ObjectiveStudyOptions, search: Search, subject: Subject, results: Sequence[TrialResult], findings: Mapping[str, Finding]
) -> Analysis:
    """Return the analysis of a search, with further ``findings`` of its study."""
    blocks = judged.blocks_of(search, results)
    found = judged.tallies(blocks, options.objectives, options.thresholds)
    limit = pass_search.pass_limit(search.candidates, found)
    if limit.failing is None and limit.value is not None and limit.value < search.candidates[-1]:
        subject = replace(subject, more=unfinished(limit, subject) or "--time-budget ended the search")
    if not limit.blocks:
        return refused(f"no block of {subject.short(search.candidates[0])} counts", results, findings, subject.unit)
    cause = _cause(options, blocks.get(limit.failing, ())) if limit.failing is not None else ""
    capacity = capacity_finding(limit, search, subject)
    all_findings = {
        "capacity": capacity,
        "capacity_doubled": _doubled(options, search, subject, blocks),
        **costs(options.price_per_hour, capacity, subject),
        **(_latencies(options, blocks[limit.value], subject.short(limit.value)) if limit.value is not None else {}),
        **findings,
    }
    rows = [size_row(options, subject, size, trials, limit) for size, trials in blocks.items() if judged.used_blocks(trials)]
    used = [trial for trials in blocks.values() for trial in judged.used_blocks(trials)]
    decided = pass_search.is_decided(limit, search.candidates)
    clean = [not trial.tainted for trial in used]
    grade = grade_of(clean, {trial.trial.key() for trial in used}, results, whole=decided)
    of_clients = ["the clients' CPU fails first, so the servers may keep more"] if cause == "client" else []
    grade, reason = judge_answer(grade, [*of_clients, *doubts(limit, search, subject, decided=decided)])
    answer = _answer(options, limit, subject, cause, blocks, search)
    if limit.value is None:
        grade, reason = "C", f"the smallest size, {subject.short(search.candidates[0])}, misses the objective"
    else:
        answer = qualify_answer(answer, grade)
    return Analysis(
        answer=answer,
        details=_details(options, limit, subject, all_findings, blocks),
        grade=grade,
        grade_reason=reason,
        findings=all_findings,
        tables={"objective": rows},
        warnings=trial_warnings(results, "a size"),
        next_steps=next_steps(limit, search, subject, decided=decided),
        figures={
            "objective": {
                "size": subject.column,
                "objectives": [objective.model_dump() for objective in options.objectives],
                "capacity": limit.value,
            }
        },
    )


def refused(reason: str, results: Sequence[TrialResult], findings: Mapping[str, Finding], unit: str = "databases") -> Analysis:
    """Return the analysis of a run whose request cannot be answered, such as a rate above the capacity of one database."""
    unknown = {"capacity": missing(unit, reason), **findings}
    warnings = trial_warnings(results, "a size")
    return Analysis(answer=f"No answer: {reason}.", grade="C", grade_reason=reason, findings=unknown, warnings=warnings)


# ---- findings


def capacity_finding(limit: PassLimit, search: Search, subject: Subject) -> Finding:
    """Return the largest size that keeps the objectives, with its interval."""
    method = "at least half of the blocks pass; bisection, Clopper-Pearson interval of the share of passing blocks"
    if limit.value is None:
        return missing(subject.unit, f"{subject.short(search.candidates[0])} already miss the objective in most blocks", method=method)
    if limit.failing is None:
        note = f"{subject.short(limit.value)}, the largest measured, keep it; {subject.more}"
        confidence = None if limit.low is None else 0.95
        return Finding(value=None, unit=subject.unit, low=limit.low, confidence=confidence, n=limit.blocks, method=method, note=note)
    note = f"{subject.short(limit.failing)} miss it in most blocks"
    if limit.refuted is None:
        high, note = limit.failing, f"{note}; {OPEN_END}"
    else:
        high = _largest_below(limit.refuted, search, subject)
    low = limit.low if limit.low is not None else 0.0
    return Finding(
        value=limit.value,
        unit=subject.unit,
        low=min(low, limit.value),
        high=max(high, limit.value),
        confidence=0.95,
        n=limit.blocks,
        method=method,
        note=note,
    )


def _largest_below(failing: float, search: Search, subject: Subject) -> float:
    """Return the largest size that may pass below one that fails: of counts every whole number, of rates those that are tried."""
    return max((size for size in search.candidates if size < failing), default=0.0) if subject.column == "rate" else failing - 1


def _doubled(options: ObjectiveStudyOptions, search: Search, subject: Subject, blocks: Mapping[float, Sequence[TrialResult]]) -> Finding:
    """Return the largest size that keeps twice the limits."""
    doubled = [objective.doubled for objective in options.objectives]
    limit = pass_search.pass_limit(search.candidates, judged.tallies(blocks, doubled, options.thresholds))
    if limit.value is None or limit.failing is None:
        note = "no size keeps twice the limit" if limit.value is None else f"{subject.short(limit.value)}, the largest measured, keep it"
        return missing(subject.unit, note)
    return Finding(
        value=limit.value,
        unit=subject.unit,
        low=limit.value,
        high=_largest_below(limit.failing, search, subject),
        n=limit.blocks,
        method="at least half of the blocks pass; low and high are the sizes between which few blocks leave it",
        note=f"with {objective_text(doubled)}",
    )


def costs(price: float | None, capacity: Finding, subject: Subject) -> dict[str, Finding]:
    """Return the cost per million transactions, and the size that one unit of money per hour pays for.

    Where the capacity's interval is open, the costs have no lower end, and the sizes no upper end.
    """
    if price is None:
        return {}
    per_million, per_price = "per million transactions", f"{subject.unit} for 1 per hour"
    if capacity.value is None:
        return {"cost_per_million": missing(per_million, capacity.note), "capacity_per_price": missing(per_price, capacity.note)}

    def cost(size: float | None) -> float | None:
        return price / 3600 / subject.total(size) * 1e6 if size else None

    note = f"at {price:g} per hour{f'; of the capacity: {OPEN_END}' if capacity.is_open else ''}"
    largest = None if capacity.is_open else capacity.high
    high = cost(capacity.low)
    cost_finding = Finding(
        value=cost(capacity.value),
        unit=per_million,
        low=None if high is None else cost(largest),
        high=high,
        confidence=None if high is None else capacity.confidence,
        n=capacity.n,
        method="price ÷ transactions at the capacity",
        note=note if high is not None else f"{note}; no interval: the capacity's interval starts at 0",
    )
    sizes = {"value": capacity.value, "low": capacity.low, "high": largest}
    parts = {name: None if size is None else size / price for name, size in sizes.items()}
    return {
        "cost_per_million": cost_finding,
        "capacity_per_price": capacity.model_copy(update={**parts, "unit": per_price, "method": "capacity ÷ price", "note": note}),
    }


def worst_latency(trial: TrialResult, objective: LatencyObjective) -> float | None:
    """Return the percentile of the worst database of a block in ms. None unless every database has it."""
    values = [target.values.get(f"{objective.name}_ms") for phase in trial.phases for target in phase.targets]
    return max((value for value in values if value is not None), default=None) if None not in values else None


def _latencies(options: ObjectiveStudyOptions, trials: Sequence[TrialResult], where: str) -> dict[str, Finding]:
    return {
        f"{objective.name.replace('.', '_')}_at_capacity": latency_finding(trials, objective, f"of the worst database, with {where}")
        for objective in options.objectives
    }


def latency_finding(trials: Sequence[TrialResult], objective: LatencyObjective, note: str = "") -> Finding:
    """Return the median over blocks of the worst database's percentile."""
    values = [value for trial in judged.used_blocks(trials) if (value := worst_latency(trial, objective)) is not None]
    if not values:
        return missing("ms", "too few sampled transactions above it in at least one database")
    return as_finding(median_interval(values), "ms", note)


# ---- table


def size_row(options: ObjectiveStudyOptions, subject: Subject, size: float, trials: Sequence[TrialResult], limit: PassLimit) -> Row:
    used = judged.used_blocks(trials)
    failed = [judged.misses(trial, options.objectives, options.thresholds) for trial in used]
    passed = sum(not names for names in failed)
    reasons = Counter(names[0] for names in failed if names)
    row: Row = {
        subject.column: int(size) if size == int(size) else size,
        "keeps": "yes" if limit.value is not None and size <= limit.value else "no",
        "blocks_kept": as_finding(share_interval(passed, len(used)), "ratio", "blocks that pass"),
    }
    for objective in options.objectives:
        row[objective.name.replace(".", "_")] = latency_finding(trials, objective, "worst database, median of the blocks")
    worst = [max(_late_shares(options, trial)) for trial in used]
    lags = [value for trial in used if (value := _lag(trial)) is not None]
    host = [value for trial in used if (value := _host_share(trial)) is not None]
    row |= {
        "late_share": as_finding(median_interval(worst), "ratio", "worst database, median of the blocks"),
        "schedule_lag": as_finding(median_interval(lags), "ms", "worst database, median of the blocks")
        if lags
        else missing("ms", "not logged"),
        "throughput": as_finding(mean_interval([_throughput(trial) for trial in used]), "tps"),
        "host_cpu": as_finding(_shares(host), "ratio") if host else missing("ratio", "the CPU of the servers' host was not measured"),
        "misses": reasons.most_common(1)[0][0] if reasons else "",
        "tainted_trials": sum(trial.tainted for trial in trials),
        "trials": len(trials),
    }
    return row


def _shares(values: Sequence[float]) -> Any:
    found = mean_interval(values)
    return found if found.low is None or found.high is None else replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def _late_shares(options: ObjectiveStudyOptions, trial: TrialResult) -> list[float]:
    return [share for one in options.objectives for share in judged.late_shares(trial, one, options.thresholds)] or [0.0]


def _lag(trial: TrialResult) -> float | None:
    """Return the largest mean schedule lag of a database in ms."""
    lags = [target.latency.lag_mean for phase in trial.phases for target in phase.targets]
    return max((lag for lag in lags if lag is not None), default=None)


def _throughput(trial: TrialResult) -> float:
    seconds = sum(phase.seconds for phase in trial.phases)
    return sum(phase.throughput * phase.seconds for phase in trial.phases) / seconds if seconds else 0.0


def _host_share(trial: TrialResult) -> float | None:
    """Return the used share of the CPUs of the servers' fullest host, steal included. None if it was not measured."""
    shares = []
    for number, phase in enumerate(trial.phases):
        of_hosts = [share for host in seen_hosts(trial.trial, number, phase) if (share := used_share(phase, host)) is not None]
        if not of_hosts:
            return None
        shares.append(max(of_hosts))
    return statistics.fmean(shares) if shares else None


# ---- what fails first


def _cause(options: ObjectiveStudyOptions, trials: Sequence[TrialResult]) -> str:
    """Return what is short at the smallest size that misses the objectives, as text that follows 'fails first'."""
    used = judged.used_blocks(trials)
    found = Counter(cause for trial in used for phase in trial.phases if (cause := failing_resource(options, trial, phase)))
    return found.most_common(1)[0][0] if found else "unknown"


def failing_resource(options: ObjectiveStudyOptions, trial: TrialResult, phase: PhaseResult) -> str:
    """Return the resource that is short in a block, which has one phase: CPU, CPU quota, locks, pooler, client, disk or unknown.

    On a full CPU, sessions also wait for locks and connections. These are the cause then only if hardly a session wants a CPU.
    """
    host, sessions, full, hosts = _host_share(trial), _sessions(phase), _full(options, trial, phase), seen_hosts(trial.trial, 0, phase)
    if full and sessions.get("cpu", WANTED_CPU) >= WANTED_CPU:
        return full
    busy, clients = math.fsum(sessions.values()), _client_bound(options, trial, phase)
    if busy and sessions.get("lock", 0.0) >= QUEUED * busy:
        return "locks"
    in_flight = _in_flight(phase) if sessions and not clients and _pooled(trial, phase) else 0.0
    if in_flight and in_flight - busy >= QUEUED * in_flight:
        return "pooler"
    if full or (host is not None and host >= CROWDED):
        return full or "CPU"
    # This host is the clients' where no server that is seen runs on it.
    if clients or (HERE not in hosts and clients_fill_host(options.thresholds, options.host_cores, phase)):
        return "client"
    waiting = any(_io_wait(phase.metrics.get(one, {})) >= WAITING for one in hosts)
    if waiting or (busy and sessions.get("io", 0.0) >= QUEUED * busy):
        return "disk"
    return "unknown"


def _full(options: ObjectiveStudyOptions, trial: TrialResult, phase: PhaseResult) -> str:
    """Return ``CPU`` if the host's CPUs or the run's part of them are full, ``CPU quota`` if a loaded container was throttled, or ''."""
    throttled = [
        metrics["cpu.throttled_periods"] / metrics["cpu.periods"]
        for name in {name.partition("/")[0] for name in _loaded(phase)}
        if (metrics := phase.metrics.get(f"container:{name}", {})).get("cpu.periods") and "cpu.throttled_periods" in metrics
    ]
    host = _host_share(trial)
    started = [container.name for _, container in trial.trial.deployment.containers() if container.runtime != "external"]
    used = math.fsum(phase.metrics.get(f"container:{name}", {}).get("cpu.usage", 0.0) for name in started)
    if (host is not None and host >= options.thresholds.host_full) or used >= options.thresholds.host_full * options.host_cores:
        return "CPU"
    return "CPU quota" if max(throttled, default=0.0) >= THROTTLED else ""


def _io_wait(host: Mapping[str, float]) -> float:
    """Return the share of a host's CPU time that waits for I/O. 0 if it was not measured."""
    online = host.get("cpu.online")
    return host.get("cpu.iowait", 0.0) / online if online else 0.0


def _client_bound(options: ObjectiveStudyOptions, trial: TrialResult, phase: PhaseResult) -> bool:
    loads = trial.trial.phases[0].loads
    used = [
        cpu / loads[target.target].threads
        for target in phase.targets
        if (cpu := phase.metrics.get(f"driver:{target.target}", {}).get("cpu.usage", target.client_cpu)) is not None
    ]
    return max(used, default=0.0) >= options.thresholds.max_client_cpu


def _loaded(phase: PhaseResult) -> set[str]:
    """Return the loaded servers as ``container/server``."""
    return {"/".join(target.target.split("/")[1:3]) for target in phase.targets if target.target.count("/") == 3}


def _sessions(phase: PhaseResult) -> dict[str, float]:
    """Return the mean number of busy sessions of the loaded servers by class of wait event, idle ones in a transaction included.

    Empty without samples.
    """
    sums: dict[str, float] = {}
    for server in _loaded(phase):
        for name, value in phase.metrics.get(f"server:{server}", {}).items():
            if name.startswith("waits.") and name != "waits.hidden":
                sums[name] = sums.get(name, 0.0) + value
    return {name.removeprefix("waits."): value for name, value in sums.items()}


def _pooled(trial: TrialResult, phase: PhaseResult) -> bool:
    loaded, servers = _loaded(phase), trial.trial.deployment.servers()
    return any(server.pooled and f"{container.name}/{server.name}" in loaded for _, container, server in servers)


def _in_flight(phase: PhaseResult) -> float:
    """Return the mean number of transactions that clients have started and not ended (Little's law)."""
    return math.fsum(
        target.throughput * (target.latency.mean - (target.latency.lag_mean or 0.0)) / 1000
        for target in phase.targets
        if target.latency.mean is not None
    )


_CAUSES = {
    "CPU": "CPU fails first",
    "CPU quota": "CPU quota fails first",
    "locks": "locks fail first",
    "pooler": "pooler fails first",
    "client": "the clients' CPU fails first",
    "disk": "disk fails first",
    "unknown": "the cause is unknown",
    "": "",
}


_MISSED = {"percentile": "", "share in a second": " in every second", "schedule lag": "", "transactions": " and its rate"}
"""Text after an objective for the condition that most blocks fail."""


# ---- sentences


def _answer(
    options: ObjectiveStudyOptions,
    limit: PassLimit,
    subject: Subject,
    cause: str,
    blocks: Mapping[float, Sequence[TrialResult]],
    search: Search,
) -> str:
    """Return the answer in one sentence of at most 20 words."""
    objective = short_text(options.objectives)
    if limit.value is None:
        return _smallest_misses(options, subject, search.candidates[0], blocks)
    if limit.failing is None:
        return open_answer(limit, f"{subject.text(limit.value)} {objective}", subject.more)
    finding = capacity_finding(limit, search, subject)
    high = "" if finding.is_open else f"{finding.high:,.10g}"
    if limit.low is None:
        interval = f"up to {high}" if high else "open"
    else:
        low = f"{finding.low:,.10g}"
        interval = f"{low}–{high}" if high else f"from {low}"
    return f"{subject.text(limit.value)} {objective} (95 %: {interval}); {_CAUSES[cause]}."


def open_answer(limit: PassLimit, kept: str, more: str) -> str:
    """Return the answer if the largest measured size passes: it is a lower bound only if it passes for certain."""
    if limit.low == limit.value:
        return f"At least {kept}; {more}."
    return f"{kept}, the largest measured ({'without a lower bound' if limit.low is None else f'95 %: from {limit.low:,.10g}'})."


def _smallest_misses(
    options: ObjectiveStudyOptions, subject: Subject, smallest: float, blocks: Mapping[float, Sequence[TrialResult]]
) -> str:
    """Return the answer if even the smallest size misses: measured values, and the smallest limits or the size that work."""
    trials = judged.used_blocks(blocks.get(smallest, ()))
    failed = Counter(names[0] for trial in trials if (names := judged.misses(trial, options.objectives, options.thresholds)))
    if not failed:
        return "No result: no block finished."
    values = [latency_finding(trials, objective).value for objective in options.objectives]
    why = _MISSED[failed.most_common(1)[0][0]]
    if any(value is not None and value > one.limit_ms for value, one in zip(values, options.objectives, strict=True)):
        why = f": measured {'/'.join('–' if value is None else f'{value:.3g}' for value in values)} ms"
    least = least_objectives(options, trials)
    ways = [short_text(least)] if least else []
    ways += [subject.alternative] if subject.alternative else []
    behind = 2 * sum("schedule lag" in judged.misses(trial, [], options.thresholds) for trial in trials) > len(trials)
    advice = "the schedule lag grows: lower the rate" if behind else "raise the limit or lower the rate"
    text = f"{subject.short(smallest)} cannot keep {short_text(options.objectives)}{why}; "
    return text + (f"{' or '.join(ways)} works." if ways else f"{advice}.")


def least_objectives(options: ObjectiveStudyOptions, trials: Sequence[TrialResult]) -> tuple[LatencyObjective, ...]:
    """Return the smallest limits, not below those given, that at least half of these blocks keep. Empty if the blocks show none."""
    limits = [found for trial in trials if (found := _least_limits(options, trial)) is not None]
    for rank in range(math.ceil(len(trials) / 2), len(limits) + 1):
        ranked = [sorted(values)[rank - 1] for values in zip(*limits, strict=True)]
        least = tuple(
            objective if value <= objective.limit_ms else objective.model_copy(update={"limit_ms": rounded_up(value)})
            for objective, value in zip(options.objectives, ranked, strict=True)
        )
        if 2 * _passing(least, limits) >= len(trials):
            return least
    return ()


def _passing(objectives: Sequence[LatencyObjective], limits: Sequence[Sequence[float]]) -> int:
    """Return how many blocks keep all objectives, from the smallest limits of each block."""
    return sum(all(value <= one.limit_ms for value, one in zip(values, objectives, strict=True)) for values in limits)


def _least_limits(options: ObjectiveStudyOptions, trial: TrialResult) -> list[float] | None:
    """Return the smallest limit of each objective that a block keeps. None: it has no rate to keep it at, or several databases.

    Their common share in a second is not known at other limits than the counted ones.
    """
    targets = [target for phase in trial.phases for target in phase.targets]
    if len(targets) != 1 or judged.misses(trial, [], options.thresholds):
        return None
    values = [targets[0].values.get(f"{objective.name}_least_ms") for objective in options.objectives]
    return [value for value in values if value is not None] if None not in values else None


def rounded_up(value: float, digits: int = ROUNDED) -> float:
    """Return a positive number rounded up to significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return round(math.ceil(value / unit - 1e-9) * unit, 10)


def _details(
    options: ObjectiveStudyOptions,
    limit: PassLimit,
    subject: Subject,
    findings: Mapping[str, Finding],
    blocks: Mapping[float, Sequence[TrialResult]],
) -> list[str]:
    """Return sentences on the blocks, the doubled objective and the cost."""
    sentences = []
    for size in (limit.value, limit.failing):
        if size is not None and (used := judged.used_blocks(blocks[size])):
            failed = [judged.misses(trial, options.objectives, options.thresholds) for trial in used]
            reasons = Counter(names[0] for names in failed if names)
            why = f", by {' and '.join(f'{name} ({count})' for name, count in reasons.most_common())}" if reasons else ""
            sentences.append(f"{subject.short(size)}: {len(used) - sum(reasons.values())} of {len(used)} blocks pass{why}")
            least = least_objectives(options, used) if limit.value is None else ()
            if least:
                limits = [found for trial in used if (found := _least_limits(options, trial)) is not None]
                sentences.append(f"With {objective_text(least)}, {_passing(least, limits)} of them pass")
    doubled = findings["capacity_doubled"]
    if limit.value is not None and limit.failing is not None:
        text = objective_text([objective.doubled for objective in options.objectives])
        if doubled.value is None:
            sentences.append(f"With the objective doubled ({text}): {doubled.note}")
        elif doubled.high is not None and doubled.high > doubled.value:
            sentences.append(f"With the objective doubled ({text}): {subject.short(doubled.value)}, at most {subject.short(doubled.high)}")
        else:
            sentences.append(f"With the objective doubled ({text}): {subject.short(doubled.value)}")
    cost = findings.get("cost_per_million")
    if cost is not None and cost.value is not None:
        price = f"{_with_interval(cost)} at {options.price_per_hour:g} per hour"
        sentences.append(f"{price}, or {_with_interval(findings['capacity_per_price'])}")
    return [f"{text[0].upper()}{text[1:]}." for text in sentences]


def _with_interval(finding: Finding) -> str:
    low, high = (None if end is None else f"{end:.3g}" for end in (finding.low, finding.high))
    interval = f"{low}–{high}" if low and high else f"from {low}" if low else f"at most {high}" if high else ""
    return f"{finding.value:.3g}{f' ({interval})' if interval else ''} {finding.unit}"


def unfinished(limit: PassLimit, subject: Subject) -> str:
    """Return which trials ended the search because they did not finish. '' if there are none."""
    return "" if limit.unfinished is None else f"trials with {subject.short(limit.unfinished)} did not finish"


def doubts(limit: PassLimit, search: Search, subject: Subject, *, decided: bool) -> list[str]:
    """Return the reasons why the answer is not of grade A."""
    if limit.value is None:
        return []
    if cause := unfinished(limit, subject):
        return [cause]
    if limit.failing is None:
        return ["the answer is open, since every measured number keeps the objective"]
    if not decided:
        return [f"the search ended between {subject.short(limit.value)} and {subject.short(limit.failing)}"]
    if limit.low is None or limit.refuted is None:
        return ["the answer's interval is open"]
    high = _largest_below(limit.refuted, search, subject)
    steps = sum(limit.low < size <= high for size in search.candidates) if subject.column == "rate" else int(high - limit.low)
    return [f"the answer's interval spans {steps + 1} sizes"] if steps > 1 else []


def next_steps(limit: PassLimit, search: Search, subject: Subject, *, decided: bool) -> list[str]:
    if limit.value is None:
        return []
    if limit.failing is None and limit.value == search.candidates[-1]:
        advice = [subject.more] if subject.more.startswith("--databases") else []  # a reason is no step
        return [] if limit.low == limit.value else [_MORE_BLOCKS, *advice]
    if cause := unfinished(limit, subject):
        return [f"{cause}: remove the cause, which the warnings name, and measure again"]
    if not decided:
        return ["the search did not end: raise --time-budget"]
    if subject.column != "rate" and limit.failing is not None and limit.failing - limit.value > 1:
        return [f"no number between {limit.value:g} and {limit.failing:g} was tried: use --databases {limit.failing:g} to try all up to it"]
    if limit.low is None or limit.high is None or sum(limit.low < size <= limit.high for size in search.candidates) > 1:
        return [_MORE_BLOCKS]
    return []
