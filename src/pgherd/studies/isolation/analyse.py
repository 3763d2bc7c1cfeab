"""Analysis of an isolation run: ratios of the victim with an aggressor to the victim alone, and the worst of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis.block_ratios import no_ratio_reason, paired_ratio
from pgherd.analysis.intervals import LEAST, mean_interval
from pgherd.model.analysis import Analysis, Finding, Grade
from pgherd.model.result import TargetResult, TrialResult
from pgherd.studies.isolation.options import AGGRESSORS, ALONE, FIO, IsolationOptions, Scheme
from pgherd.studies.isolation.propose import addresses
from pgherd.study import wait_event_columns, wait_events
from pgherd.study.findings import as_finding, labelled_name, missing
from pgherd.study.grade import fallback_warnings, grade_of, judge_answer, majority_clean, qualify_answer, shortened_list, trial_warnings
from pgherd.study.trial_schedule import repeats_trial

Row = dict[str, Finding | str | int | float | None]
_METRICS: Mapping[str, Callable[[TargetResult], float | None]] = {
    "p99_ratio": lambda target: target.latency.p99,
    "p50_ratio": lambda target: target.latency.p50,
    "throughput_ratio": lambda target: target.throughput,
}
"""Ratio → the victim's value that it compares."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Pairs:
    """Trials of one scheme with one aggressor, and those alone of the same blocks.

    If too few blocks have two clean trials, ``trials`` holds all finished pairs, and ``clean`` is False.
    """

    scheme: Scheme
    aggressor: str
    trials: tuple[tuple[TrialResult, TrialResult], ...]
    tainted: int
    clean: bool

    def victims(self, value_of: Callable[[TargetResult], float | None]) -> tuple[list[float | None], list[float | None]]:
        """Return a value of the victim in each block, with the aggressor and alone."""
        victim, _ = addresses(self.scheme)
        with_aggressor, alone = ([value_of(_target(pair[side], victim)) for pair in self.trials] for side in (0, 1))
        return with_aggressor, alone


def pairs_of(results: Sequence[TrialResult], scheme: Scheme, aggressor: str) -> Pairs:
    """Return the trials of a scheme and an aggressor with those alone, by block."""
    chosen = {name: by_block(results, scheme, name) for name in (aggressor, ALONE)}
    finished = [(chosen[aggressor][block], chosen[ALONE][block]) for block in chosen[aggressor] if block in chosen[ALONE]]
    clean = [pair for pair in finished if not any(result.tainted for result in pair)]
    enough = bool(clean) and len(clean) >= min(LEAST, len(finished))
    return Pairs(scheme, aggressor, tuple(clean if enough else finished), len(finished) - len(clean), enough)


def by_block(results: Sequence[TrialResult], scheme: str, aggressor: str) -> dict[int, TrialResult]:
    """Return the trial of each block that counts: the planned one, or its clean rerun if it is tainted."""
    trials = [r for r in results if r.trial.point == {"scheme": scheme, "aggressor": aggressor}]
    chosen = {}
    for result in trials:
        if result.trial.reason == "planned":
            rerun = next((other for other in trials if not other.tainted and repeats_trial(other, result)), None)
            best = rerun if result.tainted and rerun is not None else result
            if best.error is None:
                chosen[result.trial.repeat] = best
    return chosen


def _target(result: TrialResult, address: str) -> TargetResult:
    return next(target for target in result.phases[0].targets if target.target == address)


