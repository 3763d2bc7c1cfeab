"""The gate: whether a run is worse than its baseline by more than allowed, with statistical significance. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgherd.analysis import two_sample
from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.analysis.two_sample import Direction, Result
from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.model.text import clean
from pgherd.model.units import format_seconds
from pgherd.report import gate_metrics, run_differences
from pgherd.report.formatting import B_WITHOUT_NOISE, MISSING, finding_value, finite
from pgherd.report.gate_metrics import GateRun, MetricLimit, MetricPair
from pgherd.report.html_model import Table
from pgherd.study.comparison import answers
from pgherd.study.comparison.metrics import ComparedMetric
from pgherd.study.findings import as_finding, missing
from pgherd.study.guests import EMULATION_REASON, FUNCTIONAL_TABLE

ALL = "all points"
"""Label of the geometric mean of a metric's changes over all points."""
_CHANCE = {"seed", "time budget", "host memory"}
"""Options that differ between any two runs, also those of variants (memory depends on free memory). Listed without a warning."""
NOTE = "Intervals cover variation within each run, not differences between days or hosts."


@dataclass(frozen=True)
class Comparison:
    """One metric at one point ('' for a finding).

    ``change`` is in percent of the baseline. Its interval is joint with those of all other comparisons. ``max_regression`` is a
    share. ``repeats_needed`` is the estimated number of further repeats in each run that would settle it.
    """

    metric: str
    label: str
    point: str
    old: Finding | None
    new: Finding | None
    change: Finding
    max_regression: float
    better_direction: Direction
    result: Result
    repeats_needed: int | None = None
    reason: str = ""

    @property
    def description(self) -> str:
        """The metric and its point as text."""
        return f"{self.label} at {self.point}" if self.point not in ("", ALL) else f"{self.label} over {ALL}" if self.point else self.label

    @property
    def doubtful(self) -> bool:
        """Whether the estimate is unknown, or worse than allowed but not significantly."""
        if self.change.value is None:
            return self.result == "inconclusive"
        loss = -self.change.value if self.better_direction == "higher" else self.change.value
        return self.result == "inconclusive" and loss > self.max_regression * 100

    @property
    def limit(self) -> str:
        """The allowed loss: ``−5 %``."""
        return f"{'−' if self.better_direction == 'higher' else '+'}{self.max_regression * 100:.3g} %"


@dataclass(frozen=True)
class Gate:
    """Result of a gate. ``unfit``: why a run supports no conclusion. ``differences``: kind → table of other differences between the
    runs.
    """

    baseline: GateRun
    run: GateRun
    comparisons: tuple[Comparison, ...]
    differences: Mapping[str, Table]
    warnings: tuple[str, ...]
    unfit: tuple[str, ...] = field(default=())

    @property
    def regressions(self) -> list[Comparison]:
        """Comparisons that are significantly worse than allowed."""
        return [comparison for comparison in self.comparisons if comparison.result == "regression"]

    @property
    def failed(self) -> bool:
        """Whether a comparison is worse than allowed, or a run supports no conclusion."""
        return bool(self.regressions or self.unfit)

    @property
    def result(self) -> Result:
        """The result of the gate as a whole."""
        if self.regressions:
            return "regression"
        return "inconclusive" if self.unfit or any(comparison.result == "inconclusive" for comparison in self.comparisons) else "pass"

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        return _answer(self)


