"""Analysis of a mix of tenants: how many fit, which class fails first and why, and what each class gets at every size. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pgherd.analysis import pass_search
from pgherd.analysis.intervals import mean_interval, median_interval, ratio_of_means
from pgherd.analysis.pass_search import PassLimit
from pgherd.model.analysis import Analysis, Finding
from pgherd.model.load import LatencyObjective, Phase
from pgherd.model.result import TargetResult, TrialResult
from pgherd.model.units import format_bytes
from pgherd.studies.density import tenants_idle
from pgherd.studies.density.options import DensityOptions, try_more
from pgherd.studies.density.tenant_mix import TenantClass, class_of, phases_of, tenant_names
from pgherd.studies.density.tenants import (
    alone_throughput,
    fault_alone,
    limit_of,
    misses,
    needs,
    only_idle,
    part_of,
    references_of,
    search_of,
    tenant_throughputs,
    who_keeps,
)
from pgherd.study import objectives as judged
from pgherd.study import wait_event_columns, wait_events
from pgherd.study.findings import as_finding, labelled_name, missing
from pgherd.study.grade import grade_of, judge_answer, qualify_answer, trial_warnings
from pgherd.study.objective_analysis import (
    Row,
    Subject,
    capacity_finding,
    doubts,
    failing_resource,
    latency_finding,
    next_steps,
    open_answer,
    unfinished,
)

DEFAULT_PERCENTILE = "p95"
"""Percentile of a class without an objective."""
BOTTLENECKS = {"client": "clients"}


def analyse(options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the largest number of tenants, the class that fails first, and a row for each class and size."""
    if only_idle(options.tenants):
        return tenants_idle.analyse(options, results)
    search = search_of(options, results)
    blocks = {size: judged.used_blocks(trials) for size, trials in judged.blocks_of(search, results).items()}
    limit = limit_of(options, search, results)
    subject = _subject(options, limit)
    decided = pass_search.is_decided(limit, search.candidates)
    used = [trial for trials in blocks.values() for trial in trials]
    measured = limit.value is not None or limit.failing is not None
    fault = "" if measured else fault_alone(options, results) or "no number of tenants has enough blocks; raise --time-budget"
    capacity = missing("tenants", fault) if fault else capacity_finding(limit, search, subject)
    loaded = [one for one in options.tenants if not one.idle]
    present = [(size, one) for size, trials in blocks.items() for one in loaded if trials and _count(options, size, one)]
    rows = [_row(options, results, size, blocks[size], one) for size, one in present]
    by_phase = [
        row
        for size, one in present
        if size in (limit.value, limit.failing)
        for row in _phase_rows(options, results, size, blocks[size], one)
    ]
    idle = [row for size, trials in blocks.items() if trials for row in tenants_idle.idle_rows(options, size, trials)]
    waits = [row for size, one in present if (row := _wait_row(size, blocks[size], one))]
    alone = [_row_alone(options, results, one) for one in loaded if judged.used_blocks(references_of(results, one))]
    used += [trial for one in loaded for trial in judged.used_blocks(references_of(results, one))]
    grade = grade_of([not trial.tainted for trial in used], {trial.trial.key() for trial in used}, results, whole=decided)
    grade, reason = judge_answer(grade, doubts(limit, search, subject, decided=decided))
    answer = f"No answer: {fault}." if fault else qualify_answer(_answer(options, results, blocks, limit, capacity), grade)
    return Analysis(
        answer=answer,
        details=_details(options, results, blocks, limit),
        grade="C" if fault or limit.value is None else grade,
        grade_reason=fault or reason,
        findings={
            "capacity": capacity,
            **_findings(rows, alone, limit),
            **tenants_idle.idle_findings([row for row in idle if row["tenants"] == limit.value]),
        },
        tables={
            "tenants": rows,
            "classes_alone": alone,
            **({"phases": by_phase} if phases_of(options.tenants) > 1 else {}),
            **({tenants_idle.TABLE: idle} if idle else {}),
            **({wait_event_columns.TABLE: waits} if waits else {}),
            **({} if options.tenant_table is None else {"tenant_table": options.tenant_table.rows()}),
        },
        warnings=trial_warnings(results, "a size"),
        next_steps=next_steps(limit, search, subject, decided=decided),
    )


