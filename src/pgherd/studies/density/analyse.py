"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pgherd.analysis.intervals import LEAST, mean_interval, repeats_for
from pgherd.analysis.selection import Selection, fit_models
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.density import published, soak
from pgherd.studies.density.curve import OPEN, Curve, curve, held_finding, shape_findings, surely, tenths
from pgherd.studies.density.evidence import evidence_findings
from pgherd.studies.density.options import DensityOptions, next_point
from pgherd.studies.density.perfect import perfect_warnings
from pgherd.studies.density.points import Point, group, plural
from pgherd.studies.density.tables import cpu_rows, density_rows
from pgherd.study.grade import check_warnings, failure_warnings, fallback_warnings, grade, qualify_answer, trial_warnings
from pgherd.study.repeats import join_continuations
from pgherd.study.scaling_models import model_curves, model_findings, model_rows, model_warnings

WIDE = 0.1
"""Half a throughput's interval, as a share of its mean, from which on it is said that more repeats would narrow it. A grade does not say
so: it is of the trials."""


def analyse(options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a density run, one sentence as its answer, and its grade."""
    windows = soak.soak_windows(results) if options.soak_seconds else []
    whole = join_continuations(results)
    # The noisy windows of a soak are told one by one, and count.
    warnings = failure_warnings(whole) + check_warnings(whole) if windows else trial_warnings(whole)
    points = group(options, whole)
    if not points:
        several = f"{len(results)} trials were run and none of them finished" if len(results) > 1 else "the only trial did not finish"
        said = several if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    line = curve(options, points)
    findings = {**shape_findings(line), **evidence_findings(line)}
    findings["databases_held"] = held_finding(line, line.basis)
    findings["databases_held_one"] = held_finding(line, "one")
    findings["databases_held_linear"] = held_finding(line, "slope")
    selection = _models(line)
    findings |= model_findings(selection)
    given = _grade(options, points, whole, complete=not options.soak_seconds or len(windows) >= options.soak_count)
    tables = {"density": density_rows(line), "cpu": cpu_rows(line), "models": model_rows(selection)}
    figures: dict[str, Any] = {"models": model_curves(selection, line.loads[-1]), "published": published.figure()}
    answer = _answer(line, findings["databases_held"])
    if options.soak_seconds:
        findings |= soak.soak_findings(windows)
        if len(windows) > 1:
            tables["soak"] = soak.soak_rows(windows)
            figures["soak"] = {"hours": soak.hours(windows)}
            warnings += soak.soak_warnings(options, results, windows)
        given = soak.soak_grade(given, windows)
        answer = soak.soak_answer(options, windows)
    else:
        warnings += _curve_warnings(line) + model_warnings(selection)
    return Analysis(
        answer=qualify_answer(answer, given),
        grade=given,
        findings=findings,
        tables=tables,
        warnings=warnings,
        look_at=_look_at(line, findings),
        figures=figures,
    )


def _models(line: Curve) -> Selection:
    loads = [point.databases for point in line.points for _ in point.used]
    throughputs = [value for point in line.points for value in point.throughputs]
    return fit_models(loads, throughputs, "relative", seed=line.options.seed)


def _grade(options: DensityOptions, points: Sequence[Point], results: Sequence[TrialResult], *, complete: bool) -> Grade:
    """As all curves; on one database's trials rests everything else. ``complete``: no window of a soak is missing."""
    asked = {options.soak_point} if options.soak_seconds else set(options.points)
    complete &= asked <= {point.databases for point in points if point.clean}
    alone = [point for point in points if point.databases == 1]
    least = 1 if options.soak_seconds else LEAST  # the windows of a soak are its repeats
    return grade(points, results, complete=complete, wanted=options.repeats, essential=alone, least=least)


def _curve_warnings(line: Curve) -> list[str]:
    options, found = line.options, []
    only = [str(point.databases) for point in line.points if not point.clean]
    missed = "all else rests on one database alone" if line.one is not None and not line.one.clean else ""
    found += fallback_warnings([point.clean for point in line.points], _numbers(only), missed)
    absent = [str(n) for n in options.points if n not in {point.databases for point in line.points}]
    if absent:
        found.append(f"No finished trial for {_numbers(absent)}")
    found += perfect_warnings(line)
    few = [str(point.databases) for point in line.points if len(point.used) < LEAST]
    if few:
        found.append(f"Fewer than {LEAST} usable trials, and so no interval, for {_numbers(few)}")
    if options.cpu_mode == "none":
        found.append(
            f"The databases' CPU was not limited: {options.vcpus:g} vCPU each is what shares of the cores are counted by, not what one had"
        )
    if line.one is None and len(line.points) > 1:
        found.append(
            f"One database alone was not measured: what is lost up to {plural(line.points[0].databases)} does not show in any efficiency"
        )
    past = [point for point in line.points if options.fraction(point.databases) > 1 + 1e-9]
    if not past:
        found.append("No point lies past 100 % of the cores: what happens there is not known")
    return found


def _answer(line: Curve, held: Finding) -> str:
    options = line.options
    each = f"{options.vcpus:g} vCPU" + (f" at {options.rate:g} tps each" if options.rate else "")
    wanted = f"{100 * options.at:.3g} % efficiency"
    largest = line.points[-1]
    if len(line.points) == 1:
        text = f"{plural(largest.databases)} of {each} made {largest.mean:,.0f} tps; how many {_where(options)} at {wanted} cannot be said"
        text += f": {held.note}"
    elif held.value is not None:
        count = math.floor(held.value + 1e-9)
        text = f"{_holder(options)} {plural(count)} of {each} at {wanted}"
        if held.low is not None and held.high is not None:
            low = tenths(held.low)
            ends = f"from {low}, its end beyond what was measured" if OPEN in held.note else f"{low}–{held.high:.1f}"
            text += f" (crossed at {tenths(held.value)}, {100 * (held.confidence or 0.95):.0f} % interval {ends})"
        else:
            text += f" (crossed at {tenths(held.value)}; too few repeats for an interval)"
    elif "never fell" in held.note:
        text = f"{_holder(options)} at least {_never_below(line, f'of {each} at {wanted}')}"
    else:
        text = f"{_holder(options)} no database of {each} at {wanted}: {held.note}"
    return f"{text}; {_limit(line)}."


def _never_below(line: Curve, what: str) -> str:
    """How many databases are held, so far as the interval bears it out, where the measured efficiency never fell below what is wanted."""
    largest, found = line.points[-1].databases, line.held(line.basis)
    sure = surely(found, largest)
    share = f"{100 * line.options.fraction(largest):.0f} % of the cores"
    if found.low is None or sure == largest:
        few = "; too few repeats for an interval" if found.low is None else ""
        return f"{plural(largest)} {what}, the most that were measured ({share}{few})"
    kept = f"{largest}, the most that were measured, at {share}, kept {100 * float(line.efficiencies(line.basis)[-1]):.1f} %"
    interval = f"{100 * (found.confidence or 0.95):.0f} % interval from {tenths(found.low)}"
    return f"{plural(sure)} {what} ({interval}; {kept}, but the spread of the repeats reaches lower)"


def _where(options: DensityOptions) -> str:
    return f"these {len(options.over)} hosts hold together" if len(options.over) > 1 else "this host holds"


def _holder(options: DensityOptions) -> str:
    text = _where(options)
    return text[0].upper() + text[1:]


def _limit(line: Curve) -> str:
    """What limits it, as far as the points show."""
    largest = line.points[-1]
    quota = [point.databases for point in line.points if point.limited_by == "quota"]
    full = [point for point in line.points if point.limited_by == "host"]
    own = [point.databases for point in full if not _outside(point, line.options.thresholds.foreign_cpu)]
    outside = _outside(largest, line.options.thresholds.foreign_cpu)
    given = "CPU quota" if line.options.cpu_mode == "quota" else "own CPUs"
    hosts = "the hosts are" if len(line.options.over) > 1 else "the host is"
    clauses = {
        "host": f"{hosts} full, but {outside} cores are used outside the containers"
        if outside
        else f"it is CPU-bound: {hosts} full from {plural(own[0] if own else largest.databases)} on",
        "quota": f"each database is limited by its {given}, and {hosts} not yet full",
        "rate": "every database met its rate",
        "storage": "the limit is storage",
        "clients": "the limit is the load generator, not the databases",
        "unknown": "what limits it could not be seen",
    }
    text = clauses[largest.limited_by]
    if quota and largest.limited_by != "quota":
        limited = "is limited by its" if quota[-1] == 1 else "are limited by their"
        text += f"; up to {plural(quota[-1])} {limited} {given}, which makes the curve straight by construction"
    return text


def _outside(point: Point, limit: float) -> str:
    """The cores that others used, where they are more than this share of the host: then databases alone did not fill it."""
    parts = [(o.cpu.platform, o.cpu.total) for o in point.used if o.cpu.platform is not None and o.cpu.total]
    outside, total = (sum(values) / len(parts) for values in zip(*parts, strict=True)) if parts else (0.0, 0.0)
    return f"{outside:.2g} of its {total:.2g}" if outside > limit * total else ""


def _numbers(databases: Sequence[str]) -> str:
    return f"{', '.join(databases)} database{'' if list(databases) == ['1'] else 's'}"


def _measure_beyond(line: Curve, held: Finding) -> list[str]:
    """Which larger number to measure where the crossing, or the end of its interval, lies beyond what was measured."""
    options, what = line.options, "the end of the crossing's interval"
    most, holds = max(options.points), options.memory_holds
    if len(line.points) == 1 or not (OPEN in held.note or "never fell" in held.note):
        return []
    if line.loads[-1] != most:
        return []  # what was planned reaches further: it is to be finished first
    if held.value is None:
        what = f"where efficiency falls to {100 * options.at:.3g} %"
    beyond = f"{what} lies beyond {plural(most)}, the most that were measured"
    if holds is not None and holds <= most:
        return [f"{beyond}; memory holds no more: lower --memory or --scale"]
    further = next_point(options) if holds is None else min(next_point(options), holds)
    points = ",".join(map(str, (*options.points, further)))
    return [f"{beyond}; density with --points {points} measures {further}, too"]


def _narrow(line: Curve) -> list[str]:
    """What would narrow the widest interval of a throughput, where that is wide."""
    widest, half = line.points[0], 0.0
    for point in line.points:
        mean = mean_interval(point.throughputs)
        if mean.high is not None and mean.high - mean.value > half * mean.value:
            widest, half = point, mean.high / mean.value - 1
    if half <= WIDE or line.options.soak_seconds:
        return []
    enough = repeats_for(widest.throughputs, WIDE)
    # Where trials are missing or tainted, it may be as many as were asked for.
    more = "try longer --seconds, or a quieter hour"
    if enough is not None and enough > line.options.repeats:
        more = f"by their spread --repeats {enough} narrows it to ± {100 * WIDE:.0f} %"
    known = f"throughput of {plural(widest.databases)} is known to ± {100 * half:.0f} % only"
    return [f"{known} ({len(widest.used)} trials): {more}"]


def _look_at(line: Curve, findings: dict[str, Finding]) -> list[str]:
    found = [*_measure_beyond(line, findings["databases_held"]), *_narrow(line)]
    if any(point.limited_by == "quota" for point in line.points):
        found.append(
            "efficiency_cpu in the table 'density': what a transaction costs in CPU time (caches, memory, SMT), apart from how much CPU "
            "time there is to share"
        )
    even = findings.get("fairness_min_max")
    if even is not None and even.value is not None and even.value < 0.8:
        found.append(f"fairness: the slowest database gets {100 * even.value:.0f} % of the fastest one's throughput")
    direct = findings["overhead_direct"].value
    if direct is not None and direct > 0.05 * line.options.cores:
        found.append(f"the table 'cpu': {direct:.2g} cores are used outside the containers; name them with --platform")
    first, last = (point.values(lambda o: o.p95) for point in (line.points[0], line.points[-1]))
    if first and last and sum(last) / len(last) > 3 * sum(first) / len(first):
        found.append("latency: p95 at the largest number of databases is more than three times that of the smallest")
    unknown = [str(point.databases) for point in line.points if point.limited_by == "unknown"]
    if unknown:
        found.append(f"limited_by is unknown at {_numbers(unknown)}: see the verdicts of these trials")
    return found