def analyse(options: IsolationOptions, results: Sequence[TrialResult]) -> Analysis:
    """Return the ratios of every scheme and aggressor, and the worst p99 ratio. Missing and tainted trials never raise."""
    cells = [pairs_of(results, scheme, aggressor) for scheme in options.schemes for aggressor in options.aggressors]
    rows = [_row(cell) for cell in cells]
    corrected = 1 - (1 - CONFIDENCE) / options.comparisons
    by_cell = {
        # The interval is wider than the row's, around the same value.
        (cell.scheme, cell.aggressor): _ratio(cell, "p99_ratio", corrected).model_copy(update={"value": _finding(row["p99_ratio"]).value})
        for cell, row in zip(cells, rows, strict=True)
    }
    worst_rows: list[Row] = []
    findings: dict[str, Finding] = {}
    for row in rows:
        for name in _METRICS:
            findings[labelled_name(name, scheme=row["scheme"], aggressor=row["aggressor"])] = _finding(row[name])
    for scheme in options.schemes:
        name, worst = worst_of({aggressor: ratio for (of, aggressor), ratio in by_cell.items() if of == scheme}, options.comparisons)
        worst_rows.append({"scheme": scheme, "worst_p99_ratio": worst, "aggressor": name})
        findings[labelled_name("worst_p99_ratio", scheme=scheme)] = worst
    label, findings["worst_p99_ratio"] = worst_of({f"{scheme}/{name}": r for (scheme, name), r in by_cell.items()}, options.comparisons)
    waits = _waits(options, results)
    used = {result.trial.key() for cell in cells for pair in cell.trials for result in pair}
    measured = [cell for cell in cells if cell.trials]
    starved = [cell for cell in measured if any(None in values for values in cell.victims(_METRICS["p99_ratio"]))]
    run_grade: Grade = grade_of(
        [cell.clean for cell in measured],
        used,
        results,
        whole=len(measured) == len(cells) and options.repeats >= LEAST and all(not cell.tainted for cell in cells),
    )
    run_grade, reason = judge_answer(run_grade, [f"too few transactions for a p99 in trials of {_names(starved)}"] if starved else [])
    unknown = [key for key, ratio in by_cell.items() if ratio.value is None]
    text = answer_of(label, findings["worst_p99_ratio"], worst_rows, unknown)
    return Analysis(
        answer=qualify_answer(text, run_grade) if measured else text,
        grade=run_grade,
        grade_reason=reason,
        findings=findings,
        details=_wait_details(label, waits),
        tables={"isolation": rows, "worst": worst_rows, **({wait_event_columns.TABLE: list(waits.values())} if waits else {})},
        warnings=[
            *trial_warnings(results, "a block"),
            *fallback_warnings([cell.clean for cell in measured], _names([cell for cell in measured if not cell.clean])),
            *_slow_warnings(options, results),
        ],
        next_steps=_next_steps(options, rows),
    )


def _waits(options: IsolationOptions, results: Sequence[TrialResult]) -> dict[tuple[str, str], Row]:
    """Return what the sessions of the victim's server wait for, by scheme and aggressor. A shared server has those of both databases."""
    found: dict[tuple[str, str], Row] = {}
    for scheme in options.schemes:
        _, container, server, _ = addresses(scheme)[0].split("/")
        for name in (ALONE, *options.aggressors):
            trials = list(by_block(results, scheme, name).values())
            if row := wait_events.wait_row(trials, f"{container}/{server}".__eq__):
                found[scheme, name] = {"scheme": scheme, "aggressor": name, **row}
    return found


def _wait_details(label: str, waits: Mapping[tuple[str, str], Row]) -> list[str]:
    """Return a sentence on the largest change of wait events next to the worst aggressor."""
    scheme, _, aggressor = label.partition("/")
    names = {f"scheme {scheme} next to {aggressor}": aggressor, f"scheme {scheme} alone": ALONE}
    text = wait_events.largest_difference({text: waits.get((scheme, name), {}) for text, name in names.items()})
    return [text] if text else []


def _finding(cell: object) -> Finding:
    assert isinstance(cell, Finding)
    return cell


def _row(cell: Pairs) -> Row:
    """Return the row of a scheme and an aggressor in the table ``isolation``."""
    row: Row = {"scheme": cell.scheme, "aggressor": cell.aggressor}
    row |= {name: _ratio(cell, name, CONFIDENCE) for name in _METRICS}
    _, alone = cell.victims(_METRICS["p99_ratio"])
    _, aggressor = addresses(cell.scheme)
    row["conclusion"] = conclusion(_finding(row["p99_ratio"]), _finding(row["throughput_ratio"]))
    row["p99_alone"] = _mean([value for value in alone if value is not None], "ms")
    unit = "IOPS" if cell.aggressor == FIO else "tps"
    row["aggressor_throughput"] = _mean([_target(pair[0], aggressor).throughput for pair in cell.trials], unit)
    row["blocks"] = len(cell.trials)
    row["tainted_trials"] = cell.tainted
    return row


def _mean(values: Sequence[float], unit: str) -> Finding:
    return as_finding(mean_interval(values), unit) if values else missing(unit, "no block has a value")


def _ratio(cell: Pairs, name: str, confidence: float) -> Finding:
    """Return a ratio of the victim's values, paired by block."""
    values, alone = cell.victims(_METRICS[name])
    reason = no_ratio_reason(values, alone) if cell.trials else "no block has both trials"
    if reason is not None:
        return missing("ratio", f"too few transactions for a p99; {reason}" if name == "p99_ratio" and cell.trials else reason)
    return as_finding(paired_ratio(values, alone, confidence), "ratio", "" if cell.clean else "from tainted trials: an indication")


