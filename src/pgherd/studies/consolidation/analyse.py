"""Analysis of a consolidation run: findings, grade, answer and warnings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgherd.analysis import overcommitment
from pgherd.analysis.intervals import LEAST, Estimate
from pgherd.analysis.overcommitment import ONE_BLOCK
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.capabilities import capabilities_of
from pgherd.model.result import TrialResult
from pgherd.studies.consolidation import tables
from pgherd.studies.consolidation.options import BALLOON, DEDICATED, PLAIN, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.tables import Row, throughput_of
from pgherd.studies.consolidation.trials import ConsolidationTrial, TrialsByPoint, shares_cpu
from pgherd.study import wait_event_columns, wait_events
from pgherd.study.findings import as_finding, labelled_name, missing
from pgherd.study.grade import fallback_warnings, grade_of, majority_clean, qualify_answer, shortened_list, trial_warnings
from pgherd.study.trial_schedule import Point

_ROW_FINDINGS = (
    *("throughput", "vcpu_corrected", "cv", "cpu_percent", "throughput_per_core", "memory_charged", "throughput_per_gb"),
    *("ratio", "vcpu_corrected_ratio", "relative_to_undercommitted"),
)
"""Columns of the table ``consolidation`` that are findings, too."""


def analyse(options: ConsolidationOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the findings and tables of the run. Missing, tainted and killed trials are reported and never raise."""
    trials = TrialsByPoint(options, results)
    rows = tables.layout_rows(options, trials)
    findings = _row_findings(rows) | _buffers_gains(options, trials) | _overcommitment_findings(options, trials)
    findings |= _switch_skew(trials) | _working_sets(options) | tables.swap_findings(options, trials)
    waits = _wait_rows(options, trials)
    all_tables = {
        "consolidation": rows,
        "periods": tables.period_rows(options, trials),
        "oom_kills": tables.kill_rows(trials),
        "memory": tables.memory_rows(options, trials) if any(options.overcommit) else [],
        wait_event_columns.TABLE: waits,
        "published": tables.published_rows(options),
    }
    run_grade, text = grade(options, trials), answer_of(options, trials, rows)
    return Analysis(
        answer=qualify_answer(text, run_grade) if trials.finished() else text,
        details=_wait_details(waits),
        grade=run_grade,
        findings=findings,
        tables={name: table for name, table in all_tables.items() if table},
        warnings=[*_warnings(options, trials), *trial_warnings(results, "a block"), *_taint_warnings(options, trials)],
        next_steps=_next_steps(options),
    )


def _wait_rows(options: ConsolidationOptions, trials: TrialsByPoint) -> list[Row]:
    """Return what sessions wait for by point, which explains the differences between layouts."""
    chosen = [(point, [trial for trial in trials.chosen(point) if trial is not None and trial.error is None]) for point in points(options)]
    return [{**point, **row} for point, used in chosen if (row := wait_events.wait_row(used))]


def _wait_details(rows: Sequence[Row]) -> list[str]:
    """Return a sentence on the largest difference of wait events between layouts, for each combination of buffers and level."""
    by_place: dict[tuple[object, object], dict[str, Row]] = {}
    for row in rows:
        by_place.setdefault((row["shared_buffers_percent"], row["overcommit"]), {})[_combination(row)] = row
    return [text for layouts in by_place.values() if (text := wait_events.largest_difference(layouts))]


# ---- findings


def name_of(quantity: str, point: Point) -> str:
    """Return a finding's name: ``cv{layout=dedicated,shared_buffers_percent=25}``, followed by ``overcommit`` if it is above 0."""
    return labelled_name(quantity, **{name: value for name, value in point.items() if name != "overcommit" or value})


def _row_findings(rows: Sequence[Row]) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for row in rows:
        if "overcommit" not in row:
            continue
        point = _point_of(row)
        for quantity in _ROW_FINDINGS:
            cell = row.get(quantity)
            if isinstance(cell, Finding) and cell.value is not None:
                findings[name_of(quantity, point)] = cell
    return findings


def _point_of(row: Row) -> Point:
    return {name: _coordinate(row[name]) for name in ("layout", "shared_buffers_percent", "overcommit")}


