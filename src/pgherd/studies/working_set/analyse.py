"""Analysis of a working-set run: answer, grade, findings, tables and next steps.

Pure. Missing or tainted trials never raise: they become warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.analysis.overcommitment import max_safe_overcommit
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.working_set.curves import SweepTrials, extra_memory, out_of_memory
from pgherd.studies.working_set.findings import (
    buffer_misses,
    dip_finding,
    from_memory_in_use,
    from_misses,
    from_psi,
    headroom_findings,
    hot_buffers,
    in_use,
    knee_finding,
    of_container,
    pressure,
    refaults,
)
from pgherd.studies.working_set.options import MB, WorkingSetOptions, coordinate_of
from pgherd.studies.working_set.propose import no_room
from pgherd.study.findings import as_finding
from pgherd.study.grade import fallback_warnings, grade, judge_answer, qualify_answer, shortened_list, trial_warnings, worst
from pgherd.study.observation import Observation, observe
from pgherd.study.repeats import Repeats, repeats
from pgherd.study.trial_schedule import throughput

Cell = Finding | str | int | float | None
Row = dict[str, Cell]

FINDING_NAMES = {"memory": "working_set", "shared-buffers": "shared_buffers_needed"}
"""Sweep → start of the names of its findings. The number of clients follows."""

VARIED = {"memory": "container memory", "shared-buffers": "shared buffers"}
"""Sweep → its name in tables and messages."""


def analyse(options: WorkingSetOptions, results: Sequence[TrialResult]) -> Analysis:
    """Compute findings, tables and figures of a working-set run, its answer in one sentence, and its grade."""
    curves = [SweepTrials(curve, results) for sweep in options.vary for curve in options.curves(sweep)]
    too_small = {result.id for trials in curves for size in trials.out_of_memory_sizes for result in trials.at(size)}
    warnings = trial_warnings([result for result in results if result.id not in too_small])
    if not any(trials.measured_sizes for trials in curves):
        reason = f"{len(results)} trials were run and none of them finished" if results else _no_trial(options)
        errors = [f"Trial {result.trial.key()}: {result.error}" for result in results[-1:] if result.error]
        return Analysis(answer=f"No result: {reason}.", grade="C", warnings=[*warnings, *errors])
    findings: dict[str, Finding] = {_name(trials): knee_finding(options, trials) for trials in curves}
    if "memory" in options.vary:
        sets = {trials.curve.clients: findings[_name(trials)] for trials in curves if trials.curve.sweep == "memory"}
        findings |= headroom_findings(options, sets)
    for sweep in options.vary:
        findings[f"double_buffering_dip.{coordinate_of(sweep)}"] = dip_finding(
            options, [trials for trials in curves if trials.curve.sweep == sweep]
        )
    for trials in curves:
        findings |= _indirect_findings(trials)
    warnings += _warnings(options, curves, results)
    imprecise = [text for trials in curves if (text := _imprecise(options, trials))]
    run_grade, reason = judge_answer(_grade(options, curves, results), imprecise)
    return Analysis(
        answer=qualify_answer(answer(options, findings), run_grade),
        grade=run_grade,
        grade_reason=reason,
        findings=findings,
        tables={
            "working-set": summary_rows(options, curves),
            "sweep": sweep_rows(options, curves),
            "extra_memory": extra_memory_rows(options, curves),
        },
        warnings=warnings,
        next_steps=_next_steps(options, findings, curves),
        figures={"curves": [_figure_curve(trials) for trials in curves]},
    )


def _name(trials: SweepTrials) -> str:
    return f"{FINDING_NAMES[trials.curve.sweep]}.{trials.curve.clients}"


def _no_trial(options: WorkingSetOptions) -> str:
    reason = no_room(options)
    return f"no trial was run, since {reason}; raise --time-budget" if reason else "no trial was run"


def answer(options: WorkingSetOptions, findings: dict[str, Finding]) -> str:
    """Summarize working sets, headroom and safe overcommitment in one sentence."""
    parts = []
    for sweep, subject in (("memory", "the container's working set"), ("shared-buffers", "that of shared buffers")):
        if sweep not in options.vary:
            continue
        sizes = [_size_text(findings[f"{FINDING_NAMES[sweep]}.{clients}"], clients) for clients in options.clients]
        parts.append(f"{subject} is {', '.join(sizes)}")
    safe, room = findings.get("max_safe_overcommit"), findings.get("headroom")
    if safe is not None and room is not None and safe.value is not None and room.value is not None:
        count = len(options.clients)
        databases = f"{'one database' if count == 1 else f'{count} databases'} of {options.configured_memory} MB"
        if room.value < 0:
            parts.append(f"{databases} would need {-room.value:,.0f} MB more, so that no overcommitment is safe")
        else:
            verb = "leaves" if count == 1 else "leave"
            parts.append(f"{databases} {verb} {room.value:,.0f} MB of headroom, {_safe_text(safe.value, safe.low)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _safe_text(value: float, low: float | None) -> str:
    """Return the overcommitment that is safe: the low end of its interval. Without an interval none is called safe."""
    if low is None:
        return f"about {100 * value:.0f} % (no interval)"
    percent = math.floor(100 * low)
    return f"and up to {percent} % overcommitment is safe" if percent else "but no overcommitment is certainly safe"


def _size_text(size: Finding, clients: int) -> str:
    load = f"with {clients} client{'' if clients == 1 else 's'}"
    if size.value is None:
        return f"unknown {load} ({size.note.split(':')[0]})"
    if size.low is None or size.high is None:
        return f"{size.value:,.0f} MB {load} (no interval)"
    return f"{size.value:,.0f} MB {load} ({size.low:,.0f}–{size.high:,.0f})"


def _indirect_findings(trials: SweepTrials) -> dict[str, Finding]:
    """The indirect estimates of one curve."""
    if not trials.measured_sizes:
        return {}
    name, clients = FINDING_NAMES[trials.curve.sweep], trials.curve.clients
    findings = {f"{name}_from_misses.{clients}": from_misses(trials), f"{name}_from_memory_in_use.{clients}": from_memory_in_use(trials)}
    if trials.curve.sweep == "memory":
        findings[f"{name}_from_psi.{clients}"] = from_psi(trials)
    return findings


def _points(options: WorkingSetOptions, trials: SweepTrials) -> dict[int, Repeats]:
    """Return size → its trials with a throughput."""
    points = {size: repeats(options, trials.at(size)) for size in trials.measured_sizes}
    return {size: point for size, point in points.items() if point is not None}


def _grade(options: WorkingSetOptions, curves: Sequence[SweepTrials], results: Sequence[TrialResult]) -> Grade:
    """Return the worst grade of all curves.

    It is at best B if a curve has no knee or no interval, and C if no curve has a knee.
    """
    with_knee = [trials for trials in curves if trials.knee.at is not None]
    if not with_knee:
        return "C"
    complete = len(with_knee) == len(curves) and all(trials.knee.half_width is not None for trials in curves)
    points_of_curves = [points for trials in curves if (points := _points(options, trials))]
    return worst([grade(list(points.values()), results, complete=complete, wanted=1) for points in points_of_curves])


def _imprecise(options: WorkingSetOptions, trials: SweepTrials) -> str:
    """Return that a curve's knee is less precise than requested. '' if it is not."""
    half_width = trials.knee.half_width
    if half_width is None or half_width <= options.precision:
        return ""
    known = f"the knee is known to ±{100 * half_width:.3g} % only, not to ±{100 * options.precision:g} %"
    return f"{_label(trials)}: {known}"


