"""Metrics by which two runs are compared: those of trials at each point, and findings of the study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.two_sample import Direction, Pair
from pgherd.model.analysis import Finding
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.text import clean
from pgherd.report.formatting import finite, point_text
from pgherd.study.comparison import metrics, time_slices
from pgherd.study.comparison.metrics import METRICS, ComparedMetric
from pgherd.study.comparison.options import AA_SUFFIX
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.study import studies

MAX_REGRESSION = 0.05

_HIGHER_NAMES = ("efficiency", "throughput", "peak_throughput", "capacity", "headroom")
_HIGHER_UNITS = ("tps", "NOPM", "new orders/min", "IOPS", "MB/s", "Gbit/s", "tps per database", "tps per client", "databases")
_LOWER_NAMES = ("p50_ratio", "p99_ratio")
"""Parts of names of ratios of latencies, such as ``worst_p99_ratio``."""
_LOWER_UNITS = ("ms", "s", "bytes", "kB", "MB", "GB", "cores", "switches", "misses/tx", "walks/tx", "cycles/tx", "faults/tx", "reads/tx")

Points = dict[str, tuple[str, list[TrialResult]]]
"""A point's key → its text and its finished trials."""


@dataclass(frozen=True)
class GateRun:
    """One of the two runs of a gate: its name, record and trials."""

    name: str
    record: RunRecord
    results: Sequence[TrialResult]


@dataclass(frozen=True)
class MetricLimit:
    """A metric or finding by name, the share of it that may be lost (0.05: 5 %), and the better direction if given."""

    name: str
    max_regression: float = MAX_REGRESSION
    better_direction: Direction | None = None


@dataclass(frozen=True)
class MetricPair:
    """A metric at one point of both runs. ``pair`` None: no ratio, for ``reason``. ``tainted``: only tainted trials, which support
    no conclusion.
    """

    point: str
    pair: Pair | None
    tainted: str = ""
    reason: str = ""


def default_metric(record: RunRecord) -> str:
    """Return the default metric of a gate: throughput, the study's own, or the capacity of a search for the largest size."""
    if record.options.get("objectives") or record.options.get("tenants"):
        return "capacity"
    study = studies().get(record.study)
    return study.default_metric if study is not None else "throughput"


def is_metric(old: GateRun, new: GateRun, name: str) -> bool:
    """Return whether trials have the metric. Otherwise it may be a finding."""
    return name in METRICS or name in _readings(old) or name in _readings(new)


def metric_of(name: str, results: Sequence[TrialResult]) -> ComparedMetric:
    """Return the metric of a name for these trials. A probe's reading has its unit in its name, such as ``database_bytes``."""
    return metrics.metric_for(name, results, "" if name in METRICS else name.rpartition("_")[2])


def direction(limit: MetricLimit, unit: str, better: str = "") -> Direction:
    """Return the better direction.

    Raises:
        UsageError: it is unknown and not given.
    """
    if limit.better_direction is not None:
        return limit.better_direction
    kind, _, metric_name = limit.name.partition(":")
    better = better or (metrics.metric(metric_name.rpartition(":")[2]).better_direction if kind == "ratio" else "")
    # A rate of I/O, such as of WAL, is the work that a load causes or the work that a device does.
    known = unit in _HIGHER_UNITS and not (unit == "MB/s" and "_rate" in limit.name)
    if better == "higher" or known or limit.name.startswith(_HIGHER_NAMES):
        return "higher"
    if better == "lower" or unit in _LOWER_UNITS or any(part in limit.name for part in _LOWER_NAMES):
        return "lower"
    raise UsageError(f"the better direction of '{limit.name}' is unknown; set it: --metric '{limit.name}:5%:higher'")