def _coordinate(cell: object) -> int | float | str:
    return cell if isinstance(cell, int | float) else str(cell)


def _buffers_gains(options: ConsolidationOptions, trials: TrialsByPoint) -> dict[str, Finding]:
    """Return each layout's throughput with the largest buffers over that with the smallest, undercommitted."""
    findings = {}
    small, large = options.shared_buffers_percent[0], options.shared_buffers_percent[-1]
    for layout in options.runnable if small != large else ():
        ratio = overcommitment.block_ratio(
            trials.values({"layout": layout, "shared_buffers_percent": large, "overcommit": 0.0}, throughput_of),
            trials.values({"layout": layout, "shared_buffers_percent": small, "overcommit": 0.0}, throughput_of),
        )
        gain = tables.published_buffers_gain(layout) if (small, large) == (25, 75) and options.enters_orders else None
        reference = None if gain is None else f"{gain:.3f} ({tables.SOURCE})"
        experiment = "E4" if reference else None
        name = labelled_name("shared_buffers_ratio", layout=layout)
        if ratio is None:
            findings[name] = missing("ratio", "no block has a value of both", experiment=experiment, published=reference)
        else:
            findings[name] = as_finding(ratio, "ratio", f"{large} % against {small} % buffers", experiment=experiment, published=reference)
    return findings


def _overcommitment_findings(options: ConsolidationOptions, trials: TrialsByPoint) -> dict[str, Finding]:
    """Return, at each level, the retained throughput of separate containers over a shared one's, and the balloon's effect (E5)."""
    findings = {}
    shared = options.shared_of_e4
    for percent in options.shared_buffers_percent:
        for level in [level for level in options.overcommit if level > 0]:
            for layout in [layout for layout in options.runnable if layout in DEDICATED and shared is not None]:
                point: Point = {"layout": layout, "shared_buffers_percent": percent, "overcommit": level}
                shared_point: Point = {"layout": shared or "", "shared_buffers_percent": percent, "overcommit": level}
                ratio = overcommitment.ratio_of_ratios(
                    trials.values(point, throughput_of),
                    trials.values({**point, "overcommit": 0.0}, throughput_of),
                    trials.values(shared_point, throughput_of),
                    trials.values({**shared_point, "overcommit": 0.0}, throughput_of),
                )
                if ratio is not None:
                    note = f"retained throughput of {layout} over that of {shared}"
                    reference = tables.published_retained_ratio(percent, layout, level) if options.enters_orders else None
                    findings[name_of("retention_ratio", point)] = _e5_finding(ratio, note, reference)
            if {PLAIN, BALLOON} <= set(options.runnable):
                ratio = overcommitment.block_ratio(
                    trials.values({"layout": BALLOON, "shared_buffers_percent": percent, "overcommit": level}, throughput_of),
                    trials.values({"layout": PLAIN, "shared_buffers_percent": percent, "overcommit": level}, throughput_of),
                )
                if ratio is not None:
                    note = f"{BALLOON} over {PLAIN}: effect of the database balloon"
                    reference = tables.published_balloon_ratio(percent, level) if options.enters_orders else None
                    name = labelled_name("balloon_gain_ratio", shared_buffers_percent=percent, overcommit=level)
                    findings[name] = _e5_finding(ratio, note, reference)
    return findings


def _e5_finding(ratio: Estimate, note: str, reference: str | None) -> Finding:
    return as_finding(ratio, "ratio", note, experiment="E5" if reference else None, published=reference)


def _switch_skew(trials: TrialsByPoint) -> dict[str, Finding]:
    """Return the largest time between the databases' switches to a period's load."""
    skews = [skew for trial in trials.finished() for skew in trial.skews]
    if not skews:
        return {}
    late = sum(trial.late for trial in trials.finished())
    effect = "all switches are within the warm-up, which is not counted"
    if late:
        effect = f"in {late} of {len(skews)} periods a database switched after the warm-up; a longer --warmup avoids that"
    return {
        "switch_skew": Finding(
            value=1000 * max(skews),
            unit="ms",
            n=len(skews),
            method="largest time between the databases' first transactions of a period, over all periods",
            note=f"no interval, because it is a maximum; {effect}",
        )
    }


