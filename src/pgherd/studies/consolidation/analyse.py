"""Analysis of a consolidation run: findings, grade, answer and warnings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.analysis import overcommitment
from pgherd.analysis.intervals import LEAST, Estimate
from pgherd.analysis.overcommitment import ONE_BLOCK
from pgherd.model.capabilities import capabilities_of
from pgherd.model.finding import Analysis, Finding, Grade
from pgherd.model.result import TrialResult
from pgherd.studies.consolidation import tables
from pgherd.studies.consolidation.options import APART, BALLOON, SCHEMES, ConsolidationOptions
from pgherd.studies.consolidation.propose import points
from pgherd.studies.consolidation.tables import Row, throughput_of
from pgherd.studies.consolidation.trials import ConsolidationTrial, TrialsByPoint, shares_cpu
from pgherd.study.findings import as_finding, missing
from pgherd.study.grade import fallback_warnings, grade_of, majority_clean, qualify_answer, shortened_list, trial_warnings
from pgherd.study.trial_schedule import Point

_ROW_FINDINGS = ("throughput", "corrected", "variation", "cpu_used", "per_core", "ratio", "corrected_ratio", "normalised")
"""Columns of the table ``consolidation`` that are findings, too."""


def analyse(options: ConsolidationOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the findings and tables of the run. Missing, tainted and killed trials are reported and never raise."""
    trials = TrialsByPoint(options, results)
    rows = tables.scheme_rows(options, trials)
    findings = _row_findings(rows) | _buffers_gains(options, trials) | _overcommitment_findings(options, trials)
    findings |= _switch_skew(trials) | _working_sets(options) | tables.swap_findings(options, trials)
    over = options.enters_orders and any(options.rates)
    all_tables = {
        "consolidation": rows,
        "periods": tables.period_rows(options, trials),
        "memory_kills": tables.kill_rows(trials),
        "published_e4": tables.published_rows() if options.enters_orders else [],
        "memory": tables.memory_rows(options, trials) if any(options.rates) else [],
        "published_e5": tables.reading_rows(options, tables.READINGS_E5) if over else [],
        "published_e6": tables.reading_rows(options, tables.READINGS_E6) if over else [],
    }
    run_grade, text = grade(options, trials), answer_of(options, trials, rows)
    return Analysis(
        answer=qualify_answer(text, run_grade) if trials.finished() else text,
        grade=run_grade,
        findings=findings,
        tables={name: table for name, table in all_tables.items() if table},
        warnings=[*_warnings(options, trials), *trial_warnings(results, "a block"), *_taint_warnings(options, trials)],
        look_at=_next_steps(options),
    )


# ---- findings


def name_of(quantity: str, *, scheme: int, buffers: int, rate: float) -> str:
    """Return a finding's name: ``throughput.scheme3.buffers25``, or ``normalised.scheme3.buffers25.rate0.3`` if overcommitted."""
    return f"{quantity}.scheme{scheme}.buffers{buffers}" + (f".rate{rate:g}" if rate else "")


def _row_findings(rows: Sequence[Row]) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for row in rows:
        if "rate" not in row:
            continue
        scheme, percent, rate = int(_as_float(row["scheme"])), int(_as_float(row["buffers"])), _as_float(row["rate"])
        for quantity in _ROW_FINDINGS:
            cell = row.get(quantity)
            if isinstance(cell, Finding) and cell.value is not None:
                findings[name_of(quantity, scheme=scheme, buffers=percent, rate=rate)] = cell
    return findings


def _as_float(cell: object) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _buffers_gains(options: ConsolidationOptions, trials: TrialsByPoint) -> dict[str, Finding]:
    """Return each scheme's throughput with the largest buffers over that with the smallest, undercommitted."""
    findings = {}
    small, large = options.buffers[0], options.buffers[-1]
    for scheme in options.runnable if small != large else ():
        ratio = overcommitment.block_ratio(
            trials.values({"scheme": scheme, "buffers": large, "rate": 0.0}, throughput_of),
            trials.values({"scheme": scheme, "buffers": small, "rate": 0.0}, throughput_of),
        )
        gain = tables.published_buffers_gain(scheme) if (small, large) == (25, 75) and options.enters_orders else None
        reference = None if gain is None else f"{gain:.3f} ({tables.SOURCE})"
        experiment = "E4" if reference else None
        name = f"buffers_ratio.scheme{scheme}"
        if ratio is None:
            findings[name] = missing("ratio", "no block has a value of both", experiment=experiment, published=reference)
        else:
            findings[name] = as_finding(ratio, "ratio", f"{large} % against {small} % buffers", experiment=experiment, published=reference)
    return findings