def _subject(options: DensityOptions, limit: PassLimit) -> Subject:
    subject = Subject("tenants", "tenants", lambda size: f"{_tenants(size)} keep", _tenants, lambda size: 0.0, try_more(options))
    if limit.value is not None and limit.value < max(options.databases):
        more = unfinished(limit, subject) or "the time budget ended the search: raise --time-budget"
        return replace(subject, more=more)
    return subject


def _tenants(size: float) -> str:
    return f"{size:g} tenant{'' if size == 1 else 's'}"


def _fit(size: float) -> str:
    return f"{_tenants(size)} fit{'s' if size == 1 else ''}"


def _count(options: DensityOptions, size: float, one: TenantClass) -> int:
    """Return the number of tenants of a class in a mix."""
    return sum(other.name == one.name for _, other in tenant_names(options.tenants, int(size), options.seed))


# ---- what fails first


def first_to_fail(
    options: DensityOptions, results: Sequence[TrialResult], blocks: Sequence[TrialResult]
) -> tuple[TenantClass | None, str, str]:
    """Return the class that fails in most blocks of a size, the condition that it misses, and its bottleneck."""
    failed = Counter(one.name for trial in blocks for one in options.tenants if misses(options, results, trial, one))
    if not failed:
        return None, "", ""
    first = max(options.tenants, key=lambda one: failed[one.name])  # the first one of the file among equals
    reasons = Counter(names[0] for trial in blocks if (names := misses(options, results, trial, first)))
    return first, reasons.most_common(1)[0][0], bottleneck(options, blocks, first)


def bottleneck(options: DensityOptions, blocks: Sequence[TrialResult], one: TenantClass) -> str:
    """Return the resource that is short for a class in most phases: CPU, CPU quota, clients, disk or unknown.

    If it misses an objective or its rate in some phases, only these count.
    """
    found: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for block in blocks:
        part = part_of(block, one.name)
        for index, phase in enumerate(part.phases):
            if phase.targets:
                trial = _of_phase(part, index)
                failed = bool(judged.misses(trial, one.objectives, options.thresholds))
                found[failed][failing_resource(options, trial, phase)] += 1
    counts = found[True] or found[False]
    name = counts.most_common(1)[0][0] if counts else "unknown"
    return BOTTLENECKS.get(name, name)


def _of_phase(result: TrialResult, index: int) -> TrialResult:
    """Return a result with one of its phases only."""
    trial = result.trial.model_copy(update={"phases": (result.trial.phases[index],)})
    return result.model_copy(update={"trial": trial, "phases": [result.phases[index]]})


def _answer(
    options: DensityOptions,
    results: Sequence[TrialResult],
    blocks: dict[float, list[TrialResult]],
    limit: PassLimit,
    capacity: Finding,
) -> str:
    if limit.value is not None and limit.failing is None:
        return open_answer(limit, _fit(limit.value), _subject(options, limit).more)
    failing = limit.failing if limit.failing is not None else min(blocks)
    first, _, resource = first_to_fail(options, results, blocks[failing])
    what = "what fails first is unknown" if first is None else f"class {first.name} fails first with {failing:g}, bottleneck {resource}"
    if limit.value is None:
        return f"Not even {_fit(failing)}; {what}."
    interval = f"from {capacity.low:g}, open" if limit.high is None else f"{capacity.low:g}–{capacity.high:g}"
    return f"{_fit(limit.value)} (95 % interval {interval}); {what}."


def _details(
    options: DensityOptions, results: Sequence[TrialResult], blocks: dict[float, list[TrialResult]], limit: PassLimit
) -> list[str]:
    """Return sentences on the two sizes that decide the answer, and on what each class has to keep."""
    sentences = [] if options.tenant_table is None else [options.tenant_table.summary()]
    for one in options.tenants:
        if not one.idle:
            sentences.append(f"{who_keeps(one)} tenant of class {one.name} has to keep {needs(options, one)}.")
    for size in (limit.value, limit.failing):
        if size is None:
            continue
        trials = blocks[size]
        mix = ", ".join(f"{count} {one.name}" for one in options.tenants if (count := _count(options, size, one)))
        failed = {one.name: [names[0] for trial in trials if (names := misses(options, results, trial, one))] for one in options.tenants}
        reasons = [f"class {name} fails {len(why)} by {Counter(why).most_common(1)[0][0]}" for name, why in failed.items() if why]
        sentences.append(f"{_tenants(size)} ({mix}), {len(trials)} blocks: {', '.join(reasons) or 'every class passes all'}.")
    return sentences