def gate(baseline: GateRun, run: GateRun, limits: Sequence[MetricLimit] = ()) -> Gate:
    """Compare a run with its baseline by the given metrics (none: the study's default metric, 5 % allowed).

    Raises:
        UsageError: a run is unfinished, the runs are of different studies or the same run, they have no common point, or a metric
            is missing.
    """
    _check(baseline, run)
    limits = limits or [MetricLimit(gate_metrics.default_metric(run.record))]
    metrics = [limit for limit in limits if gate_metrics.is_metric(baseline, run, limit.name)]
    by_metric = {limit.name: gate_metrics.compared(baseline, run, limit.name) for limit in metrics}
    unfit = [
        f"run {each.name} has grade C: it is an indication only and supports no conclusion"
        for each in (baseline, run)
        if each.record.analysis is not None and each.record.analysis.grade == "C"
    ]
    missing_numbers = {} if not unfit else gate_metrics.without_number(baseline, run, [one.name for one in limits if one not in metrics])
    by_finding = {
        limit.name: gate_metrics.finding(baseline, run, limit.name)
        for limit in limits
        if limit not in metrics and limit.name not in missing_numbers
    }
    count = sum(_count(pairs) for pairs in by_metric.values()) + len(by_finding)
    confidence = two_sample.joint(count)
    comparisons: list[Comparison] = []
    warnings = _warnings(baseline, run)
    warnings += gate_metrics.uncommon(baseline, run) if metrics else []
    for limit in limits:
        if limit in metrics:
            metric = gate_metrics.metric_of(limit.name, run.results)
            comparisons += _by_points(limit, metric, by_metric[limit.name], confidence, count)
            warnings += [f"{limit.name} at {pair.point} is omitted ({pair.reason})" for pair in by_metric[limit.name] if pair.pair is None]
        elif limit.name in missing_numbers:
            comparisons.append(_without_number(limit, missing_numbers[limit.name]))
        else:
            comparisons.append(_by_finding(limit, *by_finding[limit.name], confidence, count))
    if unfit:
        comparisons = [_unsupported(comparison, "a run of grade C supports no conclusion") for comparison in comparisons]
    unfit += gate_metrics.lost(baseline, run) if metrics else []
    differences = run_differences.differences([(baseline.name, baseline.record), (run.name, run.record)])
    warnings = [*_of_platforms(baseline, run, differences), *warnings]
    return Gate(baseline, run, tuple(comparisons), differences, tuple(warnings), tuple(unfit))


def _check(baseline: GateRun, run: GateRun) -> None:
    """Raise UsageError if the runs are not comparable."""
    for each in (baseline, run):
        if each.record.analysis is not None and FUNCTIONAL_TABLE in each.record.analysis.tables:
            raise UsageError(f"run {each.name} has no comparable numbers: {EMULATION_REASON}")
    for each in (baseline, run):
        if each.record.state != "finished" or each.record.analysis is None:
            raise UsageError(f"run {each.name} is not finished (it is {each.record.state}); let it end, or resume it, then compare")
    if baseline.record.study != run.record.study:
        raise UsageError(
            f"the runs are of different studies: {baseline.name} of {baseline.record.study}, {run.name} of {run.record.study}; "
            "give two runs of one study"
        )
    if baseline.record.run == run.record.run and baseline.record.started == run.record.started:
        raise UsageError(f"{baseline.name} and {run.name} are the same run; give two")


def _count(pairs: Sequence[MetricPair]) -> int:
    """Return the number of comparisons of a metric: one per point, and one over all of several."""
    usable = sum(pair.pair is not None for pair in pairs)
    return usable + (usable > 1)


def _by_points(
    metric_limit: MetricLimit, metric: ComparedMetric, pairs: Sequence[MetricPair], confidence: float, count: int
) -> list[Comparison]:
    """Return the comparisons of a metric over all points, then at each point."""
    better = gate_metrics.direction(metric_limit, metric.unit, metric.better_direction)
    limit = two_sample.limit_of(metric_limit.max_regression, better)
    clean_pairs = [pair.pair for pair in pairs if pair.pair is not None and not pair.tainted]
    changes = dict(zip(map(id, clean_pairs), two_sample.changes(clean_pairs, confidence), strict=True))

    def comparison(point: str, change: Estimate, more: int | None, old: Finding | None = None, new: Finding | None = None) -> Comparison:
        allowed = metric_limit.max_regression
        result = two_sample.judge(change, allowed, better)
        percent = _in_percent(change, count)
        return Comparison(metric_limit.name, metric.label, point, old, new, percent, allowed, better, result, more, change.note)

    comparisons = []
    over_all = two_sample.change_over_all(clean_pairs, confidence) if len(pairs) > 1 else None
    if over_all is not None:
        comparisons.append(comparison(ALL, over_all, two_sample.further_repeats_over_all(clean_pairs, limit, confidence)))
    for pair in pairs:
        if pair.pair is None:
            continue
        old, new = (_mean(values, metric.unit, exact=pair.pair.exact) for values in (pair.pair.old, pair.pair.new))
        if pair.tainted:
            (change,) = two_sample.changes([pair.pair], confidence)
            comparisons.append(_unsupported(comparison(pair.point, change, None, old, new), pair.tainted))
        else:
            more = two_sample.further_repeats(pair.pair, clean_pairs, limit, confidence)
            comparisons.append(comparison(pair.point, changes[id(pair.pair)], more, old, new))
    return [each if each.result == "inconclusive" else replace(each, repeats_needed=None) for each in comparisons]


