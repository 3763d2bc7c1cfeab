"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.analysis.selection import Selection, fit_models
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.scaling import published
from pgherd.studies.scaling.answer import answer
from pgherd.studies.scaling.curve import Curve, curve, shape_findings
from pgherd.studies.scaling.options import ScalingOptions, plural, scripts_of
from pgherd.studies.scaling.points import client_share, group, server_cpu_per_tx
from pgherd.studies.scaling.ratios import ratio_findings, ratio_rows, variant_rows
from pgherd.studies.scaling.tables import NO_PERCENTILE, NO_SPLIT, cpu_rows, scaling_rows
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade, qualify_answer, trial_warnings, worst
from pgherd.study.repeats import mean_finding
from pgherd.study.scaling_models import model_curves, model_findings, model_rows, model_warnings


def analyse(options: ScalingOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a scaling run, one sentence as its answer, and its grade."""
    warnings = trial_warnings(results)
    servers = options.servers()
    lines = [
        curve(own, points, variant, options.seed + place)
        for place, (variant, own) in enumerate(servers.items())
        if (points := group(own, results, variant))
    ]
    if not lines:
        said = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    findings: dict[str, Finding] = {}
    selections = {line.variant: _models(line, options.seed) for line in lines}
    for line in lines:
        own_findings = {**shape_findings(line), **_evidence(line), **model_findings(selections[line.variant], load="clients")}
        findings |= {f"{name}.{line.variant}" if line.variant else name: finding for name, finding in own_findings.items()}
        warnings += [_of(line, text) for text in (*_curve_warnings(options, line), *model_warnings(selections[line.variant]))]
    warnings += _shared_cores(lines)
    tables = {"scaling": scaling_rows(lines), "cpu": cpu_rows(lines), "models": _model_rows(selections)}
    if len(servers) > 1:
        tables["variants"] = variant_rows(servers)
        absent = [name for name in servers if name not in selections]
        warnings += [f"No finished trial of variant '{name}'" for name in absent] + _version_warning(lines)
    if len(lines) > 1:
        findings = ratio_findings(lines) | findings
        tables["ratios"] = ratio_rows(lines)
    given = _grade(options, lines, results)
    text = answer(lines)
    return Analysis(
        answer=qualify_answer(text, given),
        grade=given,
        findings=findings,
        tables=tables,
        warnings=warnings,
        look_at=_look_at(lines),
        figures=_model_figures(lines, selections, several=len(servers) > 1),
    )


def _models(line: Curve, seed: int) -> Selection:
    loads = [point.clients for point in line.points for _ in point.used]
    throughputs = [value for point in line.points for value in point.throughputs]
    return fit_models(loads, throughputs, "relative", seed=seed)


def _model_rows(selections: dict[str, Selection]) -> list[dict[str, Finding | str | int | float | None]]:
    rows = []
    for variant, selection in selections.items():
        rows += [{"variant": variant, **row} if variant else row for row in model_rows(selection, load="clients")]
    return rows


def _model_figures(lines: Sequence[Curve], selections: dict[str, Selection], *, several: bool) -> dict[str, Any]:
    """What figures draw of the models: ``models``, or with variants ``variant_models`` by the variant's name."""
    drawn = {line.variant: model_curves(selections[line.variant], line.loads[-1]) for line in lines}
    return {"variant_models": drawn} if several else {"models": drawn[lines[0].variant]}


def _grade(options: ScalingOptions, lines: Sequence[Curve], results: Sequence[TrialResult]) -> Grade:
    """The worst of the curves' own; C where a variant has none."""
    if len(lines) < len(options.servers()):
        return "C"
    grades = []
    for line in lines:
        own = [result for result in results if result.trial.point.get("variant", "") == line.variant]
        complete = set(options.clients) <= {point.clients for point in line.points if point.clean}
        # The spread is pooled over the points, so that two trials of each are enough for intervals.
        grades.append(grade(line.points, own, complete=complete, wanted=options.repeats, least=2))
    return worst(grades)


def _evidence(line: Curve) -> dict[str, Finding]:
    """server_cpu_per_tx, client_cpu_share and p95 at the peak, and what pgherd itself used over all trials."""
    best = line.points[line.best]
    where = f"with {plural(best.clients)}, at the highest throughput"
    own = [value for point in line.points for value in point.values(lambda o: o.cpu.pgherd)]
    return {
        "server_cpu_per_tx": mean_finding(best, server_cpu_per_tx, "ms", NO_SPLIT, where),
        "client_cpu_share": mean_finding(
            best, client_share, "ratio", NO_SPLIT, f"pgbench's part of the CPU that it and the server used, {where}"
        ),
        "p95_at_peak": mean_finding(best, lambda o: o.p95, "ms", NO_PERCENTILE, where),
        "pgherd_cpu": as_finding(mean_interval(own), "cores", "pgherd with its sampling backends, over all trials")
        if own
        else missing("cores", "pgherd's own CPU was not seen"),
    }


def _of(line: Curve, text: str) -> str:
    return f"{line.variant}: {text}" if line.variant else text


def _curve_warnings(options: ScalingOptions, line: Curve) -> list[str]:
    found = []
    only = [point.clients for point in line.points if not point.clean]
    found += fallback_warnings([point.clean for point in line.points], _numbers(only))
    absent = [n for n in options.clients if n not in {point.clients for point in line.points}]
    if absent:
        found.append(f"No finished trial for {_numbers(absent)}")
    few = [point.clients for point in line.points if len(point.used) < LEAST]
    if few:
        found.append(f"Fewer than {LEAST} usable trials for {_numbers(few)}")
    if line.at_edge:
        found.append(
            f"The highest throughput is that of the largest number of clients measured ({line.loads[-1]:g}): a higher peak may lie beyond; "
            "measure there with --clients"
        )
    most = max(point.clients for point in line.points)
    if scripts_of(line.options) == "tpcb-like" and line.options.scale < most:
        found.append(
            f"Each transaction updates one of {line.options.scale} rows of branches (--scale), and there were up to {most} clients: some "
            "of what limits them is waiting for each other's row locks"
        )
    return found


def _shared_cores(lines: Sequence[Curve]) -> list[str]:
    """How much of the CPU at the peak was pgbench's own."""
    found = {line.variant: sum(shares) / len(shares) for line in lines if (shares := line.points[line.best].values(client_share))}
    if not any(found.values()):  # not seen, or they have a host of their own
        return []
    said = ", ".join(f"{100 * share:.0f} %{f' ({name})' if name else ''}" for name, share in found.items())
    return [
        f"pgbench shares the cores with the server: at the highest throughput {said} of the CPU that they used together was pgbench's; "
        "with clients on another machine the server would have that too, and the peak would be higher"
    ]


def _version_warning(lines: Sequence[Curve]) -> list[str]:
    versions = {line.variant: line.options.pg_version for line in lines}
    if len({published.major(line.options) for line in lines}) < 2:
        return []
    said = ", ".join(f"'{name}' by that of {version}" for name, version in versions.items())
    return [f"Each variant is driven by its own version's pgbench ({said}): a difference may lie in pgbench too, see client_share"]


def _numbers(clients: Sequence[int]) -> str:
    return f"{', '.join(map(str, clients))} client{'' if list(clients) == [1] else 's'}"


def _look_at(lines: Sequence[Curve]) -> list[str]:
    found = []
    for line in lines:
        unknown = [point.clients for point, limit in zip(line.points, line.limits(), strict=True) if limit == "unknown"]
        if unknown:
            found.append(
                _of(
                    line,
                    f"limited_by is unknown with {_numbers(unknown)}: cores were idle, and more clients made no more; locks may be why",
                )
            )
        first, best = (point.values(lambda o: o.p95) for point in (line.points[0], line.points[line.best]))
        if first and best and sum(best) / len(best) > 3 * sum(first) / len(first):
            found.append(
                _of(line, f"latency: p95 at the highest throughput is more than three times that of {plural(line.points[0].clients)}")
            )
    return found