# ---- tables


def _row(options: DensityOptions, results: Sequence[TrialResult], size: float, trials: Sequence[TrialResult], one: TenantClass) -> Row:
    """Return the row of a class at a size. Values are per tenant."""
    failed = [names for trial in trials if (names := misses(options, results, trial, one))]
    reasons = Counter(names[0] for names in failed)
    return {
        "tenants": int(size),
        "class": one.name,
        "class_tenants": _count(options, size, one),
        "keeps": "yes" if 2 * len(failed) <= len(trials) else "no",
        **_values(trials, one),
        "late_share": _late(options, trials, one),
        "efficiency": _efficiency(results, trials, one),
        "min_max_ratio": _fairness(trials, one),
        "bottleneck": bottleneck(options, trials, one),
        "misses": reasons.most_common(1)[0][0] if reasons else "",
        "tainted_trials": sum(trial.tainted for trial in trials),
        "trials": len(trials),
    }


def _row_alone(options: DensityOptions, results: Sequence[TrialResult], one: TenantClass) -> Row:
    """Return the row of one tenant of a class alone."""
    trials = judged.used_blocks(references_of(results, one))
    total = sum(other.weight for other in options.tenants)
    return {
        "class": one.name,
        "class_share": one.weight / total,
        "vcpus": one.vcpus,
        "memory": "no limit" if one.container_memory is None else format_bytes(one.container_memory),
        **_values(trials, one),
        "has_to_keep": needs(options, one),
        "tainted_trials": sum(trial.tainted for trial in trials),
        "trials": len(trials),
    }


def _phase_rows(
    options: DensityOptions, results: Sequence[TrialResult], size: float, trials: Sequence[TrialResult], one: TenantClass
) -> list[Row]:
    """Return the rows of a class at a size by phase: who suffered, and when."""
    rows: list[Row] = []
    alone = alone_throughput(results, one)
    for index, plan in enumerate(trials[0].trial.phases):
        loads = [load for target, load in plan.loads.items() if class_of(target) == one.name]
        of_phase = [_of_phase(trial, index) for trial in trials]
        parts = [part_of(trial, one.name).phases[0].targets for trial in of_phase]
        rates = [load.rate for load in loads if load.rate is not None]
        rows.append(
            {
                "tenants": int(size),
                "class": one.name,
                "phase": index + 1,
                "loaded_tenants": len(loads),
                "rate": math.fsum(rates) if rates else None,
                "throughput": as_finding(mean_interval([math.fsum(target.throughput for target in part) for part in parts]), "tps"),
                "kept_share": _kept(parts, plan, one, alone),
                "late_share": _late(options, of_phase, one),
            }
        )
    return rows


def _kept(parts: Sequence[Sequence[TargetResult]], plan: Phase, one: TenantClass, alone: Sequence[float]) -> Finding:
    """Return the throughput of the slowest tenant of a class in a phase ÷ its rate, or without a rate ÷ that of a tenant alone."""
    due = mean_interval(alone) if one.rate is None and sum(alone) > 0 else None
    shares = [
        [tenant.throughput / rate for tenant in part if (rate := plan.loads[tenant.target].rate or (due and due.value))] for part in parts
    ]
    slowest = [min(values) for values in shares if values]
    if not slowest:
        return missing("ratio", "no load, or no throughput alone")
    kept = median_interval(slowest)
    if due is not None and kept.low is not None and kept.high is not None:  # the blocks share the trials alone
        low, high = (kept.low * due.value / due.high, kept.high * due.value / due.low) if due.low and due.high else (None, None)
        kept = replace(kept, low=low, high=high, note=due.note)
    return as_finding(kept, "ratio", "slowest tenant ÷ its rate, or ÷ one alone; median of the blocks")