def worst_of(ratios: Mapping[str, Finding], comparisons: int) -> tuple[str, Finding]:
    """Return the name of the largest ratio, and the largest ratio with an interval that allows for the choice.

    The intervals of all ``comparisons`` of the run hold together with 95 % (Bonferroni). Then the largest true ratio is between the
    largest lower limit and the largest upper limit, whichever it is. If any ratio is unknown, there is no upper limit.
    """
    known = {name: ratio for name, ratio in ratios.items() if ratio.value is not None}
    if not known:
        return "", missing("ratio", "no p99 ratio is known")
    name = max(known, key=lambda key: known[key].value or 0.0)
    method = f"largest of {len(ratios)} ratios; simultaneous interval over {comparisons} comparisons (Bonferroni)"
    unknown = [key for key in ratios if key not in known]
    lows = [ratio.low for ratio in known.values() if ratio.low is not None]
    highs = [ratio.high for ratio in known.values() if ratio.high is not None]
    note = ""
    if unknown:
        note = f"no interval: {', '.join(unknown)} has no p99 ratio and may be worse"
    elif len(highs) < len(known):
        note = f"no interval: fewer than {LEAST} blocks"
    finding = Finding(value=known[name].value, unit="ratio", n=known[name].n, method=method, note=note)
    if note:
        return name, finding
    return name, finding.model_copy(update={"low": max(lows), "high": max(highs), "confidence": CONFIDENCE})


def conclusion(p99: Finding, throughput: Finding) -> str:
    """Return whether the victim suffers: '' without an interval."""
    if (p99.low is not None and p99.low > 1) or (throughput.high is not None and throughput.high < 1):
        return "suffers"
    if p99.low is None or throughput.low is None:
        return "not known"
    return "gains" if p99.high is not None and p99.high < 1 else "no effect shown"


def answer_of(label: str, worst: Finding, rows: Sequence[Row], unknown: Sequence[tuple[str, str]]) -> str:
    """Return the worst p99 ratio of the run, that of the best scheme, and each ``unknown`` scheme and aggressor.

    The best scheme has no unknown ratio, because that may be its worst.
    """
    if worst.value is None:
        return f"No result: {worst.note}."
    scheme, _, aggressor = label.partition("/")
    text = f"The worst neighbour multiplies the victim's p99 by {_times(worst)}: {aggressor}, in scheme {scheme}"
    known = [(str(row["scheme"]), ratio) for row in rows if (ratio := _finding(row["worst_p99_ratio"])).value is not None]
    best, ratio = min(known, key=lambda pair: pair[1].value or 0.0)
    if best not in (scheme, *(unsure for unsure, _ in unknown)):
        text += f"; scheme {best} has the lowest worst ratio, {_times(ratio)}"
    if unknown:
        cells = shortened_list([f"{name} in scheme {unsure}" for unsure, name in unknown], 4)
        text += f"; no p99 ratio is known next to {cells}, which may be worse"
    return f"{text}."


def _times(finding: Finding) -> str:
    interval = "no interval" if finding.low is None or finding.high is None else f"{finding.low:.3g} … {finding.high:.3g}"
    return f"{finding.value:.3g} ({interval})"


def _names(cells: Sequence[Pairs]) -> str:
    return shortened_list([f"{cell.scheme}/{cell.aggressor}" for cell in cells], 4)


def _slow_warnings(options: IsolationOptions, results: Sequence[TrialResult]) -> list[str]:
    """Return a warning if the victim could not keep its rate even alone, so that a ratio to that says little."""
    slow = [
        scheme
        for scheme in options.schemes
        if any(
            result.trial.point == {"scheme": scheme, "aggressor": ALONE}
            and any(check.name == "rate-achieved" and check.result == "fail" for check in result.checks)
            for result in results
        )
    ]
    if not slow:
        return []
    return [f"The victim alone missed its rate in scheme {', '.join(slow)}: ratios there say little; lower --rate, or raise the limits"]


def _next_steps(options: IsolationOptions, rows: Sequence[Row]) -> list[str]:
    unclear = [row for row in rows if row["conclusion"] in ("not known", "no effect shown")]
    if not unclear or not majority_clean([row["conclusion"] != "not known" for row in rows]):
        return [f"more blocks give intervals: --repeats {max(6, 2 * options.repeats)}"] if unclear else []
    steps = [f"{row['aggressor']} ({AGGRESSORS[name]})" for row in unclear for name in options.aggressors if name == row["aggressor"]]
    return [f"no effect shown is no proof of none; the intervals say how large it may be: {', '.join(dict.fromkeys(steps))}"]