def _label(trials: SweepTrials) -> str:
    return f"{VARIED[trials.curve.sweep]}, {trials.curve.clients} clients"


def _warnings(options: WorkingSetOptions, curves: Sequence[SweepTrials], results: Sequence[TrialResult]) -> list[str]:
    warnings = []
    for trials in curves:
        curve, knee = _label(trials), trials.knee
        points = _points(options, trials)
        tainted = [f"{size} MB" for size, point in points.items() if not point.clean]
        fallbacks = fallback_warnings([point.clean for point in points.values()], shortened_list(tainted))
        warnings += [f"{curve}: {text[0].lower()}{text[1:]}" for text in fallbacks]
        if trials.out_of_memory_sizes:
            killed = any(out_of_memory(result) for size in trials.out_of_memory_sizes for result in trials.at(size))
            cause = "OOM kills of server processes" if killed else "the server did not start or failed"
            warnings.append(f"{curve}: out of memory at {', '.join(map(str, trials.out_of_memory_sizes))} MB ({cause})")
        if trials.measured_sizes and knee.at is None:
            warnings.append(f"{curve}: {'unclear' if knee.kind == 'unclear' else 'no knee'}: {knee.note}")
        if imprecise := _imprecise(options, trials):
            remedy = "raise --time-budget" if options.refine else "give sizes closer to the knee"
            warnings.append(f"{imprecise}: {remedy}")
    if "shared-buffers" in options.vary:
        memory = [result for result in results if result.trial.point.get("sweep") == "memory"]
        for clients in options.clients:
            extra, origin = extra_memory(options, memory, clients)
            if "deviation" in origin:
                warnings.append(f"shared buffers, {clients} clients: containers have {extra} MB more than these, {origin} from E7")
            if outside := [f"{size} MB" for size in options.shared_buffers_sizes if not options.fits(size, extra)]:
                possible = f"{options.min_container} to {options.max_container} MB"
                warnings.append(
                    f"shared buffers, {clients} clients: {', '.join(outside)} are not measured, because containers have {extra} MB more "
                    f"than these, and only {possible} are possible"
                )
    return warnings