def _working_sets(options: ConsolidationOptions) -> dict[str, Finding]:
    """Return the working sets' sum and the maximum safe overcommitment if the working sets are known."""
    safe_level, needed = options.max_safe_overcommit(), options.needed()
    if safe_level is None or needed is None:
        return {}
    note = f"working sets from the options; {options.configured >> 20} MB are configured"
    return {
        "working_sets_total": Finding(value=needed / 2**20, unit="MB", n=1, method="sum of the busiest period", note=note),
        "max_safe_overcommit": Finding(value=safe_level, unit="share", n=1, method="1 − working sets ÷ configured memory (E7)", note=note),
    }


# ---- grade


def grade(options: ConsolidationOptions, trials: TrialsByPoint) -> Grade:
    """Return the grade.

    A: every planned combination has a clean trial in every block, all of its checks passed, and there are blocks enough for an interval.
    C: half or more of the combinations with a value rest mostly on tainted trials. B: otherwise. OOM kills are a result and do not
    lower the grade.
    """
    blocks_of = [trials.by_block(point) for point in points(options) if not _all_killed(trials.all_at(point))]
    clean = [_rests_on_clean(blocks) for blocks in blocks_of if any(blocks)]
    used = {trial.key for blocks in blocks_of for trial in blocks if trial is not None}
    complete = options.repeats >= LEAST and all(trial is not None and trial.clean for blocks in blocks_of for trial in blocks)
    return grade_of(clean, used, trials.results, whole=complete)


def _rests_on_clean(blocks: Sequence[ConsolidationTrial | None]) -> bool:
    """Return True if most of a combination's trials are clean. A tainted trial counts in a block without a clean one."""
    return majority_clean([trial.clean for trial in blocks if trial is not None])


def _taint_warnings(options: ConsolidationOptions, trials: TrialsByPoint) -> list[str]:
    """Return warnings on combinations without a value, and on those that rest on tainted trials.

    The answer reports the killed combinations, and a run in which no combination has a value.
    """
    blocks_of = {_combination(point): trials.by_block(point) for point in points(options) if not _all_killed(trials.all_at(point))}
    absent = [name for name, blocks in blocks_of.items() if not any(blocks)]
    if len(absent) == len(blocks_of):
        return []
    warnings = []
    if absent:
        warnings.append(f"No finished trial for {shortened_list(absent)}")
    clean = {name: _rests_on_clean(blocks) for name, blocks in blocks_of.items() if name not in absent}
    tainted = shortened_list([name for name, is_clean in clean.items() if not is_clean])
    what = "Only tainted trials" if options.repeats == 1 else "Tainted trials in half of the blocks or more"
    return warnings + fallback_warnings(list(clean.values()), tainted, what=what)


def _combination(point: Mapping[str, Any]) -> str:
    """Return ``dedicated with 25 % buffers, 40 % overcommitted``."""
    level = f", {100 * float(point['overcommit']):g} % overcommitted" if point["overcommit"] else ""
    return f"{point['layout']} with {point['shared_buffers_percent']} % buffers{level}"


def _all_killed(results: Sequence[TrialResult]) -> bool:
    return bool(results) and all(result.oom_kills for result in results)


# ---- answer

_TOO_FEW_BLOCKS = {1: ONE_BLOCK, 2: "two blocks: no interval"}
"""Number of blocks without an interval → its text."""


