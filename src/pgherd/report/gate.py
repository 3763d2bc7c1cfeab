"""The gate: is a run worse than its baseline by more than is allowed, and do the data support that? Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgherd.analysis import two_sample
from pgherd.analysis.intervals import Estimate, mean_interval
from pgherd.analysis.two_sample import Direction, Verdict
from pgherd.model.errors import UsageError
from pgherd.model.finding import Finding
from pgherd.model.units import format_seconds
from pgherd.report import gate_metrics, run_differences
from pgherd.report.formatting import clean
from pgherd.report.gate_metrics import MetricLimit, MetricPair, Run
from pgherd.report.html_model import Table
from pgherd.study.comparison import answers
from pgherd.study.comparison.metrics import Metric
from pgherd.study.emulation import FUNCTIONAL, WHY
from pgherd.study.findings import as_finding

ALL = "all points"
"""Stands for the geometric mean of a metric's changes over all points."""
_CHANCE = {"seed", "budget seconds", "memory"}
"""Options that differ between any two runs (memory is what happened to be free), those of arms and variants too: listed, but no
reason for a warning."""
NOTE = "Intervals hold what varied within each run, not what differs between two days or two hosts."


@dataclass(frozen=True)
class Comparison:
    """One metric at one point ('' for a finding). ``change`` is in per cent of the baseline; its interval holds jointly with those
    of all others. ``allowed`` is a share; ``more``: about how many further repeats in each run would settle it."""

    metric: str
    label: str
    point: str
    old: Finding | None
    new: Finding | None
    change: Finding
    allowed: float
    better: Direction
    verdict: Verdict
    more: int | None = None
    why: str = ""

    @property
    def what(self) -> str:
        """The metric and its point in words."""
        return f"{self.label} at {self.point}" if self.point not in ("", ALL) else f"{self.label} over {ALL}" if self.point else self.label

    @property
    def doubtful(self) -> bool:
        """Whether the estimate is worse than allowed, but not for certain."""
        off = -(self.change.value or 0.0) if self.better == "higher" else self.change.value or 0.0
        return self.verdict == "cannot tell" and off > self.allowed * 100

    @property
    def limit(self) -> str:
        """``−5 %``: what is allowed, in the direction in which it is a loss."""
        return f"{'−' if self.better == 'higher' else '+'}{self.allowed * 100:.3g} %"


@dataclass(frozen=True)
class Gate:
    """What came of it. ``unfit``: why a run supports nothing at all; ``differences``: kind → table of what differs between the runs
    beside what they measured."""

    baseline: Run
    run: Run
    comparisons: tuple[Comparison, ...]
    differences: Mapping[str, Table]
    warnings: tuple[str, ...]
    unfit: tuple[str, ...] = field(default=())

    @property
    def worse(self) -> list[Comparison]:
        """What is worse than allowed, for certain."""
        return [one for one in self.comparisons if one.verdict == "worse"]

    @property
    def failed(self) -> bool:
        """Whether the gate is shut: something is worse than allowed, or a run supports nothing."""
        return bool(self.worse or self.unfit)

    @property
    def outcome(self) -> Verdict:
        """The gate as a whole."""
        if self.worse:
            return "worse"
        return "cannot tell" if self.unfit or any(one.verdict == "cannot tell" for one in self.comparisons) else "within"

    @property
    def answer(self) -> str:
        """One sentence."""
        return _answer(self)


def gate(baseline: Run, run: Run, wanted: Sequence[MetricLimit] = ()) -> Gate:
    """Hold a run against its baseline by the metrics wanted (none: the study's own, 5 % allowed).

    Raises:
        UsageError: a run is unfinished, they are of different studies or one and the same, they have no point in common, or a
            metric is not in one of them.
    """
    _check(baseline, run)
    wanted = wanted or [MetricLimit(gate_metrics.default_metric(run.record))]
    metrics = [one for one in wanted if gate_metrics.is_metric(baseline, run, one.name)]
    by_metric = {one.name: gate_metrics.compared(baseline, run, one.name) for one in metrics}
    by_finding = {one.name: gate_metrics.finding(baseline, run, one.name) for one in wanted if one not in metrics}
    count = sum(_count(compared) for compared in by_metric.values()) + len(by_finding)
    confidence = two_sample.joint(count)
    found: list[Comparison] = []
    warnings = _warnings(baseline, run)
    warnings += gate_metrics.uncommon(baseline, run) if metrics else []
    for one in wanted:
        if one in metrics:
            metric = gate_metrics.metric_of(one.name, run.results)
            found += _by_points(one, metric, by_metric[one.name], confidence, count)
            warnings += [f"{one.name} at {c.point} is left out ({c.why})" for c in by_metric[one.name] if c.pair is None]
        else:
            found.append(_by_finding(one, *by_finding[one.name], confidence, count))
    unfit = [
        f"run {side.name} has grade C: it is an indication only and supports nothing"
        for side in (baseline, run)
        if side.record.analysis is not None and side.record.analysis.grade == "C"
    ]
    if unfit:
        found = [_unsupported(one, "a run of grade C supports nothing") for one in found]
    differing = run_differences.differences([(baseline.name, baseline.record), (run.name, run.record)])
    warnings = [*_of_platforms(baseline, run, differing), *warnings]
    return Gate(baseline, run, tuple(found), differing, tuple(warnings), tuple(unfit))


