"""Analysis of a scaling run: answer, grade, findings, tables and next steps.

Pure. Missing, failed or tainted trials never raise: they become warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgherd.analysis.best_load import contradiction_text
from pgherd.analysis.intervals import LEAST as MIN_TRIALS
from pgherd.analysis.model_selection import ModelSelection, fit_models
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.scaling import objective
from pgherd.studies.scaling.curve import (
    NEAR_PEAK_SHARE,
    ScalingCurve,
    client_cpu_share,
    clients_text,
    major_version,
    scaling_curve,
    scaling_points,
    server_cpu_per_tx,
    shape_findings,
)
from pgherd.studies.scaling.options import ScalingOptions, plural, scripts_of
from pgherd.studies.scaling.propose import build_trial
from pgherd.studies.scaling.tables import NO_PERCENTILE, NO_SPLIT, cpu_rows, ratio_findings, ratio_rows, scaling_rows, variant_rows
from pgherd.study.grade import fallback_warnings, grade, qualify_answer, trial_warnings, worst
from pgherd.study.repeats import mean_finding, pgherd_cpu
from pgherd.study.scaling_models import model_curves, model_findings, model_rows, model_warnings


def analyse(options: ScalingOptions, results: Sequence[TrialResult]) -> Analysis:
    """Compute findings, tables and figures of a scaling run, its answer in one sentence, and its grade."""
    if options.objectives:
        return objective.analyse(options, results, build_trial)
    warnings = trial_warnings(results)
    servers = options.servers()
    curves = [
        scaling_curve(server, points, variant, options.seed + position)
        for position, (variant, server) in enumerate(servers.items())
        if (points := scaling_points(server, results, variant))
    ]
    if not curves:
        reason = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"No result: {reason}.", grade="C", warnings=warnings)
    findings: dict[str, Finding] = {}
    selections = {curve.variant: _models(curve, options.seed) for curve in curves}
    for curve in curves:
        selection = selections[curve.variant]
        curve_findings = {**shape_findings(curve), **_evidence(curve), **model_findings(selection, load="clients")}
        findings |= {f"{name}.{curve.variant}" if curve.variant else name: finding for name, finding in curve_findings.items()}
        warnings += [_with_variant(curve, text) for text in (*_curve_warnings(options, curve), *model_warnings(selection))]
    warnings += _shared_core_warnings(curves)
    tables = {"scaling": scaling_rows(curves), "cpu": cpu_rows(curves), "models": _model_rows(selections)}
    if len(servers) > 1:
        tables["variants"] = variant_rows(servers)
        absent = [name for name in servers if name not in selections]
        warnings += [f"No finished trial of variant '{name}'" for name in absent] + _version_warnings(curves)
    if len(curves) > 1:
        findings = ratio_findings(curves) | findings
        tables["ratios"] = ratio_rows(curves)
    run_grade = _grade(options, curves, results)
    return Analysis(
        answer=qualify_answer(answer(curves), run_grade),
        grade=run_grade,
        findings=findings,
        tables=tables,
        warnings=warnings,
        next_steps=_next_steps(curves),
        figures=_model_figures(curves, selections, several=len(servers) > 1),
    )


def _models(curve: ScalingCurve, seed: int) -> ModelSelection:
    loads = [point.clients for point in curve.points for _ in point.used]
    throughputs = [value for point in curve.points for value in point.throughputs]
    return fit_models(loads, throughputs, "relative", seed=seed)


def _model_rows(selections: dict[str, ModelSelection]) -> list[dict[str, Finding | str | int | float | None]]:
    rows = []
    for variant, selection in selections.items():
        rows += [{"variant": variant, **row} if variant else row for row in model_rows(selection, load="clients")]
    return rows


def _model_figures(curves: Sequence[ScalingCurve], selections: dict[str, ModelSelection], *, several: bool) -> dict[str, Any]:
    """Return the model curves: ``models``, or with variants ``variant_models`` by name of the variant."""
    by_variant = {curve.variant: model_curves(selections[curve.variant], curve.loads[-1]) for curve in curves}
    return {"variant_models": by_variant} if several else {"models": by_variant[curves[0].variant]}


def _grade(options: ScalingOptions, curves: Sequence[ScalingCurve], results: Sequence[TrialResult]) -> Grade:
    """Return the worst grade of all curves. C if a variant has no curve or cannot be compared, as its ratio has no interval."""
    if len(curves) < len(options.servers()) or any(
        ratio.low is None for name, ratio in ratio_findings(curves).items() if name.startswith("peak_ratio.")
    ):
        return "C"
    grades = []
    for curve in curves:
        trials = [result for result in results if result.trial.point.get("variant", "") == curve.variant]
        complete = set(options.clients) <= {point.clients for point in curve.points if point.clean}
        # Two trials per point are enough for intervals, because the spread is pooled over the points.
        grades.append(grade(curve.points, trials, complete=complete, wanted=options.repeats, least=2))
    return worst(grades)


def _evidence(curve: ScalingCurve) -> dict[str, Finding]:
    """server_cpu_per_tx, client_cpu_share and p95 at the peak, and CPU use of pgherd."""
    best = curve.points[curve.best]
    where = f"with {plural(best.clients)}, at the highest throughput"
    share_note = f"pgbench's share of the CPU that it and the server used, {where}"
    return {
        "server_cpu_per_tx": mean_finding(best, server_cpu_per_tx, "ms", NO_SPLIT, where),
        "client_cpu_share": mean_finding(best, client_cpu_share, "ratio", NO_SPLIT, share_note),
        "p95_at_peak": mean_finding(best, lambda observation: observation.p95, "ms", NO_PERCENTILE, where),
        "pgherd_cpu": pgherd_cpu(curve.points),
    }


# ---- answer


def answer(curves: Sequence[ScalingCurve]) -> str:
    """Summarize one curve, or several relative to the first, in one sentence."""
    return _single_answer(curves[0]) if len(curves) == 1 else _variants_answer(curves)


def _single_answer(curve: ScalingCurve) -> str:
    server = f"One PostgreSQL {curve.options.pg_version} on {_cores(curve)}"
    result = f"{_peak_text(curve)} ({scripts_of(curve.options)}) with {clients_text(curve.peak_clients)}"
    if len(curve.peak_clients) > 1:
        result += ", which cannot be told apart"
    if len(curve.points) == 1:
        return f"{server} made {result}; scaling is unknown with one number of clients."
    if not curve.peak.candidates:
        highest = f"{server} made up to {_peak_text(curve)} ({scripts_of(curve.options)})"
        return f"{highest}; {_linear_text(curve)}; no peak is named, because there are too few trials for an interval."
    peak = f"{server} peaks at {result}" if not curve.at_edge else f"{server} makes {result}, the largest number measured"
    beyond = "throughput still rises there, so that the peak is at more clients" if curve.rising else _around_peak(curve)
    return f"{peak}; {_linear_text(curve)}; {beyond}."


def _peak_text(curve: ScalingCurve) -> str:
    """Return ``43,309 tps (38,000–47,000)``. Without the interval if there is none, or if it has no width."""
    peak = curve.peak.value
    if peak.low is None or peak.high is None or round(peak.low) == round(peak.high):
        return f"{peak.value:,.0f} tps"
    return f"{peak.value:,.0f} tps ({peak.low:,.0f}–{peak.high:,.0f})"


def _cores(curve: ScalingCurve) -> str:
    options = curve.options
    if not options.cpu_limited:
        return f"{options.vcpus:g} core{'' if options.vcpus == 1 else 's'}"
    return f"{options.vcpus:g} vCPU"


def _linear_text(curve: ScalingCurve) -> str:
    region = curve.region
    if region.next is None:
        return f"it scales linearly up to {plural(region.end)}, the end of the data"
    if curve.loads.index(region.end) == 0:
        return f"it does not scale linearly beyond {plural(region.end)}"
    return f"it scales linearly up to {plural(region.end)}"


def _around_peak(curve: ScalingCurve) -> str:
    """Describe throughput with fewer and with more clients than at the peak."""
    saturated, best, beyond = curve.points[curve.saturation()], curve.points[curve.best], curve.beyond_peak
    parts = []
    if saturated is not best:
        parts.append(f"{plural(saturated.clients)} already make {100 * saturated.median / best.median:.0f} % of that")
    if beyond.falls:
        loss = 100 * (1 - beyond.ratio.value)
        parts.append(f"{plural(curve.loads[-1])} make {loss:.1f} % less than {beyond.best:g}")
    elif not curve.at_edge:
        parts.append(f"more than {plural(best.clients)} do not increase it")
    return ", and ".join(parts) or f"no smaller number is within {100 * (1 - NEAR_PEAK_SHARE):.0f} % of that"


def _variants_answer(curves: Sequence[ScalingCurve]) -> str:
    base, ratios = curves[0], ratio_findings(curves)
    load = f" ({scripts_of(base.options)})" if len({scripts_of(curve.options) for curve in curves}) == 1 else ""
    verb = "makes up to" if not base.peak.candidates else "makes" if base.at_edge or len(base.points) == 1 else "peaks at"
    where = f" with {clients_text(base.peak_clients)}" if base.peak.candidates else ""
    parts = [f"'{base.variant}' {verb} {_peak_text(base)}{where}{load}"]
    for curve in curves[1:]:
        ratio = ratios[f"peak_ratio.{curve.variant}"]
        text = f"'{curve.variant}' at {_peak_text(curve)}"
        if curve.peak.candidates:
            text += f" with {clients_text(curve.peak_clients).removesuffix('s').removesuffix(' client')}"
        if ratio.value is None or ratio.low is None or ratio.high is None:
            parts.append(f"{text}: not compared, because there are too few trials for an interval")
            continue
        interval = f"{ratio.low:.2f}–{ratio.high:.2f}"
        if ratio.low <= 1 <= ratio.high:
            parts.append(f"{text}: no significant difference (ratio {ratio.value:.2f}, {interval})")
        else:
            parts.append(f"{text}: {ratio.value:.2f} times that ({100 * (ratio.confidence or 0.95):.0f} % interval {interval})")
    several = [curve for curve in curves if len(curve.points) > 1]
    ends = ", ".join(f"{curve.region.end:g}{'' if curve.region.next else ' and more'} ('{curve.variant}')" for curve in several)
    return "; ".join([*parts, f"linear up to {ends} clients" if ends else "scaling is unknown with one number of clients"]) + "."


# ---- warnings and next steps


def _with_variant(curve: ScalingCurve, text: str) -> str:
    return f"{curve.variant}: {text}" if curve.variant else text


def _curve_warnings(options: ScalingOptions, curve: ScalingCurve) -> list[str]:
    tainted = [point.clients for point in curve.points if not point.clean]
    warnings = list(fallback_warnings([point.clean for point in curve.points], _numbers(tainted)))
    absent = [n for n in options.clients if n not in {point.clients for point in curve.points}]
    if absent:
        warnings.append(f"No finished trial for {_numbers(absent)}")
    few = [point.clients for point in curve.points if len(point.used) < MIN_TRIALS]
    if few:
        warnings.append(f"Fewer than {MIN_TRIALS} usable trials for {_numbers(few)}")
    if curve.contradicting:
        warnings.append(contradiction_text(clients_text(curve.contradicting)))
    if curve.at_edge:
        warnings.append(
            f"A higher peak is possible beyond {curve.loads[-1]:g} clients: the highest throughput is at the largest number measured; "
            "measure more with --clients"
        )
    largest = max(point.clients for point in curve.points)
    if scripts_of(curve.options) == "tpcb-like" and curve.options.scale < largest:
        warnings.append(
            f"Row locks limit throughput in part: each transaction updates one of {curve.options.scale} rows of branches (--scale), with "
            f"up to {largest} clients"
        )
    return warnings


def _shared_core_warnings(curves: Sequence[ScalingCurve]) -> list[str]:
    """Report pgbench's share of the CPU at the peak, if server and clients share cores."""
    shares = {curve.variant: sum(values) / len(values) for curve in curves if (values := curve.points[curve.best].values(client_cpu_share))}
    if not any(shares.values()):  # not measured, or the clients run on a different host
        return []
    text = ", ".join(f"{100 * share:.0f} %{f' ({name})' if name else ''}" for name, share in shares.items())
    return [
        f"The peak would be higher with clients on another machine: pgbench shares the cores with the server, and used {text} of their CPU "
        "at the highest throughput"
    ]


