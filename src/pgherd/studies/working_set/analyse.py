"""From results to working sets, headroom and what is seen from inside. Pure; never raises for missing or tainted trials: it says so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.working_set import inside
from pgherd.studies.working_set.curves import Measured, difference, out_of_memory
from pgherd.studies.working_set.dip import dip
from pgherd.studies.working_set.knees import knee_finding, room_findings
from pgherd.studies.working_set.options import WorkingSetOptions
from pgherd.studies.working_set.propose import no_room
from pgherd.studies.working_set.tables import difference_rows, summary_rows, sweep_rows
from pgherd.study.grade import fallback_warnings, grade, qualify_answer, shortened_list, trial_warnings, worst
from pgherd.study.repeats import Repeats, repeats

NAMES = {"memory": "working_set", "buffers": "buffers"}
"""Sweep → how its knees' findings begin; the number of clients follows."""


def analyse(options: WorkingSetOptions, results: Sequence[TrialResult]) -> Analysis:
    """All findings, tables and figures of a working-set run, one sentence as its answer, and its grade."""
    curves = [Measured(curve, results) for sweep in options.sweeps for curve in options.curves(sweep)]
    dead = {result.id for measured in curves for size in measured.dead for result in measured.at(size)}
    warnings = trial_warnings([result for result in results if result.id not in dead])
    if not any(measured.lived for measured in curves):
        said = f"{len(results)} trials were run, and no server lived through one" if results else _none_run(options)
        errors = [f"Trial {result.trial.key()}: {result.error}" for result in results[-1:] if result.error]
        return Analysis(answer=f"Nothing can be said: {said}.", grade="C", warnings=[*warnings, *errors])
    findings: dict[str, Finding] = {}
    for measured in curves:
        name = NAMES[measured.curve.sweep]
        findings[f"{name}.{measured.curve.clients}"] = knee_finding(options, measured)
    if "memory" in options.sweeps:
        sets = {m.curve.clients: findings[f"working_set.{m.curve.clients}"] for m in curves if m.curve.sweep == "memory"}
        findings |= room_findings(options, sets)
    for sweep in options.sweeps:
        findings[f"dip.{sweep}"] = dip(options, [measured for measured in curves if measured.curve.sweep == sweep])
    for measured in curves:
        findings |= _inside(measured)
    warnings += _warnings(options, curves, results)
    given = _grade(options, curves, results)
    text = answer(options, findings)
    return Analysis(
        answer=qualify_answer(text, given),
        grade=given,
        findings=findings,
        tables={
            "working-set": summary_rows(options, curves),
            "sweep": sweep_rows(options, curves),
            "difference": difference_rows(options, curves),
        },
        warnings=warnings,
        look_at=_look_at(findings, curves),
        figures={"curves": [_drawn(measured) for measured in curves]},
    )


def _none_run(options: WorkingSetOptions) -> str:
    why = no_room(options)
    return f"no trial was run, since {why}; raise --budget" if why else "no trial was run"


def answer(options: WorkingSetOptions, findings: dict[str, Finding]) -> str:
    """What was found, in one sentence."""
    parts = []
    for sweep, words in (("memory", "the container's working set"), ("buffers", "that of shared buffers")):
        if sweep not in options.sweeps:
            continue
        said = [_said(findings[f"{NAMES[sweep]}.{clients}"], clients) for clients in options.clients]
        parts.append(f"{words} is {', '.join(said)}")
    rate, room = findings.get("honest_rate"), findings.get("headroom")
    if rate is not None and room is not None and rate.value is not None and room.value is not None:
        many = "one database" if len(options.clients) == 1 else f"{len(options.clients)} databases"
        if room.value < 0:
            parts.append(f"{many} of {options.configured} MB would need {-room.value:,.0f} MB more, so that no overcommitment is honest")
        else:
            verb = "leaves" if len(options.clients) == 1 else "leave"
            parts.append(
                f"{many} of {options.configured} MB {verb} {room.value:,.0f} MB to spare, so that up to {100 * rate.value:.0f} % "
                "overcommitment is honest"
            )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _said(found: Finding, clients: int) -> str:
    who = f"with {clients} client{'' if clients == 1 else 's'}"
    if found.value is None:
        return f"unknown {who} ({found.note.split(':')[0]})"
    if found.low is None or found.high is None:
        return f"{found.value:,.0f} MB {who} (no interval)"
    return f"{found.value:,.0f} MB {who} ({found.low:,.0f}–{found.high:,.0f})"


def _inside(measured: Measured) -> dict[str, Finding]:
    """The estimates from inside of one curve, under names of their own."""
    if not measured.lived:
        return {}
    name = NAMES[measured.curve.sweep]
    found = {f"{name}_by_misses.{measured.curve.clients}": inside.by_misses(measured)}
    found[f"{name}_by_use.{measured.curve.clients}"] = inside.by_use(measured)
    if measured.curve.sweep == "memory":
        found[f"{name}_by_pressure.{measured.curve.clients}"] = inside.by_pressure(measured)
    return found