def _check(baseline: Run, run: Run) -> None:
    """Raise UsageError where there is nothing to compare."""
    for side in (baseline, run):
        if side.record.analysis is not None and FUNCTIONAL in side.record.analysis.tables:
            raise UsageError(f"run {side.name} has no numbers to compare: {WHY}")
    for side in (baseline, run):
        if side.record.state != "finished" or side.record.analysis is None:
            raise UsageError(f"run {side.name} is not finished (it is {side.record.state}); 'pgherd resume {side.name}' goes on with it")
    if baseline.record.study != run.record.study:
        raise UsageError(
            f"the runs are of different studies: {baseline.name} of {baseline.record.study}, {run.name} of {run.record.study}; "
            "give two runs of one study"
        )
    if baseline.record.run == run.record.run and baseline.record.started == run.record.started:
        raise UsageError(f"{baseline.name} and {run.name} are the same run; give two")


def _count(compared: Sequence[MetricPair]) -> int:
    """How many comparisons a metric makes: one for each point, and one over all of several."""
    usable = sum(one.pair is not None for one in compared)
    return usable + (usable > 1)


def _by_points(wanted: MetricLimit, metric: Metric, compared: Sequence[MetricPair], confidence: float, count: int) -> list[Comparison]:
    """A metric over all points, then at each of them."""
    better = gate_metrics.direction(wanted, metric.unit, metric.better)
    limit = two_sample.limit_of(wanted.allowed, better)
    sound = [one.pair for one in compared if one.pair is not None and not one.tainted]
    changes = dict(zip(map(id, sound), two_sample.changes(sound, confidence), strict=True))

    def made(point: str, change: Estimate, more: int | None, old: Finding | None = None, new: Finding | None = None) -> Comparison:
        verdict = two_sample.judge(change, wanted.allowed, better)
        shown = _in_percent(change, count)
        return Comparison(wanted.name, metric.label, point, old, new, shown, wanted.allowed, better, verdict, more, change.note)

    found = []
    over_all = two_sample.change_over_all(sound, confidence) if len(compared) > 1 else None
    if over_all is not None:
        found.append(made(ALL, over_all, two_sample.further_repeats_over_all(sound, limit, confidence)))
    for one in compared:
        if one.pair is None:
            continue
        old, new = (_side(values, metric.unit, exact=one.pair.exact) for values in (one.pair.old, one.pair.new))
        if one.tainted:
            (change,) = two_sample.changes([one.pair], confidence)
            found.append(_unsupported(made(one.point, change, None, old, new), one.tainted))
        else:
            more = two_sample.further_repeats(one.pair, sound, limit, confidence)
            found.append(made(one.point, changes[id(one.pair)], more, old, new))
    return [one if one.verdict == "cannot tell" else replace(one, more=None) for one in found]


def _unsupported(one: Comparison, why: str) -> Comparison:
    """The same, with nothing concluded from it."""
    return replace(one, verdict="cannot tell", more=None, why=why)


def _by_finding(wanted: MetricLimit, old: Finding, new: Finding, confidence: float, count: int) -> Comparison:
    """A study's own finding."""
    better = gate_metrics.direction(wanted, new.unit)
    try:
        change = two_sample.change_of_estimates(gate_metrics.estimate(old), gate_metrics.estimate(new), confidence)
    except ValueError as error:
        raise UsageError(f"'{wanted.name}' cannot be compared: {error}") from None
    verdict = two_sample.judge(change, wanted.allowed, better)
    label = clean(wanted.name).replace("_", " ")
    return Comparison(wanted.name, label, "", old, new, _in_percent(change, count), wanted.allowed, better, verdict, None, change.note)


