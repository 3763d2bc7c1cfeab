"""From results to an answer with a grade. Pure; never raises for missing, failed or tainted trials: it says so."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pgherd.analysis.selection import Selection, fit_models
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.density import published, soak
from pgherd.studies.density.curve import DIFFER, Curve, curve, held_finding, shape_findings
from pgherd.studies.density.evidence import evidence_findings
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.density.points import Point, group
from pgherd.studies.density.tables import cpu_rows, density_rows
from pgherd.studies.fitting import model_curves, model_findings, model_rows, model_warnings


def analyse(options: DensityOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a density run, one sentence as its answer, and its grade."""
    warnings = _trial_warnings(results)
    points = group(options, results)
    if not points:
        said = f"{len(results)} trials were run and none of them finished" if results else "no trial was run"
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=warnings)
    line = curve(options, points)
    findings = {**shape_findings(line), **evidence_findings(line)}
    findings["databases_held"] = held_finding(line, line.basis)
    findings["databases_held_one"] = held_finding(line, "one") if line.one else findings["databases_held"]
    findings["databases_held_linear"] = held_finding(line, "slope")
    selection = _models(line)
    findings |= model_findings(selection)
    grade = _grade(points, results)
    tables = {"density": density_rows(line), "cpu": cpu_rows(line), "models": model_rows(selection)}
    answer = _answer(line, findings["databases_held"])
    if options.soak_seconds:
        phases = soak.soak_phases(results)
        findings |= soak.soak_findings(phases)
        if phases:
            tables["soak"] = soak.soak_rows(phases)
        answer = soak.soak_answer(options, phases)
    else:
        warnings += _curve_warnings(line) + model_warnings(selection)
    return Analysis(
        answer=answer if grade != "C" else f"Indication only: {answer}",
        grade=grade,
        findings=findings,
        tables=tables,
        warnings=warnings,
        look_at=_look_at(line, findings),
        figures={"models": model_curves(selection, line.loads[-1]), "published": published.figure()},
    )


def _models(line: Curve) -> Selection:
    loads = [point.databases for point in line.points for _ in point.used]
    throughputs = [value for point in line.points for value in point.throughputs]
    return fit_models(loads, throughputs, "relative", seed=line.options.seed)


def _grade(points: Sequence[Point], results: Sequence[TrialResult]) -> Grade:
    """A: every taint verdict passed in all trials that the numbers rest on. C: no point, or no more than one of several,
    has a clean trial, or one database has none. B: everything between."""
    clean = [point for point in points if point.clean]
    one_tainted = points[0].databases == 1 and not points[0].clean
    if not clean or one_tainted or (len(points) > 1 and len(clean) == 1):
        return "C"
    used = {observation.key for point in points for observation in point.used}
    verdicts = [v for result in results if result.trial.key() in used for v in result.verdicts if v.severity == "taint"]
    return "A" if all(v.result == "pass" for v in verdicts) and len(clean) == len(points) else "B"


def _trial_warnings(results: Sequence[TrialResult]) -> list[str]:
    """What must be said of the trials: failures, taints, checks that could not be made."""
    found = [f"Trial {result.trial.key()} did not finish: {result.error}" for result in results if result.error is not None]
    tainted = [result for result in results if result.tainted and result.error is None]
    if tainted:
        checks = Counter(v.check for result in tainted for v in result.verdicts if v.result == "fail" and v.severity == "taint")
        why = ", ".join(f"{check} ({count})" for check, count in checks.most_common())
        found.append(f"{len(tainted)} of {len(results)} trials are tainted, by {why}; they count only where a point has no clean trial")
    unknown = Counter(v.check for result in results for v in result.verdicts if v.result == "unknown" and v.severity == "taint")
    if unknown:
        found.append(f"Could not be checked here, and so did not pass: {', '.join(sorted(unknown))}")
    said = Counter(v.check for result in results for v in result.verdicts if v.result == "fail" and v.severity == "warn")
    if said:
        found.append("Seen, though not held against the trials: " + ", ".join(f"{check} ({count})" for check, count in said.most_common()))
    return found