def _unsupported(comparison: Comparison, reason: str) -> Comparison:
    """Return the comparison without a conclusion."""
    return replace(comparison, result="inconclusive", repeats_needed=None, reason=reason)


def _by_finding(limit: MetricLimit, old: Finding, new: Finding, confidence: float, count: int) -> Comparison:
    """Return the comparison of a study's finding."""
    better = gate_metrics.direction(limit, new.unit)
    if old.unit != new.unit:
        units = f"{old.unit or 'no unit'} in the baseline, and {new.unit or 'no unit'} in the run"
        raise UsageError(f"cannot compare '{limit.name}': its units differ, {units}")
    try:
        change = two_sample.change_of_estimates(gate_metrics.estimate(old), gate_metrics.estimate(new), confidence)
    except ValueError as error:
        raise UsageError(f"cannot compare '{limit.name}': {error}") from None
    result = two_sample.judge(change, limit.max_regression, better)
    label = clean(limit.name).replace("_", " ")
    beyond = [each for each in (old, new) if finite(each.value) is None]
    reason = "both are beyond the largest size measured; larger sizes would show a loss" if len(beyond) == 2 else change.note
    percent = missing("%", clean(beyond[0].note)) if beyond else _in_percent(change, count)
    return Comparison(limit.name, label, "", old, new, percent, limit.max_regression, better, result, None, reason)


def _without_number(limit: MetricLimit, absent: Finding) -> Comparison:
    """Return the comparison of a finding that a run of grade C has no number for."""
    better = gate_metrics.direction(limit, absent.unit)
    label = clean(limit.name).replace("_", " ")
    return Comparison(limit.name, label, "", None, None, missing("%", absent.note), limit.max_regression, better, "inconclusive")


def _mean(values: Sequence[float], unit: str, *, exact: bool) -> Finding:
    if exact:
        return Finding(value=values[0], unit=unit, n=len(values), note="no interval: repeats do not differ")
    return as_finding(mean_interval(values), unit)


def _in_percent(change: Estimate, count: int) -> Finding:
    """Return a ratio as a change in percent. Its interval is one of ``count`` joint intervals at 95 %."""
    family = f"; one of {count} simultaneous intervals (Bonferroni)" if count > 1 and change.low is not None else ""
    return Finding(
        value=(change.value - 1) * 100,
        unit="%",
        low=None if change.low is None else (change.low - 1) * 100,
        high=None if change.high is None else (change.high - 1) * 100,
        confidence=None if change.low is None else 0.95,
        n=change.n,
        method=change.method + family,
        note=change.note,
    )


def _of_platforms(baseline: GateRun, run: GateRun, differences: Mapping[str, Table]) -> list[str]:
    """Return the differences as sentences, those of the host first."""
    warnings = []
    hosts = [name for name in run_differences.names(differences["host facts"]) if name != "resumed"]
    other = [name for name in hosts if not name.endswith("hostname")]
    if other:
        warnings.append(f"The hosts differ ({_some(other)}): this compares two platforms, and a change may come from that")
    elif hosts:
        warnings.append("The runs are of two hosts whose known facts are equal except for their names")
    for kind in (kind for kind in differences if kind != "host facts"):
        names = [name for name in run_differences.names(differences[kind]) if name.rpartition(": ")[2] not in _CHANCE]
        if names:
            warnings.append(f"The {kind} differ ({_some(names)}): a change may come from that")
    return warnings