def _next_steps(options: WorkingSetOptions, findings: dict[str, Finding], curves: Sequence[SweepTrials]) -> list[str]:
    """Report estimates that disagree, and the study that uses the working sets."""
    steps = []
    for trials in curves:
        name = _name(trials)
        knee, misses = findings[name], findings.get(f"{FINDING_NAMES[trials.curve.sweep]}_from_misses.{trials.curve.clients}")
        if knee.value is None or knee.low is None or knee.high is None or misses is None or misses.value is None:
            continue
        low = misses.low if misses.low is not None else misses.value
        high = misses.high if misses.high is not None else misses.value
        if low > knee.high or high < knee.low:
            steps.append(
                f"{name}: throughput has its knee at {knee.value:.0f} MB, but misses end at {misses.value:.0f} MB: see the curve in the "
                "report for a bottleneck other than reads"
            )
    sets = {trials.curve.clients: findings[_name(trials)] for trials in curves if trials.curve.sweep == "memory"}
    ends = [finding.value if finding.high is None else finding.high for _, finding in sorted(sets.items(), reverse=True)]
    sizes = [math.ceil(size) for size in ends if size is not None]
    if sizes and len(sizes) == len(sets) and options.init is None and (command := _consolidation(options, sizes[0], sizes[-1])):
        steps.append(f"{command} with this run's other options of the workload: measure overcommitment")
    return steps


def _consolidation(options: WorkingSetOptions, busy: int, quiet: int) -> str:
    """Return the command that measures overcommitment as far as these working sets (MB) are safe. '' if none is.

    It has the largest and the smallest number of clients, with their working sets: consolidation's two databases take turns in them.
    """
    safe = math.floor(100 * max_safe_overcommit(2 * options.configured_memory, [busy, quiet]))
    if safe == 0:
        return ""
    words = ["pgherd consolidation"]
    source = options.scripts[0].source
    if options.workload != "pgbench":
        words.append(f"--workload {options.workload}")
    elif source.startswith("builtin:"):
        words.append(f"--workload {source.removeprefix('builtin:')}")
    if options.workload == "random-block":  # consolidation's default differs
        words.append(f"--update-percent {sum(script.weight for script in options.scripts if script.name == 'update')}")
    words += [
        f"--scale {options.scale} --memory {options.configured_memory}MB",
        f"--busy-clients {max(options.clients)} --quiet-clients {min(options.clients)}",
        f"--working-set-size {','.join(dict.fromkeys([f'{busy}MB', f'{quiet}MB']))}",
        f"--overcommit {','.join(f'{percent / 100:g}' for percent in sorted({0, safe // 2, safe}))}",
    ]
    return " ".join(words)