def _wait_row(size: float, trials: Sequence[TrialResult], one: TenantClass) -> Row:
    """Return what the sessions of a class wait for at a size, or nothing if it was not sampled."""
    waits = wait_events.wait_row(trials, lambda server: server.split("/")[0].rpartition("-")[0] == one.name)
    return {"tenants": int(size), "class": one.name, **waits} if waits else {}


def _values(trials: Sequence[TrialResult], one: TenantClass) -> Row:
    """Return the throughput of a tenant, and each percentile of the worst tenant."""
    means = [statistics.fmean(values) for trial in trials if (values := tenant_throughputs(trial, one))]
    row: Row = {"throughput": as_finding(mean_interval(means), "tps", "of one tenant") if means else missing("tps", "no tenant had a load")}
    parts = [part_of(trial, one.name) for trial in trials]
    for objective in one.objectives:
        row[_key(objective)] = latency_finding(parts, objective, "worst tenant, median of the blocks")
    if not one.objectives:
        worst = [max(values) for part in parts if None not in (values := _percentiles(part)) and values]
        row[DEFAULT_PERCENTILE] = (
            as_finding(median_interval(worst), "ms", "worst tenant, median of the blocks")
            if worst
            else missing("ms", "too few sampled transactions above it in at least one tenant")
        )
    return row


def _percentiles(part: TrialResult) -> list[float]:
    values = [target.latency.p95 for phase in part.phases for target in phase.targets]
    return [value for value in values if value is not None] if None not in values else []


def _key(objective: LatencyObjective) -> str:
    return objective.name.replace(".", "_")


def _efficiency(results: Sequence[TrialResult], trials: Sequence[TrialResult], one: TenantClass) -> Finding:
    """Return the throughput of a tenant ÷ that of one tenant of its class alone."""
    here = [statistics.fmean(values) for trial in trials if (values := tenant_throughputs(trial, one, relative=True))]
    alone = alone_throughput(results, one)
    if not here or not alone or sum(here) <= 0 or sum(alone) <= 0:
        return missing("ratio", "no throughput of a tenant, or of one alone")
    return as_finding(ratio_of_means(here, alone), "ratio", "throughput of a tenant ÷ that of one tenant of its class alone")


def _late(options: DensityOptions, trials: Sequence[TrialResult], one: TenantClass) -> Finding:
    """Return the share of late transactions of the worst tenant over these phases. Over all phases, it decides on the objective."""
    parts = [part_of(trial, one.name) for trial in trials]
    shares = [[share for limit in one.objectives for share in judged.late_shares(part, limit, options.thresholds)] for part in parts]
    worst = [max(late) for late in shares if late]
    if not worst:
        return missing("ratio", "no objective, or no load")
    return as_finding(median_interval(worst), "ratio", "worst tenant, median of the blocks")


def _fairness(trials: Sequence[TrialResult], one: TenantClass) -> Finding:
    """Return the throughput of the slowest tenant of a class ÷ that of the fastest one."""
    by_trial = [values for trial in trials if len(values := tenant_throughputs(trial, one, relative=True)) > 1]
    ratios = [min(values) / max(values) for values in by_trial if max(values) > 0]
    if not ratios:
        return missing("ratio", "fewer than two tenants of the class")
    estimate = median_interval(ratios)
    return as_finding(replace(estimate, method=f"slowest ÷ fastest tenant of a class; {estimate.method}"), "ratio")


def _findings(rows: Sequence[Row], alone: Sequence[Row], limit: PassLimit) -> dict[str, Finding]:
    """Return the values of each class at the capacity, and alone."""
    found: dict[str, Finding] = {}
    for row in rows:
        if row["tenants"] == limit.value:
            cells = {name: cell for name, cell in row.items() if isinstance(cell, Finding)}
            found |= {labelled_name(name, **{"class": row["class"]}): cell for name, cell in cells.items()}
    for row in alone:
        if isinstance(cell := row["throughput"], Finding):
            found[labelled_name("throughput_alone", **{"class": row["class"]})] = cell
    return found
