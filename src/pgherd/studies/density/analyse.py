"""Analysis of a density run: answer, grade, findings, tables and next steps.

Pure. Missing, failed or tainted trials never raise: they become warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pgherd.analysis.intervals import LEAST as MIN_TRIALS
from pgherd.analysis.intervals import mean_interval, repeats_for
from pgherd.analysis.model_selection import ModelSelection, fit_models
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.density import soak
from pgherd.studies.density.curve import (
    DensityCurve,
    DensityPoint,
    capacity_floor,
    density_curve,
    density_points,
    floor_tenths,
    plural,
)
from pgherd.studies.density.findings import (
    NEVER_BELOW,
    OPEN_END,
    capacity_finding,
    cpu_rows,
    density_rows,
    evidence_findings,
    ideal_warnings,
    published_rows,
    shape_findings,
)
from pgherd.studies.density.options import DensityOptions, next_point
from pgherd.study.grade import check_warnings, failure_warnings, fallback_warnings, grade, qualify_answer, trial_warnings
from pgherd.study.repeats import join_continuations
from pgherd.study.scaling_models import model_curves, model_findings, model_rows, model_warnings

WIDE_INTERVAL = 0.1
"""Half width of a throughput's interval, as a share of its mean, above which more repeats are proposed.

The grade does not include this, since it rates the trials.
"""
UNFAIR_RATIO = 0.8
"""Ratio of the slowest to the fastest database below which fairness becomes a next step."""


def analyse(options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
    """Compute findings, tables and figures of a density run, its answer in one sentence, and its grade."""
    windows = soak.soak_windows(results) if options.soak_seconds else []
    trials = join_continuations(results)
    # soak_warnings() reports the noisy windows of a soak, which count.
    warnings = failure_warnings(trials) + check_warnings(trials) if windows else trial_warnings(trials)
    points = density_points(options, trials)
    if not points:
        several = f"{len(results)} trials were run and none of them finished" if len(results) > 1 else "the only trial did not finish"
        reason = several if results else "no trial was run"
        return Analysis(answer=f"No result: {reason}.", grade="C", warnings=warnings)
    curve = density_curve(options, points)
    findings = {**shape_findings(curve), **evidence_findings(curve)}
    findings["capacity"] = capacity_finding(curve, curve.basis)
    findings["capacity_vs_single"] = capacity_finding(curve, "single")
    findings["capacity_vs_linear"] = capacity_finding(curve, "slope")
    selection = _models(curve)
    findings |= model_findings(selection)
    run_grade = _grade(options, points, trials, complete=not options.soak_seconds or len(windows) >= options.soak_count)
    tables = {"density": density_rows(curve), "cpu": cpu_rows(curve), "models": model_rows(selection)}
    figures: dict[str, Any] = {"models": model_curves(selection, curve.loads[-1]), "published": published_rows()}
    answer = _answer(curve, findings["capacity"])
    if options.soak_seconds:
        findings |= soak.soak_findings(windows)
        if len(windows) > 1:
            tables["soak"] = soak.soak_rows(windows)
            figures["soak"] = {"hours": soak.soaked_hours(windows)}
            warnings += soak.soak_warnings(options, results, windows)
        run_grade = soak.soak_grade(run_grade, windows)
        answer = soak.soak_answer(options, windows)
    else:
        warnings += _curve_warnings(curve) + model_warnings(selection)
    return Analysis(
        answer=qualify_answer(answer, run_grade),
        grade=run_grade,
        findings=findings,
        tables=tables,
        warnings=warnings,
        next_steps=_next_steps(curve, findings),
        figures=figures,
    )


def _models(curve: DensityCurve) -> ModelSelection:
    loads = [point.databases for point in curve.points for _ in point.used]
    throughputs = [value for point in curve.points for value in point.throughputs]
    return fit_models(loads, throughputs, "relative", seed=curve.options.seed)


def _grade(options: DensityOptions, points: Sequence[DensityPoint], results: Sequence[TrialResult], *, complete: bool) -> Grade:
    """Grade the trials. The single database is essential, since every efficiency uses it.

    ``complete`` is false if windows of a soak are missing.
    """
    planned = {options.soak_point} if options.soak_seconds else set(options.databases)
    complete &= planned <= {point.databases for point in points if point.clean}
    single = [point for point in points if point.databases == 1]
    min_trials = 1 if options.soak_seconds else MIN_TRIALS  # the windows of a soak are its repeats
    return grade(points, results, complete=complete, wanted=options.repeats, essential=single, least=min_trials)


def _curve_warnings(curve: DensityCurve) -> list[str]:
    options = curve.options
    tainted = [str(point.databases) for point in curve.points if not point.clean]
    essential = "every efficiency depends on the single database" if curve.single is not None and not curve.single.clean else ""
    warnings = list(fallback_warnings([point.clean for point in curve.points], _numbers(tainted), essential))
    absent = [str(n) for n in options.databases if n not in {point.databases for point in curve.points}]
    if absent:
        warnings.append(f"No finished trial for {_numbers(absent)}")
    warnings += ideal_warnings(curve)
    few = [str(point.databases) for point in curve.points if len(point.used) < MIN_TRIALS]
    if few:
        warnings.append(f"No interval for {_numbers(few)}: fewer than {MIN_TRIALS} usable trials")
    if options.cpu_mode == "none":
        warnings.append(
            f"CPU of the databases was not limited: {options.vcpus:g} vCPU each is the unit for shares of the cores, not a measured limit"
        )
    if curve.single is None and len(curve.points) > 1:
        first = plural(curve.points[0].databases)
        warnings.append(f"Efficiencies exclude what is lost up to {first}: a single database was not measured")
    if not any(options.fraction(point.databases) > 1 + 1e-9 for point in curve.points):
        warnings.append("Behaviour past 100 % of the cores is unknown: no point was measured there")
    return warnings


def _answer(curve: DensityCurve, capacity: Finding) -> str:
    options = curve.options
    size = f"{options.vcpus:g} vCPU" + (f" at {options.rate:g} tps each" if options.rate else "")
    target = f"{100 * options.efficiency:.3g} % efficiency"
    largest = curve.points[-1]
    subject = f"Capacity of {len(options.over)} hosts together" if len(options.over) > 1 else "Capacity"
    if len(curve.points) == 1:
        text = f"{plural(largest.databases)} of {size} made {largest.mean:,.0f} tps; no capacity at {target}: {capacity.note}"
    elif capacity.value is not None:
        count = math.floor(capacity.value + 1e-9)
        text = f"{subject}: {plural(count)} of {size} at {target}"
        if capacity.low is not None and capacity.high is not None:
            low = floor_tenths(capacity.low)
            interval = f"from {low}, {OPEN_END}" if OPEN_END in capacity.note else f"{low}–{capacity.high:.1f}"
            confidence = f"{100 * (capacity.confidence or 0.95):.0f} %"
            text += f" (crossed at {floor_tenths(capacity.value)}, {confidence} interval {interval})"
        else:
            text += f" (crossed at {floor_tenths(capacity.value)}; too few repeats for an interval)"
    elif NEVER_BELOW in capacity.note:
        text = f"{subject}: at least {_never_below(curve, f'of {size} at {target}')}"
    else:
        text = f"{subject}: no database of {size} at {target}: {capacity.note}"
    return f"{text}; {_bottleneck(curve)}."


def _never_below(curve: DensityCurve, description: str) -> str:
    """Describe the certain capacity where the measured efficiency never fell below the target."""
    largest, estimate = curve.points[-1].databases, curve.capacity(curve.basis)
    certain = capacity_floor(estimate, largest)
    share = f"{100 * curve.options.fraction(largest):.0f} % of the cores"
    if estimate.low is None or certain == largest:
        few = "; too few repeats for an interval" if estimate.low is None else ""
        return f"{plural(largest)} {description}, the largest number measured ({share}{few})"
    efficiency = 100 * float(curve.efficiencies(curve.basis)[-1])
    interval = f"{100 * (estimate.confidence or 0.95):.0f} % interval from {floor_tenths(estimate.low)}"
    return (
        f"{plural(certain)} {description} ({interval}; {largest}, the largest number measured, at {share}, had {efficiency:.1f} %, but "
        "the spread of the repeats reaches below the target)"
    )


def _bottleneck(curve: DensityCurve) -> str:
    """Describe the bottleneck at the largest point, and the points that a quota limits."""
    largest, options = curve.points[-1], curve.options
    threshold = options.thresholds.max_background_cpu
    quota_bound = [point.databases for point in curve.points if point.bottleneck == "cpu-quota"]
    full = [point for point in curve.points if point.bottleneck == "host-cpu" and not _foreign_cores(point, threshold)]
    first_full = full[0] if full else largest
    foreign = _foreign_cores(largest, threshold)
    limit = "CPU quota" if options.cpu_mode == "quota" else "CPU set"
    hosts = "the hosts are" if len(options.over) > 1 else "the host is"
    clauses = {
        "host-cpu": f"{hosts} full, but {foreign} cores are used outside the containers"
        if foreign
        else f"CPU-bound: {hosts} full from {plural(first_full.databases)} on",
        "cpu-quota": f"each database is limited by its {limit}, and {hosts} not yet full",
        "rate-limit": "every database met its rate",
        "storage": "the bottleneck is storage",
        "client-cpu": "the bottleneck is the load generator, not the databases",
        "unknown": "the bottleneck is unknown",
    }
    text = clauses[largest.bottleneck]
    if quota_bound and largest.bottleneck != "cpu-quota":
        limited = "is limited by its" if quota_bound[-1] == 1 else "are limited by their"
        text += f"; up to {plural(quota_bound[-1])} {limited} {limit}, which makes the curve linear by construction"
    return text


def _foreign_cores(point: DensityPoint, limit: float) -> str:
    """CPU used outside the containers, if it is more than this share of the host. Empty otherwise."""
    cpus = [observation.cpu for observation in point.used]
    parts = [(cpu.platform, cpu.total) for cpu in cpus if cpu.platform is not None and cpu.total]
    foreign, total = (sum(values) / len(parts) for values in zip(*parts, strict=True)) if parts else (0.0, 0.0)
    return f"{foreign:.2g} of its {total:.2g}" if foreign > limit * total else ""


def _numbers(databases: Sequence[str]) -> str:
    return f"{', '.join(databases)} database{'' if list(databases) == ['1'] else 's'}"


def _next_steps(curve: DensityCurve, findings: dict[str, Finding]) -> list[str]:
    steps = [*_larger_point(curve, findings["capacity"]), *_more_repeats(curve)]
    if any(point.bottleneck == "cpu-quota" for point in curve.points):
        steps.append(
            "cpu_efficiency in the table 'density': CPU time per transaction (caches, memory, SMT), independent of the CPU time available"
        )
    fairness = findings.get("min_max_ratio")
    if fairness is not None and fairness.value is not None and fairness.value < UNFAIR_RATIO:
        steps.append(f"fairness: the slowest database gets {100 * fairness.value:.0f} % of the fastest one's throughput")
    foreign = findings["platform_overhead_measured"].value
    if foreign is not None and foreign > 0.05 * curve.options.host_cores:
        steps.append(f"the table 'cpu': {foreign:.2g} cores are used outside the containers; name their processes with --track")
    first, last = (point.values(lambda observation: observation.p95) for point in (curve.points[0], curve.points[-1]))
    if first and last and sum(last) / len(last) > 3 * sum(first) / len(first):
        steps.append("latency: p95 at the largest number of databases is more than three times that of the smallest")
    unknown = [str(point.databases) for point in curve.points if point.bottleneck == "unknown"]
    if unknown:
        steps.append(f"the bottleneck is unknown at {_numbers(unknown)}: see the checks of these trials")
    return steps


def _larger_point(curve: DensityCurve, capacity: Finding) -> list[str]:
    """Propose a larger number of databases if the crossing, or its upper bound, is beyond the largest one measured."""
    options = curve.options
    largest, memory_limit = max(options.databases), options.max_databases_in_memory
    if len(curve.points) == 1 or not (OPEN_END in capacity.note or NEVER_BELOW in capacity.note):
        return []
    if curve.loads[-1] != largest:
        return []  # the plan has a larger point, which should finish first
    unknown = (
        "the upper bound of the capacity" if capacity.value is not None else f"the point at {100 * options.efficiency:.3g} % efficiency"
    )
    beyond = f"{unknown} is beyond {plural(largest)}, the largest number measured"
    if memory_limit is not None and memory_limit <= largest:
        return [f"{beyond}; memory is sufficient for no more: lower --memory or --scale"]
    further = next_point(options) if memory_limit is None else min(next_point(options), memory_limit)
    points = ",".join(map(str, (*options.databases, further)))
    return [f"{beyond}; density with --databases {points} also measures {further}"]


def _more_repeats(curve: DensityCurve) -> list[str]:
    """Propose how to narrow the widest interval of a throughput, if it is wide."""
    widest, half_width = curve.points[0], 0.0
    for point in curve.points:
        mean = mean_interval(point.throughputs)
        if mean.high is not None and mean.high - mean.value > half_width * mean.value:
            widest, half_width = point, mean.high / mean.value - 1
    if half_width <= WIDE_INTERVAL or curve.options.soak_seconds:
        return []
    enough = repeats_for(widest.throughputs, WIDE_INTERVAL)
    # With missing or tainted trials, the run may already have requested as many.
    advice = "try a longer --duration, or rerun on an idle machine"
    if enough is not None and enough > curve.options.repeats:
        advice = f"by their spread --repeats {enough} narrows it to ± {100 * WIDE_INTERVAL:.0f} %"
    precision = f"throughput of {plural(widest.databases)} is known to ± {100 * half_width:.0f} % only"
    return [f"{precision} ({len(widest.used)} trials): {advice}"]