def compared(old: GateRun, new: GateRun, name: str) -> list[MetricPair]:
    """Return the metric at every common point of both runs, smallest first.

    Only clean trials count. At a point without clean trials, tainted ones are used as an indication.

    Raises:
        UsageError: the runs have no common point, or one of them has no value of the metric.
    """
    old_points, new_points = _points(old), _points(new)
    both = [key for key in old_points if key in new_points]
    if not both:
        raise UsageError(f"the runs have no point in common: {old.name} has {_listed(old_points)}, {new.name} has {_listed(new_points)}")
    metric = metric_of(name, new.results)
    for run, points in ((old, old_points), (new, new_points)):
        if not any(_values(points[key][1], metric) for key in both):
            raise UsageError(f"'{name}' is not in run {run.name}: {metric.absent or 'no trial has it'}")
    pairs = [_compare(old, new, old_points[key], new_points[key], metric) for key in both]
    if all(pair.pair is None for pair in pairs):
        raise UsageError(f"cannot compare '{name}': {pairs[0].reason}")
    return pairs


def uncommon(old: GateRun, new: GateRun) -> list[str]:
    """Return sentences about points that only one of the runs has."""
    old_points, new_points = _points(old), _points(new)
    sentences = []
    for run, points, other in ((old, old_points, new_points), (new, new_points, old_points)):
        extra = {key: value for key, value in points.items() if key not in other}
        if extra and len(extra) < len(points):
            sentences.append(f"Only {run.name} has {_listed(extra)}, which is not compared")
    return sentences


def finding(old: GateRun, new: GateRun, name: str) -> tuple[Finding, Finding]:
    """Return a study's finding of both runs.

    Raises:
        UsageError: a run has no finding of this name, or no number for it.
    """
    pair = []
    for run in (old, new):
        findings = run.record.analysis.findings if run.record.analysis else {}
        if name not in findings:
            names = ", ".join(clean(other) for other in findings) or "none"
            raise UsageError(
                f"'{name}' is not in run {run.name}: it has the metrics {', '.join(_metric_names(run))} and the findings {names}"
            )
        if finite(findings[name].value) is None and finite(findings[name].low) is None:
            raise UsageError(f"'{name}' has no number in run {run.name}: {clean(findings[name].note) or 'reason unknown'}")
        pair.append(findings[name])
    if name.startswith("capacity"):
        _require_equal_rates(old, new)
    return pair[0], pair[1]


def without_number(old: GateRun, new: GateRun, names: Sequence[str]) -> dict[str, Finding]:
    """Return name → the finding without a number, of findings that both runs have and one has no number for."""
    before, after = (run.record.analysis.findings if run.record.analysis else {} for run in (old, new))
    both = [(name, before[name], after[name]) for name in names if name in before and name in after]
    return {name: one for name, *pair in both for one in pair if finite(one.value) is None and finite(one.low) is None}


def _require_equal_rates(old: GateRun, new: GateRun) -> None:
    """Require that databases had the same rate, because a number of databases at half of each run's throughput hides a loss."""
    before, after = (run.record.analysis.findings.get("rate") if run.record.analysis else None for run in (old, new))
    rates = [finite(before.value) if before else None, finite(after.value) if after else None]
    if None not in rates and rates[0] != rates[1]:
        raise UsageError(
            f"the capacities of {old.name} and {new.name} are at {rates[0]:,.10g} and {rates[1]:,.10g} tps per database; "
            f"give both runs the same rate, such as --rate {rates[0]:.10g}"
        )


def lost(old: GateRun, new: GateRun) -> list[str]:
    """Return sentences about points of the baseline at which all trials of the run failed, or made nothing."""
    tried = _all_points(new)
    sentences = []
    for key, (_, before) in _points(old).items():
        point, trials = tried.get(key, ("", []))
        if not trials:
            continue
        finished = [result for result in trials if result.error is None]
        if not finished:
            sentences.append(f"in run {new.name}, every trial of {point} failed: {clean(trials[0].error or '')}")
        elif min(map(_made, before)) > 0 and min(map(_made, finished)) <= 0:
            sentences.append(f"in run {new.name}, a trial of {point} made no transaction")
    return sentences