def answer_of(options: ConsolidationOptions, trials: TrialsByPoint, rows: Sequence[Row]) -> str:
    """Return the answer: throughput undercommitted, retained throughput at the highest level, and OOM kills.

    Without an interval the answer claims no difference.
    """
    measured = [row for row in rows if _value(row.get("throughput")) is not None]
    if not measured:
        killed = any(result.oom_kills for result in trials.results)
        return f"No result: {'every trial had OOM kills' if killed else 'no trial finished'}."
    parts, any_result = [], False
    for percent in options.shared_buffers_percent:
        of_buffers = [row for row in measured if row["shared_buffers_percent"] == percent]
        undercommitted = [row for row in of_buffers if row["overcommit"] == 0]
        texts = [_baseline_text(options, trials, undercommitted) if undercommitted else "", _retained_text(of_buffers)]
        any_result = any_result or any(texts)
        texts.append(oom_text([row for row in rows if row.get("shared_buffers_percent") == percent]))
        if any(texts):
            parts.append(f"with {percent} % buffers " + "; ".join(filter(None, texts)))
    if not any_result:
        parts.insert(0, "no layout has an undercommitted baseline to compare with")
    text = "; ".join(parts)
    few = _TOO_FEW_BLOCKS.get(options.repeats)
    ending = f" ({few}, so no difference is claimed)" if few and len(measured) > 1 else ""
    return f"{text[0].upper()}{text[1:]}{ending}."


def _baseline_text(options: ConsolidationOptions, trials: TrialsByPoint, rows: Sequence[Row]) -> str:
    """Return ``dedicated reaches 1.12 (1.08 … 1.17) × shared-server``, or the best layout if no difference is certain."""
    best = max(rows, key=lambda row: _value(row["throughput"]) or 0.0)
    number = f"{_value(best['throughput']):,.0f} {options.unit}"
    if len(rows) == 1:
        return f"{best['layout']} reaches {number}"
    first = options.runnable[0]
    ratios = [(row, ratio) for row in rows if isinstance(ratio := row.get("ratio"), Finding) and ratio.value is not None]
    certain = [(row, ratio) for row, ratio in ratios if _excludes_one(ratio) and _differs(options, trials, row)]
    if certain:
        return "; ".join(f"{row['layout']} reaches {_times(ratio)} × {first}{_corrected_text(options, row)}" for row, ratio in certain)
    highest = f"{best['layout']} has the highest throughput, {number}"
    if any(ratio.low is not None for _, ratio in ratios):
        return f"no layout certainly differs from {first}; {highest}"
    best_ratio = next((ratio for row, ratio in ratios if row is best), None)
    against = "" if best_ratio is None else f", {_times(best_ratio)} × {first}{_corrected_text(options, best)}"
    if against and options.repeats not in _TOO_FEW_BLOCKS:  # enough blocks were planned, but too few have both layouts
        against += " (no interval)"
    return f"{highest}{against}"


def _differs(options: ConsolidationOptions, trials: TrialsByPoint, row: Row) -> bool:
    """Return True if a layout certainly differs from the first one.

    Such claims hold jointly with 95 % over all layouts and sizes of buffers (Bonferroni), unlike the intervals of the table.
    """
    claims = (len(options.runnable) - 1) * len(options.shared_buffers_percent)
    ratio = tables.ratio_to_first(options, trials, _point_of(row), confidence=1 - (1 - tables.CONFIDENCE) / claims)
    return _excludes_one(ratio)


def _excludes_one(ratio: Finding) -> bool:
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high


def _corrected_text(options: ConsolidationOptions, row: Row) -> str:
    """Return ``, 1.06 × with E4's correction for vCPUs`` if only one of the two layouts shares vCPUs."""
    ratio = row.get("vcpu_corrected_ratio")
    if not isinstance(ratio, Finding) or ratio.value is None:
        return ""
    first, layout = options.runnable[0], str(row["layout"])
    if shares_cpu(options, first) == shares_cpu(options, layout):
        return ""
    return f", {_times(ratio)} × with E4's correction for vCPUs"


def oom_text(rows: Sequence[Row]) -> str:
    """Return the combinations that lost blocks to OOM kills.

    ``OOM kills: shared-server at 55 %, dedicated at 40 % (1 of 3 blocks died) and at 55 %``. '' if there is none.
    """
    levels: dict[str, list[str]] = {}
    for row in rows:
        level = row.get("overcommit")
        some = row.get("blocks_died") if _value(row.get("throughput")) is not None else None
        all_killed = row.get("trials_with_oom_kill") and _value(row.get("throughput")) is None
        if (some or all_killed) and isinstance(level, int | float):
            where = (f"at {100 * level:g} %" if level else "undercommitted") + (f" ({some} blocks died)" if some else "")
            levels.setdefault(str(row["layout"]), []).append(where)
    text = ", ".join(f"{layout} {' and '.join(at)}" for layout, at in levels.items())
    return f"OOM kills: {text}" if text else ""