def _points(options: WorkingSetOptions, measured: Measured) -> dict[int, Repeats]:
    """Size → its trials, of those that have a throughput."""
    made = {size: repeats(options, measured.at(size)) for size in measured.lived}
    return {size: point for size, point in made.items() if point is not None}


def _grade(options: WorkingSetOptions, curves: Sequence[Measured], results: Sequence[TrialResult]) -> Grade:
    """The worst of the curves' own; a knee that was not found, or has no interval, makes it B at best, and none at all C."""
    known = [measured for measured in curves if measured.knee.at is not None]
    if not known:
        return "C"
    closed = len(known) == len(curves) and all(measured.knee.half_width is not None for measured in curves)
    lived = [points for measured in curves if (points := _points(options, measured))]
    return worst([grade(list(points.values()), results, complete=closed, wanted=1) for points in lived])


def _warnings(options: WorkingSetOptions, curves: Sequence[Measured], results: Sequence[TrialResult]) -> list[str]:
    found = []
    for measured in curves:
        who = f"{'container memory' if measured.curve.sweep == 'memory' else 'shared buffers'}, {measured.curve.clients} clients"
        points = _points(options, measured)
        only = [f"{size} MB" for size, point in points.items() if not point.clean]
        of = fallback_warnings([point.clean for point in points.values()], shortened_list(only))
        found += [f"{who}: {said[0].lower()}{said[1:]}" for said in of]
        if measured.dead:
            ended = any(out_of_memory(result) for size in measured.dead for result in measured.at(size))
            why = "the kernel ended processes of the server for want of memory" if ended else "the server could not start or did not live"
            found.append(f"{who}: no throughput at {', '.join(map(str, measured.dead))} MB, where {why}: below what lives")
        if measured.lived and measured.knee.at is None:
            found.append(f"{who}: {'unclear' if measured.knee.kind == 'unclear' else 'no knee'}: {measured.knee.note}")
        half = measured.knee.half_width
        if half is not None and half > options.precision and measured.knee.kind == "knee":
            wanted = f"asked for were ±{100 * options.precision:g} %"
            found.append(f"{who}: the knee is known to ±{100 * half:.0f} % only; {wanted}: a larger --budget narrows it")
    if "buffers" in options.sweeps:
        memory = [result for result in results if result.trial.point.get("sweep") == "memory"]
        for clients in options.clients:
            beyond, why = difference(options, memory, clients)
            if "deviation" in why:
                found.append(f"shared buffers, {clients} clients: containers are larger than these by {beyond} MB, {why} from E7")
    return found


def _look_at(findings: dict[str, Finding], curves: Sequence[Measured]) -> list[str]:
    """Where the two kinds of estimates disagree."""
    found = []
    for measured in curves:
        name, clients = NAMES[measured.curve.sweep], measured.curve.clients
        own, other = findings[f"{name}.{clients}"], findings.get(f"{name}_by_misses.{clients}")
        if own.value is None or own.low is None or own.high is None or other is None or other.value is None:
            continue
        low, high = other.low if other.low is not None else other.value, other.high if other.high is not None else other.value
        if low > own.high or high < own.low:
            found.append(
                f"{name}.{clients}: throughput has its knee at {own.value:.0f} MB and misses have theirs at {other.value:.0f} MB: the "
                "curve in the report shows whether something else than reading limits the load there"
            )
    sets = {m.curve.clients: findings[f"working_set.{m.curve.clients}"].value for m in curves if m.curve.sweep == "memory"}
    known = [f"{math.ceil(value)}MB" for _, value in sorted(sets.items(), reverse=True) if value is not None]
    if known and len(known) == len(sets):
        ends = ",".join(dict.fromkeys([known[0], known[-1]]))
        found.append(f"pgherd consolidation --working-set {ends}: how far these can be overcommitted")
    return found


def _drawn(measured: Measured) -> dict[str, object]:
    """What the figure of a curve needs beside the tables: the fitted line, the knee and its interval, sizes that do not live."""
    knee = measured.knee
    ends = [float(size) for size in measured.lived]
    line: list[list[float]] = []
    if ends and knee.plateau is not None:
        steps = 60
        sizes = sorted({ends[0] + (ends[-1] - ends[0]) * step / steps for step in range(steps + 1)} | ({knee.at} if knee.at else set()))
        line = [[size, value] for size in sizes if (value := knee.throughput(size)) is not None]
    return {
        "sweep": measured.curve.sweep,
        "clients": measured.curve.clients,
        "kind": knee.kind,
        "knee": knee.at,
        "low": knee.low,
        "high": knee.high,
        "line": line,
        "dead": measured.dead,
    }
