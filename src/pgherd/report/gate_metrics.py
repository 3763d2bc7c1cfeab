"""What two runs can be held against each other by: metrics of the trials at each point, and the study's own findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgherd.analysis.intervals import Estimate
from pgherd.analysis.two_sample import Direction, Pair
from pgherd.model.errors import UsageError
from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import clean, finite, point_text
from pgherd.study.comparison import metrics, time_slices
from pgherd.study.comparison.metrics import METRICS, Metric
from pgherd.study.comparison.options import AGAIN
from pgherd.study.comparison.time_slices import VARIANT
from pgherd.study.registry import studies

ALLOWED = 0.05

_HIGHER_NAMES = ("efficiency", "throughput", "peak_throughput", "databases_held")
_HIGHER_UNITS = ("tps", "NOTPM", "new orders/min", "IOPS", "MB/s", "Gbit/s", "tps per database", "tps per client", "databases")
_LOWER_UNITS = ("ms", "s", "bytes", "kB", "MB", "GB", "cores", "switches", "misses/tx", "walks/tx", "cycles/tx", "faults/tx", "reads/tx")

Points = dict[str, tuple[str, list[TrialResult]]]
"""A point's key → its words and its finished trials."""


@dataclass(frozen=True)
class Run:
    """One side of a gate: the run's name, its record, its trials."""

    name: str
    record: RunRecord
    results: Sequence[TrialResult]


@dataclass(frozen=True)
class MetricLimit:
    """A metric or finding by name, the share of it that may be lost (0.05: 5 %), and which direction is better where the caller
    says so."""

    name: str
    allowed: float = ALLOWED
    better: Direction | None = None


@dataclass(frozen=True)
class MetricPair:
    """A metric at one point of both runs. ``pair`` None: there is no ratio, and ``why`` says why; ``tainted``: it rests on tainted
    trials, which support nothing."""

    point: str
    pair: Pair | None
    tainted: str = ""
    why: str = ""


def default_metric(record: RunRecord) -> str:
    """What a gate looks at unless told otherwise: throughput, or the size where a study measures sizes."""
    study = studies().get(record.study)
    return study.default_metric if study is not None else "throughput"


def is_metric(old: Run, new: Run, name: str) -> bool:
    """Whether trials have it (else it may be a finding)."""
    return name in METRICS or name in _readings(old) or name in _readings(new)


def metric_of(name: str, results: Sequence[TrialResult]) -> Metric:
    """The metric of a name as it is of these trials; a probe's reading has its unit in its name, as ``database_bytes`` has."""
    return metrics.of(name, results, "" if name in METRICS else name.rpartition("_")[2])


def direction(wanted: MetricLimit, unit: str, known: str = "") -> Direction:
    """Which direction is better.

    Raises:
        UsageError: that is not known, and the caller did not say it.
    """
    if wanted.better is not None:
        return wanted.better
    kind, _, rest = wanted.name.partition(":")
    known = known or (metrics.metric(rest.rpartition(":")[2]).better if kind == "ratio" else "")
    if known == "higher" or unit in _HIGHER_UNITS or wanted.name.startswith(_HIGHER_NAMES):
        return "higher"
    if known == "lower" or unit in _LOWER_UNITS:
        return "lower"
    raise UsageError(f"whether higher or lower is better is not known of '{wanted.name}'; say it: --metric '{wanted.name}:5%:higher'")


def compared(old: Run, new: Run, name: str) -> list[MetricPair]:
    """The metric at every point that both runs have, smallest first.

    Only clean trials count; where a side has none at a point, those that finished stand in, as an indication.

    Raises:
        UsageError: the runs have no point in common, or one of them has no value of the metric.
    """
    here, there = _points(old), _points(new)
    both = [key for key in here if key in there]
    if not both:
        raise UsageError(f"the runs have no point in common: {old.name} has {_listed(here)}, {new.name} has {_listed(there)}")
    metric = metric_of(name, new.results)
    for run, points in ((old, here), (new, there)):
        if not any(_values(points[key][1], metric) for key in both):
            raise UsageError(f"'{name}' is not in run {run.name}: {metric.absent or 'no trial has it'}")
    found = [_compare(old, new, here[key], there[key], metric) for key in both]
    if all(one.pair is None for one in found):
        raise UsageError(f"'{name}' cannot be compared: {found[0].why}")
    return found