def _side(values: Sequence[float], unit: str, *, exact: bool) -> Finding:
    if exact:
        return Finding(value=values[0], unit=unit, n=len(values), note="no interval: repeats would not differ")
    return as_finding(mean_interval(values), unit)


def _in_percent(change: Estimate, count: int) -> Finding:
    """A ratio as a change in per cent, whose interval is one of ``count`` that hold jointly at 95 %."""
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


def _of_platforms(baseline: Run, run: Run, differing: Mapping[str, Table]) -> list[str]:
    """What differs, in sentences; the first thing to know where it is the host."""
    said = []
    hosts = run_differences.names(differing["host facts"])
    other = [name for name in hosts if not name.endswith("hostname")]
    if other:
        said.append(f"The hosts differ ({_some(other)}): this compares two platforms, and a change may be theirs")
    elif hosts:
        said.append("The runs are of two hosts that look alike by all that was seen of them but their names")
    for kind in (kind for kind in differing if kind != "host facts"):
        names = [name for name in run_differences.names(differing[kind]) if name.rpartition(": ")[2] not in _CHANCE]
        if names:
            said.append(f"The {kind} differ ({_some(names)}): a change may come from that")
    return said


def _warnings(baseline: Run, run: Run) -> list[str]:
    """What else a careful reader must know."""
    apart = abs(run.record.started - baseline.record.started)
    said = [f"The runs began {format_seconds(apart)} apart"] if apart >= 3600 else []
    for side in (baseline, run):
        said += [f"Run {side.name}: {sentence}" for sentence in side.record.resumed]
        noisy = any(result.tainted for result in side.results)
        if side.record.analysis is not None and side.record.analysis.grade == "B" and (noisy or not side.record.resumed):
            said.append(f"Run {side.name} has grade B: some of its trials were noisy")
    return said


def _some(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def change_text(change: Finding) -> str:
    """``−6.1 % (−11.0 … −0.9 %)``: a change in per cent, as every comparison writes it."""
    value, low, high = (None if part is None else 1 + part / 100 for part in (change.value, change.low, change.high))
    return answers.as_change(1.0 if value is None else value, low, high)


def verdict_text(one: Comparison) -> str:
    """The verdict in words."""
    return {"worse": "worse than allowed", "within": "within the allowed", "better": "better"}.get(one.verdict, one.verdict)


def remedy(one: Comparison) -> str:
    """Of a comparison that cannot tell: what would make it able to, or why nothing would."""
    if one.more:
        return f"about {one.more} more repeat{'' if one.more == 1 else 's'} at each point in each run would tell"
    return one.why or "it is too close to what is allowed, or too noisy, for any sensible number of repeats"


def sentence(one: Comparison) -> str:
    """A comparison in one sentence without an end."""
    return f"{one.what} {change_text(one.change)}, allowed {one.limit}"


def _answer(found: Gate) -> str:
    asked = list(dict.fromkeys(one.metric for one in found.comparisons))
    worst = sorted(found.worse, key=lambda one: (one.point != ALL, asked.index(one.metric), -abs(one.change.value or 0.0)))
    if found.unfit:
        return f"The gate cannot be passed: {'; '.join(found.unfit)}."
    if worst:
        more = f", and {len(worst) - 1} more" if len(worst) > 1 else ""
        return f"Worse than allowed: {sentence(worst[0])}{more}."
    doubtful = sorted((one for one in found.comparisons if one.doubtful), key=lambda one: (one.point != ALL, one.more or math.inf))
    if doubtful:
        more = f", and {len(doubtful) - 1} more" if len(doubtful) > 1 else ""
        return f"Cannot tell whether it is worse than allowed: {sentence(doubtful[0])}{more}; {remedy(doubtful[0])}."
    first = found.comparisons[0]
    unsure = [one for one in found.comparisons if one.verdict == "cannot tell"]
    if not unsure:
        many = f" ({len(found.comparisons)} comparisons)" if len(found.comparisons) > 1 else ""
        return f"Nothing is worse than allowed{many}: {sentence(first)}."
    return (
        f"Nothing is shown to be worse than allowed: {sentence(first)}; "
        f"{len(unsure)} of {len(found.comparisons)} comparisons cannot exclude it."
    )