def _warnings(baseline: GateRun, run: GateRun) -> list[str]:
    apart = abs(run.record.started - baseline.record.started)
    warnings = [f"The runs started {format_seconds(apart)} apart"] if apart >= 3600 else []
    for each in (baseline, run):
        warnings += [f"Run {each.name}: {sentence}" for sentence in each.record.resumed_on_changed_host]
        analysis = each.record.analysis
        if analysis is None or analysis.grade != "B":
            continue
        reasons = [clean(analysis.grade_reason)] if analysis.grade_reason else []
        if any(result.tainted for result in each.results):
            reasons.append("some of its trials were noisy")
        if not reasons and not each.record.resumed_on_changed_host:
            reasons.append(B_WITHOUT_NOISE)
        if reasons:
            warnings.append(f"Run {each.name} has grade B: {'; '.join(reasons)}")
    return warnings


def _some(names: Sequence[str], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def change_text(change: Finding) -> str:
    """Return ``−6.1 % (−11.0 … −0.9 %)``: a change in percent, as in every comparison. A dash without a number."""
    value, low, high = (None if part is None else 1 + part / 100 for part in (change.value, change.low, change.high))
    return MISSING if value is None else answers.as_change(value, low, high)


def result_text(comparison: Comparison) -> str:
    return {"regression": "worse than allowed", "pass": "within the limit"}.get(comparison.result, comparison.result)


def remedy(comparison: Comparison) -> str:
    """Return what would settle an inconclusive comparison, or why nothing would."""
    if comparison.repeats_needed:
        count = f"{comparison.repeats_needed} more repeat{'' if comparison.repeats_needed == 1 else 's'}"
        return f"about {count} at each point in each run would settle it"
    return comparison.reason or "too close to the limit, or too noisy, for any practical number of repeats"


def sentence(comparison: Comparison) -> str:
    """Return a comparison as a sentence without a full stop."""
    if comparison.change.value is None and comparison.old is not None and comparison.new is not None:
        values = f"from {finding_value(comparison.old)} to {finding_value(comparison.new)} {comparison.new.unit}".rstrip()
        return f"{comparison.description} {values}, allowed {comparison.limit}"
    return f"{comparison.description} {change_text(comparison.change)}, allowed {comparison.limit}"


def _answer(result: Gate) -> str:
    metrics = list(dict.fromkeys(each.metric for each in result.comparisons))
    worst = sorted(result.regressions, key=lambda each: (each.point != ALL, metrics.index(each.metric), -abs(each.change.value or 0.0)))
    if result.unfit:
        return f"The gate fails: {'; '.join(result.unfit)}."
    if worst:
        more = f", and {len(worst) - 1} more" if len(worst) > 1 else ""
        return f"Worse than allowed: {sentence(worst[0])}{more}."
    doubtful = sorted(
        (each for each in result.comparisons if each.doubtful), key=lambda each: (each.point != ALL, each.repeats_needed or math.inf)
    )
    if doubtful:
        more = f", and {len(doubtful) - 1} more" if len(doubtful) > 1 else ""
        return f"Inconclusive: {sentence(doubtful[0])}{more}; {remedy(doubtful[0])}."
    first = result.comparisons[0]
    unsure = [each for each in result.comparisons if each.result == "inconclusive"]
    if not unsure:
        many = f" ({len(result.comparisons)} comparisons)" if len(result.comparisons) > 1 else ""
        return f"Nothing is worse than allowed{many}: {sentence(first)}."
    return (
        f"Nothing is significantly worse than allowed: {sentence(first)}; "
        f"{len(unsure)} of {len(result.comparisons)} comparisons are inconclusive."
    )