def _version_warnings(curves: Sequence[ScalingCurve]) -> list[str]:
    versions = {curve.variant: curve.options.pg_version for curve in curves}
    if len({major_version(curve.options) for curve in curves}) < 2:
        return []
    text = ", ".join(f"'{name}' by {version}" for name, version in versions.items())
    return [f"Differences may be due to pgbench: each variant is driven by the pgbench of its version ({text}), see client_cpu_share"]


def _numbers(clients: Sequence[int]) -> str:
    return f"{', '.join(map(str, clients))} client{'' if list(clients) == [1] else 's'}"


def _next_steps(curves: Sequence[ScalingCurve]) -> list[str]:
    steps = []
    for curve in curves:
        unknown = [point.clients for point, limit in zip(curve.points, curve.limits(), strict=True) if limit == "unknown"]
        if unknown:
            text = f"the bottleneck is unknown with {_numbers(unknown)}: cores were idle, and more clients made no more; check for locks"
            steps.append(_with_variant(curve, text))
        first, best = (point.values(lambda observation: observation.p95) for point in (curve.points[0], curve.points[curve.best]))
        if first and best and sum(best) / len(best) > 3 * sum(first) / len(first):
            lowest = plural(curve.points[0].clients)
            steps.append(_with_variant(curve, f"latency: p95 at the highest throughput is more than three times that of {lowest}"))
    return steps
