"""Analysis of a density run: answer, grade, findings, tables and next steps.

Pure. Missing, failed or tainted trials never raise: they become warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pgherd.analysis.best_load import contradiction_text, contradictions
from pgherd.analysis.bootstrap import repeats_for
from pgherd.analysis.intervals import LEAST as MIN_TRIALS
from pgherd.analysis.model_selection import ModelSelection, fit_models
from pgherd.analysis.stability import RANGE, ROUNDS, SLOPE, rounds_of, steady_window
from pgherd.model.analysis import OPEN_END, Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.density import objective, soak, tenants_analyse
from pgherd.studies.density.curve import (
    DensityCurve,
    DensityPoint,
    capacity_floor,
    density_curve,
    density_points,
    floor_tenths,
    plural,
    with_interval,
)
from pgherd.studies.density.findings import (
    NEVER_BELOW,
    capacity_findings,
    cpu_rows,
    density_rows,
    evidence_findings,
    ideal_warnings,
    published_rows,
    server_rows,
    shape_findings,
)
from pgherd.studies.density.modes import level_warnings, mode_findings, mode_rows, mode_sentence, seconds_near_full
from pgherd.studies.density.options import REFERENCE_END, DensityOptions, most_databases, next_point, reference_point
from pgherd.studies.density.propose import build_trial
from pgherd.study.grade import check_warnings, failure_warnings, fallback_warnings, grade, judge_answer, qualify_answer, trial_warnings
from pgherd.study.observation import CPU_LIMITS, clients_fill_host
from pgherd.study.repeats import join_continuations
from pgherd.study.scaling_models import model_curves, model_findings, model_rows, model_warnings

WIDE_INTERVAL = 0.1
"""Half width of a throughput's interval, as a share of its mean, above which more repeats are proposed, and an answer at this point has
at most grade B."""
UNFAIR_RATIO = 0.8
"""Ratio of the slowest to the fastest database below which fairness becomes a next step."""


def analyse(options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
    """Compute findings, tables and figures of a density run, its answer in one sentence, and its grade."""
    if options.tenants:
        return tenants_analyse.analyse(options, results)
    if options.objectives:
        return objective.analyse(options, results, build_trial)
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
    findings = {**shape_findings(curve), **evidence_findings(curve), **capacity_findings(curve), **mode_findings(curve)}
    selection = _models(curve)
    findings |= model_findings(selection)
    run_grade = _grade(options, points, trials, complete=not options.soak_seconds or len(windows) >= options.soak_count)
    tables = {"density": density_rows(curve), "modes": mode_rows(curve), "cpu": cpu_rows(curve), "models": model_rows(selection)}
    if options.fleet:
        tables["servers"] = server_rows(curve, trials)
    figures: dict[str, Any] = {
        "models": model_curves(selection, curve.loads[-1]),
        "published": published_rows(),
        "seconds": seconds_near_full(curve),
    }
    reason, details = "", [*_details(curve, findings), *_trials_used(curve, trials)]
    answer = _answer(curve, findings["capacity"])
    if options.soak_seconds:
        findings |= soak.soak_findings(windows)
        if len(windows) > 1:
            tables["soak"] = soak.soak_rows(windows)
            figures["soak"] = {"hours": soak.soaked_hours(windows)}
            warnings += soak.soak_warnings(options, results, windows)
        run_grade, details = soak.soak_grade(run_grade, windows), soak.soak_details(windows)
        answer = soak.soak_answer(options, windows)
    else:
        warnings += _curve_warnings(curve, trials) + level_warnings(curve) + _unsteady_warnings(curve) + model_warnings(selection)
        run_grade, reason = judge_answer(run_grade, _doubts(curve, findings["capacity"]))
    return Analysis(
        answer=qualify_answer(answer, run_grade),
        details=details,
        grade=run_grade,
        grade_reason=reason,
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
    """Grade the trials. The reference is essential, since every efficiency uses it.

    ``complete`` is false if windows of a soak are missing.
    """
    planned = {options.soak_point} if options.soak_seconds else set(options.databases)
    complete &= planned <= {point.databases for point in points if point.clean}
    reference = reference_point(options, [point.databases for point in points])
    essential = [point for point in points if point.databases == reference]
    min_trials = 1 if options.soak_seconds else MIN_TRIALS  # the windows of a soak are its repeats
    return grade(points, results, complete=complete, wanted=options.repeats, essential=essential, least=min_trials)


def _curve_warnings(curve: DensityCurve, trials: Sequence[TrialResult]) -> list[str]:
    options = curve.options
    tainted = [str(point.databases) for point in curve.points if not point.clean]
    essential = "" if curve.points[curve.reference_index].clean else f"every efficiency depends on {curve.reference_text}"
    warnings = list(fallback_warnings([point.clean for point in curve.points], _numbers(tainted), essential))
    absent = [str(n) for n in options.databases if n not in {point.databases for point in curve.points}]
    if absent:
        warnings.append(f"No finished trial for {_numbers(absent)}")
    warnings += ideal_warnings(curve)
    contradicting = [str(curve.points[i].databases) for i in contradictions(curve.means)]
    if contradicting:
        warnings.append(contradiction_text(_numbers(contradicting)))
    few = [str(point.databases) for point in curve.points if len(point.used) < MIN_TRIALS]
    if few:
        interval = "No interval" if curve.spreads is None else "Interval only from the spread of other points"
        warnings.append(f"{interval} for {_numbers(few)}: fewer than {MIN_TRIALS} usable trials")
    if options.fleet:
        warnings.append(f"pgherd does not limit the CPU of listed servers: the answer is by throughput, relative to {curve.reference_text}")
        return warnings + _full_clients(curve, trials)
    if not options.cpu_limited:
        warnings.append(
            f"CPU of the databases was not limited: {options.vcpus:g} vCPU each is the unit for shares of the cores, not a measured limit"
        )
    if curve.options.fraction(curve.loads[curve.reference_index]) > REFERENCE_END + 1e-9 and len(curve.points) > 1:
        warnings.append(f"Efficiencies exclude what is lost up to {curve.reference_text}: no smaller number was measured")
    if not any(options.fraction(point.databases) > 1 + 1e-9 for point in curve.points):
        warnings.append("Behaviour past 100 % of the cores is unknown: no point was measured there")
    return warnings


def _full_clients(curve: DensityCurve, trials: Sequence[TrialResult]) -> list[str]:
    """Return a warning if this host, which runs the clients, was full at a point. Then the curve may show its limit."""
    limits, cores = curve.options.thresholds, curve.options.host_cores
    full = [trial for trial in trials if any(clients_fill_host(limits, cores, phase) for phase in trial.phases)]
    sizes = {int(trial.trial.point["databases"]) for trial in full}
    points = [str(size) for size in sorted(sizes)]
    if not points:
        return []
    return [f"This host, which runs the clients, was full at {_numbers(points)}: the curve may show its limit, not that of the servers"]


def _unsteady_warnings(curve: DensityCurve) -> list[str]:
    """Name the points where throughput was not steady within trials, by the rule of ``pgherd.analysis.stability``, or why it is unknown."""
    seconds = max(len(observation.per_second) for point in curve.points for observation in point.used)
    if 0 < seconds < ROUNDS:
        return [
            f"Whether throughput is steady within a trial is unknown: the longest one counts {seconds} s, and the rule needs {ROUNDS} s. "
            "A load can start on another level than the one on which it stays; use a longer --duration and --warmup"
        ]
    unsteady = []
    for point in curve.points:
        windows = [steady_window(rounds_of(observation.per_second)) for observation in point.used]
        count = sum(window is not None and not window.steady for window in windows)
        if 2 * count > len(windows):
            unsteady.append(str(point.databases))
    if not unsteady:
        return []
    return [
        f"Throughput is not steady within most trials of {_numbers(unsteady)}: five parts of a trial range by more than "
        f"{100 * RANGE:.0f} % or drift by more than {100 * SLOPE:.0f} %; a longer --duration and --warmup tell more"
    ]


def _doubts(curve: DensityCurve, capacity: Finding) -> list[str]:
    """Return the reasons why the answer is not of grade A: an open or wide interval, or a point at the crossing that is known badly."""
    reasons = []
    if capacity.value is None:
        reasons.append("the answer is open, since the crossing was not measured")
    elif capacity.low is None or capacity.high is None:
        reasons.append("the answer has no interval")
    elif capacity.is_open:
        reasons.append("the answer's interval is open")
    elif capacity.high - capacity.low > 1:
        reasons.append(f"the answer's interval spans {capacity.high - capacity.low:.1f} databases")
    for index in curve.at_crossing:
        mean, databases = curve.throughput(index), plural(curve.points[index].databases)
        if mean.high is None:
            reasons.append(f"the throughput of {databases} has no interval{', since it has two levels' if curve.levels else ''}")
        elif mean.high > (1 + WIDE_INTERVAL) * mean.value:
            reasons.append(f"the throughput of {databases} is known to ± {100 * (mean.high / mean.value - 1):.3g} % only")
    return reasons


def _answer(curve: DensityCurve, capacity: Finding) -> str:
    """Return the answer in one sentence of at most 20 words."""
    options = curve.options
    of, target = options.each, f"{100 * options.efficiency:.3g} %"
    rate = f", {options.rate:g} tps each," if options.rate else ""

    def at(databases: float) -> str:
        """Return what these many databases reach."""
        if curve.basis != "cpu":
            return f"{of}{rate or ' at'} {target} efficiency"
        return f"{of} receives {target} of its CPU" if databases == 1 else f"{of} receive {target} of their CPU"

    largest = curve.points[-1]
    subject = f"{len(options.over)} hosts" if len(options.over) > 1 else "Capacity"
    if len(curve.points) == 1:
        return f"{plural(largest.databases)} {of}{rate} made {largest.mean:,.0f} tps; a capacity needs several numbers of databases."
    if capacity.value is not None:
        count = math.floor(capacity.value + 1e-9)
        text = f"{subject}: {plural(count)} {at(count)}"
        if capacity.low is None or capacity.high is None:
            return f"{text} ({floor_tenths(capacity.value)}, without an interval)."
        interval = f"{100 * (capacity.confidence or 0.95):.0f} % interval"
        if capacity.is_open:
            return f"{text} ({interval} from {floor_tenths(capacity.low)})."
        crossed, ends = with_interval(capacity.value, capacity.low, capacity.high)
        return f"{text} ({crossed}, {interval} {ends})."
    if NEVER_BELOW in capacity.note:
        count = capacity_floor(curve.capacity(curve.basis), largest.databases)
        return f"{subject}: at least {plural(count)} {at(count)}."
    least = curve.loads[0]
    return f"{subject}: {'no database' if least == 1 else f'fewer than {least:g} databases'} {at(least)}."


def _details(curve: DensityCurve, findings: dict[str, Finding]) -> list[str]:
    """Return the sentences below the answer: the other capacity, the cost of a transaction, and the bottleneck."""
    sentences = []
    if curve.basis == "cpu":
        sentences.append(_by_throughput(curve, findings["capacity_by_throughput"]))
    elif NEVER_BELOW in findings["capacity"].note:
        sentences.append(_never_below(curve))
    if not curve.options.soak_seconds and len(curve.points) > 1:
        sentences.append(mode_sentence(curve))
    sentences.append(_bottleneck(curve))
    return [f"{text[0].upper()}{text[1:]}." for text in sentences if text]


def _by_throughput(curve: DensityCurve, capacity: Finding) -> str:
    """Describe the capacity by throughput, which includes what a transaction costs."""
    target = f"{100 * curve.options.efficiency:.3g} % of {curve.reference.value:,.0f} tps each, as at {curve.reference_text}"
    if len(curve.points) == 1:
        return ""
    if capacity.value is None:
        return f"By throughput: {capacity.note}; the target is {target}"
    crossed = floor_tenths(capacity.value)
    if capacity.low is None or capacity.high is None:
        return f"By throughput: {crossed} databases at {target}, {_reason_of(capacity)}"
    interval = f"from {floor_tenths(capacity.low)}, {OPEN_END}"
    if not capacity.is_open:
        crossed, interval = with_interval(capacity.value, capacity.low, capacity.high)
    return f"By throughput: {crossed} databases at {target}, {100 * (capacity.confidence or 0.95):.0f} % interval {interval}"


def _reason_of(capacity: Finding) -> str:
    """Return the part of the note that says why there is no interval."""
    _, _, reason = capacity.note.partition("no interval: ")
    return f"without an interval: {reason.rpartition(', the measured')[0] or reason}"


def _trials_used(curve: DensityCurve, trials: Sequence[TrialResult]) -> list[str]:
    """Say under which conditions the trials count, since noisy trials are left out on one side only."""
    limit = curve.options.thresholds.max_steal
    seen = [check.result for trial in trials for check in trial.checks if check.name == "steal" and check.result != "unknown"]
    if not seen:
        return [f"Steal was not seen; {curve.trials()} count, after all checks."]
    calm = f"Steal was below {100 * limit:.3g} % in {seen.count('pass')} of {len(seen)} trials"
    if len(seen) < len(trials):
        calm += f" that showed it, of {len(trials)}"
    return [f"{calm}; {curve.trials()} count, after all checks."]


def _never_below(curve: DensityCurve) -> str:
    """Describe what is certain where the measured efficiency never fell below the target."""
    largest, estimate = curve.points[-1].databases, curve.capacity(curve.basis)
    certain = capacity_floor(estimate, largest)
    share = "their cores are unknown" if curve.options.fleet else f"{100 * curve.options.fraction(largest):.0f} % of the cores"
    if estimate.low is None or certain == largest:
        few = "; too few repeats for an interval" if estimate.low is None else ""
        return f"{plural(largest)} is the largest number measured ({share}{few})"
    efficiency = 100 * float(curve.efficiencies(curve.basis)[-1])
    interval = f"{100 * (estimate.confidence or 0.95):.0f} % interval from {floor_tenths(estimate.low)}"
    return f"{interval}; {largest}, the largest number measured ({share}), had {efficiency:.1f} %, but its repeats reach below the target"


def _bottleneck(curve: DensityCurve) -> str:
    """Describe the bottleneck at the largest point, and the points that a CPU limit bounds."""
    largest, options = curve.points[-1], curve.options
    threshold = options.thresholds.max_background_cpu
    limited = [point for point in curve.points if point.bottleneck in CPU_LIMITS]
    full = [point for point in curve.points if point.bottleneck == "host-cpu" and not _foreign_cores(point, threshold)]
    first_full = full[0] if full else largest
    foreign = _foreign_cores(largest, threshold)
    hosts = "the hosts are" if len(options.over) > 1 else "the host is"
    clauses = {
        "host-cpu": f"{hosts} full, but {foreign} cores are used outside the containers"
        if foreign
        else f"CPU-bound: {hosts} full from {plural(first_full.databases)} on",
        **{name: f"each database is limited by its {limit}, and {hosts} not yet full" for name, limit in CPU_LIMITS.items()},
        "rate-limit": "every database met its rate",
        "storage": "the bottleneck is storage",
        "client-cpu": "the bottleneck is the load generator, not the databases",
        "lock-waits": "sessions wait for locks",
        "lwlock-waits": "sessions wait for lightweight locks",
        "unknown": "the bottleneck is unknown",
    }
    text = clauses[largest.bottleneck]
    if limited and largest.bottleneck not in CPU_LIMITS:
        verb = "is limited by its" if limited[-1].databases == 1 else "are limited by their"
        limit = CPU_LIMITS[limited[-1].bottleneck]
        text += f"; up to {plural(limited[-1].databases)} {verb} {limit}, which makes the curve linear by construction"
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
    if curve.levels is not None and curve.options.scheduler == "normal":
        policy = "batch-clients" if curve.options.external else "batch"
        steps.append(
            f"two modes of the CPU scheduler: --scheduler {policy} keeps a woken process from preempting the one that runs; try it"
        )
    if any(point.bottleneck in CPU_LIMITS for point in curve.points):
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
    largest, (most, reason) = max(options.databases), most_databases(options)
    if len(curve.points) == 1 or not (capacity.is_open or NEVER_BELOW in capacity.note):
        return []
    if curve.loads[-1] != largest:
        return []  # the plan has a larger point, which should finish first
    unknown = (
        "the upper bound of the capacity" if capacity.value is not None else f"the point at {100 * options.efficiency:.3g} % efficiency"
    )
    beyond = f"{unknown} is beyond {plural(largest)}, the largest number measured"
    if most <= largest:
        return [f"{beyond}; {reason}{'' if options.external else ': lower --memory or --scale'}"]
    if options.fleet:
        return [f"{beyond}; density with --databases {','.join(map(str, options.databases))},{len(options.fleet)} also loads all servers"]
    further = int(min(next_point(options), most))
    points = ",".join(map(str, (*options.databases, further)))
    return [f"{beyond}; density with --databases {points} also measures {further}"]


def _more_repeats(curve: DensityCurve) -> list[str]:
    """Propose how to narrow the widest interval of a throughput, if it is wide."""
    means = [curve.throughput(index) for index in range(len(curve.points))]
    widths = [0.0 if mean.high is None else mean.high / mean.value - 1 for mean in means]
    widest = max(range(len(widths)), key=widths.__getitem__)
    if widths[widest] <= WIDE_INTERVAL or curve.options.soak_seconds or curve.spreads is None:
        return []
    point = curve.points[widest]
    enough = repeats_for(curve.spreads[widest], WIDE_INTERVAL)
    # With missing or tainted trials, the run may already have requested as many.
    advice = "try a longer --duration, or rerun on an idle machine"
    if enough is not None and enough > curve.options.repeats:
        advice = f"by their spread --repeats {enough} narrows it to ± {100 * WIDE_INTERVAL:.0f} %"
    precision = f"throughput of {plural(point.databases)} is known to ± {100 * widths[widest]:.0f} % only"
    return [f"{precision} ({len(point.used)} trials): {advice}"]