def _figure_curve(trials: SweepTrials) -> dict[str, object]:
    """Return data of a curve's figure that the tables do not have: fitted line, knee with interval, sizes out of memory."""
    knee = trials.knee
    ends = [float(size) for size in trials.measured_sizes]
    line: list[list[float]] = []
    if ends and knee.plateau is not None:
        steps = 60
        sizes = sorted({ends[0] + (ends[-1] - ends[0]) * step / steps for step in range(steps + 1)} | ({knee.at} if knee.at else set()))
        line = [[size, value] for size in sizes if (value := knee.throughput(size)) is not None]
    return {
        "sweep": trials.curve.sweep,
        "clients": trials.curve.clients,
        "kind": knee.kind,
        "knee": knee.at,
        "low": knee.low,
        "high": knee.high,
        "line": line,
        "out_of_memory_sizes": trials.out_of_memory_sizes,
    }


# ---- tables


def summary_rows(options: WorkingSetOptions, curves: Sequence[SweepTrials]) -> list[Row]:
    """One row per curve: the knee of throughput, and the indirect estimates."""
    rows: list[Row] = []
    for trials in curves:
        curve, knee = trials.curve, trials.knee
        row: Row = {
            "varied": VARIED[curve.sweep],
            "clients": curve.clients,
            "working_set": knee_finding(options, trials),
            "shape": knee.kind,
            "from_misses": from_misses(trials),
            "from_memory_in_use": from_memory_in_use(trials) if trials.measured_sizes else None,
            "from_psi": from_psi(trials) if curve.sweep == "memory" else None,
            "plateau": knee.plateau,
            "plateau_gain": knee.gain,
            "sizes": len(trials.sizes),
            "trials": len(trials.trials),
            "tainted_trials": sum(result.tainted and result.error is None for result in trials.trials),
            "out_of_memory_sizes": ", ".join(map(str, trials.out_of_memory_sizes)) or None,
        }
        rows.append(row)
    return rows


def sweep_rows(options: WorkingSetOptions, curves: Sequence[SweepTrials]) -> list[Row]:
    """One row per size of each curve, ascending."""
    return [_size_row(options, trials, size) for trials in curves for size in trials.sizes]


def _size_row(options: WorkingSetOptions, trials: SweepTrials, size: int) -> Row:
    results = trials.at(size)
    point = results[0].trial.point
    memory, buffers = int(point["memory"]), int(point["shared_buffers"])
    used = [result for result in trials.used if trials.size(result) == size]
    observations = [observation for result in used if (observation := observe(options, result)) is not None]
    row: Row = {
        "varied": VARIED[trials.curve.sweep],
        "clients": trials.curve.clients,
        "memory": memory,
        "shared_buffers": buffers,
        "shared_buffers_share": buffers / memory,
        "state": "ok" if used else "out-of-memory" if size in trials.out_of_memory_sizes else "failed",
        "throughput": as_finding(mean_interval([throughput(result) for result in used]), "tps") if used else None,
        "fitted": trials.knee.throughput(size) if used else None,
    }
    orders = [observation.nopm for observation in observations if observation.nopm is not None]
    if orders:
        row["nopm"] = as_finding(mean_interval(orders), "NOPM")
    row["p95"] = _mean([observation.p95 for observation in observations])
    row["buffer_misses"] = _mean([buffer_misses(result) for result in used])
    row["refaults"] = _mean([refaults(result) for result in used])
    row["swapped"] = _in_mb(_mean([of_container("memory.swap")(result) for result in used]))
    row["in_use"] = _mean([in_use(result) for result in used])
    row["hot_buffers"] = _mean([hot_buffers(result) for result in used])
    row["memory_or_io_pressure"] = _mean([pressure(result) for result in used])
    row["bottleneck"] = _most_common_limit(observations)
    row["trials"] = len(results)
    row["tainted_trials"] = sum(result.tainted and result.error is None for result in results)
    return row


def _most_common_limit(observations: Sequence[Observation]) -> str | None:
    limits = [observation.bottleneck for observation in observations]
    return max(set(limits), key=limits.count) if limits else None


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _in_mb(value: float | None) -> float | None:
    return None if value is None else value / MB


def extra_memory_rows(options: WorkingSetOptions, curves: Sequence[SweepTrials]) -> list[Row]:
    """Container memory beyond shared buffers while these were varied, and its origin."""
    if "shared-buffers" not in options.vary:
        return []
    results = [result for trials in curves for result in trials.trials if trials.curve.sweep == "memory"]
    rows: list[Row] = []
    for clients in options.clients:
        extra, origin = extra_memory(options, results, clients)
        rows.append({"clients": clients, "extra_memory": extra, "from": origin})
    return rows