def _made(result: TrialResult) -> float:
    """Return a trial's throughput. 1 for a study without it."""
    value = METRICS["throughput"].extract(result)
    return 1.0 if value is None else value


def estimate(finding: Finding) -> Estimate:
    """Return a finding as an estimate for the analysis. An upper end beyond the measured range is infinite.

    A value beyond that range counts as its lower bound, at that bound's confidence.
    """
    value, low = finite(finding.value), finite(finding.low)
    high = math.inf if finding.is_open or value is None else finite(finding.high)
    return Estimate(value if value is not None else low or 0.0, low, high, finding.confidence, finding.n, finding.method)


def _points(run: GateRun) -> Points:
    """Return the run's points with their finished trials. A comparison's baseline and its repetition are one point."""
    points = {key: (text, [trial for trial in trials if trial.error is None]) for key, (text, trials) in _all_points(run).items()}
    ordered = sorted((key for key, (_, trials) in points.items() if trials), key=lambda key: _sort_key(points[key][1][0]))
    return {key: points[key] for key in ordered}


def _all_points(run: GateRun) -> Points:
    """Return the run's points with all their trials."""
    points: Points = {}
    for result in time_slices.split_variants(run.results):
        point = {name: _plain(name, value) for name, value in result.trial.point.items()}
        key = ",".join(f"{name}={value}" for name, value in sorted(point.items()))
        points.setdefault(key, (point_text(point), []))[1].append(result)
    return points


def _sort_key(result: TrialResult) -> list[tuple[str, bool, float, str]]:
    """Return the sort key of a point: numbers as numbers, texts as texts."""
    point = sorted(result.trial.point.items())
    return [(name, isinstance(v, str), 0.0, v) if isinstance(v, str) else (name, False, float(v), "") for name, v in point]


def _plain(name: str, value: int | float | str) -> int | float | str:
    return value.removesuffix(AA_SUFFIX) if name == VARIANT and isinstance(value, str) else value


def _listed(points: Points) -> str:
    texts = [text for text, _ in points.values()]
    return ", ".join(texts[:6]) + (f" and {len(texts) - 6} more" if len(texts) > 6 else "") or "no finished point"


def _values(results: Sequence[TrialResult], metric: ComparedMetric) -> list[float]:
    """Return the metric of each trial that has it."""
    values = [result.probe.get(metric.name) if metric.name not in METRICS else metric.extract(result) for result in results]
    return [value for value in values if value is not None]


def _compare(
    old: GateRun, new: GateRun, old_trials: tuple[str, list[TrialResult]], new_trials: tuple[str, list[TrialResult]], metric: ComparedMetric
) -> MetricPair:
    point = old_trials[0]
    values_of: list[tuple[float, ...]] = []
    tainted = []
    for run, (_, results) in ((old, old_trials), (new, new_trials)):
        values = _values([result for result in results if not result.tainted], metric)
        if not values:
            values = _values(results, metric)
            tainted += [run.name] if values else []
        if not values:
            return MetricPair(point, None, reason=f"{run.name}: {metric.absent or 'no trial has it'}")
        if min(values) <= 0 or sum(values) / len(values) < metric.minimum:
            return MetricPair(
                point, None, reason=f"{run.name}: below {metric.minimum:g} {metric.unit}, too small to compare".replace("  ", " ")
            )
        values_of.append(tuple(values))
    reason = f"only tainted trials in {' and '.join(tainted)}" if tainted else ""
    return MetricPair(point, Pair(values_of[0], values_of[1], exact=metric.name not in METRICS), reason)


def _readings(run: GateRun) -> set[str]:
    return {name for result in run.results for name in result.probe}


def _metric_names(run: GateRun) -> list[str]:
    return [
        name for name, metric in METRICS.items() if any(_values([result], metric) for result in time_slices.split_variants(run.results))
    ] + sorted(_readings(run))