def _overcommitment_findings(options: ConsolidationOptions, trials: TrialsByPoint) -> dict[str, Finding]:
    """Return, at each rate, the retained throughput of separate containers over a shared one's, and the balloon's effect (E5)."""
    findings = {}
    shared = next((scheme for scheme in options.runnable if scheme not in APART), None)
    for percent in options.buffers:
        for rate in [rate for rate in options.rates if rate > 0]:
            for scheme in [scheme for scheme in options.runnable if scheme in APART and shared is not None]:
                point: Point = {"scheme": scheme, "buffers": percent, "rate": rate}
                shared_point: Point = {"scheme": shared or 0, "buffers": percent, "rate": rate}
                ratio = overcommitment.ratio_of_ratios(
                    trials.values(point, throughput_of),
                    trials.values({**point, "rate": 0.0}, throughput_of),
                    trials.values(shared_point, throughput_of),
                    trials.values({**shared_point, "rate": 0.0}, throughput_of),
                )
                if ratio is not None:
                    note = f"retained throughput of scheme {scheme} over that of scheme {shared}"
                    reference = tables.published_retained_ratio(percent, scheme, rate) if options.enters_orders else None
                    findings[name_of("held_better", scheme=scheme, buffers=percent, rate=rate)] = _e5_finding(ratio, note, reference)
            if {3, BALLOON} <= set(options.runnable):
                ratio = overcommitment.block_ratio(
                    trials.values({"scheme": BALLOON, "buffers": percent, "rate": rate}, throughput_of),
                    trials.values({"scheme": 3, "buffers": percent, "rate": rate}, throughput_of),
                )
                if ratio is not None:
                    note = f"scheme {BALLOON} over scheme 3: effect of the database balloon"
                    reference = tables.published_balloon_ratio(percent, rate) if options.enters_orders else None
                    findings[f"balloon_ratio.buffers{percent}.rate{rate:g}"] = _e5_finding(ratio, note, reference)
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
    """Return the working sets' sum and the largest safe overcommitment rate if the working sets are known."""
    safe_rate, needed = options.honest(), options.needed()
    if safe_rate is None or needed is None:
        return {}
    note = f"working sets from the options; {options.configured >> 20} MB are configured"
    return {
        "working_sets": Finding(value=needed / 2**20, unit="MB", n=1, method="sum of the busiest period", note=note),
        "honest_rate": Finding(value=safe_rate, unit="share", n=1, method="1 − working sets ÷ configured memory (E7)", note=note),
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
    complete = options.blocks >= LEAST and all(trial is not None and trial.clean for blocks in blocks_of for trial in blocks)
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
    what = "Only tainted trials" if options.blocks == 1 else "Tainted trials in half of the blocks or more"
    return warnings + fallback_warnings(list(clean.values()), tainted, what=what)


def _combination(point: Point) -> str:
    """Return ``M/M/M with 25 % buffers, 40 % overcommitted``."""
    rate = f", {100 * _as_float(point['rate']):g} % overcommitted" if point["rate"] else ""
    return f"{SCHEMES[int(point['scheme'])]} with {point['buffers']} % buffers{rate}"


def _all_killed(results: Sequence[TrialResult]) -> bool:
    return bool(results) and all(result.memory_kills for result in results)


# ---- answer

_TOO_FEW_BLOCKS = {1: ONE_BLOCK, 2: "two blocks: no interval"}
"""Number of blocks without an interval → its text."""


def answer_of(options: ConsolidationOptions, trials: TrialsByPoint, rows: Sequence[Row]) -> str:
    """Return the answer: throughput undercommitted, retained throughput at the highest rate, and OOM kills.

    Without an interval the answer claims no difference.
    """
    measured = [row for row in rows if _value(row.get("throughput")) is not None]
    if not measured:
        killed = any(result.memory_kills for result in trials.results)
        return f"No result: {'every trial had OOM kills' if killed else 'no trial finished'}."
    parts, any_result = [], False
    for percent in options.buffers:
        of_buffers = [row for row in measured if row["buffers"] == percent]
        undercommitted = [row for row in of_buffers if row["rate"] == 0]
        texts = [_baseline_text(options, undercommitted) if undercommitted else "", _retained_text(of_buffers)]
        any_result = any_result or any(texts)
        texts.append(oom_text([row for row in rows if row.get("buffers") == percent]))
        if any(texts):
            parts.append(f"with {percent} % buffers " + "; ".join(filter(None, texts)))
    if not any_result:
        parts.insert(0, "no scheme has an undercommitted baseline to compare with")
    text = "; ".join(parts)
    few = _TOO_FEW_BLOCKS.get(options.blocks)
    ending = f" ({few}, so no difference is claimed)" if few and len(measured) > 1 else ""
    return f"{text[0].upper()}{text[1:]}{ending}."


def _baseline_text(options: ConsolidationOptions, rows: Sequence[Row]) -> str:
    """Return ``M/M/M reaches 1.12 (1.08 … 1.17) × 1/1/M``, or the scheme with the highest throughput if no difference is certain."""
    best = max(rows, key=lambda row: _value(row["throughput"]) or 0.0)
    number = f"{_value(best['throughput']):,.0f} {options.unit}"
    if len(rows) == 1:
        return f"{best['what']} reaches {number}"
    first = SCHEMES[options.runnable[0]]
    ratios = [(row, ratio) for row in rows if isinstance(ratio := row.get("ratio"), Finding) and ratio.value is not None]
    certain = [
        (row, ratio) for row, ratio in ratios if ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high
    ]
    if certain:
        return "; ".join(f"{row['what']} reaches {_times(ratio)} × {first}{_corrected_text(options, row)}" for row, ratio in certain)
    highest = f"{best['what']} has the highest throughput, {number}"
    if any(ratio.low is not None for _, ratio in ratios):
        return f"no scheme certainly differs from {first}; {highest}"
    best_ratio = next((ratio for row, ratio in ratios if row is best), None)
    against = "" if best_ratio is None else f", {_times(best_ratio)} × {first}{_corrected_text(options, best)}"
    if against and options.blocks not in _TOO_FEW_BLOCKS:  # enough blocks were planned, but too few have both schemes
        against += " (no interval)"
    return f"{highest}{against}"


def _corrected_text(options: ConsolidationOptions, row: Row) -> str:
    """Return ``, 1.06 × with E4's correction for vCPUs`` if only one of the two schemes shares vCPUs."""
    ratio = row.get("corrected_ratio")
    if not isinstance(ratio, Finding) or ratio.value is None:
        return ""
    first, scheme = options.runnable[0], int(str(row["scheme"]))
    if shares_cpu(options, first) == shares_cpu(options, scheme):
        return ""
    return f", {_times(ratio)} × with E4's correction for vCPUs"


def oom_text(rows: Sequence[Row]) -> str:
    """Return the combinations without a value because of OOM kills: ``OOM kills: 1/1/M at 55 %, M/M/M at 40 % and at 55 %``.

    '' if there is none.
    """
    rates: dict[str, list[str]] = {}
    for row in rows:
        rate = row.get("rate")
        if row.get("killed") and isinstance(rate, int | float) and _value(row.get("throughput")) is None:
            rates.setdefault(str(row["what"]), []).append(f"at {100 * rate:g} %" if rate else "undercommitted")
    text = ", ".join(f"{layout} {' and '.join(at)}" for layout, at in rates.items())
    return f"OOM kills: {text}" if text else ""


def _retained_text(rows: Sequence[Row]) -> str:
    """Return ``throughput at 55 % overcommitment relative to undercommitted: 1/1/M 41 %, M/M/M 62 %``."""
    rates = sorted({rate for row in rows if isinstance(rate := row["rate"], float) and rate > 0 and _value(row["normalised"]) is not None})
    if not rates:
        return ""
    retained = [row for row in rows if row["rate"] == rates[-1] and _value(row["normalised"]) is not None]
    text = ", ".join(f"{row['what']} {_percent(row['normalised'])}" for row in retained)
    return f"throughput at {100 * rates[-1]:g} % overcommitment relative to undercommitted: {text}"


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
    if options.blocks < LEAST:
        blocks = "One block" if options.blocks == 1 else f"{options.blocks} blocks"
        warnings.append(f"{blocks}: no interval, so no difference is claimed. --repeats {LEAST} or more gives intervals")
    for scheme, reason in options.unavailable.items():
        warnings.append(f"Scheme {scheme} ({SCHEMES[scheme]}) was not measured: {reason}")
    if options.runtime == "cgroup":
        warnings.append(
            "With runtime cgroup all containers share one kernel and its page cache, and there are no guest balloons. The result does not "
            "apply to virtual machines and is not judged against E5's published curve. E4's table is shown for its shape"
        )
    elif options.runtime == "process":
        warnings.append("Without cgroups the databases' memory is not limited: the schemes differ only in their servers, buffers and vCPUs")
    elif capabilities_of(options.runtime).own_kernel:
        warnings.append(
            "The hypervisors' memory is taken from the guests' total, so schemes 3 and 4, with more guests, have less of it. Guests have "
            "no swap: the host compresses or swaps guest memory that their balloons do not return, and the guests do not notice"
        )
    if any(shares_cpu(options, scheme) for scheme in options.runnable) and any(scheme in APART for scheme in options.runnable):
        total = options.databases * options.vcpus
        warnings.append(
            f"Schemes 3 and 4 have {total:g} vCPUs in all, schemes 1 and 2 {options.vcpus:g}, as in E4. E4's correction counts the quiet "
            "databases' throughput of schemes 1 and 2 twice, and is shown in addition to the measured values"
        )
    if any(options.rates) and options.honest() is None:
        warnings.append("The largest safe overcommitment rate is unknown without working sets ('pgherd working-set' measures them)")
    killed = sorted({kill.container for result in trials.results for kill in result.memory_kills})
    if killed:
        count = sum(bool(result.memory_kills) for result in trials.results)
        warnings.append(
            f"OOM kills in {count} trial{'' if count == 1 else 's'} (container {', '.join(killed)}): a result, see the table of OOM kills"
        )
    return warnings


def _next_steps(options: ConsolidationOptions) -> list[str]:
    steps = []
    if options.blocks < LEAST:
        steps.append(f"--repeats {LEAST}: intervals, so that differences can be claimed")
    if not any(options.rates) and capabilities_of(options.runtime).memory_limit:
        steps.append("--overcommit 0,0.2,0.4,0.55: the effect of overcommitted memory on each scheme")
    return steps