def _retained_text(rows: Sequence[Row]) -> str:
    """Return ``throughput at 55 % overcommitment relative to undercommitted: shared-server 41 %, dedicated 62 %``."""
    measured = [row for row in rows if _value(row.get("relative_to_undercommitted")) is not None]
    levels = sorted({level for row in measured if isinstance(level := row["overcommit"], float) and level > 0})
    if not levels:
        return ""
    retained = [row for row in measured if row["overcommit"] == levels[-1]]
    text = ", ".join(f"{row['layout']} {_percent(row['relative_to_undercommitted'])}" for row in retained)
    return f"throughput at {100 * levels[-1]:g} % overcommitment relative to undercommitted: {text}"


def _times(ratio: Finding) -> str:
    return f"{ratio.value:.2f}" + ("" if ratio.low is None or ratio.high is None else f" ({ratio.low:.2f} … {ratio.high:.2f})")


def _percent(cell: object) -> str:
    assert isinstance(cell, Finding) and cell.value is not None
    between = "" if cell.low is None or cell.high is None else f" ({100 * cell.low:.0f} … {100 * cell.high:.0f})"
    return f"{100 * cell.value:.0f} %{between}"


def _value(cell: object) -> float | None:
    return cell.value if isinstance(cell, Finding) else None


# ---- warnings


def _warnings(options: ConsolidationOptions, trials: TrialsByPoint) -> list[str]:
    warnings = []
    if options.repeats < LEAST:
        blocks = "One block" if options.repeats == 1 else f"{options.repeats} blocks"
        warnings.append(f"{blocks}: no interval, so no difference is claimed. --repeats {LEAST} or more gives intervals")
    for layout, reason in options.unavailable.items():
        warnings.append(f"Layout {layout} was not measured: {reason}")
    if options.runtime == "cgroup":
        warnings.append(
            "With runtime cgroup all containers share one kernel and its page cache, and there are no guest balloons. The result does not "
            "apply to virtual machines and is not judged against E5's published curve. E4's table is shown for its shape"
        )
    elif options.runtime == "process":
        warnings.append("Without cgroups the databases' memory is not limited: the layouts differ only in their servers, buffers and vCPUs")
    elif capabilities_of(options.runtime).own_kernel:
        warnings.append(
            "The hypervisors' memory is taken from the guests' total, so dedicated layouts, with more guests, have less of it. Guests have "
            "no swap: the host compresses or swaps guest memory that their balloons do not return, and the guests do not notice"
        )
    if any(shares_cpu(options, layout) for layout in options.runnable) and any(layout in DEDICATED for layout in options.runnable):
        total = options.databases * options.vcpus
        warnings.append(
            f"Dedicated layouts have {total:g} vCPUs in all, shared ones {options.vcpus:g}, as in E4. E4's correction counts the quiet "
            "databases' throughput of shared layouts twice, and is shown in addition to the measured values"
        )
    if any(options.overcommit) and options.max_safe_overcommit() is None:
        warnings.append("The maximum safe overcommitment is unknown without working sets ('pgherd working-set' measures them)")
    killed = sorted({kill.container for result in trials.results for kill in result.oom_kills})
    if killed:
        count = sum(bool(result.oom_kills) for result in trials.results)
        warnings.append(
            f"OOM kills in {count} trial{'' if count == 1 else 's'} (container {', '.join(killed)}): a result, see the table of OOM kills"
        )
    return warnings


def _next_steps(options: ConsolidationOptions) -> list[str]:
    steps = []
    if options.repeats < LEAST:
        steps.append(f"--repeats {LEAST}: intervals, so that differences can be claimed")
    if not any(options.overcommit) and capabilities_of(options.runtime).memory_limit:
        steps.append("--overcommit 0,0.2,0.4,0.55: the effect of overcommitted memory on each layout")
    return steps