def _curve_warnings(line: Curve) -> list[str]:
    options, found = line.options, []
    only = [str(point.databases) for point in line.points if not point.clean]
    if only:
        found.append(f"Only tainted trials for {', '.join(only)} databases: these numbers are an indication")
    absent = [str(n) for n in options.points if n not in {point.databases for point in line.points}]
    if absent:
        found.append(f"No finished trial for {', '.join(absent)} databases")
    found += _perfect_warning(line)
    few = [str(point.databases) for point in line.points if len(point.used) < 3]
    if few:
        found.append(f"Fewer than 3 usable trials, and so no interval, for {', '.join(few)} databases")
    past = [point for point in line.points if options.fraction(point.databases) > 1 + 1e-9]
    if not past:
        found.append("No point lies past 100 % of the cores: what happens there is not known")
    return found


def _perfect_warning(line: Curve) -> list[str]:
    """The two perfects differ: say which way, why that happens, and which one the answer uses."""
    if line.one is None or line.difference is None or abs(line.difference) <= DIFFER:
        return []
    how = "less" if line.difference > 0 else "more"
    alone = f"one database alone makes {line.one.mean:,.0f} tps, {100 * abs(line.difference):.0f} % {how}"
    alone += f" than each one makes in the linear region ({line.slope.value:,.0f} tps)"
    if line.difference > 0:
        return [
            f"The curve is super-linear: {alone}. Alone, a database pays by itself for what others share, such as waking idle virtual or "
            "sleeping CPUs, so that efficiency against the one-database value flatters; the databases held are judged against the slope"
        ]
    return [
        f"The two values of perfect differ: {alone}. Alone, a database profits from boosting clocks, unshared caches or an idle SMT "
        "sibling, so that part of the lost efficiency is lost from the second database on; see efficiency_linear"
    ]


def _answer(line: Curve, held: Finding) -> str:
    options = line.options
    each = f"{options.vcpus:g} vCPU" + (f" at {options.rate:g} tps each" if options.rate else "")
    wanted = f"{100 * options.at:.3g} % efficiency"
    largest = line.points[-1]
    if held.value is not None:
        count = math.floor(held.value + 1e-9)
        text = f"This host holds {plural(count)} of {each} at {wanted}"
        if held.low is not None and held.high is not None:
            text += f" (crossed at {held.value:.1f}, {100 * (held.confidence or 0.95):.0f} % interval {held.low:.1f}–{held.high:.1f})"
        else:
            text += f" (crossed at {held.value:.1f}; too few repeats for an interval)"
    elif "never fell" in held.note:
        share = f"{100 * options.fraction(largest.databases):.0f} % of the cores"
        text = f"This host holds at least {plural(largest.databases)} of {each} at {wanted}, the most that were measured ({share})"
    else:
        text = f"This host holds no database of {each} at {wanted}: {held.note}"
    return f"{text}; {_limit(line)}."


def _limit(line: Curve) -> str:
    """What limits it, as far as the points show."""
    largest = line.points[-1]
    quota = [point.databases for point in line.points if point.limited_by == "quota"]
    full = [point.databases for point in line.points if point.limited_by == "host"]
    given = "CPU quota" if line.options.cpu_mode == "quota" else "own CPUs"
    clauses = {
        "host": f"it is CPU-bound: the host is full from {plural(full[0] if full else largest.databases)} on",
        "quota": f"each database is limited by its {given}, and the host is not yet full",
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


def plural(databases: int) -> str:
    """``1 database``, ``8 databases``."""
    return f"{databases} database{'' if databases == 1 else 's'}"


def _look_at(line: Curve, findings: dict[str, Finding]) -> list[str]:
    found = []
    if any(point.limited_by == "quota" for point in line.points):
        found.append("efficiency_cpu in the table 'density': where a quota limits, CPU time per transaction is the honest axis")
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
        found.append(f"limited_by is unknown at {', '.join(unknown)} databases: see the verdicts of these trials")
    return found