def uncommon(old: Run, new: Run) -> list[str]:
    """What only one of the runs has, in sentences."""
    here, there = _points(old), _points(new)
    said = []
    for run, own, other in ((old, here, there), (new, there, here)):
        alone = {key: value for key, value in own.items() if key not in other}
        if alone and len(alone) < len(own):
            said.append(f"Only {run.name} has {_listed(alone)}; that is not compared")
    return said


def finding(old: Run, new: Run, name: str) -> tuple[Finding, Finding]:
    """A study's own finding of both runs.

    Raises:
        UsageError: one of them has none of this name, or no number.
    """
    found = []
    for run in (old, new):
        own = run.record.analysis.findings if run.record.analysis else {}
        if name not in own:
            raise UsageError(f"'{name}' is not in run {run.name}: it has the metrics {', '.join(_known(run))} and the findings {_own(own)}")
        if finite(own[name].value) is None:
            raise UsageError(f"'{name}' has no number in run {run.name}: {clean(own[name].note) or 'the run does not say why'}")
        found.append(own[name])
    return found[0], found[1]


def estimate(finding: Finding) -> Estimate:
    """A finding that has a value, as analysis takes it."""
    low, high = finite(finding.low), finite(finding.high)
    return Estimate(finite(finding.value) or 0.0, low, high, finding.confidence, finding.n, finding.method)


def _points(run: Run) -> Points:
    """The run's points with their finished trials. The baseline of a comparison and the same again are one thing."""
    found: Points = {}
    for result in time_slices.apart(run.results):
        point = {name: _plain(name, value) for name, value in result.trial.point.items()}
        key = ",".join(f"{name}={value}" for name, value in sorted(point.items()))
        found.setdefault(key, (point_text(point), []))
        if result.error is None:
            found[key][1].append(result)
    ordered = sorted((key for key, (_, trials) in found.items() if trials), key=lambda key: _place(found[key][1][0]))
    return {key: found[key] for key in ordered}


def _place(result: TrialResult) -> list[tuple[str, bool, float, str]]:
    """What points are put in order by: numbers as numbers, words as words."""
    point = sorted(result.trial.point.items())
    return [(name, isinstance(v, str), 0.0, v) if isinstance(v, str) else (name, False, float(v), "") for name, v in point]


def _plain(name: str, value: int | float | str) -> int | float | str:
    return value.removesuffix(AGAIN) if name == VARIANT and isinstance(value, str) else value


def _listed(points: Points) -> str:
    words = [words for words, _ in points.values()]
    return ", ".join(words[:6]) + (f" and {len(words) - 6} more" if len(words) > 6 else "") or "none that finished"


def _values(results: Sequence[TrialResult], metric: Metric) -> list[float]:
    """The metric of each trial that has it."""
    values = [result.probe.get(metric.name) if metric.name not in METRICS else metric.take(result) for result in results]
    return [value for value in values if value is not None]


def _compare(old: Run, new: Run, here: tuple[str, list[TrialResult]], there: tuple[str, list[TrialResult]], metric: Metric) -> MetricPair:
    point = here[0]
    sides: list[tuple[float, ...]] = []
    tainted = []
    for run, (_, results) in ((old, here), (new, there)):
        clean_ones = [result for result in results if not result.tainted]
        values = _values(clean_ones, metric)
        if not values:
            values = _values(results, metric)
            tainted += [run.name] if values else []
        if not values:
            return MetricPair(point, None, why=f"{run.name}: {metric.absent or 'no trial has it'}")
        if min(values) <= 0 or sum(values) / len(values) < metric.least:
            return MetricPair(point, None, why=f"{run.name}: below {metric.least:g} {metric.unit}, nothing to compare".replace("  ", " "))
        sides.append(tuple(values))
    said = f"only tainted trials in {' and '.join(tainted)}" if tainted else ""
    return MetricPair(point, Pair(sides[0], sides[1], exact=metric.name not in METRICS), said)


def _readings(run: Run) -> set[str]:
    return {name for result in run.results for name in result.probe}


def _known(run: Run) -> list[str]:
    return [
        name for name, metric in METRICS.items() if any(_values([result], metric) for result in time_slices.apart(run.results))
    ] + sorted(_readings(run))


def _own(findings: Mapping[str, Finding]) -> str:
    return ", ".join(clean(name) for name in findings) or "none"
